//! Answers that have to look a certain way: how each API family says so, and the grammar that comes of it.
//!
//! | said in | as |
//! |---|---|
//! | OpenAI | `response_format`: `json_schema` (strict or not), `json_object`; `text.format` of responses |
//! | vLLM | `structured_outputs` with `json`, `regex`, `choice` or `grammar`; `guided_json` and its like |
//! | Anthropic | `output_config.format`, `output_format`: `json_schema` |
//! | Ollama | `format`: `"json"` or a schema |
//! | all of them | a tool that has to be called |
//!
//! The one place where these are read: families hand over the values they were sent.

use std::sync::Arc;

use ropeway_engine::Grammar;
use ropeway_grammar::{GrammarSpec, Reasoning, Strictness, Tool, either, tool_call};
use serde::Deserialize;
use serde_json::Value;
use utoipa::ToSchema;

use crate::error::ApiError;
use crate::model::Model;
use crate::offload::elsewhere;

/// What an answer has to look like.
#[derive(Clone, Debug, PartialEq)]
pub struct Structure {
    /// The wish itself.
    spec: GrammarSpec,
    /// The parameter it came in.
    param: &'static str,
}

/// vLLM's ways to say it, beside those of OpenAI.
#[derive(Clone, Debug, Default, Deserialize, ToSchema)]
pub struct Extensions {
    structured_outputs: Option<Value>,
    guided_json: Option<Value>,
    guided_regex: Option<Value>,
    guided_choice: Option<Value>,
    guided_grammar: Option<Value>,
}

impl Structure {
    fn new(spec: GrammarSpec, param: &'static str) -> Self {
        Self { spec, param }
    }

    fn schema(schema: &Value, strictness: Strictness, param: &'static str) -> Result<Self, ApiError> {
        // Some clients send the schema as text.
        let parsed = schema.as_str().and_then(|text| serde_json::from_str(text).ok());
        let schema: Value = parsed.unwrap_or_else(|| schema.clone());
        if !schema.is_object() && !schema.is_boolean() {
            return Err(ApiError::invalid("the JSON schema must be an object").about(param));
        }
        Ok(Self::new(GrammarSpec::JsonSchema { schema, strictness }, param))
    }

    /// OpenAI's `response_format`, and the flat form of it that responses have.
    pub fn openai(format: Option<&Value>, param: &'static str) -> Result<Option<Self>, ApiError> {
        let Some(format) = given(format) else { return Ok(None) };
        match format["type"].as_str() {
            Some("text") => Ok(None),
            Some("json_object") => Ok(Some(Self::new(GrammarSpec::JsonObject, param))),
            Some("json_schema") => {
                let inside = format.get("json_schema").unwrap_or(format);
                let Some(schema) = given(inside.get("schema")) else {
                    let what = "a json_schema format needs its schema; put it in `schema`";
                    return Err(ApiError::invalid(what).about(param));
                };
                let strict = inside["strict"].as_bool().unwrap_or(false);
                let strictness = if strict { Strictness::Strict } else { Strictness::Lenient };
                Self::schema(schema, strictness, param).map(Some)
            }
            _ => Err(ApiError::invalid("a format is text, json_object or json_schema").about(param)),
        }
    }

