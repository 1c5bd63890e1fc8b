//! Who waits: by class, by client, those that failed elsewhere before all others of their class.
//!
//! ```text
//! class        Interactive | Default | Bulk      most urgent first, but each at least once in two seconds (the engine's `Turns`)
//!   failed     tickets, the oldest first         they had their turn already
//!   line       accounts, sessions, tickets       fair
//! deadlines    of everyone who waits and has one
//! ```

use std::collections::BTreeSet;
use std::time::Duration;

use ropeway_engine::scheduler::policy::turns::Turns;
use ropeway_engine::{Class, ClientId};

use super::ledger::Clients;
use super::line::Line;
use super::types::Ticket;

/// Failed requests of a class that are looked at for one that may go where there is room.
const LOOKED_AT: usize = 16;

/// A request that waits.
#[derive(Clone, Copy, Debug)]
pub struct Waiter {
    /// Its ticket.
    pub ticket: Ticket,
    /// Who asks.
    pub client: ClientId,
    /// How urgent it is.
    pub class: Class,
    /// Until when it waits.
    pub deadline: Option<Duration>,
    /// Whether it had its turn before, and failed.
    pub has_failed: bool,
}

/// Who may be served at the moment.
pub trait Rules {
    /// Whether a request that failed before can be served by what has room now.
    fn may_go(&self, ticket: Ticket) -> bool;

    /// Whether an account may have one more request at upstreams.
    fn may_start(&self, account: u64, now: Duration) -> bool;
}

/// All who wait.
#[derive(Debug, Default)]
pub struct WaitingQueue {
    classes: [Waiting; Class::ALL.len()],
    turns: Turns,
    deadlines: BTreeSet<(Duration, Ticket)>,
    len: usize,
}

#[derive(Debug, Default)]
struct Waiting {
    failed: BTreeSet<Ticket>,
    line: Line,
}

impl Waiting {
    fn is_empty(&self) -> bool {
        self.failed.is_empty() && self.line.is_empty()
    }
}

impl WaitingQueue {
    /// How many wait.
    pub fn len(&self) -> usize {
        self.len
    }

    /// A request begins to wait.
    pub fn push(&mut self, waiter: Waiter, clients: &Clients, now: Duration) {
        let class = &mut self.classes[waiter.class as usize];
        if class.is_empty() {
            self.turns.took(waiter.class, now);
        }
        if waiter.has_failed {
            class.failed.insert(waiter.ticket);
        } else {
            class.line.push(waiter.client, waiter.ticket, clients);
        }
        self.deadlines.extend(waiter.deadline.map(|deadline| (deadline, waiter.ticket)));
        self.len += 1;
    }

    /// A request waits no longer.
    pub fn remove(&mut self, waiter: Waiter) {
        let class = &mut self.classes[waiter.class as usize];
        if waiter.has_failed {
            class.failed.remove(&waiter.ticket);
        } else {
            class.line.remove(waiter.client, waiter.ticket);
        }
        if let Some(deadline) = waiter.deadline {
            self.deadlines.remove(&(deadline, waiter.ticket));
        }
        self.len -= 1;
    }

    /// What this client received has changed.
    pub fn restand(&mut self, client: ClientId, clients: &Clients) {
        for class in &mut self.classes {
            class.line.restand(client, clients);
        }
    }

    /// A request of this class was served.
    pub fn took_turn(&mut self, class: Class, now: Duration) {
        self.turns.took(class, now);
    }

    /// Whose turn it is, among those whom `rules` allow.
    pub fn next(&self, rules: &impl Rules, now: Duration) -> Option<Ticket> {
        let mut classes = Class::ALL;
        classes.sort_unstable_by_key(|class| self.turns.rank(*class, now));
        classes.into_iter().find_map(|class| {
            let Waiting { failed, line } = &self.classes[class as usize];
            let again = failed.iter().copied().take(LOOKED_AT).find(|ticket| rules.may_go(*ticket));
            again.or_else(|| line.first(|account| rules.may_start(account, now)))
        })
    }

    /// The first whose time is over.
    pub fn overdue(&self, now: Duration) -> Option<Ticket> {
        self.deadlines.first().filter(|(deadline, _)| *deadline <= now).map(|(_, ticket)| *ticket)
    }

    /// When somebody's time is over.
    pub fn next_deadline(&self) -> Option<Duration> {
        self.deadlines.first().map(|(deadline, _)| *deadline)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Everyone may, but for failed requests where that is `false`.
    struct FailedMay(bool);

    impl Rules for FailedMay {
        fn may_go(&self, _: Ticket) -> bool {
            self.0
        }

        fn may_start(&self, _: u64, _: Duration) -> bool {
            true
        }
    }

    fn waiter(ticket: u64, class: Class) -> Waiter {
        let client = ClientId::account(ticket);
        Waiter { ticket: Ticket(ticket), client, class, deadline: None, has_failed: false }
    }

    fn queue(waiters: &[Waiter]) -> WaitingQueue {
        let mut queue = WaitingQueue::default();
        for waiter in waiters {
            queue.push(*waiter, &Clients::default(), Duration::ZERO);
        }
        queue
    }

    #[test]
    fn urgent_classes_go_first_and_every_class_gets_a_turn_in_two_seconds() {
        let bulk = waiter(1, Class::Bulk);
        let all: Vec<_> = (2..100).map(|ticket| waiter(ticket, Class::Interactive)).chain([bulk]).collect();
        let mut queue = queue(&all);
        let mut now = Duration::ZERO;
        loop {
            let ticket = queue.next(&FailedMay(true), now).unwrap();
            let served = all.iter().find(|waiter| waiter.ticket == ticket).copied().unwrap();
            queue.remove(served);
            queue.took_turn(served.class, now);
            if served.ticket == bulk.ticket {
                break;
            }
            now += Duration::from_millis(100);
        }
        assert_eq!(now, Duration::from_secs(2));
    }

    #[test]
    fn a_class_that_had_nobody_is_not_overdue_when_somebody_comes() {
        let mut queue = queue(&[]);
        let later = Duration::from_secs(100);
        for (ticket, class) in [(1, Class::Bulk), (2, Class::Interactive)] {
            queue.push(waiter(ticket, class), &Clients::default(), later);
        }
        assert_eq!(queue.next(&FailedMay(true), later), Some(Ticket(2)));
    }

    #[test]
    fn failed_requests_go_before_others_of_their_class_unless_they_can_not_go() {
        let again = Waiter { has_failed: true, ..waiter(9, Class::Default) };
        let queue = queue(&[waiter(1, Class::Default), again, waiter(2, Class::Bulk)]);
        assert_eq!(queue.next(&FailedMay(true), Duration::ZERO), Some(Ticket(9)));
        assert_eq!(queue.next(&FailedMay(false), Duration::ZERO), Some(Ticket(1)));
    }

    #[test]
    fn deadlines_are_known_while_somebody_waits() {
        let late = Waiter { deadline: Some(Duration::from_secs(3)), ..waiter(1, Class::Default) };
        let mut queue = queue(&[late, waiter(2, Class::Default)]);
        assert_eq!(queue.overdue(Duration::from_secs(2)), None);
        assert_eq!(queue.overdue(Duration::from_secs(3)), Some(Ticket(1)));
        queue.remove(late);
        assert_eq!((queue.overdue(Duration::from_secs(9)), queue.len()), (None, 1));
    }
}
