//! The interactive loop: read a wish, fulfil it, until the person has had enough.

use super::assistant::Assistant;
use super::history::History;
use super::input::{Terminal, Wish, next_wish};
use crate::failure::Failure;
use crate::interrupt;
use crate::output::{Output, tell};

const HELP: &str = "\
/system TEXT   tell the model how to behave; without TEXT, stop telling it
/clear         begin a new conversation
/help          this list
/quit, /bye    the end, as Ctrl-D
\"\"\"            begins and ends a text of several lines
Ctrl-C         stops the answer; twice at the prompt: the end";

/// Talks until the person quits.
pub fn talk(assistant: &mut Assistant, history: &mut History, output: &mut Output) -> Result<(), Failure> {
    let mut terminal = Terminal::new()?;
    interrupt::listen()?;
    tell(&format!("{}, {} tokens of context; /help lists the commands", assistant.name(), assistant.room()));
    let mut warned = false;
    loop {
        let wish = next_wish(&mut terminal)?;
        let interrupted = wish == Wish::Interrupt;
        match wish {
            Wish::Quit => return Ok(()),
            Wish::Interrupt if warned => return Ok(()),
            Wish::Interrupt => tell("Ctrl-C again or Ctrl-D quits"),
            wish => fulfil(wish, assistant, history, output)?,
        }
        warned = interrupted;
    }
}

fn fulfil(
    wish: Wish,
    assistant: &mut Assistant,
    history: &mut History,
    output: &mut Output,
) -> Result<(), Failure> {
    match wish {
        Wish::Say(text) => return answer(text, assistant, history, output),
        Wish::Help => tell(HELP),
        Wish::Clear => {
            history.clear();
            tell("a new conversation");
        }
        Wish::System(text) => {
            tell(if text.is_some() { "the system message is set" } else { "no system message any more" });
            history.set_system(text);
        }
        Wish::Unknown(line) => {
            tell(&format!(
                "`{line}` is no command; /help lists them. A space before it sends it as a message"
            ));
        }
        Wish::Nothing | Wish::Interrupt | Wish::Quit => {}
    }
    Ok(())
}

/// A failed answer ends the turn, not the conversation.
fn answer(
    text: String,
    assistant: &mut Assistant,
    history: &mut History,
    output: &mut Output,
) -> Result<(), Failure> {
    interrupt::reset();
    match assistant.reply(history, text, output) {
        Err(told @ Failure::Told { .. }) => {
            history.withdraw();
            told.report();
            Ok(())
        }
        done => done,
    }
}
