//! Structured output as Anthropic writes it: `output_config.format`, and `output_format` of before.

use ropeway_generation::{RequestError, StructuredOutput};
use ropeway_grammar::Strictness;
use serde_json::Value;

/// The field that errors are about.
const FIELD: &str = "output_config.format";

/// The form asked for.
pub fn read(format: Option<Value>) -> Result<Option<StructuredOutput>, RequestError> {
    let Some(mut format) = format.filter(|format| !format.is_null()) else { return Ok(None) };
    let schema = format.get_mut("schema").map(Value::take).filter(|schema| !schema.is_null());
    match (format["type"].as_str(), schema) {
        (Some("json_schema"), Some(schema)) => {
            StructuredOutput::json_schema(schema, Strictness::Strict, FIELD).map(Some)
        }
        _ => Err(RequestError::invalid("a format is a json_schema with its schema").at(FIELD)),
    }
}

#[cfg(test)]
mod tests {
    use ropeway_grammar::GrammarSpec;
    use serde_json::json;

    use super::*;

    #[test]
    fn a_format_is_a_strict_schema() {
        let schema = json!({"type": "integer"});
        let format = read(Some(json!({"type": "json_schema", "schema": schema}))).unwrap().unwrap();
        assert_eq!(*format.spec(), GrammarSpec::JsonSchema { schema, strictness: Strictness::Strict });
        assert_eq!(read(None), Ok(None));
        assert_eq!(read(Some(Value::Null)), Ok(None));
        for bad in [json!({"type": "json_object"}), json!({"type": "json_schema"}), json!("json")] {
            assert!(read(Some(bad.clone())).is_err(), "{bad}");
        }
    }
}
