//! `tool_choice`: a word, or a tool by its name.

use ropeway_generation::{RequestError, ToolChoice};
use serde_json::Value;

/// Reads the choice. `named` finds the tool's name in an object, which is where the APIs differ; `message` is the error
/// for everything else.
pub fn read(
    choice: Option<&Value>,
    named: impl FnOnce(&Value) -> Option<&str>,
    message: &str,
) -> Result<ToolChoice, RequestError> {
    match choice {
        None | Some(Value::Null) => Ok(ToolChoice::Auto),
        Some(Value::String(word)) if word == "auto" => Ok(ToolChoice::Auto),
        Some(Value::String(word)) if word == "none" => Ok(ToolChoice::None),
        Some(Value::String(word)) if word == "required" => Ok(ToolChoice::Required),
        Some(other) => match named(other) {
            Some(name) => Ok(ToolChoice::Named(name.into())),
            None => Err(RequestError::invalid(message).at("tool_choice")),
        },
    }
}
