//! Streamed answers: named events around numbered content blocks.
//!
//! ```text
//! message_start
//!   content_block_start 0 (thinking | text | tool_use)  content_block_delta 0 ...  content_block_stop 0
//!   content_block_start 1 ...
//! message_delta (stop_reason, usage)  message_stop
//! ```
//! `message_start` carries the true input usage, so it is sent with the first event, when the cache has been asked; a
//! ping before that says that the request lives.

use std::convert::Infallible;
use std::time::Duration;

use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use futures_util::{StreamExt, stream};
use ropeway_engine::Usage;
use ropeway_generation::{Finish, GenerationEvent, Identity, StopReason, unique};
use ropeway_text::Delta;
use serde_json::{Value, json};

use super::AnthropicError;
use super::render::{empty, input_usage, stop_reason, stop_sequence};
use crate::generation::ObservedStream;

/// How long a stream may be silent before a ping says that it lives.
const PING: Duration = Duration::from_secs(10);

/// Streams an answer.
pub fn respond(identity: &Identity, mut generated: ObservedStream) -> Response {
    let mut writer = Writer::new(identity.clone(), generated.prompt_tokens());
    let events = stream::poll_fn(move |context| {
        generated.poll_next_unpin(context).map(|event| {
            let cached = generated.cached_tokens();
            event.map(|event| writer.take(event, cached))
        })
    });
    let events = events.flat_map(stream::iter).map(|event| {
        let kind = event["type"].as_str().unwrap_or("error").to_owned();
        Ok::<_, Infallible>(Event::default().event(kind).data(event.to_string()))
    });
    let ping = Event::default().event("ping").data(json!({ "type": "ping" }).to_string());
    Sse::new(events).keep_alive(KeepAlive::new().interval(PING).event(ping)).into_response()
}

/// The kinds of content block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Block {
    Thinking,
    Text,
    Tool,
}

/// Turns what is generated into events.
struct Writer {
    identity: Identity,
    prompt: usize,
    started: bool,
    open: Option<Block>,
    /// The number of the open block, or of the next one.
    index: usize,
}

impl Writer {
    fn new(identity: Identity, prompt: usize) -> Self {
        Self { identity, prompt, started: false, open: None, index: 0 }
    }

    fn take(&mut self, event: GenerationEvent, cached: usize) -> Vec<Value> {
        let mut events = Vec::new();
        if !self.started {
            self.started = true;
            let usage = Usage { prompt: self.prompt, cached, ..Usage::default() };
            events.push(json!({ "type": "message_start", "message": empty(&self.identity, &usage) }));
            events.push(json!({ "type": "ping" }));
        }
        match event {
            GenerationEvent::Placed { .. }
            | GenerationEvent::PromptProgress { .. }
            | GenerationEvent::PromptLogprob(_) => {}
            GenerationEvent::Output { deltas, .. } => {
                for delta in deltas {
                    self.delta(delta, &mut events);
                }
            }
            GenerationEvent::Finished {
                finish: Finish { reason: StopReason::Failed(error), .. }, ..
            } => {
                events.push(AnthropicError::from(error).body());
            }
            GenerationEvent::Finished { finish, .. } => self.finish(&finish, &mut events),
        }
        events
    }

    fn finish(&mut self, finish: &Finish, events: &mut Vec<Value>) {
        self.close(events);
        let delta = json!({
            "stop_reason": stop_reason(&finish.reason, finish.called_tools),
            "stop_sequence": stop_sequence(&finish.reason),
        });
        let mut counts = input_usage(finish.usage.prompt, finish.usage.cached);
        counts["output_tokens"] = finish.usage.generated.into();
        events.push(json!({ "type": "message_delta", "delta": delta, "usage": counts }));
        events.push(json!({ "type": "message_stop" }));
    }

    fn delta(&mut self, delta: Delta, events: &mut Vec<Value>) {
        match delta {
            Delta::Text(text) => {
                self.open(Block::Text, events);
                events.push(self.block_delta(&json!({ "type": "text_delta", "text": text })));
            }
            Delta::Reasoning(text) => {
                self.open(Block::Thinking, events);
                events.push(self.block_delta(&json!({ "type": "thinking_delta", "thinking": text })));
            }
            Delta::ToolCall { name, .. } => {
                self.close(events);
                let block = json!({ "type": "tool_use", "id": unique("toolu_"), "name": name, "input": {} });
                self.start(Block::Tool, &block, events);
            }
            Delta::Arguments { json: text, .. } => {
                events.push(self.block_delta(&json!({ "type": "input_json_delta", "partial_json": text })));
            }
        }
    }

    fn block_delta(&self, delta: &Value) -> Value {
        json!({ "type": "content_block_delta", "index": self.index, "delta": delta })
    }

    /// Makes sure that a block of this kind is open.
    fn open(&mut self, block: Block, events: &mut Vec<Value>) {
        if self.open == Some(block) {
            return;
        }
        self.close(events);
        let content = match block {
            Block::Thinking => json!({ "type": "thinking", "thinking": "", "signature": "" }),
            Block::Text | Block::Tool => json!({ "type": "text", "text": "" }),
        };
        self.start(block, &content, events);
    }

    fn start(&mut self, block: Block, content: &Value, events: &mut Vec<Value>) {
        self.open = Some(block);
        let start = json!({ "type": "content_block_start", "index": self.index, "content_block": content });
        events.push(start);
    }

    fn close(&mut self, events: &mut Vec<Value>) {
        let Some(block) = self.open.take() else { return };
        if block == Block::Thinking {
            events.push(self.block_delta(&json!({ "type": "signature_delta", "signature": "" })));
        }
        events.push(json!({ "type": "content_block_stop", "index": self.index }));
        self.index += 1;
    }
}
