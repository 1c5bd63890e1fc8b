//! Streamed responses: numbered events around output items.
//!
//! ```text
//! response.created  response.in_progress
//!   output_item.added  content_part.added  output_text.delta ...  output_text.done  content_part.done  output_item.done
//!   output_item.added  function_call_arguments.delta ...  function_call_arguments.done  output_item.done
//! response.completed | response.incomplete | response.failed
//! ```

use std::convert::Infallible;

use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use futures_util::{StreamExt, stream};
use ropeway_executor::Sampled;
use ropeway_generation::{Finish, GenerationEvent, StopReason, ToolCall, unique};
use ropeway_text::Delta;
use serde_json::{Value, json};

use super::render::{Render, function_call, message, reasoning, status, usage_of};
use crate::generation::ObservedStream;
use crate::openai::sse::KEEP_ALIVE;

/// Streams a response.
pub fn respond(render: Render, events: ObservedStream) -> Response {
    let mut writer = Writer { render, number: 0, output: Vec::new(), open: None };
    let hello = writer.hello();
    let rest = events.flat_map(move |event| stream::iter(writer.take(event)));
    let events = stream::iter(hello).chain(rest).map(|event| {
        let kind = event["type"].as_str().unwrap_or("error").to_owned();
        Ok::<_, Infallible>(Event::default().event(kind).data(event.to_string()))
    });
    Sse::new(events).keep_alive(KeepAlive::new().interval(KEEP_ALIVE)).into_response()
}

/// The output item being written.
enum Item {
    Reasoning { id: String, text: String },
    Message { id: String, text: String, tokens: Vec<Sampled> },
    Call { id: String, call_id: String, call: ToolCall },
}

/// Turns what is generated into events.
struct Writer {
    render: Render,
    number: usize,
    output: Vec<Value>,
    open: Option<Item>,
}

impl Writer {
    fn hello(&mut self) -> Vec<Value> {
        let response = self.render.begun();
        ["response.created", "response.in_progress"]
            .map(|kind| self.event(kind, json!({ "response": response })))
            .into()
    }

    fn take(&mut self, event: GenerationEvent) -> Vec<Value> {
        let mut events = Vec::new();
        match event {
            GenerationEvent::PromptProgress { .. } | GenerationEvent::PromptLogprob(_) => {}
            GenerationEvent::Output { deltas, mut tokens, .. } => {
                for delta in deltas {
                    self.delta(delta, &mut tokens, &mut events);
                }
            }
            GenerationEvent::Finished {
                finish: Finish { reason: StopReason::Failed(error), .. }, ..
            } => {
                let response = self.render.failed(&error);
                events.push(self.event("response.failed", json!({ "response": response })));
            }
            GenerationEvent::Finished { finish, .. } => self.finish(&finish, &mut events),
        }
        events
    }

    fn finish(&mut self, finish: &Finish, events: &mut Vec<Value>) {
        if self.output.is_empty() && self.open.is_none() {
            self.open_message(events);
        }
        self.close(status(&finish.reason), events);
        let output = std::mem::take(&mut self.output);
        let usage = usage_of(&finish.usage, finish.reasoning_tokens);
        let response = self.render.finished(output, &finish.reason, usage);
        let is_cut = finish.reason == StopReason::Length;
        let kind = if is_cut { "response.incomplete" } else { "response.completed" };
        events.push(self.event(kind, json!({ "response": response })));
    }

