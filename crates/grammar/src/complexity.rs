//! Schemas that would take too long to compile, told before they are.
//!
//! llguidance bounds its work by fuel, but some steps are made of others that it does not count: intersections of many
//! expressions, and divisions by large numbers. Each bound here is far above what schemas of programs hold, and keeps what
//! is left under about a second.

use serde_json::Value;

/// JSON objects in a schema: compiling takes time with the square of an object's properties.
const MAX_NODES: usize = 2000;

/// Expressions of a schema that combines some: an answer would have to match all of them at once.
const MAX_COMBINED_PATTERNS: usize = 12;

/// Largest divisor: a divisor of `n` takes an automaton with `n` states.
const MAX_DIVISOR: f64 = 10_000.0;

/// Why the schema is turned down, if it is.
pub(crate) fn excess(schema: &Value) -> Option<String> {
    let (mut nodes, mut patterns, mut combines) = (0, 0, false);
    let mut left = vec![schema];
    while let Some(value) = left.pop() {
        match value {
            Value::Object(object) => {
                nodes += 1;
                combines |= object.contains_key("allOf");
                patterns += usize::from(object.get("pattern").is_some_and(Value::is_string));
                patterns += object
                    .get("patternProperties")
                    .and_then(Value::as_object)
                    .map_or(0, serde_json::Map::len);
                if object.get("multipleOf").and_then(Value::as_f64).is_some_and(|by| by > MAX_DIVISOR) {
                    return Some(format!("multipleOf may be at most {MAX_DIVISOR}"));
                }
                left.extend(object.values());
            }
            Value::Array(items) => left.extend(items),
            _ => {}
        }
    }
    if nodes > MAX_NODES {
        return Some(format!("it holds {nodes} objects, at most {MAX_NODES} are taken"));
    }
    let many = combines && patterns > MAX_COMBINED_PATTERNS;
    many.then(|| {
        format!("beside allOf it has {patterns} patterns, at most {MAX_COMBINED_PATTERNS} are taken")
    })
}
