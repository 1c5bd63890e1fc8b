//! What each client has received, in tokens: the counters that fairness between clients goes by.
//!
//! Fairness is between accounts first, and between the sessions of an account inside it: a new session per request
//! brings an account nothing. Counters are compared with the *level*: what a client that was here all the time would
//! have received, had everything been shared out evenly.
//!
//! ```text
//! level  += served / clients here        a client that comes starts at the level
//! excess  = received - level             positive: got more than its share; its prompts go behind
//! ```
//! The level rises whoever is served. Compared with the client that received least instead, one that got anything at
//! all would stay behind for as long as ever new clients come. A client that leaves keeps what it owes until the level
//! has caught up; what it is owed is forfeited.

use std::time::Duration;

use super::id_map::IdMap;
use crate::request::ClientId;

/// What a generated token counts in prompt tokens: it takes a whole step of waiting rather than a share of one.
const GENERATED: f64 = 2.0;

/// Most tokens by which a client may be ahead of or behind the level: more than two clients that both always ask ever
/// differ by, and little enough that one which hardly asks can't save up a claim that shuts others out for long.
const MOST: f64 = 8192.0;

/// How long the debt of a client that left is remembered: longer than anyone leaves to escape it.
const REMEMBERED: Duration = Duration::from_secs(60);

/// Clients that left and are remembered at most; beyond it the smallest debts are forgiven.
const MOST_REMEMBERED: usize = 1024;

#[derive(Clone, Copy, Debug)]
struct Counter {
    received: f64,
    /// Sequences here.
    present: usize,
    /// When its last sequence left.
    left: Duration,
}

/// Counters of one kind of client.
#[derive(Debug, Default)]
struct Ledger {
    counters: IdMap<Counter>,
    /// Clients with sequences here.
    present: usize,
    /// What a client that was here all the time would have received.
    level: f64,
}

impl Ledger {
    fn arrive(&mut self, client: u64) {
        let level = self.level;
        let newcomer = Counter { received: level, present: 0, left: Duration::ZERO };
        let counter = self.counters.entry(client).or_insert(newcomer);
        if counter.present == 0 {
            counter.received = counter.received.max(level);
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
        } else if self.counters.len() - self.present > MOST_REMEMBERED {
            self.forgive_smallest();
        }
    }

    fn forgive_smallest(&mut self) {
        let absent = self.counters.iter().filter(|(_, counter)| counter.present == 0);
        let smallest = absent.min_by(|(_, a), (_, b)| a.received.total_cmp(&b.received));
        if let Some(client) = smallest.map(|(client, _)| *client) {
            self.counters.remove(&client);
        }
    }

    fn charge(&mut self, client: u64, tokens: f64) {
        let Some(counter) = self.counters.get_mut(&client) else { return };
        counter.received += tokens;
        self.level += tokens / self.present.max(1) as f64;
    }

    /// Bounds debts and claims, and forgets clients that left and owe nothing any more.
    fn settle(&mut self, now: Duration) {
        let level = self.level;
        self.counters.retain(|_, counter| {
            counter.received = counter.received.clamp(level - MOST, level + MOST);
            let owes = counter.received > level && now.saturating_sub(counter.left) < REMEMBERED;
            counter.present > 0 || owes
        });
    }

    fn excess(&self, client: u64) -> f64 {
        self.counters.get(&client).map_or(0.0, |counter| counter.received - self.level)
    }
}

/// The counters of all accounts and their sessions.
#[derive(Debug, Default)]
pub struct Clients {
    accounts: Ledger,
    sessions: IdMap<Ledger>,
}

impl Clients {
    /// A sequence of `client` came.
    pub fn arrive(&mut self, client: ClientId) {
        self.accounts.arrive(client.account);
        self.sessions.entry(client.account).or_default().arrive(client.session);
    }

    /// A sequence of `client` left.
    pub fn depart(&mut self, client: ClientId, now: Duration) {
        self.accounts.depart(client.account, now);
        if let Some(sessions) = self.sessions.get_mut(&client.account) {
            sessions.depart(client.session, now);
        }
    }

    /// A sequence of `client` had tokens computed and generated.
    pub fn charge(&mut self, client: ClientId, computed: usize, generated: usize) {
        let tokens = computed as f64 + GENERATED * generated as f64;
        self.accounts.charge(client.account, tokens);
        if let Some(sessions) = self.sessions.get_mut(&client.account) {
            sessions.charge(client.session, tokens);
        }
    }

    /// Lets old debts and claims lapse; once per step, before [`Clients::excess`] is asked.
    pub fn settle(&mut self, now: Duration) {
        self.accounts.settle(now);
        self.sessions.retain(|_, sessions| {
            sessions.settle(now);
            !sessions.counters.is_empty()
        });
    }

