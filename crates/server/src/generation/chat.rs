//! Conversations: messages and tools in, text, reasoning and tool calls out.
//!
//! Families translate their own messages into the form that chat templates know (that of OpenAI's API), and render
//! the pieces that come back; what lies between is here.

use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use futures_util::{Stream, StreamExt};
use ropeway_engine::Usage;
use ropeway_text::{
    ChatRequest, Delta, OutputOptions, OutputParser, SpecialTokens, TextError, tools_as_text,
};
use serde_json::{Map, Value};

use super::prompt::{text_bytes, too_long};
use super::structure::Structure;
use super::{Answer, Job, Piece, Stopped, TokenReport};
use crate::error::ApiError;
use crate::generation::Caller;
use crate::model::Model;
use crate::offload::offload;

/// Tokens at the end of a prompt in which a template may have opened the model's reasoning.
const OPENING: usize = 16;

/// Which tools the model may, or must, call.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum ToolChoice {
    /// None, even if there are some.
    None,
    /// As it likes.
    #[default]
    Auto,
    /// Some.
    Required,
    /// This one.
    Named(String),
}

/// A conversation to be answered.
#[derive(Clone, Debug, Default)]
pub struct Conversation {
    /// Messages as templates know them.
    pub messages: Vec<Value>,
    /// Tools as templates know them: `{"type": "function", "function": {...}}`.
    pub tools: Vec<Value>,
    /// Which of them may be called.
    pub choice: ToolChoice,
    /// Further variables for the template.
    pub variables: Map<String, Value>,
    /// Whether reasoning is told apart from the answer.
    pub reasoning: bool,
    /// What the answer has to look like.
    pub structure: Option<Structure>,
}

impl Conversation {
    /// The model's tokens for it.
    pub async fn prompt(&self, model: &Arc<Model>) -> Result<Vec<u32>, ApiError> {
        self.check()?;
        let bytes = self.messages.iter().chain(&self.tools).map(text_bytes).sum();
        let (conversation, model) = (self.clone(), Arc::clone(model));
        offload(bytes, move || conversation.tokens(&model)).await
    }

    /// Turns down what can't be rendered.
    fn check(&self) -> Result<(), ApiError> {
        if self.messages.is_empty() {
            return Err(ApiError::invalid("there are no messages; send at least one").about("messages"));
        }
        let bad = |what: String| Err(ApiError::invalid(what).about("tool_choice"));
        match &self.choice {
            ToolChoice::Required if self.tools.is_empty() => {
                bad("there is no tool to call; send tools".into())
            }
            ToolChoice::Named(name) if self.callable().is_empty() => {
                bad(format!("there is no tool {name:?}"))
            }
            _ => Ok(()),
        }
    }

    fn tokens(&self, model: &Model) -> Result<Vec<u32>, ApiError> {
        let tools = if self.choice == ToolChoice::None { &[][..] } else { &self.tools };
        let fallback = (!tools.is_empty() && !model.template.writes_tools())
            .then(|| tools_as_text(&self.messages, tools));
        let request = ChatRequest {
            tools: Some(tools).filter(|tools| !tools.is_empty() && fallback.is_none()),
            variables: self.variables.clone(),
            max_bytes: model.most_bytes(),
            ..ChatRequest::new(fallback.as_deref().unwrap_or(&self.messages))
        };
        model.template.encode(&request, &model.tokenizer).map_err(|error| match error {
            TextError::TemplateTooLong(_) if model.most_bytes() < usize::MAX => too_long(model),
            other => other.into(),
        })
    }

    /// A job that answers it.
    pub async fn job(&self, model: &Arc<Model>, caller: Caller) -> Result<Job, ApiError> {
        let prompt = self.prompt(model).await?;
        let grammar = match self.structure() {
            Some(structure) => Some(structure.compile(model, &opening(model, &prompt)).await?),
            None => None,
        };
        Ok(Job { grammar, ..Job::new(prompt, caller) })
    }

