//! `/v1/chat/completions`: a conversation and its answers.

mod render;

pub use render::ChatRender;

use ropeway_generation::thinking::effort_variables;
use ropeway_generation::{Conversation, Ending, Job, OfferedTools, Prompt, RequestError};
use serde::Deserialize;
use serde_json::{Map, Value};
use utoipa::ToSchema;

use crate::sampling::{Defaults, Fields};
use crate::speculation::SpeculationFields;
use crate::structured::StructuredFields;
use crate::{messages, tool_choice};

/// What clients send.
#[derive(Clone, Debug, Deserialize, ToSchema)]
pub struct ChatCompletionRequest {
    /// The model asked for.
    pub model: Option<String>,
    messages: Vec<Value>,
    max_tokens: Option<usize>,
    max_completion_tokens: Option<usize>,
    logprobs: Option<bool>,
    top_logprobs: Option<u32>,
    tools: Option<Vec<Value>>,
    tool_choice: Option<Value>,
    functions: Option<Vec<Value>>,
    parallel_tool_calls: Option<bool>,
    #[serde(flatten)]
    structured: StructuredFields,
    #[serde(flatten)]
    speculation: SpeculationFields,
    chat_template_kwargs: Option<Map<String, Value>>,
    /// How much the model is to think, where it can be told.
    reasoning_effort: Option<String>,
    /// Whether the last message, the assistant's, goes on in the answer.
    continue_final_message: Option<bool>,
    /// Whether the prompt ends with the opening of the answer; true unless the last message goes on.
    add_generation_prompt: Option<bool>,
    /// Fields shared with completions.
    #[serde(flatten)]
    pub fields: Fields,
}

impl ChatCompletionRequest {
    /// Whether log-probabilities are wanted.
    pub fn wants_logprobs(&self) -> bool {
        self.logprobs == Some(true)
    }

    /// The job that answers it.
    pub fn into_job(self, defaults: &Defaults) -> Result<Job, RequestError> {
        if self.functions.is_some_and(|functions| !functions.is_empty()) {
            return Err(RequestError::invalid("functions are not supported; send tools").at("functions"));
        }
        let logprobs = logprobs(self.logprobs, self.top_logprobs)?;
        let tool_choice = tool_choice::read(
            self.tool_choice.as_ref(),
            |named| named["function"]["name"].as_str().or_else(|| named["custom"]["name"].as_str()),
            "tool_choice is none, auto, required or a function",
        )?;
        let ending = ending(self.continue_final_message, self.add_generation_prompt)?;
        let mut variables = effort_variables(self.reasoning_effort.as_deref())?;
        variables.extend(self.chat_template_kwargs.unwrap_or_default());
        let conversation = Conversation {
            messages: messages::messages(self.messages)?,
            tools: OfferedTools::of_functions(self.tools.unwrap_or_default()).callable(&tool_choice)?,
            tool_choice,
            variables,
            ending,
            reasoning: true,
            single_call: self.parallel_tool_calls == Some(false),
            ..Conversation::default()
        };
        let job = self.fields.job(Prompt::Conversation(conversation), logprobs, defaults)?;
        let max_tokens = self.max_completion_tokens.or(self.max_tokens).or(job.max_tokens);
        let job = Job { max_tokens, structured: self.structured.read()?, ..job };
        Ok(self.speculation.read()?.of(job))
    }
}

fn ending(continues: Option<bool>, opens: Option<bool>) -> Result<Ending, RequestError> {
    match (continues.unwrap_or(false), opens) {
        (true, Some(true)) => {
            let message =
                "the last message can't both go on and be answered; set add_generation_prompt to false";
            Err(RequestError::invalid(message).at("continue_final_message"))
        }
        (true, _) => Ok(Ending::Continue),
        (false, Some(false)) => Ok(Ending::Closed),
        (false, _) => Ok(Ending::Answer),
    }
}

fn logprobs(wanted: Option<bool>, top: Option<u32>) -> Result<Option<u32>, RequestError> {
    match (wanted, top) {
        (Some(true), top) => Ok(Some(top.unwrap_or(0))),
        (_, Some(_)) => {
            Err(RequestError::invalid("top_logprobs needs logprobs to be true").at("top_logprobs"))
        }
        _ => Ok(None),
    }
}