    /// Tokens that `client` received beyond its share; negative if its account received less. Among the sessions of an
    /// account only what one has too much of counts, so that no session gives its account an advantage over others.
    pub fn excess(&self, client: ClientId) -> f64 {
        let session = self.sessions.get(&client.account).map_or(0.0, |all| all.excess(client.session));
        self.accounts.excess(client.account) + session.max(0.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: ClientId = ClientId { account: 1, session: 0 };
    const B: ClientId = ClientId { account: 2, session: 0 };
    const NOW: Duration = Duration::from_secs(1);

    #[test]
    fn a_client_is_ahead_by_what_it_received_beyond_its_share() {
        let mut clients = Clients::default();
        clients.arrive(A);
        clients.arrive(B);
        clients.charge(A, 100, 10);
        clients.charge(B, 50, 0);
        clients.settle(NOW);
        assert!((clients.excess(A) - 35.0).abs() < 1e-9 && (clients.excess(B) + 35.0).abs() < 1e-9);
    }

    #[test]
    fn a_newcomer_starts_level_and_a_client_that_left_without_debt_is_forgotten() {
        let mut clients = Clients::default();
        clients.arrive(A);
        clients.charge(A, 100, 0);
        clients.settle(NOW);
        clients.arrive(B);
        assert!(clients.excess(B).abs() < f64::EPSILON);
        clients.depart(A, NOW);
        clients.depart(B, NOW);
        clients.settle(NOW);
        assert!(clients.accounts.counters.is_empty() && clients.sessions.is_empty());
    }

    #[test]
    fn a_debt_survives_leaving_for_a_moment_but_not_for_a_minute() {
        let mut clients = Clients::default();
        clients.arrive(A);
        clients.arrive(B);
        clients.charge(A, 1000, 0);
        clients.depart(A, NOW);
        clients.settle(NOW);
        clients.arrive(A);
        assert!((clients.excess(A) - 500.0).abs() < 1e-9);
        clients.depart(A, NOW);
        clients.settle(NOW + REMEMBERED);
        clients.arrive(A);
        assert!(clients.excess(A).abs() < 1e-9);
    }

    #[test]
    fn a_claim_is_forfeited_by_leaving() {
        let mut clients = Clients::default();
        clients.arrive(A);
        clients.arrive(B);
        clients.charge(A, 1000, 0);
        clients.depart(B, NOW);
        clients.arrive(B);
        assert!(clients.excess(B).abs() < 1e-9);
    }

    #[test]
    fn a_new_session_does_not_wash_off_the_debt_of_its_account() {
        let mut clients = Clients::default();
        clients.arrive(B);
        for session in 0..10 {
            let session = ClientId { account: 1, session };
            clients.arrive(session);
            clients.charge(session, 100, 0);
            clients.depart(session, NOW);
            clients.settle(NOW);
        }
        let new = ClientId { account: 1, session: 99 };
        clients.arrive(new);
        assert!(clients.excess(new) > 400.0, "{}", clients.excess(new));
        let old = ClientId { account: 1, session: 9 };
        assert!(clients.excess(old) >= clients.excess(new));
    }

    #[test]
    fn a_client_that_got_more_catches_up_with_ever_new_ones_and_old_claims_lapse() {
        let mut clients = Clients::default();
        clients.arrive(A);
        clients.charge(A, 1000, 0);
        clients.arrive(B);
        clients.charge(A, 1000, 0);
        let mut rounds = 0;
        while clients.excess(A) > 0.0 {
            let newcomer = ClientId { account: 10 + rounds, session: 0 };
            clients.arrive(newcomer);
            clients.charge(newcomer, 100, 0);
            clients.depart(newcomer, NOW);
            clients.settle(NOW);
            rounds += 1;
        }
        assert!(rounds <= 3 * 1000 / 100, "{rounds}");
        clients.charge(A, 1_000_000, 0);
        clients.settle(NOW);
        assert!((clients.excess(B) + MOST).abs() < 1e-6);
    }

    #[test]
    fn so_many_absent_clients_are_remembered_and_no_more() {
        let mut clients = Clients::default();
        clients.arrive(A);
        for account in 10..10 + 2 * MOST_REMEMBERED as u64 {
            let client = ClientId { account, session: 0 };
            clients.arrive(client);
            clients.charge(client, account as usize, 0);
            clients.depart(client, NOW);
        }
        assert!(clients.accounts.counters.len() <= MOST_REMEMBERED + 1);
    }
}
