//! Structured output as OpenAI and vLLM write it.
//!
//! | written in | as |
//! |---|---|
//! | OpenAI | `response_format`: `json_schema` (strict or not), `json_object`; `text.format` of responses |
//! | vLLM | `structured_outputs` with `json`, `regex`, `choice` or `grammar`; `guided_json` and its like |

use ropeway_generation::{RequestError, StructuredOutput};
use ropeway_grammar::{GrammarSpec, Strictness};
use serde::Deserialize;
use serde_json::Value;
use utoipa::ToSchema;

/// The fields of chat and completions that ask for structured output.
#[derive(Clone, Debug, Default, Deserialize, ToSchema)]
pub struct StructuredFields {
    response_format: Option<Value>,
    structured_outputs: Option<Value>,
    guided_json: Option<Value>,
    guided_regex: Option<Value>,
    guided_choice: Option<Value>,
    guided_grammar: Option<Value>,
}

impl StructuredFields {
    /// The one form asked for; several are an error.
    pub fn read(self) -> Result<Option<StructuredOutput>, RequestError> {
        let mut asked: Vec<StructuredOutput> =
            response_format(self.response_format, "response_format")?.into_iter().collect();
        let mut inside = match self.structured_outputs {
            None | Some(Value::Null) => None,
            Some(Value::Object(fields)) => Some(fields),
            Some(_) => {
                let message = "structured_outputs is an object";
                return Err(RequestError::invalid(message).at("structured_outputs"));
            }
        };
        let mut take = |name: &str| inside.as_mut().and_then(|fields| fields.remove(name));
        let json_object = take("json_object") == Some(Value::Bool(true));
        for (value, field, form) in [
            (take("json"), "structured_outputs.json", Form::Json),
            (take("regex"), "structured_outputs.regex", Form::Regex),
            (take("choice"), "structured_outputs.choice", Form::Choice),
            (take("grammar"), "structured_outputs.grammar", Form::Grammar),
            (self.guided_json, "guided_json", Form::Json),
            (self.guided_regex, "guided_regex", Form::Regex),
            (self.guided_choice, "guided_choice", Form::Choice),
            (self.guided_grammar, "guided_grammar", Form::Grammar),
        ] {
            if let Some(value) = given(value) {
                asked.push(form.read(value, field)?);
            }
        }
        if json_object {
            asked.push(StructuredOutput::new(GrammarSpec::JsonObject, "structured_outputs.json_object"));
        }
        if asked.is_empty() && inside.is_some() {
            let message = "structured_outputs holds one of json, regex, choice, grammar and json_object";
            return Err(RequestError::invalid(message).at("structured_outputs"));
        }
        only(asked)
    }
}

fn only(mut asked: Vec<StructuredOutput>) -> Result<Option<StructuredOutput>, RequestError> {
    if asked.len() > 1 {
        let all: Vec<&str> = asked.iter().map(StructuredOutput::field).collect();
        let message =
            format!("an answer can follow one format only; leave out all but one of {}", all.join(", "));
        return Err(RequestError::invalid(message).at(all[1]));
    }
    Ok(asked.pop())
}

/// OpenAI's `response_format`, and the flat form of it that responses have; errors are about `field`.
pub fn response_format(
    format: Option<Value>,
    field: &'static str,
) -> Result<Option<StructuredOutput>, RequestError> {
    let Some(mut format) = given(format) else { return Ok(None) };
    match format["type"].as_str() {
        Some("text") => Ok(None),
        Some("json_object") => Ok(Some(StructuredOutput::new(GrammarSpec::JsonObject, field))),
        Some("json_schema") => {
            let mut inside = match format.get_mut("json_schema") {
                Some(nested) => nested.take(),
                None => format,
            };
            let strict = inside["strict"].as_bool().unwrap_or(false);
            let strictness = if strict { Strictness::Strict } else { Strictness::Lenient };
            let Some(schema) = given(inside.get_mut("schema").map(Value::take)) else {
                let message = "a json_schema format needs its schema; put it in `schema`";
                return Err(RequestError::invalid(message).at(field));
            };
            StructuredOutput::json_schema(schema, strictness, field).map(Some)
        }
        _ => Err(RequestError::invalid("a format is text, json_object or json_schema").at(field)),
    }
}

