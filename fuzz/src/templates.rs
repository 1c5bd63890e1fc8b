//! Hostile chat templates, and hostile conversations for them.

use ropeway_text::{ChatRequest, ChatTemplate, TemplateTokens, Tokenizer};
use serde_json::{Map, Value, json};
use std::sync::OnceLock;
use std::time::SystemTime;

use crate::tokenizers::llama_tokenizer;

/// Bytes that a prompt may have: what servers with a short context allow, so that encoding takes little of a run's time.
const MAX_BYTES: usize = 1 << 20;

/// Renders and encodes a conversation, and asks what the template can do. It may fail; it may not take for ever or panic.
pub fn try_template(source: &str, request: &[u8]) {
    let tokens = TemplateTokens { bos: Some("<|bos|>".into()), eos: Some("<|eos|>".into()) };
    let Ok(template) = ChatTemplate::new(source, tokens) else { return };
    let parts: Value = serde_json::from_slice(request).unwrap_or_default();
    let messages = list(&parts["messages"]).unwrap_or_else(conversation);
    let tools = list(&parts["tools"]);
    let request = ChatRequest {
        messages: &messages,
        tools: tools.as_deref(),
        add_generation_prompt: parts["add_generation_prompt"] != json!(false),
        variables: parts["variables"].as_object().cloned().unwrap_or_else(Map::new),
        now: SystemTime::UNIX_EPOCH,
        max_bytes: MAX_BYTES,
    };
    if template.render(&request).is_ok_and(|prompt| prompt.len() <= MAX_BYTES) {
        let _ = template.encode(&request, tokenizer());
    }
    let _ = (template.writes_tools(), template.opens_reasoning(&request.variables));
}

fn list(value: &Value) -> Option<Vec<Value>> {
    value.as_array().cloned()
}

/// A conversation with everything that templates look at.
fn conversation() -> Vec<Value> {
    let call = json!({"id": "c1", "type": "function", "function": {"name": "f", "arguments": {"a": 1}}});
    vec![
        json!({"role": "system", "content": "Be brief."}),
        json!({"role": "user", "content": [{"type": "text", "text": "Hi <|eos|>"}]}),
        json!({"role": "assistant", "content": "<think>\nHm.\n</think>\n\nYes.", "tool_calls": [call]}),
        json!({"role": "tool", "tool_call_id": "c1", "name": "f", "content": "{\"b\": 2}"}),
        json!({"role": "user", "content": "And now?"}),
    ]
}

fn tokenizer() -> &'static Tokenizer {
    static TOKENIZER: OnceLock<Tokenizer> = OnceLock::new();
    TOKENIZER.get_or_init(llama_tokenizer)
}
