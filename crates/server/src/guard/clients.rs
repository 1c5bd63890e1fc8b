//! What each client uses at a time: requests at once, and tokens per minute.
//!
//! A request with `n` answers or prompts counts as `n` requests.
//!
//! ```text
//! balance   full at the start and after a minute of rest; may fall below zero, as nobody knows a request's tokens before
//! admit     while balance > 0 and fewer than `concurrency` run; else 429 with the time until it will be so
//! spend     what was computed for the client, when its answer is over
//! ```
//! A client is a key's holder or, without keys, an address. Must never: hold a lock while something is generated, or keep
//! accounts of clients that left.

use std::collections::HashMap;
use std::net::IpAddr;
use std::num::NonZeroU32;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::origin::accounted;
use crate::error::{ApiError, Kind};

/// Accounts kept before those of clients that rest are forgotten.
const ROOM: usize = 4096;

/// When to try again if as many requests run as may: nobody knows when one will end.
const A_MOMENT: Duration = Duration::from_secs(1);

/// What a client may use at a time; `None` is as much as there is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Allowance {
    /// Requests at once.
    pub concurrency: Option<NonZeroU32>,
    /// Tokens read and written in a minute.
    pub tokens_per_minute: Option<NonZeroU32>,
}

impl Allowance {
    /// This, and what it leaves open from another.
    pub fn or(self, other: Allowance) -> Self {
        Self {
            concurrency: self.concurrency.or(other.concurrency),
            tokens_per_minute: self.tokens_per_minute.or(other.tokens_per_minute),
        }
    }

    /// Whether there is no limit at all.
    pub fn is_unlimited(&self) -> bool {
        *self == Self::default()
    }
}

/// Who an account belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Owner {
    /// The holder of the API key of this number.
    Key(usize),
    /// Everyone at this address, or in this IPv6 network of 64 bits; see [`Owner::at`].
    Address(IpAddr),
    /// Everyone without a key whose address is not known.
    Anonymous,
}

impl Owner {
    /// The account of a client without a key.
    pub fn at(address: Option<IpAddr>) -> Self {
        address.map_or(Owner::Anonymous, |address| Owner::Address(accounted(address)))
    }
}

#[derive(Debug)]
struct Account {
    running: u32,
    /// Tokens that may still be used, as of `at`.
    balance: f64,
    at: Instant,
}

impl Account {
    /// Fills up the balance for the time since the last look.
    fn refill(&mut self, per_minute: f64, now: Instant) {
        let minutes = now.saturating_duration_since(self.at).as_secs_f64() / 60.0;
        self.at = now;
        if per_minute.is_finite() {
            self.balance = (self.balance + minutes * per_minute).min(per_minute);
        }
    }
}

impl Account {
    /// Whether so many more may run.
    fn check_concurrency(&self, most: Option<NonZeroU32>, more: u32) -> Result<(), ApiError> {
        let Some(most) = most.filter(|most| self.running.saturating_add(more) > most.get()) else {
            return Ok(());
        };
        let what = match (self.running, more) {
            (running, 1) => {
                format!("{running} of your requests run already, as many as may; wait for one to end")
            }
            (running, more) => format!(
                "{running} of your requests run already and this one counts as {more} more, but at most {most} may; \
                 wait for some to end"
            ),
        };
        Err(ApiError::new(Kind::RateLimited, what).coded("concurrency_limit").retry_after(A_MOMENT))
    }
}

/// Everybody's accounts.
#[derive(Debug, Default)]
pub struct Accounts(Mutex<HashMap<Owner, Account>>);

impl Accounts {
    fn lock(&self) -> MutexGuard<'_, HashMap<Owner, Account>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Lets a request in, or says when to come again.
    pub fn admit(
        self: &Arc<Self>,
        owner: Owner,
        allowance: Allowance,
        now: Instant,
    ) -> Result<Permit, ApiError> {
        let mut accounts = self.lock();
        if accounts.len() >= ROOM {
            accounts.retain(|_, account| {
                account.running > 0 || now.saturating_duration_since(account.at) < Duration::from_secs(60)
            });
        }
        let per_minute = allowance.tokens_per_minute.map_or(f64::INFINITY, |tokens| f64::from(tokens.get()));
        let account =
            accounts.entry(owner).or_insert_with(|| Account { running: 0, balance: per_minute, at: now });
        account.refill(per_minute, now);
        account.check_concurrency(allowance.concurrency, 1)?;
        if account.balance <= 0.0 {
            let wait = Duration::from_secs_f64((-account.balance / per_minute * 60.0).max(0.0)) + A_MOMENT;
            let what = format!(
                "you have used your {per_minute} tokens per minute; try again in {} seconds",
                wait.as_secs()
            );
            return Err(ApiError::new(Kind::RateLimited, what)
                .coded("rate_limit_exceeded")
                .retry_after(wait));
        }
        account.running += 1;
        drop(accounts);
        let concurrency = allowance.concurrency;
        Ok(Permit { accounts: Arc::clone(self), owner, concurrency, counted: AtomicU32::new(1) })
    }

