//! A response in the making: numbered events around output items, and the whole of it at the end.
//!
//! ```text
//! response.created  [response.queued]  response.in_progress
//!   output_item.added  content_part.added  reasoning_text.delta ...  reasoning_text.done  content_part.done  output_item.done
//!   output_item.added  content_part.added  output_text.delta ...  output_text.done  content_part.done  output_item.done
//!   output_item.added  function_call_arguments.delta ...  function_call_arguments.done  output_item.done
//!   output_item.added  custom_tool_call_input.delta  custom_tool_call_input.done  output_item.done
//!   output_item.added  output_item.done                                       a command for the shell
//! response.completed | response.incomplete | response.failed
//! ```
//! A response that is not streamed is written in the same way, and its events are thrown away.

#[cfg(test)]
mod tests;

use ropeway_executor::Sampled;
use ropeway_generation::{Finish, GenerationEvent, RequestError, StopReason, ToolCall, unique};
use ropeway_text::Delta;
use serde_json::{Value, json};

use super::render::{CallIds, Render, call, custom_input, message, status, usage_of};
use super::tools::{CallKind, ToolForm};

/// The output item being written.
enum Open {
    Reasoning { id: String, text: String },
    Message { id: String, text: String, tokens: Vec<Sampled> },
    Call { ids: CallIds, form: ToolForm, call: ToolCall },
}

/// How a response ended.
pub struct Ended {
    /// The response.
    pub response: Value,
    /// Why it failed, if it did.
    pub error: Option<RequestError>,
}

/// Turns what is generated into events.
pub struct Writer {
    render: Render,
    number: usize,
    output: Vec<Value>,
    open: Option<Open>,
    /// Whether nothing has happened to a response in the background.
    is_waiting: bool,
    /// How the response ended, after its last event.
    pub ended: Option<Ended>,
}

impl Writer {
    /// Writes a response.
    pub fn new(render: Render) -> Self {
        let is_waiting = render.is_background;
        Self { render, number: 0, output: Vec::new(), open: None, is_waiting, ended: None }
    }

    /// The response before there is any output.
    pub fn begun(&self) -> Value {
        self.render.begun(if self.is_waiting { "queued" } else { "in_progress" })
    }

    /// The first events. One in the background is in progress when something happens to it.
    pub fn hello(&mut self) -> Vec<Value> {
        let next = if self.is_waiting { "response.queued" } else { "response.in_progress" };
        let response = self.begun();
        ["response.created", next].map(|kind| self.event(kind, json!({ "response": response }))).into()
    }

