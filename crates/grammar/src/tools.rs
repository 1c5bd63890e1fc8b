//! Calls of tools as a schema: what a model that has to call one may write.
//!
//! ```text
//! [{"name": "weather", "arguments": {..}}, ..]      one or more calls; without the list if there may be one only
//! ```
//! The output parser reads this form from every model.

use serde_json::{Map, Value, json};

/// A tool that may be called.
#[derive(Clone, Debug)]
pub struct Tool<'a> {
    /// Its name.
    pub name: &'a str,
    /// The schema of its arguments; `None` takes any object.
    pub parameters: Option<&'a Value>,
}

/// The schema of a call of one of `tools`, or of a list of them where `several` are allowed.
pub fn tool_calls(tools: &[Tool<'_>], several: bool) -> Value {
    let mut definitions = Map::new();
    let mut calls = Vec::new();
    for (index, tool) in tools.iter().enumerate() {
        let definition = format!("tool{index}");
        definitions.insert(definition.clone(), arguments(tool.parameters, &definition));
        calls.push(json!({
            "type": "object",
            "properties": {"name": {"const": tool.name}, "arguments": {"$ref": format!("#/$defs/{definition}")}},
            "required": ["name", "arguments"],
            "additionalProperties": false,
        }));
    }
    let call = if calls.len() == 1 { calls.remove(0) } else { json!({"anyOf": calls}) };
    let mut schema = if several { json!({"type": "array", "items": call, "minItems": 1}) } else { call };
    schema["$defs"] = Value::Object(definitions);
    schema
}

/// A tool's own schema, its references pointing to its new place.
fn arguments(parameters: Option<&Value>, definition: &str) -> Value {
    let open = || json!({"type": "object", "additionalProperties": true});
    let mut schema = match parameters {
        Some(Value::Object(schema)) if !schema.is_empty() => Value::Object(schema.clone()),
        _ => open(),
    };
    schema["type"] = json!("object");
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
        let schema = tool_calls(&tools, true);
        let reference = &schema["$defs"]["tool0"]["properties"]["p"]["$ref"];
        assert_eq!(reference, "#/$defs/tool0/$defs/P");
        let validator = jsonschema::validator_for(&schema).expect("a schema");
        assert!(
            validator.is_valid(
                &json!([{"name": "f", "arguments": {"p": 1}}, {"name": "g", "arguments": {"x": 2}}])
            )
        );
        assert!(!validator.is_valid(&json!([{"name": "f", "arguments": {"p": "1"}}])));
        assert!(!validator.is_valid(&json!([])));
    }
}
