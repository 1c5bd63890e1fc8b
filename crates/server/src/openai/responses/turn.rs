//! A request with everything that it goes on from, ready to be answered, and what is kept of it afterwards.
//!
//! ```text
//! previous_response_id | conversation ──> before ─┐
//! input: items, references to kept ones ──────────┴─> messages ──> job
//!                                  └──> kept with the output, in a response, a conversation or both
//! ```

use std::sync::Arc;

use ropeway_generation::Job;
use ropeway_generation::job::text_bytes;
use serde_json::Value;

use super::memory::{Given, Memory};
use super::request::{Delivery, ResponsesRequest};
use super::tools::Toolbox;
use super::{echo, items};
use crate::error::ApiError;
use crate::intake::{Intake, PER_BYTE};
use crate::model::unix_seconds;
use crate::offload::{Effort, offload};
use crate::openai::store::{Cancel, Item, Items, NewResponse};

/// A request that is ready to be answered.
pub struct Turn {
    /// What is generated.
    pub job: Job,
    /// How the response is handed over.
    pub delivery: Delivery,
    /// The tools that may be called.
    pub tools: Toolbox,
    /// What the response repeats.
    pub echo: Value,
    /// What is kept of it, if anything is.
    pub keeping: Option<Keeping>,
}

impl Turn {
    /// Reads a request and what it goes on from.
    pub async fn read(
        memory: Memory,
        mut request: ResponsesRequest,
        intake: &Intake,
    ) -> Result<Self, ApiError> {
        echo::check(&request)?;
        let before = memory.before(&request)?;
        let given = items::of_input(request.input.take())?;
        let own: usize = given.iter().map(text_bytes).sum();
        let given = memory.resolve(given)?;
        let known = || before.iter().chain(given.iter().filter_map(Given::known));
        let parsed: usize = known().map(|item| item.parsed_bytes()).sum();
        intake.cover(parsed.saturating_add(own.saturating_mul(PER_BYTE)))?;
        let read: usize = known().map(|item| item.text_bytes()).sum::<usize>() + own;
        let prepare = move |_: &_| Self::prepare(memory, request, before, given);
        offload(intake, Effort::Bytes(read), prepare).await
    }

    fn prepare(
        memory: Memory,
        mut request: ResponsesRequest,
        before: Items,
        given: Vec<Given>,
    ) -> Result<Self, ApiError> {
        let (delivery, echo) = (request.delivery(), echo::echo(&request));
        let conversation = request.conversation_id()?.map(str::to_owned);
        let keeps = delivery.stores || conversation.is_some();
        let (input, own) = if keeps {
            let input = memory.admit(given)?;
            let values = input.iter().map(|item| item.value()).collect();
            (input, values)
        } else {
            (Items::new(), given.into_iter().map(Given::into_value).collect::<Vec<_>>())
        };
        let mut values: Vec<Value> = before.iter().map(|item| item.value()).collect();
        values.extend(own);
        let tools = request.toolbox(&mut values)?;
        let job = request.into_job(values, tools.clone())?;
        let stores = delivery.stores;
        let keeping = keeps.then_some(Keeping { memory, before, input, conversation, stores });
        Ok(Self { job, delivery, tools, echo, keeping })
    }
}

/// What is kept of a response.
pub struct Keeping {
    memory: Memory,
    before: Items,
    input: Items,
    conversation: Option<String>,
    stores: bool,
}

impl Keeping {
    /// Keeps a response that is over. One that ran in the background and was stopped or deleted meanwhile stays so.
    pub fn keep(&self, response: &Value) {
        let has_run = response["background"] == true;
        let has_failed = response["status"] == "failed";
        if has_failed && !has_run {
            return;
        }
        let Memory { app, tenant } = &self.memory;
        let (store, now) = (&app.responses, unix_seconds());
        if self.stores {
            let new = self.response(response, None);
            if has_run && !store.finish(*tenant, new.clone(), now) {
                return;
            }
            if !has_run {
                // Only what runs in the background can be refused.
                let _ = store.put(*tenant, new, now);
            }
        }
        if let Some(id) = self.conversation.as_deref().filter(|_| !has_failed) {
            let output = response["output"].as_array().map_or(&[][..], Vec::as_slice);
            self.memory.extend_conversation(id, &self.input, output);
        }
    }

    /// Lists a response that runs in the background; an error if too many do.
    pub fn list(&self, response: &Value, cancel: Cancel) -> Result<Running, ApiError> {
        let Memory { app, tenant } = &self.memory;
        app.responses.put(*tenant, self.response(response, Some(cancel)), unix_seconds())?;
        let id = response["id"].as_str().unwrap_or_default().to_owned();
        Ok(Running { memory: self.memory.clone(), id })
    }

    fn response(&self, response: &Value, cancel: Option<Cancel>) -> NewResponse {
        let mut body = response.clone();
        let output = match body["output"].take() {
            Value::Array(output) => output,
            _ => Vec::new(),
        };
        let id = body["id"].as_str().unwrap_or_default().to_owned();
        let (before, input) = (self.before.clone(), self.input.clone());
        NewResponse { id, body, before, input, output, cancel }
    }
}

/// A response that is listed as running. However it ends, it is not listed so for ever.
pub struct Running {
    memory: Memory,
    id: String,
}

impl Running {
    /// The response's id.
    pub fn id(&self) -> &str {
        &self.id
    }

    /// It is no longer waiting.
    pub fn begin(&self) {
        self.memory.app.responses.begin(self.memory.tenant, &self.id, unix_seconds());
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.memory.app.responses.cancel(self.memory.tenant, &self.id, unix_seconds());
    }
}

impl Given {
    fn known(&self) -> Option<&Arc<Item>> {
        match self {
            Given::Known(item) => Some(item),
            Given::Own(_) => None,
        }
    }

    fn into_value(self) -> Value {
        match self {
            Given::Known(item) => item.value(),
            Given::Own(value) => value,
        }
    }
}
