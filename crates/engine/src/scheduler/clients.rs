//! What each client has received, in tokens: the counters that fairness between clients goes by.
//!
//! Only clients with something here have a counter, so their number is bounded by the sequences here. A client that
//! comes (or comes back) starts level with the one that received least: it can neither save up a claim while away nor
//! be made to pay for the past.

use std::collections::HashMap;

use crate::request::ClientId;

/// What a generated token counts in prompt tokens: it takes a whole step of waiting rather than a share of one.
const GENERATED: f64 = 2.0;

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
    /// The least that any client present has received, as of the last [`Clients::settle`].
    least: f64,
}

impl Clients {
    /// A sequence of `client` came.
    pub fn arrive(&mut self, client: ClientId) {
        let least = self.least;
        self.counters.entry(client).or_insert(Counter { received: least, present: 0 }).present += 1;
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
        if let Some(counter) = self.counters.get_mut(&client) {
            counter.received += computed as f64 + GENERATED * generated as f64;
        }
    }

    /// Finds who received least; once per step, before [`Clients::excess`] is asked.
    pub fn settle(&mut self) {
        let received = self.counters.values().map(|counter| counter.received);
        self.least = received.reduce(f64::min).unwrap_or(self.least);
    }

    /// Tokens that `client` received beyond the client with the least.
    pub fn excess(&self, client: ClientId) -> f64 {
        self.counters.get(&client).map_or(0.0, |counter| counter.received - self.least)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: ClientId = ClientId(1);
    const B: ClientId = ClientId(2);

    #[test]
    fn a_client_is_ahead_by_what_it_received_beyond_the_least() {
        let mut clients = Clients::default();
        clients.arrive(A);
        clients.arrive(B);
        clients.charge(A, 100, 10);
        clients.charge(B, 50, 0);
        clients.settle();
        assert!((clients.excess(A) - 70.0).abs() < 1e-9 && clients.excess(B).abs() < 1e-9);
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
}
