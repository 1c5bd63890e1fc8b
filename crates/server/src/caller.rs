//! Who asks: the account that a request is on, and the session or user within it.
//!
//! ```text
//! account   the API key that let the request in; without one the peer's address; else everyone unknown together
//! session   a header that names a session or an agent, or the body's own field
//! salt      cached prompts are shared within a key, or among everyone without one, and within the same `cache_salt`
//! ```
//! Fairness is between accounts first, so that nobody gets a larger share by sending new session ids or keys that this
//! server does not know.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;
use std::time::Duration;

use axum::http::HeaderMap;
use ropeway_engine::{Class, ClientId};

use crate::agents::AgentLink;
use crate::error::ApiError;
use crate::guard::clients::{Owner, Permit};
use crate::guard::limits::Sizes;
use crate::guard::rights::Rights;
use crate::guard::salt::{self, CacheScope};
use crate::intake::Intake;
use crate::observe::Progress;

/// Headers that name a session or an agent, the most telling first.
const NAMES: [&str; 4] = ["x-session-id", "x-claude-code-session-id", "x-agent-id", "x-claude-code-agent-id"];

/// Header that asks for a class.
const PRIORITY: &str = "x-priority";

/// Who asks, and what the request may use.
#[derive(Clone, Debug, Default)]
pub struct Caller {
    /// For fairness.
    pub client: ClientId,
    /// How urgent it is.
    pub class: Class,
    /// Cached blocks are shared only within the same salt.
    pub salt: Vec<u8>,
    /// Longest time to answer.
    pub deadline: Option<Duration>,
    /// Longest time in the queue.
    pub queue_timeout: Option<Duration>,
    /// What the request may ask for.
    pub limits: Sizes,
    /// The client's place among its own requests, where these are counted.
    pub permit: Option<Arc<Permit>>,
    /// What the client may do, and with which models.
    pub rights: Arc<Rights>,
    /// Where it is told how the request goes.
    pub progress: Progress,
    /// The agent or session that it belongs to.
    pub agent: Option<AgentLink>,
    /// The memory set aside for the request until it consists of tokens.
    pub intake: Intake,
}

impl Caller {
    /// The request has so many answers, each of which counts as a request of the client's.
    pub fn count_as(&self, requests: usize) -> Result<(), ApiError> {
        self.permit.as_ref().map_or(Ok(()), |permit| permit.count_as(requests))
    }

    /// Books tokens that were read or written for the client.
    pub fn spend(&self, tokens: usize) {
        if let Some(permit) = &self.permit {
            permit.spend(tokens);
        }
    }
}

/// What a body says about who asks and how.
#[derive(Clone, Copy, Debug, Default)]
pub struct Claims<'a> {
    /// `user`, `session_id` or the like.
    pub user: Option<&'a str>,
    /// `priority`.
    pub priority: Option<&'a str>,
    /// `cache_salt`.
    pub cache_salt: Option<&'a str>,
}

/// Who asks: by the account, and by headers or what the body says.
pub fn caller(
    owner: Owner,
    cache: CacheScope,
    headers: &HeaderMap,
    claims: Claims<'_>,
) -> Result<Caller, ApiError> {
    let header = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
    let session = NAMES.iter().find_map(|name| header(name)).or(claims.user);
    // Who names no session has none: a conversation is kept at one place only by its name.
    let session = session.filter(|session| !session.is_empty()).map_or(0, hash);
    let client = ClientId { account: hash(&owner), session };
    let class = header(PRIORITY).or(claims.priority).map_or(Ok(Class::Default), class)?;
    let salt = cache.salt(claims.cache_salt.map(checked).transpose()?);
    Ok(Caller { client, class, salt, ..Caller::default() })
}

/// A `cache_salt` that can be used.
fn checked(own: &str) -> Result<&str, ApiError> {
    if own.is_empty() || own.len() > salt::LONGEST {
        let what = format!("cache_salt is a text of 1 to {} bytes", salt::LONGEST);
        return Err(ApiError::invalid(what).about("cache_salt"));
    }
    Ok(own)
}

fn hash(value: &(impl Hash + ?Sized)) -> u64 {
    let mut hasher = DefaultHasher::new();
    value.hash(&mut hasher);
    hasher.finish()
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
    use std::net::IpAddr;

    use super::*;

    fn client(owner: Owner, headers: &[(&'static str, &str)], user: Option<&str>) -> ClientId {
        let headers = headers.iter().map(|(name, value)| (name.parse().unwrap(), value.parse().unwrap()));
        let claims = Claims { user, ..Claims::default() };
        caller(owner, CacheScope::Shared, &headers.collect(), claims).unwrap().client
    }

    #[test]
    fn sessions_and_users_of_one_account_are_told_apart_within_it() {
        let of = |session: &str| client(Owner::Key(1), &[("x-session-id", session)], None);
        assert_eq!(of("a"), of("a"));
        assert_eq!(of("a").account, of("b").account);
        assert_ne!(of("a").session, of("b").session);
        let user = |user| client(Owner::Key(1), &[], Some(user));
        assert_eq!(user("a").account, user("b").account);
        assert_ne!(user("a").session, user("b").session);
    }

    #[test]
    fn keys_and_addresses_are_accounts_of_their_own() {
        let address = |text: &str| Owner::Address(text.parse::<IpAddr>().unwrap());
        let owners =
            [Owner::Key(0), Owner::Key(1), address("10.0.0.1"), address("10.0.0.2"), Owner::Anonymous];
        let mut accounts: Vec<_> = owners.map(|owner| client(owner, &[], None).account).into();
        accounts.sort_unstable();
        accounts.dedup();
        assert_eq!(accounts.len(), owners.len());
    }

    #[test]
    fn a_key_that_let_nobody_in_makes_no_account() {
        let of = |key: &str| client(Owner::Anonymous, &[("authorization", key)], None);
        assert_eq!(of("Bearer a"), of("Bearer b"));
    }

    #[test]
    fn a_priority_is_one_of_three() {
        let class = |name| {
            let claims = Claims { priority: Some(name), ..Claims::default() };
            caller(Owner::Anonymous, CacheScope::Shared, &HeaderMap::new(), claims).map(|caller| caller.class)
        };
        assert_eq!(class("bulk"), Ok(Class::Bulk));
        assert!(class("now!").is_err());
    }

    #[test]
    fn a_cache_salt_divides_a_scope_further_and_has_a_length() {
        let salt = |cache: CacheScope, own| {
            let claims = Claims { cache_salt: own, ..Claims::default() };
            caller(Owner::Anonymous, cache, &HeaderMap::new(), claims).map(|caller| caller.salt)
        };
        let own = CacheScope::of_key(&[1; 32]);
        let salts =
            [salt(CacheScope::Shared, None), salt(CacheScope::Shared, Some("a")), salt(own, Some("a"))];
        assert!(salts[0] != salts[1] && salts[1] != salts[2]);
        let long = "x".repeat(salt::LONGEST + 1);
        for wrong in ["", &long] {
            assert_eq!(salt(own, Some(wrong)).unwrap_err().param.as_deref(), Some("cache_salt"));
        }
    }
}
