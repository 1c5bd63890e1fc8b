//! What clients received, in tokens: the counters by which accounts, and the sessions of an account, take turns.
//!
//! ```text
//! level    += served / clients here          a client that comes starts at the level
//! received += prompt tokens to compute + GENERATED * expected answer        when it is served; put right at the end
//! ```
//! The same meaning as the engine's own counters, with two differences that come from the place: a request is paid for when
//! it is sent, since nothing is decided afterwards, and no operation looks at all clients, since there may be a hundred
//! thousand. Clients are compared by what they received; the level moves all newcomers alike.

use std::collections::{HashMap, VecDeque};
use std::time::Duration;

use ropeway_engine::ClientId;

/// What a token of an answer counts in tokens of a prompt, as in the engine.
const GENERATED: f64 = 2.0;

/// Most tokens by which a client that was served may be behind or ahead of the level: more than two that always ask ever
/// differ by, little enough that nobody saves up a claim that shuts others out for long.
const MOST: f64 = 65_536.0;

/// How long it is remembered that a client that left had received more than its share.
const REMEMBERED: Duration = Duration::from_secs(60);

/// Clients that left and are remembered at most.
const MOST_REMEMBERED: usize = 1024;

/// Tokens that a request costs its client.
pub fn cost(prompt: usize, answer: usize) -> f64 {
    prompt as f64 + GENERATED * answer as f64
}

/// The difference in cost if an answer had other than the expected length.
pub fn correction(generated: usize, expected: usize) -> f64 {
    GENERATED * (generated as f64 - expected as f64)
}

#[derive(Clone, Copy, Debug)]
struct Counter {
    received: f64,
    /// Requests here, waiting or running.
    present: usize,
    left: Duration,
}

/// Counters of one kind of client.
#[derive(Debug, Default)]
struct Ledger {
    counters: HashMap<u64, Counter>,
    /// Clients with requests here.
    present: usize,
    level: f64,
    /// Clients that left, in the order in which they did. Those that came back since are passed over.
    absent: VecDeque<(Duration, u64)>,
}

impl Ledger {
    fn arrive(&mut self, client: u64) {
        let level = self.level;
        let newcomer = Counter { received: level, present: 0, left: Duration::ZERO };
        let counter = self.counters.entry(client).or_insert(newcomer);
        if counter.present == 0 {
            counter.received = counter.received.clamp(level, level + MOST);
            self.present += 1;
        }
        counter.present += 1;
    }

    fn depart(&mut self, client: u64, now: Duration) {
        let Some(counter) = self.counters.get_mut(&client) else { return };
        counter.present -= 1;
        if counter.present > 0 {
            return;
        }
        counter.left = now;
        self.present -= 1;
        if counter.received <= self.level {
            self.counters.remove(&client);
        } else {
            self.absent.push_back((now, client));
        }
        self.forget(now);
    }

    /// Forgets clients that left long ago, or too many of them.
    fn forget(&mut self, now: Duration) {
        while let Some((left, client)) = self.absent.front().copied() {
            if self.absent.len() <= MOST_REMEMBERED && now < left + REMEMBERED {
                break;
            }
            self.absent.pop_front();
            let is_gone = |counter: &Counter| counter.present == 0 && counter.left == left;
            if self.counters.get(&client).is_some_and(is_gone) {
                self.counters.remove(&client);
            }
        }
    }

    fn charge(&mut self, client: u64, tokens: f64) {
        let Some(counter) = self.counters.get_mut(&client) else { return };
        self.level += tokens / self.present.max(1) as f64;
        counter.received = (counter.received + tokens).clamp(self.level - MOST, self.level + MOST);
    }

    fn received(&self, client: u64) -> f64 {
        self.counters.get(&client).map_or(self.level, |counter| counter.received)
    }
}

/// What a client's requests are ordered by: less goes first.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Standing {
    /// Tokens that its account received.
    pub account: f64,
    /// Tokens that its session received.
    pub session: f64,
}

