//! What clients send, and the job that answers it.

use ropeway_executor::SamplingParams;
use ropeway_generation::job::seed;
use ropeway_generation::thinking::effort_variables;
use ropeway_generation::{Conversation, Job, Overflow, Prompt, RequestError, Sampling};
use ropeway_openai::structured;
use serde::Deserialize;
use serde_json::{Map, Value};
use utoipa::ToSchema;

use super::tools::Toolbox;
use super::{echo, input};
use crate::ask::Wire;
use crate::intake::shape::{Field, Holds};

/// What clients send.
#[derive(Clone, Debug, Deserialize, ToSchema)]
pub struct ResponsesRequest {
    pub(super) model: Option<String>,
    /// A text, or items: messages, calls of tools and what these gave, thoughts, references to items that are stored.
    #[serde(default)]
    pub(super) input: Value,
    pub(super) instructions: Option<String>,
    pub(super) max_output_tokens: Option<usize>,
    pub(super) max_tool_calls: Option<usize>,
    pub(super) temperature: Option<f32>,
    pub(super) top_p: Option<f32>,
    pub(super) seed: Option<i64>,
    pub(super) top_logprobs: Option<u32>,
    #[serde(default)]
    pub(super) include: Option<Vec<String>>,
    pub(super) tools: Option<Vec<Value>>,
    pub(super) tool_choice: Option<Value>,
    /// Whether an answer may call several tools.
    pub(super) parallel_tool_calls: Option<bool>,
    pub(super) text: Option<Value>,
    pub(super) reasoning: Option<Value>,
    /// What holds where it says nothing.
    #[serde(skip)]
    pub(super) defaults: SamplingParams,
    /// `auto` leaves out the oldest items where the context is too small; `disabled` is an error then.
    pub(super) truncation: Option<String>,
    pub(super) stream: Option<bool>,
    /// Whether the response can be asked for later; it can unless this is false.
    pub(super) store: Option<bool>,
    /// Answer at once, and go on when the client has left.
    pub(super) background: Option<bool>,
    /// The response to go on from.
    pub(super) previous_response_id: Option<String>,
    /// The conversation to go on with: its id, or an object with it.
    pub(super) conversation: Option<Value>,
    pub(super) prompt: Option<Value>,
    pub(super) user: Option<String>,
    pub(super) session_id: Option<String>,
    pub(super) safety_identifier: Option<String>,
    pub(super) prompt_cache_key: Option<String>,
    pub(super) priority: Option<String>,
    /// Cached prompts are shared only with requests of the same salt.
    pub(super) cache_salt: Option<String>,
    pub(super) metadata: Option<Value>,
}

impl Wire for ResponsesRequest {
    const FIELDS: &'static [Field] = &[
        Field::new("input", Holds::ConversationOrText),
        Field::new("instructions", Holds::Prompt),
        // What a response repeats.
        Field::new("tools", Holds::Conversation),
        Field::new("tool_choice", Holds::ConversationOrText),
        Field::new("text", Holds::Conversation),
        Field::new("metadata", Holds::Conversation),
    ];

    fn model(&self) -> Option<&str> {
        self.model.as_deref()
    }

    fn user(&self) -> Option<&str> {
        let names = [&self.session_id, &self.prompt_cache_key, &self.safety_identifier, &self.user];
        names.into_iter().find_map(Option::as_deref)
    }

    fn session(&self) -> Option<&str> {
        self.session_id.as_deref()
    }

    fn priority(&self) -> Option<&str> {
        self.priority.as_deref()
    }

    fn cache_salt(&self) -> Option<&str> {
        self.cache_salt.as_deref()
    }
}

/// How a response is handed over.
#[derive(Clone, Copy, Debug)]
pub struct Delivery {
    /// Whether it is streamed.
    pub streams: bool,
    /// Whether it runs on without its client.
    pub is_background: bool,
    /// Whether it can be asked for later.
    pub stores: bool,
}