    /// OpenAI's way, or one of vLLM's.
    pub fn openai_or_vllm(format: Option<&Value>, vllm: &Extensions) -> Result<Option<Self>, ApiError> {
        let mut said: Vec<Self> = Self::openai(format, "response_format")?.into_iter().collect();
        let nothing = Value::Null;
        let inside = vllm.structured_outputs.as_ref().unwrap_or(&nothing);
        if !inside.is_null() && !inside.is_object() {
            return Err(ApiError::invalid("structured_outputs is an object").about("structured_outputs"));
        }
        for (value, param, kind) in [
            (inside.get("json"), "structured_outputs.json", Form::Json),
            (inside.get("regex"), "structured_outputs.regex", Form::Regex),
            (inside.get("choice"), "structured_outputs.choice", Form::Choice),
            (inside.get("grammar"), "structured_outputs.grammar", Form::Grammar),
            (vllm.guided_json.as_ref(), "guided_json", Form::Json),
            (vllm.guided_regex.as_ref(), "guided_regex", Form::Regex),
            (vllm.guided_choice.as_ref(), "guided_choice", Form::Choice),
            (vllm.guided_grammar.as_ref(), "guided_grammar", Form::Grammar),
        ] {
            if let Some(value) = given(value) {
                said.push(kind.structure(value, param)?);
            }
        }
        if inside["json_object"] == true {
            said.push(Self::new(GrammarSpec::JsonObject, "structured_outputs.json_object"));
        }
        match said.len() {
            0 if !inside.is_null() => {
                let what = "structured_outputs holds one of json, regex, choice, grammar and json_object";
                Err(ApiError::invalid(what).about("structured_outputs"))
            }
            0 | 1 => Ok(said.pop()),
            _ => {
                let all: Vec<&str> = said.iter().map(|one| one.param).collect();
                let what = format!(
                    "an answer can follow one format only; leave out all but one of {}",
                    all.join(", ")
                );
                Err(ApiError::invalid(what).about(said[1].param))
            }
        }
    }

    /// Anthropic's `output_config.format`.
    pub fn anthropic(format: Option<&Value>) -> Result<Option<Self>, ApiError> {
        const PARAM: &str = "output_config.format";
        let Some(format) = given(format) else { return Ok(None) };
        match (format["type"].as_str(), given(format.get("schema"))) {
            (Some("json_schema"), Some(schema)) => Self::schema(schema, Strictness::Strict, PARAM).map(Some),
            _ => Err(ApiError::invalid("a format is a json_schema with its schema").about(PARAM)),
        }
    }

    /// Ollama's `format`.
    pub fn ollama(format: Option<&Value>) -> Result<Option<Self>, ApiError> {
        match given(format) {
            None => Ok(None),
            Some(Value::String(text)) if text.is_empty() => Ok(None),
            Some(Value::String(text)) if text == "json" => {
                Ok(Some(Self::new(GrammarSpec::JsonObject, "format")))
            }
            Some(schema @ Value::Object(_)) => Self::schema(schema, Strictness::Lenient, "format").map(Some),
            Some(_) => Err(ApiError::invalid("format is \"json\" or a JSON schema").about("format")),
        }
    }

    /// A call of one of `tools`, as templates know them. With a format as well, that or a call.
    pub fn calling(tools: &[&Value], otherwise: Option<Self>) -> Self {
        let strict = tools.iter().any(|tool| tool["function"]["strict"] == true);
        let tools: Vec<Tool<'_>> = tools
            .iter()
            .map(|tool| Tool {
                name: tool["function"]["name"].as_str().unwrap_or_default(),
                parameters: given(tool["function"].get("parameters")),
            })
            .collect();
        let call = tool_call(&tools);
        let strictness = if strict { Strictness::Strict } else { Strictness::Lenient };
        match otherwise.map(|structure| structure.spec) {
            Some(GrammarSpec::JsonSchema { schema, strictness: theirs }) => {
                let strictness = if theirs == Strictness::Strict { theirs } else { strictness };
                Self::new(
                    GrammarSpec::JsonSchema { schema: either(&schema, &call), strictness },
                    "response_format",
                )
            }
            Some(other) => Self::new(other, "response_format"),
            None => Self::new(GrammarSpec::JsonSchema { schema: call, strictness }, "tools"),
        }
    }

    /// The compiled grammar, after the thoughts that `prompt`'s end may have opened.
    pub async fn compile(self, model: &Arc<Model>, prompt_end: &str) -> Result<Arc<dyn Grammar>, ApiError> {
        let reasoning = model.style.open_reasoning(prompt_end).map(|close| Reasoning {
            close: close.into(),
            is_control: model.tokenizer.token_id(close).is_some_and(|id| model.tokenizer.is_special(id)),
        });
        let model = Arc::clone(model);
        elsewhere(move || {
            let compiled = model.grammars.compile(&self.spec, reasoning.as_ref());
            let grammar = compiled.map_err(|error| ApiError::invalid(error.to_string()).about(self.param))?;
            Ok(grammar as Arc<dyn Grammar>)
        })
        .await
    }
}