    /// What the answer has to look like: a forced call, the format asked for, or either of these.
    fn structure(&self) -> Option<Structure> {
        let calls = self.callable();
        match (&self.choice, &self.structure) {
            (ToolChoice::Required | ToolChoice::Named(_), _) => Some(Structure::calling(&calls, None)),
            (ToolChoice::Auto, Some(format)) if !calls.is_empty() => {
                Some(Structure::calling(&calls, Some(format.clone())))
            }
            (_, format) => format.clone(),
        }
    }

    /// The tools that may be called.
    fn callable(&self) -> Vec<&Value> {
        let may = |tool: &&Value| match &self.choice {
            ToolChoice::None => false,
            ToolChoice::Auto | ToolChoice::Required => tool_name(tool).is_some(),
            ToolChoice::Named(name) => tool_name(tool) == Some(name),
        };
        self.tools.iter().filter(may).collect()
    }

    /// The answer to it, taken apart.
    pub fn answer(&self, model: &Arc<Model>, job: Job) -> Result<ChatAnswer, ApiError> {
        job.check()?;
        let tools = self.choice != ToolChoice::None && !self.tools.is_empty();
        let end = opening(model, &job.prompt);
        let line = || {
            let options = OutputOptions {
                tools,
                reasoning: self.reasoning,
                prompt_opens_reasoning: model.style.is_reasoning_open(&end),
                known_tools: self.tools.iter().filter_map(tool_name).map(Into::into).collect(),
            };
            Line { parser: OutputParser::new(&model.style, options), called: false, reasoning_tokens: 0 }
        };
        let lines = (0..job.n).map(|_| line()).collect();
        Ok(ChatAnswer { answer: job.submit(model)?, lines, ready: VecDeque::new() })
    }
}

/// The end of a prompt, as text.
fn opening(model: &Model, prompt: &[u32]) -> String {
    model.tokenizer.decode(&prompt[prompt.len().saturating_sub(OPENING)..], SpecialTokens::Keep)
}

fn tool_name(tool: &Value) -> Option<&str> {
    tool["function"]["name"].as_str()
}

/// A part of an answer.
#[derive(Clone, Debug, PartialEq)]
pub enum ChatPiece {
    /// The prompt is being read.
    Reading,
    /// More of answer `index`, and the tokens since the last piece. Either may be empty.
    Deltas {
        /// Which answer.
        index: usize,
        /// What is new.
        deltas: Vec<Delta>,
        /// The tokens behind it.
        tokens: Vec<TokenReport>,
    },
    /// Answer `index` is over.
    Done {
        /// Which answer.
        index: usize,
        /// Why.
        stopped: Stopped,
        /// Whether it calls tools.
        called: bool,
        /// Tokens of its thoughts.
        reasoning: usize,
        /// What it used.
        usage: Usage,
    },
}

/// A tool call.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ToolCall {
    /// Which tool.
    pub name: String,
    /// Its arguments: JSON text.
    pub arguments: String,
}

/// A whole answer.
#[derive(Clone, Debug, PartialEq)]
pub struct ChatWhole {
    /// What it says.
    pub text: String,
    /// What it thought.
    pub reasoning: String,
    /// What it calls.
    pub calls: Vec<ToolCall>,
    /// Its tokens.
    pub tokens: Vec<TokenReport>,
    /// Why it ended.
    pub stopped: Stopped,
    /// What it used.
    pub usage: Usage,
    /// How much of that went into thoughts, in tokens.
    pub reasoning_tokens: usize,
}

impl ChatWhole {
    fn empty() -> Self {
        Self {
            text: String::new(),
            reasoning: String::new(),
            calls: Vec::new(),
            tokens: Vec::new(),
            stopped: Stopped::End,
            usage: Usage::default(),
            reasoning_tokens: 0,
        }
    }

    fn add(&mut self, delta: Delta) {
        match delta {
            Delta::Text(text) => self.text.push_str(&text),
            Delta::Reasoning(text) => self.reasoning.push_str(&text),
            Delta::ToolCall { name, .. } => self.calls.push(ToolCall { name, arguments: String::new() }),
            Delta::Arguments { index, json } => {
                if let Some(call) = self.calls.get_mut(index) {
                    call.arguments.push_str(&json);
                }
            }
        }
    }
}

