//! A model with its tokenizer and chat template: a conversation in, a streamed answer out.

use std::io::{self, IsTerminal, Write};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use indicatif::{ProgressBar, ProgressStyle};
use ropeway_engine::Class;
use ropeway_generation::{
    Conversation, ErrorKind, Finish, GenerationEvent, GenerationStream, Generator, Job, Prepared, Prompt,
    RequestError, Sampling, StopReason, text_of,
};
use ropeway_text::Tokenizer;

use super::history::{Fitted, History, Room};
use super::report::Report;
use crate::engine_args::Started;
use crate::failure::Failure;
use crate::grammar_workers::grammar_workers;
use crate::interrupt;
use crate::output::{Output, tell};

/// A prompt with fewer tokens to compute is answered before a bar would be read.
const WORTH_A_BAR: usize = 2000;

/// What holds for all answers.
#[derive(Clone, Debug)]
pub struct Settings {
    /// How tokens are chosen.
    pub sampling: Sampling,
    /// Most tokens of an answer.
    pub max_tokens: Option<usize>,
    /// Whether speed and memory are told.
    pub verbose: bool,
}

/// Someone to talk to.
pub struct Assistant {
    name: String,
    generator: Generator,
    settings: Settings,
    /// Whether it was told that old turns are forgotten; once is enough.
    told_forgetting: bool,
}

/// Why an answer is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    /// The model ended it.
    Model,
    /// It has as many tokens as were asked for.
    MaxTokens,
    /// The context is full.
    Context,
    /// Someone cancelled it.
    Cancelled,
}

/// What was said, and how that went.
struct Said {
    text: String,
    end: End,
    report: Report,
}

impl Assistant {
    /// The loaded model, ready to answer.
    pub fn new(started: Started, settings: Settings) -> Result<Assistant, Failure> {
        let tokenizer = Tokenizer::from_checkpoint(&started.checkpoint)?;
        let template = started.chat_template()?;
        let Started { name, handle, .. } = started;
        let generator = Generator::new(tokenizer, template, Arc::new(handle));
        let generator = generator.with_grammar_workers(grammar_workers());
        Ok(Assistant { name, generator, settings, told_forgetting: false })
    }

    /// The model's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Tokens that a prompt and its answer may have together.
    pub fn room(&self) -> usize {
        self.generator.context()
    }

    /// Continues a text as it is.
    pub fn proceed(&mut self, text: &str, output: &mut Output) -> Result<(), Failure> {
        let prepared = self.prepare(Prompt::Text(text.into())).map_err(|error| self.refused(error, None))?;
        let said = self.stream(prepared, output)?;
        self.tell_end(&said);
        Ok(())
    }

    /// Answers a question and keeps both in the conversation, unless the answer was cancelled before its first word.
    pub fn reply(
        &mut self,
        history: &mut History,
        question: String,
        output: &mut Output,
    ) -> Result<(), Failure> {
        history.ask(question);
        let room = Room::of_context(self.room());
        let prepare = |messages| {
            self.prepare(Prompt::Conversation(Conversation { messages, ..Conversation::default() }))
        };
        let Fitted { prompt, forgotten } = history.fit(room, prepare, tokens);
        self.tell_forgotten(forgotten);
        let prepared = prompt.map_err(|error| self.refused(error, None))?;
        let said = self.stream(prepared, output)?;
        self.tell_end(&said);
        match said {
            Said { end: End::Cancelled, text, .. } if text.is_empty() => history.withdraw(),
            Said { text, .. } => history.answer(text),
        }
        Ok(())
    }

    fn prepare(&self, prompt: Prompt) -> Result<Prepared, RequestError> {
        let max_tokens = self.settings.max_tokens;
        let job = Job { max_tokens, ..Job::with_sampling(prompt, self.settings.sampling.clone()) };
        let mut prepared = self.generator.prepare(job)?;
        prepared.request.class = Class::Interactive;
        Ok(prepared)
    }

