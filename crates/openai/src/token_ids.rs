//! Token ids that a client sends.

use ropeway_generation::RequestError;
use serde_json::Value;

/// Reads a list of token ids; errors are about `field`.
pub fn read(ids: &[Value], field: &str) -> Result<Vec<u32>, RequestError> {
    let id = |value: &Value| value.as_u64().and_then(|id| u32::try_from(id).ok());
    let known =
        |value| id(value).ok_or_else(|| RequestError::invalid(format!("{value} is no token id")).at(field));
    ids.iter().map(known).collect()
}
