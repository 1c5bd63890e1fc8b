//! What each client has received, in tokens: the counters that fairness between clients goes by.
//!
//! Only clients with something here have a counter, so their number is bounded by the sequences here. All of them are
//! compared with the *level*: what a client that was here all the time would have received, had everything been shared
//! out evenly.
//!
//! ```text
//! level  += served / clients here        a client that comes (or comes back) starts at the level
//! excess  = received - level             positive: got more than its share; its prompts go behind
//! ```
//! The level rises whoever is served. Compared with the client that received least instead, one that got anything at
//! all would stay behind for as long as ever new clients come.

use std::collections::HashMap;

use crate::request::ClientId;

/// What a generated token counts in prompt tokens: it takes a whole step of waiting rather than a share of one.
const GENERATED: f64 = 2.0;

/// Most tokens by which a client's claim may lag behind the level: more than two clients that both always ask ever
/// differ by, and little enough that one which hardly asks can't save up a claim that shuts others out for long.
const LAG: f64 = 8192.0;

#[derive(Clone, Copy, Debug)]
struct Counter {
    received: f64,
    /// Sequences here.
    present: usize,
}

/// The counters of all clients that have sequences here.
#[derive(Debug, Default)]
pub struct Clients {
    counters: HashMap<ClientId, Counter>,
    /// What a client that was here all the time would have received.
    level: f64,
}

impl Clients {
    /// A sequence of `client` came.
    pub fn arrive(&mut self, client: ClientId) {
        let newcomer = Counter { received: self.level, present: 0 };
        self.counters.entry(client).or_insert(newcomer).present += 1;
    }

    /// A sequence of `client` left.
    pub fn depart(&mut self, client: ClientId) {
        let Some(counter) = self.counters.get_mut(&client) else { return };
        counter.present -= 1;
        if counter.present == 0 {
            self.counters.remove(&client);
        }
    }

    /// A sequence of `client` had tokens computed and generated.
    pub fn charge(&mut self, client: ClientId, computed: usize, generated: usize) {
        let here = self.counters.len() as f64;
        if let Some(counter) = self.counters.get_mut(&client) {
            let tokens = computed as f64 + GENERATED * generated as f64;
            counter.received += tokens;
            self.level += tokens / here;
        }
    }

    /// Lets claims lapse that are too old; once per step, before [`Clients::excess`] is asked.
    pub fn settle(&mut self) {
        let least = self.level - LAG;
        for counter in self.counters.values_mut() {
            counter.received = counter.received.max(least);
        }
    }

    /// Tokens that `client` received beyond its share; negative if it received less.
    pub fn excess(&self, client: ClientId) -> f64 {
        self.counters.get(&client).map_or(0.0, |counter| counter.received - self.level)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: ClientId = ClientId(1);
    const B: ClientId = ClientId(2);

    #[test]
    fn a_client_is_ahead_by_what_it_received_beyond_its_share() {
        let mut clients = Clients::default();
        clients.arrive(A);
        clients.arrive(B);
        clients.charge(A, 100, 10);
        clients.charge(B, 50, 0);
        clients.settle();
        assert!((clients.excess(A) - 35.0).abs() < 1e-9 && (clients.excess(B) + 35.0).abs() < 1e-9);
    }

    #[test]
    fn a_newcomer_starts_level_and_a_client_that_left_is_forgotten() {
        let mut clients = Clients::default();
        clients.arrive(A);
        clients.charge(A, 100, 0);
        clients.settle();
        clients.arrive(B);
        assert!(clients.excess(B).abs() < f64::EPSILON);
        clients.depart(A);
        clients.depart(B);
        assert!(clients.counters.is_empty());
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
            let newcomer = ClientId(10 + rounds);
            clients.arrive(newcomer);
            clients.charge(newcomer, 100, 0);
            clients.depart(newcomer);
            clients.settle();
            rounds += 1;
        }
        assert!(rounds <= 3 * 1000 / 100, "{rounds}");
        clients.charge(A, 1_000_000, 0);
        clients.settle();
        assert!((clients.excess(B) + LAG).abs() < 1e-6);
    }
}