    /// Writes the answer as it comes, and ends it with a line break.
    fn stream(&mut self, prepared: Prepared, output: &mut Output) -> Result<Said, Failure> {
        let prompt = prepared.request.prompt.len();
        let submitted = self.generator.submit(prepared);
        let mut stream = submitted.map_err(|error| self.refused(error, Some(prompt)))?;
        let mut answer = Answer { text: String::new(), tokens: 0, bar: PrefillBar::new(prompt) };
        let (finish, cancelled) = answer.follow(&mut stream, output)?;
        let Answer { text, tokens, bar } = answer;
        drop(bar);
        writeln!(output)?;
        output.flush()?;
        let end = match finish.reason {
            _ if cancelled => End::Cancelled,
            StopReason::EndOfText | StopReason::StopString(_) => End::Model,
            StopReason::Length if self.settings.max_tokens == Some(finish.usage.generated) => End::MaxTokens,
            StopReason::Length => End::Context,
            StopReason::Failed(error) => return Err(failed(error)),
        };
        Ok(Said { text, end, report: Report::new(&finish.usage, tokens) })
    }

    /// In the words of a conversation; `tokens` are the prompt's, if it has few enough to be counted.
    fn refused(&self, error: RequestError, tokens: Option<usize>) -> Failure {
        if error.kind == ErrorKind::ContextLengthExceeded {
            let tokens = tokens.map_or_else(|| "too many".into(), |tokens| tokens.to_string());
            let room = self.room();
            let told = format!(
                "the prompt has {tokens} tokens, but only {room} with the answer fit into the context"
            );
            return Failure::new(told, SHORTEN);
        }
        Failure::new(error, "change the prompt or the options")
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

/// An answer in the making.
struct Answer {
    text: String,
    tokens: usize,
    bar: PrefillBar,
}

impl Answer {
    /// Takes events until the answer is over; whether someone had enough of it before that.
    fn follow(
        &mut self,
        stream: &mut GenerationStream,
        output: &mut Output,
    ) -> Result<(Finish, bool), Failure> {
        let mut cancelled = false;
        while let Some(event) = stream.wait() {
            match event {
                GenerationEvent::PromptProgress { computed, cached } => self.bar.show(computed, cached),
                GenerationEvent::Placed { .. } | GenerationEvent::PromptLogprob(_) => {}
                GenerationEvent::Output { deltas, tokens, .. } => {
                    self.tokens += tokens.len();
                    let piece = text_of(deltas);
                    output.write_all(piece.as_bytes())?;
                    output.flush()?;
                    self.text.push_str(&piece);
                }
                GenerationEvent::Finished { finish, .. } => return Ok((finish, cancelled)),
            }
            if interrupt::flag().load(Ordering::Relaxed) && !cancelled {
                cancelled = true;
                stream.cancel();
            }
        }
        Err(Failure::new("the engine ended without an answer", AGAIN))
    }
}

/// Tokens of a prompt; more than any model takes if it has too many to be counted.
fn tokens(prompt: &Result<Prepared, RequestError>) -> usize {
    match prompt {
        Ok(prepared) => prepared.request.prompt.len(),
        Err(error) if error.kind == ErrorKind::ContextLengthExceeded => usize::MAX,
        Err(_) => 0,
    }
}

/// What to do about an answer that the machine failed to give.
const AGAIN: &str = "try again; `--precision f32` or `--isa portable` avoid this CPU's special instructions, and \
                     `ropeway show` checks the model";

/// What to do about a prompt that does not fit.
const SHORTEN: &str = "shorten the prompt, or give --context a larger number of tokens (with --rope-scaling beyond what the \
                       model was trained for)";

fn failed(error: RequestError) -> Failure {
    Failure::new(error, AGAIN)
}

/// How much of a long prompt is computed, on a terminal; nothing elsewhere.
struct PrefillBar {
    bar: Option<ProgressBar>,
    prompt: usize,
}

impl PrefillBar {
    fn new(prompt: usize) -> PrefillBar {
        PrefillBar { bar: None, prompt }
    }

    /// Of the prompt, `computed` tokens are there, and `cached` of them were before.
    fn show(&mut self, computed: usize, cached: usize) {
        let (total, pending) = (self.prompt - cached, self.prompt - computed);
        let wanted = total > WORTH_A_BAR && pending > 0 && io::stderr().is_terminal();
        if wanted && self.bar.is_none() {
            let style = ProgressStyle::with_template("reading     [{bar:30}] {pos}/{len} tokens {eta}");
            let style = style.unwrap_or_else(|_| ProgressStyle::default_bar());
            self.bar = Some(ProgressBar::new(total as u64).with_style(style));
        }
        let Some(bar) = &self.bar else { return };
        bar.set_position((total - pending) as u64);
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
