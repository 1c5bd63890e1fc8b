//! A model with its tokenizer and chat template: a conversation in, a streamed answer out.

use std::io::{self, IsTerminal, Write};

use indicatif::{ProgressBar, ProgressStyle};
use ropeway_cpu::CpuExecutor;
use ropeway_executor::SamplingParams;
use ropeway_text::{ChatRequest, ChatTemplate, Detokenizer, Special, TextError, Tokenizer};
use serde_json::Value;

use super::conversation::{Conversation, Fitted, Room};
use super::interrupt;
use super::report::{Report, Stopwatch};
use crate::failure::Failure;
use crate::generate::{Answer, End, Event, GenerateError, Generator, Request};
use crate::model_args::Loaded;
use crate::output::{Output, tell};

/// A prompt with fewer tokens to compute is answered before a bar would be read.
const WORTH_A_BAR: usize = 2000;

/// What holds for all answers.
#[derive(Clone, Debug)]
pub struct Settings {
    /// How tokens are chosen.
    pub params: SamplingParams,
    /// Most tokens of an answer.
    pub max_tokens: Option<usize>,
    /// Whether speed and memory are told.
    pub verbose: bool,
}

/// Someone to talk to.
pub struct Assistant {
    name: String,
    generator: Generator<CpuExecutor>,
    tokenizer: Tokenizer,
    template: ChatTemplate,
    settings: Settings,
    /// Whether it was told that old turns are forgotten; once is enough.
    told_forgetting: bool,
}

/// What was said, and how that went.
struct Said {
    text: String,
    end: End,
    report: Report,
}

impl Assistant {
    /// The loaded model, ready to answer. Without a template of its own it is spoken to in ChatML.
    pub fn new(loaded: Loaded, settings: Settings) -> Result<Assistant, Failure> {
        let tokenizer = Tokenizer::from_checkpoint(&loaded.checkpoint)?;
        let template = match ChatTemplate::from_checkpoint(&loaded.checkpoint)? {
            Some(template) => template,
            None => ChatTemplate::chatml()?,
        };
        let generator = Generator::new(loaded.executor);
        Ok(Assistant { name: loaded.name, generator, tokenizer, template, settings, told_forgetting: false })
    }

    /// The model's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Tokens that a prompt and its answer may have together.
    pub fn room(&self) -> usize {
        self.generator.room()
    }

    /// Continues a text as it is.
    pub fn proceed(&mut self, text: &str, output: &mut Output) -> Result<(), Failure> {
        let prompt = self.tokenizer.encode(text, Special::PROMPT)?;
        let detokenizer = self.tokenizer.detokenizer().continuing();
        let said = self.stream(&prompt, detokenizer, output)?;
        self.tell_end(&said);
        Ok(())
    }

    /// Answers a question and keeps both in the conversation, unless the answer was cancelled before its first word.
    pub fn reply(
        &mut self,
        conversation: &mut Conversation,
        question: String,
        output: &mut Output,
    ) -> Result<(), Failure> {
        conversation.ask(question);
        let room = Room::of_context(self.room());
        let Fitted { prompt, forgotten } = conversation.fit(room, |messages| self.encode(messages))?;
        self.tell_forgotten(forgotten);
        let said = self.stream(&prompt, self.tokenizer.detokenizer(), output)?;
        self.tell_end(&said);
        match said {
            Said { end: End::Cancelled, text, .. } if text.is_empty() => conversation.withdraw(),
            Said { text, .. } => conversation.answer(text),
        }
        Ok(())
    }

    fn encode(&self, messages: &[Value]) -> Result<Vec<u32>, TextError> {
        let prompt = self.template.render(&ChatRequest::new(messages))?;
        self.tokenizer.encode(&prompt, Special::TEMPLATE)
    }

    /// Writes the answer as it comes, and ends it with a line break.
    fn stream(
        &mut self,
        prompt: &[u32],
        mut detokenizer: Detokenizer,
        output: &mut Output,
    ) -> Result<Said, Failure> {
        let request = Request {
            params: &self.settings.params,
            ends: self.tokenizer.eos_tokens(),
            max_tokens: self.settings.max_tokens,
            cancel: interrupt::flag(),
        };
        let mut answer = self.generator.answer(prompt, request).map_err(unanswered)?;
        let mut watch = Stopwatch::start(prompt.len(), answer.reused());
        let bar = PrefillBar::new(answer.pending());
        let mut text = String::new();
        let end = loop {
            match next(&mut answer, &bar, &mut watch)? {
                Event::Computed => {}
                Event::Token(token) => write(output, detokenizer.push(token), &mut text)?,
                Event::End(end) => break end,
            }
        };
        let report = watch.stop();
        drop(bar);
        write(output, &detokenizer.finish(), &mut text)?;
        writeln!(output)?;
        output.flush()?;
        Ok(Said { text, end, report })
    }

    fn tell_forgotten(&mut self, turns: usize) {
        if turns > 0 && !self.told_forgetting {
            self.told_forgetting = true;
            tell("the conversation outgrew the context: its oldest turns are forgotten from now on");
        }
    }

    fn tell_end(&self, said: &Said) {
        match said.end {
            End::Model => {}
            End::MaxTokens => tell(&format!("stopped after {} tokens (--max-tokens)", said.report.generated)),
            End::Context => tell(&format!(
                "stopped: the context of {} tokens is full (--context sets its size)",
                self.room()
            )),
            End::Cancelled => tell("stopped"),
        }
        if self.settings.verbose {
            tell(&said.report.to_string());
        }
    }
}

/// One step, measured and shown.
fn next(
    answer: &mut Answer<'_, CpuExecutor>,
    bar: &PrefillBar,
    watch: &mut Stopwatch,
) -> Result<Event, Failure> {
    let event = answer.advance().map_err(unanswered)?;
    bar.show(answer.pending());
    match event {
        Event::Token(_) => watch.token(true),
        Event::End(End::Model) => watch.token(false),
        Event::Computed | Event::End(_) => {}
    }
    Ok(event)
}

fn write(output: &mut Output, piece: &str, text: &mut String) -> io::Result<()> {
    text.push_str(piece);
    output.write_all(piece.as_bytes())?;
    output.flush()
}

fn unanswered(error: GenerateError) -> Failure {
    let hint = match error {
        GenerateError::Empty => "write something to answer",
        GenerateError::TooLong { .. } => {
            "shorten the prompt, or give --context a larger number of tokens (with --rope-scaling beyond what the \
             model was trained for)"
        }
        GenerateError::Step(_) => "try again; `--isa portable` avoids this CPU's special instructions",
        GenerateError::Row(_) => "check the model with `ropeway show`, or try `--precision f32`",
    };
    Failure::new(error, hint)
}

/// How much of a long prompt is computed, on a terminal; nothing elsewhere.
struct PrefillBar {
    bar: Option<ProgressBar>,
    total: usize,
}

impl PrefillBar {
    fn new(total: usize) -> PrefillBar {
        let wanted = total > WORTH_A_BAR && io::stderr().is_terminal();
        let bar = wanted.then(|| {
            let style = ProgressStyle::with_template("reading     [{bar:30}] {pos}/{len} tokens {eta}");
            ProgressBar::new(total as u64).with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()))
        });
        PrefillBar { bar, total }
    }

    fn show(&self, pending: usize) {
        let Some(bar) = &self.bar else { return };
        bar.set_position((self.total - pending) as u64);
        if pending == 0 && !bar.is_finished() {
            bar.finish_and_clear();
        }
    }
}

impl Drop for PrefillBar {
    fn drop(&mut self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}
