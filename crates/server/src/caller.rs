//! Who asks: taken from headers and fields that clients send anyway.

use std::hash::{DefaultHasher, Hash, Hasher};

use axum::http::HeaderMap;
use ropeway_engine::{Class, ClientId};

use crate::error::ApiError;
use crate::generation::Caller;

/// Headers that name a session or an agent, the most telling first.
const NAMES: [&str; 4] = ["x-session-id", "x-claude-code-session-id", "x-agent-id", "x-claude-code-agent-id"];

/// Header that asks for a class.
const PRIORITY: &str = "x-priority";

/// Who asks, by headers, or by what the body says (`user`, `session_id`).
pub fn caller(headers: &HeaderMap, user: Option<&str>, priority: Option<&str>) -> Result<Caller, ApiError> {
    let header = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
    let key = header("authorization").or_else(|| header("x-api-key")).unwrap_or_default();
    let name = NAMES.iter().find_map(|name| header(name)).or(user).unwrap_or_default();
    let hash = |value: &str| {
        let mut hasher = DefaultHasher::new();
        value.hash(&mut hasher);
        hasher.finish()
    };
    let class = header(PRIORITY).or(priority).map_or(Ok(Class::Default), class)?;
    Ok(Caller { client: ClientId { account: hash(key), session: hash(name) }, class, ..Caller::default() })
}

fn class(name: &str) -> Result<Class, ApiError> {
    let known = Class::ALL.into_iter().find(|class| class.name() == name);
    known.ok_or_else(|| {
        ApiError::invalid(format!("{name:?} is no priority; there are interactive, default and bulk"))
            .about("priority")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_of_one_session_are_one_client() {
        let headers = |session: &str| {
            let mut headers = HeaderMap::new();
            headers.insert("x-session-id", session.parse().unwrap());
            headers
        };
        let client = |session: &str| caller(&headers(session), None, None).unwrap().client;
        assert_eq!(client("a"), client("a"));
        assert_ne!(client("a"), client("b"));
        let user = |user| caller(&HeaderMap::new(), Some(user), None).unwrap().client;
        assert_ne!(user("a"), user("b"));
    }

    #[test]
    fn a_priority_is_one_of_three() {
        let class = |name| caller(&HeaderMap::new(), None, Some(name)).map(|caller| caller.class);
        assert_eq!(class("bulk"), Ok(Class::Bulk));
        assert!(class("now!").is_err());
    }
}