/// vLLM's kinds of structure.
#[derive(Clone, Copy)]
enum Form {
    Json,
    Regex,
    Choice,
    Grammar,
}

impl Form {
    fn structure(self, value: &Value, param: &'static str) -> Result<Structure, ApiError> {
        let bad = |what: &str| ApiError::invalid(what).about(param);
        let text = || value.as_str().map(str::to_owned);
        let spec = match self {
            Form::Json => return Structure::schema(value, Strictness::Strict, param),
            Form::Regex => GrammarSpec::Regex(text().ok_or_else(|| bad("a regular expression is a string"))?),
            Form::Grammar => GrammarSpec::Grammar(text().ok_or_else(|| bad("a grammar is a string"))?),
            Form::Choice => {
                let choices = value.as_array().into_iter().flatten();
                let texts: Option<Vec<String>> =
                    choices.map(|choice| choice.as_str().map(str::to_owned)).collect();
                let texts = texts.filter(|texts| !texts.is_empty());
                GrammarSpec::Choice(texts.ok_or_else(|| bad("choices are a list of at least one string"))?)
            }
        };
        Ok(Structure::new(spec, param))
    }
}

/// A value that is there and says something.
fn given(value: Option<&Value>) -> Option<&Value> {
    value.filter(|value| !value.is_null())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn every_way_to_say_it_is_understood() {
        let schema = json!({"type": "integer"});
        let strict = GrammarSpec::JsonSchema { schema: schema.clone(), strictness: Strictness::Strict };
        let lenient = GrammarSpec::JsonSchema { schema: schema.clone(), strictness: Strictness::Lenient };
        let openai =
            |format: Value| Structure::openai(Some(&format), "response_format").map(|s| s.map(|s| s.spec));
        let nested =
            json!({"type": "json_schema", "json_schema": {"name": "n", "strict": true, "schema": schema}});
        let flat = json!({"type": "json_schema", "name": "n", "schema": schema});
        assert_eq!(openai(nested), Ok(Some(strict.clone())));
        assert_eq!(openai(flat), Ok(Some(lenient.clone())));
        assert_eq!(openai(json!({"type": "json_object"})), Ok(Some(GrammarSpec::JsonObject)));
        assert_eq!(openai(json!({"type": "text"})), Ok(None));
        assert_eq!(openai(Value::Null), Ok(None));
        assert!(openai(json!({"type": "xml"})).is_err() && openai(json!({"type": "json_schema"})).is_err());
        let ollama = |format: Value| Structure::ollama(Some(&format)).map(|s| s.map(|s| s.spec));
        assert_eq!(ollama(json!("json")), Ok(Some(GrammarSpec::JsonObject)));
        assert_eq!(ollama(schema.clone()), Ok(Some(lenient)));
        assert_eq!(ollama(json!("")), Ok(None));
        assert!(ollama(json!("yaml")).is_err());
        let anthropic = Structure::anthropic(Some(&json!({"type": "json_schema", "schema": schema})));
        assert_eq!(anthropic.map(|s| s.map(|s| s.spec)), Ok(Some(strict.clone())));
        let vllm = |fields: Value| {
            Structure::openai_or_vllm(None, &serde_json::from_value(fields).expect("fields"))
                .map(|s| s.map(|s| s.spec))
        };
        assert_eq!(vllm(json!({"guided_json": schema.to_string()})), Ok(Some(strict)));
        let choice = GrammarSpec::Choice(vec!["a".into(), "b".into()]);
        assert_eq!(vllm(json!({"structured_outputs": {"choice": ["a", "b"]}})), Ok(Some(choice)));
        assert_eq!(vllm(json!({"guided_regex": "a+"})), Ok(Some(GrammarSpec::Regex("a+".into()))));
        assert_eq!(vllm(json!({})), Ok(None));
        for bad in [
            json!({"structured_outputs": {}}),
            json!({"structured_outputs": "a"}),
            json!({"guided_choice": []}),
            json!({"guided_choice": [1]}),
            json!({"guided_regex": 1}),
            json!({"guided_regex": "a", "guided_grammar": "b"}),
        ] {
            assert!(vllm(bad.clone()).is_err(), "{bad}");
        }
    }
}
