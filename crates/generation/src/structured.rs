//! Structured output: the form that an answer has to follow, and the grammar compiled from it.
//!
//! How each API family writes the wish is read in that family's own folder; what comes here is a [`GrammarSpec`] and
//! the name of the field it was read from.

use std::sync::Arc;

use ropeway_engine::Grammar;
use ropeway_grammar::{
    Account, Admitted, Compiler, GrammarError, GrammarSpec, Reasoning, Strictness, Tool, either, tool_call,
};
use serde_json::Value;

use crate::error::{ErrorKind, RequestError};
use crate::generator::TokenModel;

/// The form that an answer has to follow.
#[derive(Clone, Debug, PartialEq)]
pub struct StructuredOutput {
    /// Shared by all prompts of a request: a schema may be large.
    spec: Arc<GrammarSpec>,
    /// The request's field that it came from.
    field: &'static str,
}

impl StructuredOutput {
    /// Answers follow `spec`; errors are about `field`.
    pub fn new(spec: GrammarSpec, field: &'static str) -> Self {
        Self { spec: Arc::new(spec), field }
    }

    /// Answers are JSON that is valid under a schema. Some clients send the schema as text.
    pub fn json_schema(
        schema: Value,
        strictness: Strictness,
        field: &'static str,
    ) -> Result<Self, RequestError> {
        let parsed = schema.as_str().and_then(|text| serde_json::from_str(text).ok());
        let schema = parsed.unwrap_or(schema);
        if !schema.is_object() && !schema.is_boolean() {
            return Err(RequestError::invalid("the JSON schema must be an object").at(field));
        }
        Ok(Self::new(GrammarSpec::JsonSchema { schema, strictness }, field))
    }

    /// What is compiled.
    pub fn spec(&self) -> &GrammarSpec {
        &self.spec
    }

    /// The request's field that it came from.
    pub fn field(&self) -> &'static str {
        self.field
    }

    /// A call of one of `tools`, as templates know them. With another form as well, that or a call.
    pub(crate) fn tool_call(tools: &[&Value], otherwise: Option<Self>) -> Self {
        let strict = tools.iter().any(|tool| tool["function"]["strict"] == true);
        let tools: Vec<Tool<'_>> = tools
            .iter()
            .map(|tool| Tool {
                name: tool["function"]["name"].as_str().unwrap_or_default(),
                parameters: tool["function"].get("parameters").filter(|schema| !schema.is_null()),
            })
            .collect();
        let call = tool_call(&tools);
        let strictness = if strict { Strictness::Strict } else { Strictness::Lenient };
        match otherwise.map(|structured| Arc::unwrap_or_clone(structured.spec)) {
            Some(GrammarSpec::JsonSchema { schema, strictness: theirs }) => {
                let strictness = if theirs == Strictness::Strict { theirs } else { strictness };
                let schema = either(&schema, &call);
                Self::new(GrammarSpec::JsonSchema { schema, strictness }, "response_format")
            }
            Some(other) => Self::new(other, "response_format"),
            None => Self::new(GrammarSpec::JsonSchema { schema: call, strictness }, "tools"),
        }
    }

    /// The form with what the prompt's end means for it: the model's reasoning may have been opened there.
    pub(crate) fn after(self, model: &TokenModel, prompt_end: &str) -> GrammarWish {
        let TokenModel { tokenizer, style, .. } = model;
        let reasoning = style.open_reasoning(prompt_end).map(|close| Reasoning {
            close: close.into(),
            is_control: tokenizer.token_id(close).is_some_and(|id| tokenizer.is_special(id)),
        });
        GrammarWish { structured: self, reasoning }
    }
}

/// A grammar that is to be compiled for an answer.
#[derive(Clone, Debug)]
pub(crate) struct GrammarWish {
    structured: StructuredOutput,
    /// The reasoning before the answer.
    reasoning: Option<Reasoning>,
}

impl GrammarWish {
    /// Finds out whether it compiles within the limits, without blocking. Dropped before it is done, the work ends.
    pub(crate) async fn admit(&self, grammars: &Compiler, account: u64) -> Result<Admitted, RequestError> {
        let admitted = grammars.admit(&self.structured.spec, self.reasoning.as_ref(), Account(account)).await;
        admitted.map_err(|error| self.failed(&error))
    }

    /// The compiled grammar. Blocks for some milliseconds as a rule, and no longer than it took to admit it.
    pub(crate) fn compile(
        &self,
        grammars: &Compiler,
        admitted: &Admitted,
    ) -> Result<Arc<dyn Grammar>, RequestError> {
        let compiled = grammars.compile_admitted(&self.structured.spec, self.reasoning.as_ref(), admitted);
        compiled.map(|grammar| grammar as Arc<dyn Grammar>).map_err(|error| self.failed(&error))
    }

    /// The same at once, for callers that may block.
    pub(crate) fn admit_and_compile(&self, grammars: &Compiler) -> Result<Arc<dyn Grammar>, RequestError> {
        let compiled = grammars.compile(&self.structured.spec, self.reasoning.as_ref());
        compiled.map(|grammar| grammar as Arc<dyn Grammar>).map_err(|error| self.failed(&error))
    }

    fn failed(&self, error: &GrammarError) -> RequestError {
        let kind = match error {
            GrammarError::Busy { .. } => ErrorKind::Overloaded,
            _ => ErrorKind::InvalidRequest,
        };
        RequestError::new(kind, error.to_string()).at(self.structured.field)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_schema_may_come_as_text_and_must_be_a_schema() {
        let schema = |value| StructuredOutput::json_schema(value, Strictness::Strict, "f");
        assert_eq!(schema(json!("{\"type\": \"integer\"}")), schema(json!({"type": "integer"})));
        assert!(schema(json!(true)).is_ok());
        for bad in [json!("no schema"), json!(5), json!([])] {
            assert_eq!(schema(bad).expect_err("no schema").field.as_deref(), Some("f"));
        }
    }
}
