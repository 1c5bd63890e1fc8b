//! Messages as other servers expect them, from the form that templates know.
//!
//! ```text
//! arguments of calls   an object            ->  JSON text
//! ids of calls         may be missing       ->  made up, and results get those of the calls before them
//! earlier thoughts     reasoning_content    ->  the name that the server reads, or left out
//! ```

use std::collections::VecDeque;

use serde_json::{Value, json};

use crate::settings::Kind;

/// The messages of a conversation.
pub(super) fn messages(given: &[Value], kind: Kind) -> Vec<Value> {
    let mut ids = CallIds::default();
    given.iter().map(|message| one(message, kind, &mut ids)).collect()
}

fn one(given: &Value, kind: Kind, ids: &mut CallIds) -> Value {
    let mut message = json!({ "role": given["role"], "content": given["content"] });
    if let Some(name) = given.get("name").filter(|name| name.is_string()) {
        message["name"] = name.clone();
    }
    if given["role"] == "tool" {
        message["tool_call_id"] = ids.of_result(given["tool_call_id"].as_str()).into();
    }
    if let Some(calls) = given["tool_calls"].as_array().filter(|calls| !calls.is_empty()) {
        message["tool_calls"] = calls.iter().map(|call| tool_call(call, ids)).collect();
    }
    if let Some(thoughts) = given["reasoning_content"].as_str() {
        for name in reasoning_names(kind) {
            message[*name] = thoughts.into();
        }
    }
    message
}

fn tool_call(given: &Value, ids: &mut CallIds) -> Value {
    let arguments = match &given["function"]["arguments"] {
        Value::String(text) => text.clone(),
        Value::Null => "{}".into(),
        object => object.to_string(),
    };
    let function = json!({ "name": given["function"]["name"], "arguments": arguments });
    json!({ "id": ids.of_call(given["id"].as_str()), "type": "function", "function": function })
}

/// What earlier thoughts are called; vLLM changed its word. OpenAI's own API has none, and some servers refuse what they do not know.
fn reasoning_names(kind: Kind) -> &'static [&'static str] {
    match kind {
        Kind::Vllm => &["reasoning", "reasoning_content"],
        Kind::Ollama => &["reasoning"],
        Kind::Sglang | Kind::LlamaServer | Kind::Ropeway => &["reasoning_content"],
        Kind::Openai => &[],
    }
}

/// Ids of calls, which Ollama's clients leave out.
#[derive(Debug, Default)]
struct CallIds {
    made_up: usize,
    /// Calls without a result yet, in order.
    waiting: VecDeque<String>,
}

impl CallIds {
    fn of_call(&mut self, given: Option<&str>) -> String {
        let id = given.filter(|id| !id.is_empty()).map_or_else(
            || {
                self.made_up += 1;
                format!("call_{}", self.made_up)
            },
            Into::into,
        );
        self.waiting.push_back(id.clone());
        id
    }

    fn of_result(&mut self, given: Option<&str>) -> String {
        let Some(id) = given.filter(|id| !id.is_empty()) else {
            return self.waiting.pop_front().unwrap_or_default();
        };
        self.waiting.retain(|waiting| waiting != id);
        id.into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_without_ids_get_some_that_their_results_share() {
        let call = |name: &str| json!({"function": {"name": name, "arguments": {"x": 1}}});
        let given = [
            json!({"role": "user", "content": "go"}),
            json!({"role": "assistant", "content": "", "tool_calls": [call("f"), call("g")]}),
            json!({"role": "tool", "content": "1", "name": "f"}),
            json!({"role": "tool", "content": "2"}),
        ];
        let got = messages(&given, Kind::Ollama);
        assert_eq!(got[1]["tool_calls"][0]["function"]["arguments"], "{\"x\":1}");
        for index in [0, 1] {
            assert_eq!(got[1]["tool_calls"][index]["id"], got[2 + index]["tool_call_id"]);
        }
        assert_ne!(got[2]["tool_call_id"], got[3]["tool_call_id"]);
    }

    #[test]
    fn a_clients_own_ids_stay_and_thoughts_have_each_servers_name() {
        let given = [
            json!({"role": "assistant", "content": "", "reasoning_content": "hm",
                   "tool_calls": [{"id": "a", "function": {"name": "f", "arguments": "{}"}}]}),
            json!({"role": "tool", "content": "1", "tool_call_id": "a"}),
        ];
        let got = messages(&given, Kind::Vllm);
        assert_eq!((&got[0]["tool_calls"][0]["id"], &got[1]["tool_call_id"]), (&json!("a"), &json!("a")));
        assert_eq!((&got[0]["reasoning"], &got[0]["reasoning_content"]), (&json!("hm"), &json!("hm")));
        let got = messages(&given, Kind::Openai);
        assert!(got[0].get("reasoning").is_none() && got[0].get("reasoning_content").is_none());
    }
}