/// What is in a response beside the usual.
#[derive(Clone, Copy, Debug)]
pub struct Included {
    /// The text's log-probabilities.
    pub logprobs: bool,
    /// Thoughts in a form that is sent back as it is.
    pub sealed_reasoning: bool,
}

impl ResponsesRequest {
    /// How the response is handed over.
    pub fn delivery(&self) -> Delivery {
        Delivery {
            streams: self.stream == Some(true),
            is_background: self.background == Some(true),
            stores: self.store != Some(false),
        }
    }

    /// What is in the response beside the usual.
    pub fn included(&self) -> Included {
        let includes = |what: &str| self.include.iter().flatten().any(|included| included == what);
        Included {
            logprobs: includes("message.output_text.logprobs"),
            sealed_reasoning: includes("reasoning.encrypted_content"),
        }
    }

    /// The conversation that it is part of.
    pub fn conversation_id(&self) -> Result<Option<&str>, RequestError> {
        match &self.conversation {
            None | Some(Value::Null) => Ok(None),
            Some(given) => {
                let id = given.as_str().or_else(|| given["id"].as_str());
                let bad = || RequestError::invalid("conversation is an id, or an object with one");
                id.map(Some).ok_or_else(|| bad().at("conversation"))
            }
        }
    }

    /// The tools, those that items among the input bring included.
    pub fn toolbox(&mut self, items: &mut [Value]) -> Result<Toolbox, RequestError> {
        let mut tools = self.tools.take().unwrap_or_default();
        for item in items.iter_mut().filter(|item| item["type"] == "additional_tools") {
            if let Value::Array(more) = item["tools"].take() {
                tools.extend(more);
            }
        }
        Toolbox::read(tools)
    }

    /// The job that answers these items.
    pub fn into_job(self, items: Vec<Value>, tools: Toolbox) -> Result<Job, RequestError> {
        let logprobs = self.included().logprobs.then(|| self.top_logprobs.unwrap_or(0));
        if logprobs.is_none() && self.top_logprobs.is_some_and(|top| top > 0) {
            let what = "top_logprobs needs \"message.output_text.logprobs\" in include";
            return Err(RequestError::invalid(what).at("top_logprobs"));
        }
        let plain = self.defaults.clone();
        let sampling = Sampling::new(SamplingParams {
            temperature: self.temperature.unwrap_or(plain.temperature),
            top_p: self.top_p.unwrap_or(plain.top_p),
            seed: seed(self.seed),
            is_seeded: self.seed.is_some(),
            logprobs,
            ..plain
        })?;
        let format = echo::format(&self).cloned();
        let (tool_choice, tools) = tools.choose(self.tool_choice.as_ref())?;
        let conversation = Conversation {
            variables: self.thinking()?,
            single_call: self.parallel_tool_calls == Some(false),
            overflow: self.overflow(),
            messages: input::messages(self.instructions.as_deref(), items)?,
            tools,
            tool_choice,
            reasoning: true,
            ..Conversation::default()
        };
        if conversation.messages.is_empty() {
            let what = "there is nothing to answer; send input, or previous_response_id or conversation";
            return Err(RequestError::invalid(what).at("input"));
        }
        Ok(Job {
            max_tokens: self.max_output_tokens,
            structured: structured::response_format(format, "text.format")?,
            ..Job::with_sampling(Prompt::Conversation(conversation), sampling)
        })
    }

    fn overflow(&self) -> Overflow {
        match self.truncation.as_deref() {
            Some("auto") => Overflow::DropOldest { answer: self.max_output_tokens.unwrap_or(usize::MAX) },
            _ => Overflow::Refuse,
        }
    }

    /// How much the model is to think.
    fn thinking(&self) -> Result<Map<String, Value>, RequestError> {
        effort_variables(self.reasoning.as_ref().and_then(|reasoning| reasoning["effort"].as_str()))
    }
}
