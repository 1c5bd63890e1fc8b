//! Requests on their way, by the numbers that servers know them by and by the tickets of the dispatcher.

use std::collections::HashMap;
use std::time::Duration;

use ropeway_pool::dispatch::Ticket;

use super::source::Question;

/// A request on its way.
#[derive(Debug)]
pub struct Flight {
    pub who: u32,
    pub ticket: Ticket,
    pub question: Question,
    pub came: Duration,
    /// Tokens of its answer before this attempt, and in it as far as the dispatcher knows.
    pub before: usize,
    pub told: usize,
    pub has_token: bool,
    /// When the attempt before this one broke off.
    pub broken: Option<Duration>,
}

impl Flight {
    /// A request that was just taken.
    pub fn new(who: u32, ticket: Ticket, question: Question, now: Duration) -> Self {
        Self { who, ticket, question, came: now, before: 0, told: 0, has_token: false, broken: None }
    }
}

/// All requests on their way.
#[derive(Debug, Default)]
pub struct Flights {
    slots: Vec<Option<Flight>>,
    free: Vec<usize>,
    by_ticket: HashMap<Ticket, usize>,
}

impl Flights {
    /// One more.
    pub fn add(&mut self, flight: Flight) {
        let slot = self.free.pop().unwrap_or_else(|| {
            self.slots.push(None);
            self.slots.len() - 1
        });
        self.by_ticket.insert(flight.ticket, slot);
        self.slots[slot] = Some(flight);
    }

    /// One is over.
    pub fn remove(&mut self, slot: usize) -> Option<Flight> {
        let flight = self.slots[slot].take()?;
        self.by_ticket.remove(&flight.ticket);
        self.free.push(slot);
        Some(flight)
    }

    /// One of them.
    pub fn get_mut(&mut self, slot: usize) -> Option<&mut Flight> {
        self.slots[slot].as_mut()
    }

    /// The number of a ticket.
    pub fn slot(&self, ticket: Ticket) -> Option<usize> {
        self.by_ticket.get(&ticket).copied()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.by_ticket.is_empty()
    }
}
