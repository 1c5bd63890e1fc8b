//! What a person types: lines with editing and history, texts over several lines, and commands.

use rustyline::config::Behavior;
use rustyline::error::ReadlineError;
use rustyline::{Config, DefaultEditor};

use crate::failure::Failure;

/// Begins and ends a text of several lines.
const FENCE: &str = "\"\"\"";

const PROMPT: &str = ">>> ";
const CONTINUED: &str = "... ";

/// One thing typed.
#[derive(Debug, PartialEq, Eq)]
pub enum Typed {
    /// A line, without its end.
    Line(String),
    /// Ctrl-C.
    Interrupt,
    /// Ctrl-D, or the terminal is gone.
    End,
}

/// Where lines come from.
pub trait Lines {
    /// The next line, asked for with `prompt`.
    fn next(&mut self, prompt: &str) -> Result<Typed, Failure>;
}

/// A terminal with line editing; earlier lines come back with the arrow keys, and are gone at the end.
pub struct Terminal(DefaultEditor);

impl Terminal {
    /// The terminal of this program, even when standard output leads elsewhere.
    pub fn new() -> Result<Terminal, Failure> {
        let config = Config::builder().behavior(Behavior::PreferTerm).auto_add_history(true).build();
        DefaultEditor::with_config(config).map(Terminal).map_err(unusable)
    }
}

impl Lines for Terminal {
    fn next(&mut self, prompt: &str) -> Result<Typed, Failure> {
        match self.0.readline(prompt) {
            Ok(line) => Ok(Typed::Line(line)),
            Err(ReadlineError::Interrupted) => Ok(Typed::Interrupt),
            Err(ReadlineError::Eof) => Ok(Typed::End),
            Err(error) => Err(unusable(error)),
        }
    }
}

fn unusable(error: ReadlineError) -> Failure {
    Failure::new(error, "give the prompt as an argument, or pipe it in")
}

/// What a person wants.
#[derive(Debug, PartialEq, Eq)]
pub enum Wish {
    /// An answer to this.
    Say(String),
    /// Nothing: an empty line.
    Nothing,
    /// The list of commands.
    Help,
    /// A new conversation.
    Clear,
    /// Another system message, or none.
    System(Option<String>),
    /// A command that does not exist.
    Unknown(String),
    /// Ctrl-C.
    Interrupt,
    /// The end.
    Quit,
}

/// Reads the next wish, over several lines if it begins with a fence.
pub fn next_wish(lines: &mut impl Lines) -> Result<Wish, Failure> {
    match lines.next(PROMPT)? {
        Typed::Interrupt => Ok(Wish::Interrupt),
        Typed::End => Ok(Wish::Quit),
        Typed::Line(line) => match line.trim_start().strip_prefix(FENCE) {
            Some(opened) => fenced(opened, lines),
            None => Ok(wish(&line)),
        },
    }
}

/// The text up to the closing fence. Ctrl-C gives it up; the end of the input ends the text as well.
fn fenced(opened: &str, lines: &mut impl Lines) -> Result<Wish, Failure> {
    let (mut text, mut line) = (String::new(), opened.to_owned());
    loop {
        if let Some(last) = line.trim_end().strip_suffix(FENCE) {
            text.push_str(last);
            break;
        }
        text.push_str(&line);
        text.push('\n');
        line = match lines.next(CONTINUED)? {
            Typed::Line(line) => line,
            Typed::Interrupt => return Ok(Wish::Nothing),
            Typed::End => break,
        };
    }
    let text = text.trim();
    Ok(if text.is_empty() { Wish::Nothing } else { Wish::Say(text.to_owned()) })
}

/// A single line: a command if its first character is a slash.
fn wish(line: &str) -> Wish {
    let Some(command) = line.strip_prefix('/') else {
        let text = line.trim();
        return if text.is_empty() { Wish::Nothing } else { Wish::Say(text.to_owned()) };
    };
    let (name, rest) = command.split_once(char::is_whitespace).unwrap_or((command, ""));
    let rest = Some(rest.trim()).filter(|rest| !rest.is_empty());
    match (name, rest) {
        ("help" | "?", None) => Wish::Help,
        ("clear", None) => Wish::Clear,
        ("system", text) => Wish::System(text.map(str::to_owned)),
        ("quit" | "bye" | "exit", None) => Wish::Quit,
        _ => Wish::Unknown(line.trim_end().to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Script(Vec<Typed>);

    impl Lines for Script {
        fn next(&mut self, _prompt: &str) -> Result<Typed, Failure> {
            Ok(if self.0.is_empty() { Typed::End } else { self.0.remove(0) })
        }
    }

    fn typed(lines: &[&str]) -> Wish {
        let mut script = Script(lines.iter().map(|&line| Typed::Line(line.into())).collect());
        next_wish(&mut script).expect("a wish")
    }

    fn say(text: &str) -> Wish {
        Wish::Say(text.into())
    }

    #[test]
    fn a_line_is_said_without_the_space_around_it() {
        assert_eq!(typed(&["  Hello there "]), say("Hello there"));
        assert_eq!(typed(&["   "]), Wish::Nothing);
    }

    #[test]
    fn a_slash_begins_a_command() {
        assert_eq!(typed(&["/help"]), Wish::Help);
        assert_eq!(typed(&["/clear "]), Wish::Clear);
        assert_eq!(typed(&["/system  Be brief. "]), Wish::System(Some("Be brief.".into())));
        assert_eq!(typed(&["/system"]), Wish::System(None));
        assert_eq!((typed(&["/quit"]), typed(&["/bye"])), (Wish::Quit, Wish::Quit));
    }

    #[test]
    fn what_only_looks_like_a_command_is_not_done() {
        assert_eq!(typed(&["/etc/passwd is what?"]), Wish::Unknown("/etc/passwd is what?".into()));
        assert_eq!(typed(&["/clear the table"]), Wish::Unknown("/clear the table".into()));
        assert_eq!(typed(&[" /help"]), say("/help"));
    }

    #[test]
    fn three_quotes_hold_several_lines_together() {
        let lines = ["\"\"\"First", "  /help", "", "last\"\"\""];
        assert_eq!(typed(&lines), say("First\n  /help\n\nlast"));
        assert_eq!(typed(&["\"\"\"One line\"\"\""]), say("One line"));
        assert_eq!(typed(&["\"\"\"", "\"\"\""]), Wish::Nothing);
    }

    #[test]
    fn an_open_text_is_given_up_by_ctrl_c_and_closed_by_the_end() {
        let mut script = Script(vec![Typed::Line("\"\"\"a".into()), Typed::Interrupt]);
        assert_eq!(next_wish(&mut script).expect("a wish"), Wish::Nothing);
        assert_eq!(typed(&["\"\"\"a", "b"]), say("a\nb"));
    }

    #[test]
    fn ctrl_c_and_ctrl_d_are_told_apart() {
        assert_eq!(next_wish(&mut Script(vec![Typed::Interrupt])).expect("a wish"), Wish::Interrupt);
        assert_eq!(typed(&[]), Wish::Quit);
    }
}