/// One of a request's answers in the making.
struct Line {
    parser: OutputParser,
    called: bool,
    reasoning_tokens: usize,
}

impl Line {
    /// More text and its tokens. A tag counts as thought: so it does for those who sell them.
    fn push(&mut self, text: &str, tokens: usize) -> Vec<Delta> {
        let was_reasoning = self.parser.is_reasoning();
        let deltas = self.parser.push(text);
        if was_reasoning || self.parser.is_reasoning() {
            self.reasoning_tokens += tokens;
        }
        deltas
    }
}

/// An answer in the making: a stream of pieces. Dropping it cancels the request.
pub struct ChatAnswer {
    answer: Answer,
    lines: Vec<Line>,
    ready: VecDeque<ChatPiece>,
}

impl ChatAnswer {
    /// The answer as it comes from the model.
    pub fn plain(&self) -> &Answer {
        &self.answer
    }

    /// Waits for all answers, in order.
    pub async fn whole(mut self) -> Result<Vec<ChatWhole>, ApiError> {
        let mut wholes: Vec<_> = self.lines.iter().map(|_| ChatWhole::empty()).collect();
        while let Some(piece) = self.next().await {
            match piece {
                ChatPiece::Reading => {}
                ChatPiece::Deltas { index, deltas, tokens } => {
                    for delta in deltas {
                        wholes[index].add(delta);
                    }
                    wholes[index].tokens.extend(tokens);
                }
                ChatPiece::Done { stopped: Stopped::Failed(error), .. } => return Err(error),
                ChatPiece::Done { index, stopped, usage, reasoning, .. } => {
                    (wholes[index].stopped, wholes[index].usage) = (stopped, usage);
                    wholes[index].reasoning_tokens = reasoning;
                }
            }
        }
        Ok(wholes)
    }

    fn hear(&mut self, piece: Piece) {
        match piece {
            Piece::Reading => self.ready.push_back(ChatPiece::Reading),
            Piece::Scored(_) => {}
            Piece::Text { index, text, tokens } => {
                let deltas = self.lines[index].push(&text, tokens.len());
                self.deltas(index, deltas, tokens);
            }
            Piece::Done { index, stopped, usage } => {
                let deltas = self.lines[index].parser.finish();
                self.deltas(index, deltas, Vec::new());
                let Line { called, reasoning_tokens: reasoning, .. } = self.lines[index];
                self.ready.push_back(ChatPiece::Done { index, stopped, called, reasoning, usage });
            }
        }
    }

    fn deltas(&mut self, index: usize, deltas: Vec<Delta>, tokens: Vec<TokenReport>) {
        self.lines[index].called |= deltas.iter().any(|delta| matches!(delta, Delta::ToolCall { .. }));
        if !deltas.is_empty() || !tokens.is_empty() {
            self.ready.push_back(ChatPiece::Deltas { index, deltas, tokens });
        }
    }
}

impl Stream for ChatAnswer {
    type Item = ChatPiece;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<ChatPiece>> {
        loop {
            if let Some(piece) = self.ready.pop_front() {
                return Poll::Ready(Some(piece));
            }
            match self.answer.poll_next_unpin(context) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(Some(piece)) => self.hear(piece),
                Poll::Ready(None) => return Poll::Ready(None),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use ropeway_text::OutputStyle;

    use super::*;

    #[test]
    fn tokens_of_thoughts_are_counted_with_their_tags() {
        let options = OutputOptions { reasoning: true, ..OutputOptions::default() };
        let parser = OutputParser::new(&OutputStyle::detect(None, |_| true), options);
        let mut line = Line { parser, called: false, reasoning_tokens: 0 };
        for token in ["<think>", "What", " for", "?", "</think>", "Four", "."] {
            line.push(token, 1);
        }
        assert_eq!(line.reasoning_tokens, 5);
    }
}
