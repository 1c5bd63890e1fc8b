//! What Ollama's clients send where other APIs would leave a field out: `null`, and empty texts in fields of old.

use serde::{Deserialize, Deserializer};

use crate::error::ApiError;

/// Reads `null` as nothing.
pub fn null_is_default<'de, D, T>(deserializer: D) -> Result<T, D::Error>
where
    D: Deserializer<'de>,
    T: Default + Deserialize<'de>,
{
    Option::deserialize(deserializer).map(Option::unwrap_or_default)
}

/// The model that a request names, in today's field or in the one of old. Go's clients send both, one of them empty.
pub fn named<'a>(model: Option<&'a str>, name: Option<&'a str>) -> Option<&'a str> {
    model.filter(|model| !model.is_empty()).or(name).filter(|name| !name.is_empty())
}

/// The error for a request that names no model.
pub fn no_model() -> ApiError {
    ApiError::invalid("model is required").about("model")
}
