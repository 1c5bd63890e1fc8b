//! Schemas made ready: how answers are spaced, and which objects are closed.
//!
//! Answers are written without white space between tokens of JSON. A model that may put any amount of it anywhere
//! sometimes does nothing else, and what can only be written in one way need not be asked of the model.
//!
//! An object that lists its properties and does not say whether it may have others has none: few who write
//! `properties` mean "and whatever else", and every other server that follows schemas reads them so (llama.cpp, xgrammar).
//! The answer is valid all the same. `additionalProperties: true` opens an object again.

use serde_json::{Map, Value, json};

use crate::spec::Strictness;

/// Keywords that combine schemas: what one of them closes, the others could not add to.
const COMBINING: [&str; 7] =
    ["allOf", "anyOf", "oneOf", "$ref", "$dynamicRef", "patternProperties", "unevaluatedProperties"];

/// Keywords whose value is a schema, a list of them, or a map to them.
const ONE: [&str; 5] = ["items", "additionalProperties", "additionalItems", "contains", "propertyNames"];
const LISTS: [&str; 3] = ["anyOf", "oneOf", "prefixItems"];
const MAPS: [&str; 4] = ["properties", "patternProperties", "$defs", "definitions"];

/// The schema as it is compiled.
pub(crate) fn prepare(schema: &Value, strictness: Strictness) -> Value {
    let mut schema = schema.clone();
    let combined = combined_definitions(&schema);
    close(&mut schema, &combined);
    if let Value::Object(root) = &mut schema {
        let lenient = strictness == Strictness::Lenient;
        root.entry("x-guidance").or_insert(json!({"whitespace_flexible": false, "lenient": lenient}));
    }
    schema
}

/// References that stand inside `allOf`, or beside other keywords of an object: what they point to stays open.
fn combined_definitions(schema: &Value) -> Vec<String> {
    let mut found = Vec::new();
    let mut left = vec![schema];
    while let Some(value) = left.pop() {
        if let Value::Object(object) = value {
            let beside = object.contains_key("properties") || object.contains_key("allOf");
            let all = object.get("allOf").and_then(Value::as_array).into_iter().flatten();
            let combined = all.chain(Some(value).filter(|_| beside));
            found.extend(combined.filter_map(|part| part["$ref"].as_str()).map(str::to_owned));
            left.extend(object.values());
        } else if let Value::Array(items) = value {
            left.extend(items);
        }
    }
    found
}

fn close(schema: &mut Value, combined: &[String]) {
    let mut place = String::from("#");
    close_at(schema, &mut place, combined);
}

fn close_at(schema: &mut Value, place: &mut String, combined: &[String]) {
    let Value::Object(object) = schema else { return };
    for keyword in ONE {
        if let Some(inner) = object.get_mut(keyword) {
            within(place, &[keyword], |place| close_at(inner, place, combined));
        }
    }
    for keyword in LISTS {
        let inner = object.get_mut(keyword).and_then(Value::as_array_mut).into_iter().flatten();
        for (index, inner) in inner.enumerate() {
            within(place, &[keyword, &index.to_string()], |place| close_at(inner, place, combined));
        }
    }
    for keyword in MAPS {
        let inner = object.get_mut(keyword).and_then(Value::as_object_mut).into_iter().flatten();
        for (name, inner) in inner {
            within(place, &[keyword, name], |place| close_at(inner, place, combined));
        }
    }
    if lists_all_it_has(object) && !combined.contains(place) {
        object.insert("additionalProperties".into(), Value::Bool(false));
    }
}

fn within(place: &mut String, steps: &[&str], act: impl FnOnce(&mut String)) {
    let before = place.len();
    for step in steps {
        place.push('/');
        place.push_str(step);
    }
    act(place);
    place.truncate(before);
}

fn lists_all_it_has(object: &Map<String, Value>) -> bool {
    let listed = object.get("properties").and_then(Value::as_object);
    let required = object.get("required").and_then(Value::as_array);
    let named =
        |name: &Value| name.as_str().is_some_and(|name| listed.is_some_and(|all| all.contains_key(name)));
    listed.is_some_and(|all| !all.is_empty())
        && required.is_none_or(|required| required.iter().all(named))
        && !object.contains_key("additionalProperties")
        && !object.contains_key("minProperties")
        && !COMBINING.iter().any(|keyword| object.contains_key(*keyword))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn closed(mut schema: Value) -> Value {
        let combined = combined_definitions(&schema);
        close(&mut schema, &combined);
        schema
    }

    #[test]
    fn objects_that_list_their_properties_are_closed_wherever_they_stand() {
        let object = || json!({"type": "object", "properties": {"a": {"type": "string"}}});
        let shut = || json!({"type": "object", "properties": {"a": {"type": "string"}}, "additionalProperties": false});
        for wrap in [
            |inner: Value| json!({"type": "array", "items": inner}),
            |inner: Value| json!({"anyOf": [inner, {"type": "null"}]}),
            |inner: Value| json!({"$ref": "#/$defs/A", "$defs": {"A": inner}}),
        ] {
            assert_eq!(closed(wrap(object())), wrap(shut()));
        }
    }

    #[test]
    fn what_is_said_to_be_open_or_is_combined_stays_open() {
        for schema in [
            json!({"type": "object"}),
            json!({"properties": {"a": {}}, "additionalProperties": true}),
            json!({"properties": {"a": {}}, "required": ["b"]}),
            json!({"properties": {"a": {}}, "allOf": [{"properties": {"b": {}}}]}),
            json!({"allOf": [{"$ref": "#/$defs/A"}], "$defs": {"A": {"properties": {"a": {}}}}}),
            json!({"enum": [{"properties": {"a": {}}}]}),
        ] {
            assert_eq!(closed(schema.clone()), schema);
        }
    }
}
