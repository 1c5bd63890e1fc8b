//! The requests of one class, in the order in which they are served.
//!
//! ```text
//! accounts, the one that received least first          a1 (120)      a7 (340)     a2 (355) ...
//!   sessions of the account, likewise                  s0  s4        s1           s0
//!     tickets of the session, the oldest first         3 9 17  5     8            4 ...
//! ```
//! Standings are copied in from the [`Clients`]' counters; whoever changes those calls [`Line::restand`]. Every operation takes
//! time with the logarithm of what waits.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use ropeway_engine::ClientId;

use super::ledger::{Clients, Standing};
use super::ordered::Ordered;
use super::types::Ticket;

/// Accounts that are looked at for one that may be served. Those that may not have many requests at upstreams already, so that
/// there can't be many of them.
const LOOKED_AT: usize = 64;

/// A place in an order: by what was received, then by who came first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Key {
    received: Ordered,
    since: Ticket,
}

impl Key {
    fn new(received: f64, since: Ticket) -> Self {
        Self { received: Ordered(received), since }
    }
}

/// Who waits, in order.
#[derive(Debug)]
struct Order<T> {
    order: BTreeMap<Key, u64>,
    members: HashMap<u64, Member<T>>,
}

#[derive(Debug)]
struct Member<T> {
    key: Key,
    waits: T,
}

impl<T> Default for Order<T> {
    fn default() -> Self {
        Self { order: BTreeMap::new(), members: HashMap::new() }
    }
}

impl<T: Default> Order<T> {
    /// The first of the first few who may be served.
    fn first(&self, may_be: impl Fn(u64) -> bool) -> Option<&T> {
        let id = self.order.values().take(LOOKED_AT).find(|id| may_be(**id))?;
        self.members.get(id).map(|member| &member.waits)
    }

    /// The member with this id, who comes if it is not here yet.
    fn enter(&mut self, id: u64, key: Key) -> &mut T {
        let member = self.members.entry(id).or_insert_with(|| {
            self.order.insert(key, id);
            Member { key, waits: T::default() }
        });
        &mut member.waits
    }

    fn get_mut(&mut self, id: u64) -> Option<&mut T> {
        self.members.get_mut(&id).map(|member| &mut member.waits)
    }

    fn leave(&mut self, id: u64) {
        if let Some(member) = self.members.remove(&id) {
            self.order.remove(&member.key);
        }
    }

    fn restand(&mut self, id: u64, received: f64) {
        if let Some(member) = self.members.get_mut(&id) {
            self.order.remove(&member.key);
            member.key.received = Ordered(received);
            self.order.insert(member.key, id);
        }
    }

    fn is_empty(&self) -> bool {
        self.members.is_empty()
    }
}

type Session = BTreeSet<Ticket>;
type Account = Order<Session>;

/// The requests of one class.
#[derive(Debug, Default)]
pub struct Line(Order<Account>);

impl Line {
    /// A request comes.
    pub fn push(&mut self, client: ClientId, ticket: Ticket, clients: &Clients) {
        let Standing { account, session } = clients.standing(client);
        let sessions = self.0.enter(client.account, Key::new(account, ticket));
        sessions.enter(client.session, Key::new(session, ticket)).insert(ticket);
    }

    /// A request goes, because it is served or because its client left.
    pub fn remove(&mut self, client: ClientId, ticket: Ticket) {
        let Some(sessions) = self.0.get_mut(client.account) else { return };
        let Some(tickets) = sessions.get_mut(client.session) else { return };
        tickets.remove(&ticket);
        if tickets.is_empty() {
            sessions.leave(client.session);
        }
        if sessions.is_empty() {
            self.0.leave(client.account);
        }
    }

    /// What this client received has changed.
    pub fn restand(&mut self, client: ClientId, clients: &Clients) {
        let Standing { account, session } = clients.standing(client);
        self.0.restand(client.account, account);
        if let Some(sessions) = self.0.get_mut(client.account) {
            sessions.restand(client.session, session);
        }
    }

    /// Whose turn it is, among accounts that may be served.
    pub fn first(&self, may_start: impl Fn(u64) -> bool) -> Option<Ticket> {
        self.0.first(may_start)?.first(|_| true)?.first().copied()
    }

    /// Whether nobody waits.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Requests of `(account, session)` that cost 100 tokens each, in the order in which they are served.
    fn served(asks: &[(u64, u64)]) -> Vec<u64> {
        let (mut line, mut clients) = (Line::default(), Clients::default());
        let client = |ticket: u64| {
            let (account, session) = asks[ticket as usize];
            ClientId { account, session }
        };
        for ticket in 0..asks.len() as u64 {
            clients.arrive(client(ticket));
            line.push(client(ticket), Ticket(ticket), &clients);
        }
        let mut order = Vec::new();
        while let Some(ticket) = line.first(|_| true) {
            let client = client(ticket.0);
            line.remove(client, ticket);
            clients.charge(client, 100.0);
            line.restand(client, &clients);
            order.push(ticket.0);
        }
        assert!(line.is_empty());
        order
    }

    #[test]
    fn accounts_take_turns_then_their_sessions_and_a_session_is_served_in_order() {
        assert_eq!(served(&[(1, 0), (1, 0), (1, 0), (2, 0)]), [0, 3, 1, 2]);
        assert_eq!(served(&[(1, 0), (1, 0), (1, 1), (2, 0), (2, 1)]), [0, 3, 2, 4, 1]);
    }

    #[test]
    fn new_clients_are_served_in_the_order_in_which_they_came() {
        let asks: Vec<_> = (0..50).map(|i| (1000 - i, 0)).collect();
        assert_eq!(served(&asks), (0..50).collect::<Vec<_>>());
    }
}
