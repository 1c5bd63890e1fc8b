//! Lists of items, a page at a time.

use std::sync::Arc;

use axum::http::Uri;
use serde_json::{Value, json};

use crate::error::ApiError;
use crate::openai::store::Item;

/// Items on a page, unless more are asked for.
const USUAL: usize = 20;

/// Items on the longest page.
const MOST: usize = 100;

/// Bytes of the longest page's items, unless one alone has more.
const MOST_BYTES: usize = 4 << 20;

/// Which part of a list is asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Page {
    limit: usize,
    is_ascending: bool,
    after: Option<String>,
}

/// A value in a query. Ids and numbers need no escapes.
pub fn query<'a>(uri: &'a Uri, name: &str) -> Option<&'a str> {
    let fields = uri.query().unwrap_or_default().split('&').filter_map(|field| field.split_once('='));
    fields.into_iter().find(|(field, _)| *field == name).map(|(_, value)| value)
}

impl Page {
    /// The page that a query asks for: the latest items first, unless `order` says otherwise.
    pub fn read(uri: &Uri) -> Result<Self, ApiError> {
        let limit = query(uri, "limit").map_or(Some(USUAL), |limit| limit.parse().ok());
        let limit = limit
            .filter(|limit| (1..=MOST).contains(limit))
            .ok_or_else(|| ApiError::invalid(format!("limit is a number from 1 to {MOST}")).about("limit"))?;
        let is_ascending = match query(uri, "order") {
            None | Some("desc") => false,
            Some("asc") => true,
            Some(_) => return Err(ApiError::invalid("order is asc or desc").about("order")),
        };
        Ok(Self { limit, is_ascending, after: query(uri, "after").map(Into::into) })
    }

    /// That part of these items.
    pub fn of(&self, items: &[Arc<Item>]) -> Result<Value, ApiError> {
        let mut order: Vec<&Arc<Item>> = items.iter().collect();
        if !self.is_ascending {
            order.reverse();
        }
        let from = match &self.after {
            None => 0,
            Some(id) => {
                let at = order.iter().position(|item| item.id() == id);
                let unknown = || ApiError::invalid(format!("there is no item '{id}' to go on after"));
                at.ok_or_else(|| unknown().about("after"))? + 1
            }
        };
        let rest = &order[from..];
        let page = &rest[..rest.len().min(self.limit).min(fitting(rest))];
        Ok(list(page.iter().map(|item| item.value()).collect(), rest.len() > page.len()))
    }
}

/// How many of these items make a page that is not too long; one at least.
fn fitting(items: &[&Arc<Item>]) -> usize {
    let ends = items.iter().scan(0, |bytes: &mut usize, item| {
        *bytes = bytes.saturating_add(item.text_bytes());
        Some(*bytes)
    });
    ends.take_while(|end| *end <= MOST_BYTES).count().max(1)
}

/// A list as clients know it.
pub fn list(data: Vec<Value>, has_more: bool) -> Value {
    let id = |item: Option<&Value>| item.map(|item| item["id"].clone());
    let (first, last) = (id(data.first()), id(data.last()));
    let mut list = json!({ "object": "list", "first_id": first, "last_id": last, "has_more": has_more });
    list["data"] = data.into();
    list
}