/// vLLM's forms.
#[derive(Clone, Copy)]
enum Form {
    Json,
    Regex,
    Choice,
    Grammar,
}

impl Form {
    fn read(self, value: Value, field: &'static str) -> Result<StructuredOutput, RequestError> {
        let bad = |message: &str| RequestError::invalid(message).at(field);
        let spec = match (self, value) {
            (Form::Json, schema) => {
                return StructuredOutput::json_schema(schema, Strictness::Strict, field);
            }
            (Form::Regex, Value::String(text)) => GrammarSpec::Regex(text),
            (Form::Regex, _) => return Err(bad("a regular expression is a string")),
            (Form::Grammar, Value::String(text)) => GrammarSpec::Grammar(text),
            (Form::Grammar, _) => return Err(bad("a grammar is a string")),
            (Form::Choice, choices) => {
                let texts: Option<Vec<String>> = serde_json::from_value(choices).ok();
                let texts = texts.filter(|texts| !texts.is_empty());
                GrammarSpec::Choice(texts.ok_or_else(|| bad("choices are a list of at least one string"))?)
            }
        };
        Ok(StructuredOutput::new(spec, field))
    }
}

/// A value that is there and says something.
fn given(value: Option<Value>) -> Option<Value> {
    value.filter(|value| !value.is_null())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn spec(
        read: Result<Option<StructuredOutput>, RequestError>,
    ) -> Result<Option<GrammarSpec>, RequestError> {
        read.map(|asked| asked.map(|asked| asked.spec().clone()))
    }

    fn vllm(fields: Value) -> Result<Option<GrammarSpec>, RequestError> {
        spec(serde_json::from_value::<StructuredFields>(fields).expect("fields").read())
    }

    #[test]
    fn every_way_to_write_a_response_format_is_understood() {
        let openai = |format: Value| spec(response_format(Some(format), "response_format"));
        let schema = json!({"type": "integer"});
        let strict = GrammarSpec::JsonSchema { schema: schema.clone(), strictness: Strictness::Strict };
        let lenient = GrammarSpec::JsonSchema { schema: schema.clone(), strictness: Strictness::Lenient };
        let nested =
            json!({"type": "json_schema", "json_schema": {"name": "n", "strict": true, "schema": schema}});
        let flat = json!({"type": "json_schema", "name": "n", "schema": schema});
        assert_eq!(openai(nested), Ok(Some(strict)));
        assert_eq!(openai(flat), Ok(Some(lenient)));
        assert_eq!(openai(json!({"type": "json_object"})), Ok(Some(GrammarSpec::JsonObject)));
        assert_eq!(openai(json!({"type": "text"})), Ok(None));
        assert_eq!(openai(Value::Null), Ok(None));
        for bad in [json!({"type": "xml"}), json!({"type": "json_schema"}), json!(5), json!("json")] {
            assert!(openai(bad.clone()).is_err(), "{bad}");
        }
    }

    #[test]
    fn vllms_forms_are_understood() {
        let schema = json!({"type": "integer"});
        let strict = GrammarSpec::JsonSchema { schema: schema.clone(), strictness: Strictness::Strict };
        assert_eq!(vllm(json!({"guided_json": schema.to_string()})), Ok(Some(strict)));
        let choice = GrammarSpec::Choice(vec!["a".into(), "b".into()]);
        assert_eq!(vllm(json!({"structured_outputs": {"choice": ["a", "b"]}})), Ok(Some(choice)));
        assert_eq!(vllm(json!({"guided_regex": "a+"})), Ok(Some(GrammarSpec::Regex("a+".into()))));
        let object = json!({"structured_outputs": {"json_object": true}});
        assert_eq!(vllm(object), Ok(Some(GrammarSpec::JsonObject)));
        assert_eq!(vllm(json!({})), Ok(None));
    }

    #[test]
    fn none_and_several_forms_are_errors() {
        for bad in [
            json!({"structured_outputs": {}}),
            json!({"structured_outputs": "a"}),
            json!({"guided_choice": []}),
            json!({"guided_choice": [1]}),
            json!({"guided_regex": 1}),
            json!({"guided_regex": "a", "guided_grammar": "b"}),
            json!({"response_format": {"type": "json_object"}, "guided_regex": "a"}),
        ] {
            assert!(vllm(bad.clone()).is_err(), "{bad}");
        }
    }
}
