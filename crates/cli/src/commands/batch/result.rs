//! A line of the output, in the form of `OpenAI`'s batch results.

use std::time::{SystemTime, UNIX_EPOCH};

use serde_json::{Value, json};

use super::error::LineError;
use super::flight::{Landed, Totals};
use super::line::Endpoint;

/// The line for a request that is over; `model` is the one that ran.
pub fn line(landed: Landed, model: &str) -> Value {
    let Landed { id, endpoint, outcome, total } = landed;
    match outcome {
        Err(error) => error_line(&id, &error),
        Ok(choices) => {
            let choices: Vec<Value> =
                choices.into_iter().enumerate().map(|(index, choice)| one(endpoint, index, choice)).collect();
            let (prefix, object) = match endpoint {
                Endpoint::Chat => ("chatcmpl", "chat.completion"),
                Endpoint::Completion => ("cmpl", "text_completion"),
            };
            let body = json!({
                "id": format!("{prefix}-{id}"),
                "object": object,
                "created": now(),
                "model": model,
                "choices": choices,
                "usage": usage(total),
            });
            let response = json!({ "status_code": 200, "request_id": id, "body": body });
            json!({ "custom_id": id, "response": response, "error": null })
        }
    }
}

/// The line for a request that got no answer.
pub fn error_line(id: &str, error: &LineError) -> Value {
    let told = json!({ "code": error.code(), "message": error.to_string() });
    let response = json!({ "status_code": error.status(), "request_id": id, "body": { "error": &told } });
    json!({ "custom_id": id, "response": response, "error": told })
}

fn one(endpoint: Endpoint, index: usize, (text, finish): (String, &'static str)) -> Value {
    match endpoint {
        Endpoint::Chat => {
            let message = json!({ "role": "assistant", "content": text });
            json!({ "index": index, "message": message, "logprobs": null, "finish_reason": finish })
        }
        Endpoint::Completion => {
            json!({ "index": index, "text": text, "logprobs": null, "finish_reason": finish })
        }
    }
}

fn usage(total: Totals) -> Value {
    json!({
        "prompt_tokens": total.prompt,
        "completion_tokens": total.generated,
        "total_tokens": total.prompt + total.generated,
        "prompt_tokens_details": { "cached_tokens": total.cached },
    })
}

fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}