    /// Requests of a client that run.
    pub fn running(&self, owner: Owner) -> u32 {
        self.lock().get(&owner).map_or(0, |account| account.running)
    }
}

/// One of a client's requests. Dropping it makes room for the next.
#[derive(Debug)]
pub struct Permit {
    accounts: Arc<Accounts>,
    owner: Owner,
    concurrency: Option<NonZeroU32>,
    /// Requests that this one counts as.
    counted: AtomicU32,
}

impl Permit {
    /// Counts as `requests` from now on, which are as many answers or prompts.
    pub fn count_as(&self, requests: usize) -> Result<(), ApiError> {
        let requests = u32::try_from(requests).unwrap_or(u32::MAX);
        if let Some(most) = self.concurrency.filter(|most| requests > most.get()) {
            let what = format!(
                "this request has {requests} answers, which count as {requests} requests, but you may run {most} at \
                 once; ask for fewer at a time"
            );
            return Err(ApiError::invalid(what).coded("concurrency_limit"));
        }
        let mut accounts = self.accounts.lock();
        let more = requests.saturating_sub(self.counted.load(Ordering::Relaxed));
        if let Some(account) = accounts.get_mut(&self.owner).filter(|_| more > 0) {
            account.check_concurrency(self.concurrency, more)?;
            account.running += more;
            self.counted.fetch_add(more, Ordering::Relaxed);
        }
        Ok(())
    }

    /// Books what was computed.
    pub fn spend(&self, tokens: usize) {
        if let Some(account) = self.accounts.lock().get_mut(&self.owner) {
            account.balance -= tokens as f64;
        }
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        if let Some(account) = self.accounts.lock().get_mut(&self.owner) {
            account.running -= self.counted.load(Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WHO: Owner = Owner::Key(0);

    #[test]
    fn a_client_runs_as_many_requests_as_it_may_and_others_are_not_affected() {
        let accounts = Arc::new(Accounts::default());
        let two = Allowance { concurrency: NonZeroU32::new(2), ..Allowance::default() };
        let now = Instant::now();
        let first = accounts.admit(WHO, two, now).unwrap();
        let _second = accounts.admit(WHO, two, now).unwrap();
        let error = accounts.admit(WHO, two, now).unwrap_err();
        assert_eq!((error.kind, error.retry_after), (Kind::RateLimited, Some(A_MOMENT)));
        assert!(accounts.admit(Owner::Key(1), two, now).is_ok());
        drop(first);
        assert!(accounts.admit(WHO, two, now).is_ok());
    }

    #[test]
    fn a_request_with_several_answers_counts_as_several() {
        let accounts = Arc::new(Accounts::default());
        let four = Allowance { concurrency: NonZeroU32::new(4), ..Allowance::default() };
        let now = Instant::now();
        let first = accounts.admit(WHO, four, now).unwrap();
        first.count_as(3).unwrap();
        assert_eq!(accounts.running(WHO), 3);
        let second = accounts.admit(WHO, four, now).unwrap();
        let error = second.count_as(2).unwrap_err();
        assert!(error.kind == Kind::RateLimited && error.message.contains("4 of your requests"), "{error}");
        assert_eq!(second.count_as(5).unwrap_err().kind, Kind::Invalid, "waiting would not help");
        drop(first);
        second.count_as(2).unwrap();
        drop(second);
        assert_eq!(accounts.running(WHO), 0);
    }

    #[test]
    fn spent_tokens_come_back_with_time() {
        let accounts = Arc::new(Accounts::default());
        let sixty = Allowance { tokens_per_minute: NonZeroU32::new(60), ..Allowance::default() };
        let now = Instant::now();
        accounts.admit(WHO, sixty, now).unwrap().spend(90);
        let error = accounts.admit(WHO, sixty, now).unwrap_err();
        assert_eq!(error.retry_after, Some(Duration::from_secs(31)), "{error}");
        assert!(accounts.admit(WHO, sixty, now + Duration::from_secs(29)).is_err());
        assert!(accounts.admit(WHO, sixty, now + Duration::from_secs(31)).is_ok());
    }

    #[test]
    fn accounts_of_clients_that_left_are_forgotten() {
        let accounts = Arc::new(Accounts::default());
        let now = Instant::now();
        for client in 0..ROOM {
            accounts.admit(Owner::Key(client), Allowance::default(), now).unwrap();
        }
        let _held =
            accounts.admit(Owner::Key(0), Allowance::default(), now + Duration::from_secs(61)).unwrap();
        assert_eq!(accounts.lock().len(), 1);
        assert_eq!(accounts.running(Owner::Key(0)), 1);
    }
}