/// The counters of all accounts and their sessions.
#[derive(Debug, Default)]
pub struct Clients {
    accounts: Ledger,
    /// Of accounts with requests here.
    sessions: HashMap<u64, Ledger>,
}

impl Clients {
    /// A request of `client` came.
    pub fn arrive(&mut self, client: ClientId) {
        self.accounts.arrive(client.account);
        self.sessions.entry(client.account).or_default().arrive(client.session);
    }

    /// A request of `client` ended, wherever it was.
    pub fn depart(&mut self, client: ClientId, now: Duration) {
        self.accounts.depart(client.account, now);
        if let Some(sessions) = self.sessions.get_mut(&client.account) {
            sessions.depart(client.session, now);
            if sessions.present == 0 {
                self.sessions.remove(&client.account);
            }
        }
    }

    /// A request of `client` is served, or turned out to cost more or less.
    pub fn charge(&mut self, client: ClientId, tokens: f64) {
        self.accounts.charge(client.account, tokens);
        if let Some(sessions) = self.sessions.get_mut(&client.account) {
            sessions.charge(client.session, tokens);
        }
    }

    /// Where `client` stands.
    pub fn standing(&self, client: ClientId) -> Standing {
        Standing {
            account: self.accounts.received(client.account),
            session: self.sessions.get(&client.account).map_or(0.0, |all| all.received(client.session)),
        }
    }

    /// Whether nobody is here.
    pub fn is_empty(&self) -> bool {
        self.accounts.present == 0 && self.sessions.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: ClientId = ClientId { account: 1, session: 0 };
    const B: ClientId = ClientId { account: 2, session: 0 };
    const NOW: Duration = Duration::from_secs(1);

    fn ahead(clients: &Clients, client: ClientId) -> f64 {
        clients.standing(client).account - clients.accounts.level
    }

    #[test]
    fn a_newcomer_starts_level_with_those_who_share_evenly() {
        let mut clients = Clients::default();
        clients.arrive(A);
        clients.charge(A, 1000.0);
        clients.arrive(B);
        assert!(ahead(&clients, A).abs() < 1e-9 && ahead(&clients, B).abs() < 1e-9);
        clients.charge(A, 100.0);
        assert!((ahead(&clients, A) - 50.0).abs() < 1e-9 && (ahead(&clients, B) + 50.0).abs() < 1e-9);
    }

    #[test]
    fn a_debt_survives_leaving_for_a_moment_but_not_for_a_minute_and_a_claim_does_not() {
        let mut clients = Clients::default();
        clients.arrive(A);
        clients.arrive(B);
        clients.charge(A, 1000.0);
        for client in [A, B] {
            clients.depart(client, NOW);
            clients.arrive(client);
        }
        assert!((ahead(&clients, A) - 500.0).abs() < 1e-9 && ahead(&clients, B).abs() < 1e-9);
        clients.depart(A, NOW);
        clients.depart(B, NOW + REMEMBERED);
        clients.arrive(A);
        assert!(ahead(&clients, A).abs() < 1e-9);
    }

    #[test]
    fn an_answer_that_was_shorter_than_expected_is_paid_back() {
        let mut clients = Clients::default();
        clients.arrive(A);
        clients.arrive(B);
        clients.charge(A, cost(100, 1000));
        clients.charge(A, correction(0, 1000));
        clients.charge(B, cost(100, 0));
        assert!((ahead(&clients, A) - ahead(&clients, B)).abs() < 1e-9);
    }

    #[test]
    fn memory_is_bounded_by_who_is_here_and_those_remembered() {
        let mut clients = Clients::default();
        clients.arrive(A);
        for account in 10..10 + 3 * MOST_REMEMBERED as u64 {
            let client = ClientId { account, session: 0 };
            clients.arrive(client);
            clients.charge(client, 1000.0);
            clients.depart(client, NOW);
        }
        assert!(clients.accounts.counters.len() <= MOST_REMEMBERED + 1);
        assert!(clients.accounts.absent.len() <= MOST_REMEMBERED && clients.sessions.len() == 1);
        clients.depart(A, NOW);
        assert!(clients.is_empty());
    }
}