    fn delta(&mut self, delta: Delta, new: &mut Vec<Sampled>, events: &mut Vec<Value>) {
        match delta {
            Delta::Text(more) => {
                self.open_message(events);
                let logprobs = self.render.logprobs(new);
                let Some(Item::Message { id, text, tokens }) = &mut self.open else { return };
                text.push_str(&more);
                tokens.append(new);
                let fields =
                    json!({ "item_id": id, "content_index": 0, "delta": more, "logprobs": logprobs });
                events.push(self.item_event("response.output_text.delta", fields));
            }
            Delta::Reasoning(more) => {
                self.open_reasoning(events);
                let Some(Item::Reasoning { id, text }) = &mut self.open else { return };
                text.push_str(&more);
                let fields = json!({ "item_id": id, "content_index": 0, "delta": more });
                events.push(self.item_event("response.reasoning_text.delta", fields));
            }
            Delta::ToolCall { name, .. } => {
                self.close("completed", events);
                let call = ToolCall { name, arguments: String::new() };
                let (id, call_id) = (unique("fc_"), unique("call_"));
                let item = function_call(&id, &call_id, "in_progress", &call);
                self.start(Item::Call { id, call_id, call }, &item, events);
            }
            Delta::Arguments { json: more, .. } => {
                let Some(Item::Call { id, call, .. }) = &mut self.open else { return };
                call.arguments.push_str(&more);
                let fields = json!({ "item_id": id, "delta": more });
                events.push(self.item_event("response.function_call_arguments.delta", fields));
            }
        }
    }

    fn open_message(&mut self, events: &mut Vec<Value>) {
        if matches!(self.open, Some(Item::Message { .. })) {
            return;
        }
        self.close("completed", events);
        let id = unique("msg_");
        let item = message(&id, "in_progress", &[]);
        let part = json!({ "item_id": id, "content_index": 0, "part": self.render.text_part("", &[]) });
        self.start(Item::Message { id, text: String::new(), tokens: Vec::new() }, &item, events);
        events.push(self.item_event("response.content_part.added", part));
    }

    fn open_reasoning(&mut self, events: &mut Vec<Value>) {
        if matches!(self.open, Some(Item::Reasoning { .. })) {
            return;
        }
        self.close("completed", events);
        let id = unique("rs_");
        let item = reasoning(&id, "in_progress", None);
        self.start(Item::Reasoning { id, text: String::new() }, &item, events);
    }

    fn start(&mut self, item: Item, rendered: &Value, events: &mut Vec<Value>) {
        events.push(self.item_event("response.output_item.added", json!({ "item": rendered })));
        self.open = Some(item);
    }

    /// Ends the open item, if there is one.
    fn close(&mut self, how: &str, events: &mut Vec<Value>) {
        let Some(item) = self.open.take() else { return };
        let rendered = match item {
            Item::Reasoning { id, text } => {
                let fields = json!({ "item_id": id, "content_index": 0, "text": text });
                events.push(self.item_event("response.reasoning_text.done", fields));
                reasoning(&id, how, Some(&text))
            }
            Item::Message { id, text, tokens } => self.close_message(&id, how, &text, &tokens, events),
            Item::Call { id, call_id, call } => {
                let fields = json!({ "item_id": id, "name": call.name, "arguments": call.arguments });
                events.push(self.item_event("response.function_call_arguments.done", fields));
                function_call(&id, &call_id, how, &call)
            }
        };
        events.push(self.item_event("response.output_item.done", json!({ "item": rendered })));
        self.output.push(rendered);
    }

    fn close_message(
        &mut self,
        id: &str,
        how: &str,
        text: &str,
        tokens: &[Sampled],
        events: &mut Vec<Value>,
    ) -> Value {
        let part = self.render.text_part(text, tokens);
        let mut fields = json!({ "item_id": id, "content_index": 0, "text": text });
        fields["logprobs"] = part["logprobs"].clone();
        events.push(self.item_event("response.output_text.done", fields));
        let fields = json!({ "item_id": id, "content_index": 0, "part": part });
        events.push(self.item_event("response.content_part.done", fields));
        message(id, how, &[part])
    }

    /// An event about the item being written.
    fn item_event(&mut self, kind: &str, mut fields: Value) -> Value {
        fields["output_index"] = self.output.len().into();
        self.event(kind, fields)
    }

    fn event(&mut self, kind: &str, mut fields: Value) -> Value {
        fields["type"] = kind.into();
        fields["sequence_number"] = self.number.into();
        self.number += 1;
        fields
    }
}
