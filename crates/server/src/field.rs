//! Fields of JSON objects, by value.

use serde_json::Value;

/// Takes a field out of an object; null if it is not there.
pub fn take(object: &mut Value, field: &str) -> Value {
    object.get_mut(field).map(Value::take).unwrap_or_default()
}
