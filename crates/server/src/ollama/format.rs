//! Structured output as Ollama writes it: `format` is `"json"` or a schema.

use ropeway_generation::{RequestError, StructuredOutput};
use ropeway_grammar::{GrammarSpec, Strictness};
use serde_json::Value;

/// The form asked for.
pub fn read(format: Option<Value>) -> Result<Option<StructuredOutput>, RequestError> {
    match format {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(text)) if text.is_empty() => Ok(None),
        Some(Value::String(text)) if text == "json" => {
            Ok(Some(StructuredOutput::new(GrammarSpec::JsonObject, "format")))
        }
        Some(schema @ Value::Object(_)) => {
            StructuredOutput::json_schema(schema, Strictness::Lenient, "format").map(Some)
        }
        Some(_) => Err(RequestError::invalid("format is \"json\" or a JSON schema").at("format")),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_format_is_json_or_a_lenient_schema() {
        let spec = |format: Value| read(Some(format)).map(|read| read.map(|read| read.spec().clone()));
        let schema = json!({"type": "integer"});
        assert_eq!(spec(json!("json")), Ok(Some(GrammarSpec::JsonObject)));
        let lenient = GrammarSpec::JsonSchema { schema: schema.clone(), strictness: Strictness::Lenient };
        assert_eq!(spec(schema), Ok(Some(lenient)));
        assert_eq!(spec(json!("")), Ok(None));
        assert_eq!(spec(Value::Null), Ok(None));
        assert!(spec(json!("yaml")).is_err() && spec(json!(5)).is_err());
    }
}
