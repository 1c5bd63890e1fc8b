//! What one tenant has stored, and what is said when something is not there.

use std::collections::HashSet;
use std::sync::Arc;

use ropeway_generation::RequestError;
use serde_json::Value;

use super::items;
use super::request::ResponsesRequest;
use crate::app::Shared;
use crate::error::{ApiError, Kind};
use crate::guard::tenant::Tenant;
use crate::model::unix_seconds;
use crate::openai::store::{Item, Items, KeptConversation, KeptResponse};

/// Why something may be missing.
const FORGOTTEN: &str = "it was deleted, made room for others, was not stored, or is another key's";

/// What one tenant has stored.
#[derive(Clone)]
pub struct Memory {
    /// Where it is.
    pub app: Shared,
    /// Whose it is.
    pub tenant: Tenant,
}

/// An item of an input.
pub enum Given {
    /// It was sent.
    Own(Value),
    /// It was referred to.
    Known(Arc<Item>),
}

impl Memory {
    /// A response.
    pub fn response(&self, id: &str) -> Result<Arc<KeptResponse>, ApiError> {
        let kept = self.app.responses.response(self.tenant, id, unix_seconds());
        kept.ok_or_else(|| missing("Response", id))
    }

    /// A conversation.
    pub fn conversation(&self, id: &str) -> Result<KeptConversation, ApiError> {
        let kept = self.app.responses.conversation(self.tenant, id, unix_seconds());
        kept.ok_or_else(|| missing("Conversation", id))
    }

    /// All that was said before a request.
    pub fn before(&self, request: &ResponsesRequest) -> Result<Items, ApiError> {
        if let Some(id) = request.conversation_id()? {
            return self.conversation(id).map(|kept| kept.items).map_err(|error| error.about("conversation"));
        }
        let Some(id) = &request.previous_response_id else { return Ok(Items::new()) };
        let about = |error: ApiError| error.about("previous_response_id");
        let Some(kept) = self.app.responses.response(self.tenant, id, unix_seconds()) else {
            let what = format!(
                "Previous response with id '{id}' not found: {FORGOTTEN}. Send the whole conversation as input."
            );
            return Err(about(ApiError::invalid(what).coded("previous_response_not_found")));
        };
        if kept.is_running() {
            let what = format!("Response '{id}' is still in progress; wait until it is completed.");
            return Err(about(ApiError::invalid(what).coded("previous_response_in_progress")));
        }
        Ok(kept.whole())
    }

    /// The items of an input, those that it refers to among them.
    pub fn resolve(&self, given: Vec<Value>) -> Result<Vec<Given>, ApiError> {
        let ids: HashSet<&str> = given.iter().filter_map(items::reference).collect();
        let known = self.app.responses.items(self.tenant, &ids, unix_seconds());
        let resolve = |(index, item): (usize, Value)| match items::reference(&item) {
            None => Ok(Given::Own(item)),
            Some(id) => {
                let found = known.get(id).cloned().map(Given::Known);
                found.ok_or_else(|| missing("Item", id).about(format!("input.{index}")))
            }
        };
        given.into_iter().enumerate().map(resolve).collect()
    }

    /// The items as they are kept: those that were sent become items, the others are shared.
    pub fn admit(&self, given: Vec<Given>) -> Result<Items, ApiError> {
        let mut values = Vec::new();
        let mut known = Vec::new();
        for (index, given) in given.into_iter().enumerate() {
            let at = |error: RequestError| error.at(format!("input.{index}"));
            known.push(match given {
                Given::Known(item) => Some(item),
                Given::Own(value) => {
                    values.push(items::normal(value).map_err(at)?);
                    None
                }
            });
        }
        let mut own = self.app.responses.admit(self.tenant, &values, unix_seconds())?.into_iter();
        Ok(known.into_iter().filter_map(|item| item.or_else(|| own.next())).collect())
    }

    /// A conversation grows by a turn, if it is still there.
    pub fn extend_conversation(&self, id: &str, input: &Items, output: &[Value]) {
        let now = unix_seconds();
        let Ok(output) = self.app.responses.admit(self.tenant, output, now) else {
            tracing::warn!(conversation = id, "there is no room to store what was said");
            return;
        };
        let said: Items = input.iter().cloned().chain(output).collect();
        let extended = self.app.responses.change_conversation(self.tenant, id, now, |kept| kept.extend(said));
        if let Some(Err(error)) = extended {
            tracing::warn!(conversation = id, %error, "what was said is not stored");
        }
    }
}

/// The error for something that is not there.
pub fn missing(what: &str, id: &str) -> ApiError {
    ApiError::new(Kind::NotFound, format!("{what} with id '{id}' not found: {FORGOTTEN}."))
}
