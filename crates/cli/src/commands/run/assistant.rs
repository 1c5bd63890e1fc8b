//! A model with its tokenizer and chat template: a conversation in, a streamed answer out.

use std::io::{self, IsTerminal, Write};
use std::sync::atomic::Ordering;

use indicatif::{ProgressBar, ProgressStyle};
use ropeway_engine::request::room;
use ropeway_engine::{Class, Event, EventStream, FinishReason, Handle, Rejected, Request, SequenceError};
use ropeway_executor::SamplingParams;
use ropeway_text::{ChatRequest, ChatTemplate, Detokenizer, Special, TextError, Tokenizer};
use serde_json::Value;

use super::conversation::{Conversation, Fitted, Room};
use super::report::{Report, Stopwatch};
use crate::engine_args::Started;
use crate::failure::Failure;
use crate::interrupt;
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
    handle: Handle,
    tokenizer: Tokenizer,
    template: ChatTemplate,
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
        Ok(Assistant { name, handle, tokenizer, template, settings, told_forgetting: false })
    }

    /// The model's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Tokens that a prompt and its answer may have together.
    pub fn room(&self) -> usize {
        room(self.handle.limits())
    }

    /// Continues a text as it is.
    pub fn proceed(&mut self, text: &str, output: &mut Output) -> Result<(), Failure> {
        let prompt = self.tokenizer.encode(text, Special::PROMPT)?;
        let detokenizer = self.tokenizer.detokenizer().continuing();
        let said = self.stream(prompt, detokenizer, output)?;
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
        let said = self.stream(prompt, self.tokenizer.detokenizer(), output)?;
        self.tell_end(&said);
        match said {
            Said { end: End::Cancelled, text, .. } if text.is_empty() => conversation.withdraw(),
            Said { text, .. } => conversation.answer(text),
        }
        Ok(())
    }

    fn encode(&self, messages: &[Value]) -> Result<Vec<u32>, TextError> {
        self.template.encode(&ChatRequest::new(messages), &self.tokenizer)
    }

    /// Writes the answer as it comes, and ends it with a line break.
    fn stream(
        &mut self,
        prompt: Vec<u32>,
        detokenizer: Detokenizer,
        output: &mut Output,
    ) -> Result<Said, Failure> {
        let mut answer = Answer {
            text: String::new(),
            detokenizer,
            bar: PrefillBar::new(prompt.len()),
            watch: Stopwatch::start(prompt.len()),
        };
        let request = Request {
            prompt,
            params: self.settings.params.clone(),
            max_tokens: self.settings.max_tokens,
            ends: self.tokenizer.eos_tokens().to_vec(),
            class: Class::Interactive,
            ..Request::default()
        };
        let mut events = self.handle.submit(request).map_err(refused)?;
        let end = answer.follow(&mut events, self.settings.max_tokens, output)?;
        let Answer { mut text, mut detokenizer, bar, watch } = answer;
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

/// An answer in the making.
struct Answer {
    text: String,
    detokenizer: Detokenizer,
    bar: PrefillBar,
    watch: Stopwatch,
}

impl Answer {
    /// Takes events until the answer is over or someone had enough of it.
    fn follow(
        &mut self,
        events: &mut EventStream,
        max_tokens: Option<usize>,
        output: &mut Output,
    ) -> Result<End, Failure> {
        while !interrupt::flag().load(Ordering::Relaxed) {
            match events.wait() {
                Some(Event::Prefilled { computed, cached }) => {
                    self.watch.reused(cached);
                    self.bar.show(computed, cached);
                }
                Some(Event::Scored(_)) => {}
                Some(Event::Token { sampled, .. }) => {
                    self.watch.token(true);
                    write(output, self.detokenizer.push(sampled.token), &mut self.text)?;
                }
                Some(Event::Finished { reason, usage, .. }) => {
                    self.watch.reused(usage.cached);
                    return self.end(reason, max_tokens == Some(usage.generated));
                }
                None => break,
            }
        }
        Ok(End::Cancelled)
    }

    fn end(&mut self, reason: FinishReason, as_asked: bool) -> Result<End, Failure> {
        match reason {
            FinishReason::End(_) => {
                self.watch.token(false);
                Ok(End::Model)
            }
            FinishReason::Complete => Ok(End::Model),
            FinishReason::Length if as_asked => Ok(End::MaxTokens),
            FinishReason::Length => Ok(End::Context),
            FinishReason::Cancelled | FinishReason::TimedOut => Ok(End::Cancelled),
            FinishReason::Failed(error) => Err(failed(error)),
        }
    }
}

fn write(output: &mut Output, piece: &str, text: &mut String) -> io::Result<()> {
    text.push_str(piece);
    output.write_all(piece.as_bytes())?;
    output.flush()
}

/// In the words of a conversation.
fn refused(reason: Rejected) -> Failure {
    match reason {
        Rejected::EmptyPrompt => {
            Failure::new("the prompt is empty; give it some text", "write something to answer")
        }
        Rejected::TooLong { tokens, room } => Failure::new(
            format!("the prompt has {tokens} tokens, but only {room} with the answer fit into the context"),
            "shorten the prompt, or give --context a larger number of tokens (with --rope-scaling beyond what the \
             model was trained for)",
        ),
        other => other.into(),
    }
}

fn failed(error: SequenceError) -> Failure {
    let hint = match error {
        SequenceError::Row(_) => "check the model with `ropeway show`, or try `--precision f32`",
        SequenceError::Step(_) | SequenceError::EngineGone => {
            "try again; `--isa portable` avoids this CPU's special instructions"
        }
    };
    Failure::new(error, hint)
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
