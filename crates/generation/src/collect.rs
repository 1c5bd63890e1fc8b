//! Whole choices, put together from a request's events.

use futures_core::Stream;
use futures_util::StreamExt;
use ropeway_executor::Sampled;
use ropeway_text::Delta;

use crate::error::{ErrorKind, RequestError};
use crate::stream::{Finish, GenerationEvent, StopReason};

/// A tool call.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ToolCall {
    /// Which tool.
    pub name: String,
    /// Its arguments: JSON text.
    pub arguments: String,
}

/// A whole choice.
#[derive(Clone, Debug, PartialEq)]
pub struct Choice {
    /// Its text, without reasoning and tool calls.
    pub text: String,
    /// Its reasoning.
    pub reasoning: String,
    /// The tools it calls.
    pub tool_calls: Vec<ToolCall>,
    /// Its tokens.
    pub tokens: Vec<Sampled>,
    /// How it ended.
    pub finish: Finish,
}

/// Everything that was generated for a request.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Generated {
    /// The choices, in order.
    pub choices: Vec<Choice>,
    /// Log-probabilities of the prompt's tokens from the second on, if they were asked for.
    pub prompt_logprobs: Vec<Sampled>,
}

impl Generated {
    /// The choice of a request for one.
    pub fn only(mut self) -> Result<Choice, RequestError> {
        let choice = self.choices.pop();
        choice.ok_or_else(|| RequestError::new(ErrorKind::Internal, "the engine gave no answer"))
    }
}

/// Puts choices together.
#[derive(Debug, Default)]
pub struct Collector {
    unfinished: Vec<Unfinished>,
    prompt_logprobs: Vec<Sampled>,
}

/// A choice without its end.
#[derive(Debug, Default)]
struct Unfinished {
    text: String,
    reasoning: String,
    tool_calls: Vec<ToolCall>,
    tokens: Vec<Sampled>,
    finish: Option<Finish>,
}

impl Collector {
    /// Takes the next event. A failed choice fails the request.
    pub fn push(&mut self, event: GenerationEvent) -> Result<(), RequestError> {
        match event {
            GenerationEvent::Placed { .. } | GenerationEvent::PromptProgress { .. } => {}
            GenerationEvent::PromptLogprob(sampled) => self.prompt_logprobs.push(sampled),
            GenerationEvent::Output { choice, deltas, tokens } => {
                let choice = self.choice(choice);
                for delta in deltas {
                    choice.add(delta);
                }
                choice.tokens.extend(tokens);
            }
            GenerationEvent::Finished {
                finish: Finish { reason: StopReason::Failed(error), .. }, ..
            } => {
                return Err(error);
            }
            GenerationEvent::Finished { choice, finish } => self.choice(choice).finish = Some(finish),
        }
        Ok(())
    }

    /// The choices that finished, and what was scored of the prompt.
    pub fn finish(self) -> Generated {
        let choices = self.unfinished.into_iter().filter_map(Unfinished::whole).collect();
        Generated { choices, prompt_logprobs: self.prompt_logprobs }
    }

    fn choice(&mut self, index: usize) -> &mut Unfinished {
        if self.unfinished.len() <= index {
            self.unfinished.resize_with(index + 1, Unfinished::default);
        }
        &mut self.unfinished[index]
    }
}

impl Unfinished {
    fn add(&mut self, delta: Delta) {
        match delta {
            Delta::Text(text) => self.text.push_str(&text),
            Delta::Reasoning(text) => self.reasoning.push_str(&text),
            Delta::ToolCall { name, .. } => self.tool_calls.push(ToolCall { name, arguments: String::new() }),
            Delta::Arguments { index, json } => {
                if let Some(call) = self.tool_calls.get_mut(index) {
                    call.arguments.push_str(&json);
                }
            }
        }
    }

    fn whole(self) -> Option<Choice> {
        let Self { text, reasoning, tool_calls, tokens, finish } = self;
        Some(Choice { text, reasoning, tool_calls, tokens, finish: finish? })
    }
}

/// Waits for all choices of a stream.
pub async fn collect(
    mut events: impl Stream<Item = GenerationEvent> + Unpin,
) -> Result<Generated, RequestError> {
    let mut collector = Collector::default();
    while let Some(event) = events.next().await {
        collector.push(event)?;
    }
    Ok(collector.finish())
}
