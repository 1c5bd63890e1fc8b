//! Chat completions as clients receive them: whole, or as a stream of chunks.

use futures_util::{Stream, StreamExt, stream};
use ropeway_engine::Usage;
use ropeway_executor::Sampled;
use ropeway_generation::{Choice, Finish, GenerationEvent, Identity, StopReason, ToolCall, unique};
use ropeway_text::{Delta, Tokenizer};
use serde_json::{Value, json};

use crate::completions::{finish_reason, show_ids};
use crate::logprobs::TokenNames;
use crate::object::object;
use crate::sampling::TokenShape;
use crate::{error, logprobs, usage};

/// Renders the answers to one conversation.
pub struct ChatRender {
    /// The response's name.
    pub identity: Identity,
    /// For the texts of tokens; where there is none, no log-probabilities were asked for.
    pub tokenizer: Option<Tokenizer>,
    /// Whether log-probabilities are wanted.
    pub wants_logprobs: bool,
    /// How tokens are shown.
    pub tokens: TokenShape,
    /// The prompt's tokens, if the response has ids.
    pub prompt: Vec<u32>,
}

/// What the choices of a stream used so far.
#[derive(Default)]
struct Spent {
    usages: Vec<Usage>,
    reasoning: usize,
}

impl ChatRender {
    /// The whole response.
    pub fn whole(&self, choices: &[Choice]) -> Value {
        let rendered: Vec<_> = choices.iter().enumerate().map(|(i, choice)| self.choice(i, choice)).collect();
        let mut response = object(&self.identity, "chat.completion");
        response["choices"] = rendered.into();
        self.show_prompt(&mut response);
        let reasoning = choices.iter().map(|choice| choice.finish.reasoning_tokens).sum();
        response["usage"] = usage::chat(choices.iter().map(|choice| &choice.finish.usage), reasoning);
        response
    }

    fn choice(&self, index: usize, choice: &Choice) -> Value {
        let called = !choice.tool_calls.is_empty();
        let text = (!called || !choice.text.is_empty()).then_some(&choice.text);
        let mut message = json!({ "role": "assistant", "content": text, "refusal": null });
        if !choice.reasoning.is_empty() {
            message["reasoning_content"] = choice.reasoning.as_str().into();
        }
        if called {
            message["tool_calls"] = choice.tool_calls.iter().map(tool_call).collect();
        }
        let mut rendered = json!({
            "index": index,
            "message": message,
            "logprobs": self.for_logprobs().map(|names| logprobs::chat(names, &choice.tokens)),
            "finish_reason": chat_finish_reason(&choice.finish.reason, called),
        });
        if self.tokens.ids {
            show_ids(&mut rendered, &choice.tokens, choice.finish.end_token);
        }
        rendered
    }

    /// How tokens are named, if log-probabilities are wanted.
    fn for_logprobs(&self) -> Option<TokenNames<'_>> {
        let by_id = self.tokens.named_by_id;
        self.tokenizer
            .as_ref()
            .filter(|_| self.wants_logprobs)
            .map(|tokenizer| TokenNames { tokenizer, by_id })
    }

    fn show_prompt(&self, response: &mut Value) {
        if self.tokens.ids {
            response["prompt_token_ids"] = self.prompt.as_slice().into();
        }
    }

    /// Chunks of `n` choices as they are generated; the usage at the end, if wanted.
    pub fn stream(
        self,
        events: impl Stream<Item = GenerationEvent> + Send + 'static,
        n: usize,
        includes_usage: bool,
    ) -> impl Stream<Item = Value> + Send + 'static {
        let mut roles: Vec<_> =
            (0..n).map(|i| self.chunk(i, &json!({ "role": "assistant", "content": "" }))).collect();
        if let Some(first) = roles.first_mut() {
            self.show_prompt(first);
        }
        let mut spent = Spent::default();
        let end = stream::once(async { None });
        let chunks = events.map(Some).chain(end).flat_map(move |event| {
            stream::iter(match event {
                Some(event) => self.event(event, &mut spent),
                None if includes_usage => vec![self.usage_chunk(&spent)],
                None => Vec::new(),
            })
        });
        stream::iter(roles).chain(chunks)
    }

    fn event(&self, event: GenerationEvent, spent: &mut Spent) -> Vec<Value> {
        match event {
            GenerationEvent::Placed { .. }
            | GenerationEvent::PromptProgress { .. }
            | GenerationEvent::PromptLogprob(_) => Vec::new(),
            GenerationEvent::Output { choice, deltas, tokens } => self.deltas(choice, deltas, &tokens),
            GenerationEvent::Finished {
                finish: Finish { reason: StopReason::Failed(failed), .. }, ..
            } => {
                vec![error::body(&failed)]
            }
            GenerationEvent::Finished { choice, finish } => {
                spent.usages.push(finish.usage);
                spent.reasoning += finish.reasoning_tokens;
                let mut last = self.chunk(choice, &json!({}));
                last["choices"][0]["finish_reason"] =
                    chat_finish_reason(&finish.reason, finish.called_tools).into();
                if self.tokens.ids {
                    show_ids(&mut last["choices"][0], &[], finish.end_token);
                }
                vec![last]
            }
        }
    }

    fn deltas(&self, index: usize, deltas: Vec<Delta>, tokens: &[Sampled]) -> Vec<Value> {
        let mut chunks: Vec<_> = deltas.into_iter().map(|delta| self.chunk(index, &wire(delta))).collect();
        let names = self.for_logprobs();
        if tokens.is_empty() || (names.is_none() && !self.tokens.ids) {
            return chunks;
        }
        if chunks.is_empty() {
            chunks.push(self.chunk(index, &json!({})));
        }
        // What is told of tokens goes with the first of their deltas.
        let choice = &mut chunks[0]["choices"][0];
        if let Some(names) = names {
            choice["logprobs"] = logprobs::chat(names, tokens);
        }
        if self.tokens.ids {
            show_ids(choice, tokens, None);
        }
        chunks
    }

    fn chunk(&self, index: usize, delta: &Value) -> Value {
        let mut chunk = object(&self.identity, "chat.completion.chunk");
        chunk["choices"] =
            json!([{ "index": index, "delta": delta, "logprobs": null, "finish_reason": null }]);
        chunk
    }

    fn usage_chunk(&self, spent: &Spent) -> Value {
        let mut chunk = object(&self.identity, "chat.completion.chunk");
        (chunk["choices"], chunk["usage"]) = (json!([]), usage::chat(&spent.usages, spent.reasoning));
        chunk
    }
}

fn tool_call(call: &ToolCall) -> Value {
    let function = json!({ "name": call.name, "arguments": call.arguments });
    json!({ "id": unique("call_"), "type": "function", "function": function })
}

fn wire(delta: Delta) -> Value {
    match delta {
        Delta::Text(text) => json!({ "content": text }),
        Delta::Reasoning(text) => json!({ "reasoning_content": text }),
        Delta::ToolCall { index, name } => json!({ "tool_calls": [{
            "index": index, "id": unique("call_"), "type": "function",
            "function": { "name": name, "arguments": "" },
        }] }),
        Delta::Arguments { index, json } => {
            json!({ "tool_calls": [{ "index": index, "function": { "arguments": json } }] })
        }
    }
}

fn chat_finish_reason(reason: &StopReason, called_tools: bool) -> &'static str {
    if called_tools && *reason == StopReason::EndOfText { "tool_calls" } else { finish_reason(reason) }
}