    /// The events of what was generated.
    pub fn take(&mut self, event: GenerationEvent) -> Vec<Value> {
        let mut events = Vec::new();
        if std::mem::take(&mut self.is_waiting) {
            let response = self.render.begun("in_progress");
            events.push(self.event("response.in_progress", json!({ "response": response })));
        }
        match event {
            GenerationEvent::Placed { .. }
            | GenerationEvent::PromptProgress { .. }
            | GenerationEvent::PromptLogprob(_) => {}
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
                self.ended = Some(Ended { response, error: Some(error) });
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
        self.ended = Some(Ended { response, error: None });
    }

    fn delta(&mut self, delta: Delta, new: &mut Vec<Sampled>, events: &mut Vec<Value>) {
        match delta {
            Delta::Text(more) => {
                self.open_message(events);
                let logprobs = self.render.logprobs(new);
                let Some(Open::Message { id, text, tokens }) = &mut self.open else { return };
                text.push_str(&more);
                tokens.append(new);
                let fields =
                    json!({ "item_id": id, "content_index": 0, "delta": more, "logprobs": logprobs });
                events.push(self.item_event("response.output_text.delta", fields));
            }
            Delta::Reasoning(more) => {
                self.open_reasoning(events);
                let Some(Open::Reasoning { id, text }) = &mut self.open else { return };
                text.push_str(&more);
                let fields = json!({ "item_id": id, "content_index": 0, "delta": more });
                events.push(self.item_event("response.reasoning_text.delta", fields));
            }
            Delta::ToolCall { name, .. } => self.open_call(name, events),
            Delta::Arguments { json: more, .. } => {
                let Some(Open::Call { ids, form, call }) = &mut self.open else { return };
                call.arguments.push_str(&more);
                // What a text or a command is, is known when all of it is there.
                if form.kind == CallKind::Function {
                    let fields = json!({ "item_id": ids.item, "delta": more });
                    events.push(self.item_event("response.function_call_arguments.delta", fields));
                }
            }
        }
    }

    fn open_message(&mut self, events: &mut Vec<Value>) {
        if matches!(self.open, Some(Open::Message { .. })) {
            return;
        }
        self.close("completed", events);
        let id = unique("msg_");
        let item = message(&id, "in_progress", &[]);
        let part = json!({ "item_id": id, "content_index": 0, "part": self.render.text_part("", &[]) });
        events.push(self.item_event("response.output_item.added", json!({ "item": item })));
        events.push(self.item_event("response.content_part.added", part));
        self.open = Some(Open::Message { id, text: String::new(), tokens: Vec::new() });
    }

    fn open_reasoning(&mut self, events: &mut Vec<Value>) {
        if matches!(self.open, Some(Open::Reasoning { .. })) {
            return;
        }
        self.close("completed", events);
        let id = unique("rs_");
        let item = self.render.reasoning(&id, "in_progress", None);
        let part = json!({ "item_id": id, "content_index": 0, "part": reasoning_part("") });
        events.push(self.item_event("response.output_item.added", json!({ "item": item })));
        events.push(self.item_event("response.content_part.added", part));
        self.open = Some(Open::Reasoning { id, text: String::new() });
    }

    fn open_call(&mut self, name: String, events: &mut Vec<Value>) {
        self.close("completed", events);
        let form = self.render.tools.form(&name);
        let prefix = match form.kind {
            CallKind::Function => "fc_",
            CallKind::Custom => "ctc_",
            CallKind::LocalShell => "lsh_",
        };
        let ids = CallIds { item: unique(prefix), call: unique("call_") };
        let begun = ToolCall { name, arguments: String::new() };
        // A command is shown when it is whole: clients take its first form for all of it.
        if form.kind != CallKind::LocalShell {
            let item = call(&ids, "in_progress", &form, &begun);
            events.push(self.item_event("response.output_item.added", json!({ "item": item })));
        }
        self.open = Some(Open::Call { ids, form, call: begun });
    }

    /// Ends the open item, if there is one.
    fn close(&mut self, how: &str, events: &mut Vec<Value>) {
        let rendered = match self.open.take() {
            None => return,
            Some(Open::Reasoning { id, text }) => self.close_reasoning(&id, how, &text, events),
            Some(Open::Message { id, text, tokens }) => self.close_message(&id, how, &text, &tokens, events),
            Some(Open::Call { ids, form, call }) => self.close_call(&ids, how, &form, &call, events),
        };
        events.push(self.item_event("response.output_item.done", json!({ "item": rendered })));
        self.output.push(rendered);
    }

    fn close_reasoning(&mut self, id: &str, how: &str, text: &str, events: &mut Vec<Value>) -> Value {
        let fields = json!({ "item_id": id, "content_index": 0, "text": text });
        events.push(self.item_event("response.reasoning_text.done", fields));
        let fields = json!({ "item_id": id, "content_index": 0, "part": reasoning_part(text) });
        events.push(self.item_event("response.content_part.done", fields));
        self.render.reasoning(id, how, Some(text))
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

    fn close_call(
        &mut self,
        ids: &CallIds,
        how: &str,
        form: &ToolForm,
        called: &ToolCall,
        events: &mut Vec<Value>,
    ) -> Value {
        match form.kind {
            CallKind::Function => {
                let fields = json!({ "item_id": ids.item, "name": form.name, "arguments": called.arguments });
                events.push(self.item_event("response.function_call_arguments.done", fields));
            }
            CallKind::Custom => {
                let input = custom_input(&called.arguments);
                let fields = json!({ "item_id": ids.item, "delta": input });
                events.push(self.item_event("response.custom_tool_call_input.delta", fields));
                let fields = json!({ "item_id": ids.item, "input": input });
                events.push(self.item_event("response.custom_tool_call_input.done", fields));
            }
            CallKind::LocalShell => {
                let item = call(ids, "in_progress", form, called);
                events.push(self.item_event("response.output_item.added", json!({ "item": item })));
            }
        }
        call(ids, how, form, called)
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

fn reasoning_part(text: &str) -> Value {
    json!({ "type": "reasoning_text", "text": text })
}
