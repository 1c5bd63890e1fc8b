//! Calls of tools as a schema: what a model that has to call one may write.
//!
//! ```text
//! {"name": "weather", "arguments": {..}}
//! ```
//! The output parser reads this form from every model. There is one call: a model that may go on with others may go on
//! for ever.

use serde_json::{Map, Value, json};

/// A tool that may be called.
#[derive(Clone, Debug)]
pub struct Tool<'a> {
    /// Its name.
    pub name: &'a str,
    /// The schema of its arguments; `None` takes any object.
    pub parameters: Option<&'a Value>,
}

/// The schema of a call of one of `tools`.
pub fn tool_call(tools: &[Tool<'_>]) -> Value {
    let mut definitions = Map::new();
    let mut calls = Vec::new();
    for (index, tool) in tools.iter().enumerate() {
        let definition = format!("tool{index}");
        calls.push(json!({
            "type": "object",
            "properties": {"name": {"const": tool.name}, "arguments": {"$ref": format!("#/$defs/{definition}")}},
            "required": ["name", "arguments"],
            "additionalProperties": false,
        }));
        definitions.insert(definition.clone(), moved(&arguments(tool.parameters), &definition));
    }
    let mut schema = if calls.len() == 1 { calls.remove(0) } else { json!({"anyOf": calls}) };
    schema["$defs"] = Value::Object(definitions);
    schema
}

/// The schema of what is valid under one of two.
pub fn either(one: &Value, other: &Value) -> Value {
    json!({
        "anyOf": [{"$ref": "#/$defs/one"}, {"$ref": "#/$defs/other"}],
        "$defs": {"one": moved(one, "one"), "other": moved(other, "other")},
    })
}

fn arguments(parameters: Option<&Value>) -> Value {
    match parameters {
        Some(Value::Object(schema)) if !schema.is_empty() => {
            let mut schema = schema.clone();
            schema.insert("type".into(), json!("object"));
            Value::Object(schema)
        }
        _ => json!({"type": "object", "additionalProperties": true}),
    }
}

/// A schema that becomes the definition of this name: its references point to its new place.
fn moved(schema: &Value, definition: &str) -> Value {
    let mut schema = schema.clone();
    let mut left = vec![&mut schema];
    while let Some(value) = left.pop() {
        match value {
            Value::Object(object) => {
                if let Some(Value::String(reference)) = object.get_mut("$ref")
                    && let Some(inner) = reference.strip_prefix('#')
                {
                    *reference = format!("#/$defs/{definition}{inner}");
                }
                left.extend(object.values_mut());
            }
            Value::Array(items) => left.extend(items),
            _ => {}
        }
    }
    schema
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn references_inside_a_tool_still_find_what_they_meant() {
        let parameters =
            json!({"properties": {"p": {"$ref": "#/$defs/P"}}, "$defs": {"P": {"type": "integer"}}});
        let tools = [Tool { name: "f", parameters: Some(&parameters) }, Tool { name: "g", parameters: None }];
        let call = tool_call(&tools);
        assert_eq!(call["$defs"]["tool0"]["properties"]["p"]["$ref"], "#/$defs/tool0/$defs/P");
        let answer = json!({"$ref": "#/definitions/A", "definitions": {"A": {"type": "boolean"}}});
        for schema in [call.clone(), either(&answer, &call)] {
            let validator = jsonschema::validator_for(&schema).expect("a schema");
            assert!(validator.is_valid(&json!({"name": "f", "arguments": {"p": 1}})));
            assert!(validator.is_valid(&json!({"name": "g", "arguments": {"x": 2}})));
            assert!(!validator.is_valid(&json!({"name": "f", "arguments": {"p": "1"}})));
            assert_eq!(validator.is_valid(&json!(true)), schema != call);
        }
    }
}
