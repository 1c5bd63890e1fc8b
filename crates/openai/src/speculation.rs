//! Speculation in chat completions and completions: how much is drafted, and OpenAI's predicted outputs.
//!
//! | field | whose | what it holds |
//! |---|---|---|
//! | `prediction` | OpenAI | `{"type": "content", "content": text or text parts}` |
//! | `speculation` | ours; vLLM sets it per server only, its word for the depth is used | `{"enabled": bool, "num_speculative_tokens": 0 to 16}` |

use ropeway_generation::{DraftDepth, Job, RequestError};
use serde::Deserialize;
use serde_json::Value;
use utoipa::ToSchema;

use crate::messages;

/// The fields of chat and completions that are about speculation. None of them changes the text.
#[derive(Clone, Debug, Default, Deserialize, ToSchema)]
pub struct SpeculationFields {
    /// The answer that the client expects: `{"type": "content", "content": "..."}`, the content being text or text parts.
    prediction: Option<Value>,
    /// How much is drafted: `{"enabled": true, "num_speculative_tokens": 4}`, both optional; at most 16 tokens.
    speculation: Option<Value>,
}

/// What a request says about speculation.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SpeculationWish {
    /// Most drafted tokens of a step.
    pub depth: Option<DraftDepth>,
    /// The answer that the client expects.
    pub prediction: Option<String>,
}

impl SpeculationFields {
    /// What they say.
    pub fn read(self) -> Result<SpeculationWish, RequestError> {
        let prediction = self.prediction.filter(|value| !value.is_null()).map(predicted).transpose()?;
        let depth =
            self.speculation.filter(|value| !value.is_null()).map(|value| depth(&value)).transpose()?;
        Ok(SpeculationWish { depth: depth.flatten(), prediction })
    }
}

impl SpeculationWish {
    /// The job with what was wished.
    pub fn of(self, job: Job) -> Job {
        Job { speculation: self.depth, prediction: self.prediction, ..job }
    }
}

fn predicted(mut prediction: Value) -> Result<String, RequestError> {
    if prediction["type"] != "content" {
        let message = r#"a prediction is {"type": "content", "content": "..."}"#;
        return Err(RequestError::invalid(message).at("prediction"));
    }
    let content = prediction["content"].take();
    let is_text =
        content.is_string() || content.as_array().is_some_and(|parts| parts.iter().all(is_text_part));
    if !is_text {
        let message = "the content of a prediction is text or a list of text parts";
        return Err(RequestError::invalid(message).at("prediction.content"));
    }
    messages::content(content).map_err(|error| error.at("prediction.content"))
}

fn is_text_part(part: &Value) -> bool {
    part["type"] == "text" && part["text"].is_string()
}

/// The depth that a wish comes to; `None` leaves it to the server.
fn depth(wish: &Value) -> Result<Option<DraftDepth>, RequestError> {
    let bad = |message: &str, field: &str| Err(RequestError::invalid(message).at(field));
    let Some(wish) = wish.as_object() else {
        return bad(
            r#"speculation is an object: {"enabled": true, "num_speculative_tokens": 4}"#,
            "speculation",
        );
    };
    let is_enabled = match wish.get("enabled") {
        None | Some(Value::Null) => true,
        Some(Value::Bool(enabled)) => *enabled,
        Some(_) => return bad("speculation.enabled is true or false", "speculation.enabled"),
    };
    let depth = match wish.get("num_speculative_tokens") {
        None | Some(Value::Null) => None,
        // What is no whole number is refused as one that is out of range.
        Some(depth) => {
            Some(DraftDepth::new(depth.as_i64().unwrap_or(-1), "speculation.num_speculative_tokens")?)
        }
    };
    Ok(if is_enabled { depth } else { Some(DraftDepth::NONE) })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn read(fields: Value) -> Result<SpeculationWish, RequestError> {
        serde_json::from_value::<SpeculationFields>(fields).unwrap().read()
    }

    #[test]
    fn a_prediction_is_a_text_or_its_parts() {
        let parts = json!([{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]);
        for (content, text) in [(json!("ab"), "ab"), (parts, "ab"), (json!(""), ""), (json!([]), "")] {
            let wish = read(json!({"prediction": {"type": "content", "content": content}})).unwrap();
            assert_eq!(wish.prediction.as_deref(), Some(text));
        }
        assert_eq!(
            read(json!({"prediction": null, "speculation": null})).unwrap(),
            SpeculationWish::default()
        );
    }

    #[test]
    fn a_prediction_of_another_kind_is_refused_with_its_field() {
        for (prediction, field) in [
            (json!("text"), "prediction"),
            (json!(5), "prediction"),
            (json!({"content": "x"}), "prediction"),
            (json!({"type": "image", "content": "x"}), "prediction"),
            (json!({"type": "content"}), "prediction.content"),
            (json!({"type": "content", "content": 5}), "prediction.content"),
            (json!({"type": "content", "content": ["x"]}), "prediction.content"),
            (json!({"type": "content", "content": [{"type": "text"}]}), "prediction.content"),
            (json!({"type": "content", "content": [{"type": "image_url"}]}), "prediction.content"),
        ] {
            let error = read(json!({"prediction": prediction})).unwrap_err();
            assert_eq!(error.field.as_deref(), Some(field), "{prediction}: {error}");
        }
    }

    #[test]
    fn speculation_is_a_depth_or_switched_off() {
        let depth = |wish| read(json!({"speculation": wish})).unwrap().depth.map(DraftDepth::get);
        assert_eq!(depth(json!({})), None);
        assert_eq!(depth(json!({"enabled": true})), None);
        assert_eq!(depth(json!({"enabled": false, "num_speculative_tokens": 4})), Some(0));
        assert_eq!(depth(json!({"num_speculative_tokens": 4})), Some(4));
    }

    #[test]
    fn a_wrong_wish_says_what_is_right() {
        for (wish, field) in [
            (json!(true), "speculation"),
            (json!([4]), "speculation"),
            (json!({"enabled": "yes"}), "speculation.enabled"),
            (json!({"num_speculative_tokens": 17}), "speculation.num_speculative_tokens"),
            (json!({"num_speculative_tokens": -1}), "speculation.num_speculative_tokens"),
            (json!({"num_speculative_tokens": 2.5}), "speculation.num_speculative_tokens"),
            (json!({"num_speculative_tokens": "4"}), "speculation.num_speculative_tokens"),
            (json!({"enabled": false, "num_speculative_tokens": 99}), "speculation.num_speculative_tokens"),
        ] {
            let error = read(json!({"speculation": wish})).unwrap_err();
            assert_eq!(error.field.as_deref(), Some(field), "{wish}: {error}");
        }
    }
}
