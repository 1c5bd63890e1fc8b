//! What happens when: events in the order of their times, and of their making where times are equal.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::time::Duration;

/// Something that is due.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Event {
    /// A visitor comes for the first time.
    Visit(u32),
    /// A visitor asks again.
    Return(u32),
    /// A server's steps end. Out of date if the server says another time by now.
    Steps(u32),
    /// Servers are probed and streams tell how far they are.
    Probe,
    /// The dispatcher wants to be asked again.
    Wake,
    /// A server dies.
    Death,
    /// A dead server starts again.
    Restart(u32),
}

/// Events to come.
#[derive(Debug, Default)]
pub struct Calendar {
    events: BinaryHeap<Reverse<(u64, u64, Event)>>,
    made: u64,
}

impl Calendar {
    /// Something happens then.
    pub fn add(&mut self, at: Duration, event: Event) {
        self.made += 1;
        self.events.push(Reverse((at.as_nanos() as u64, self.made, event)));
    }

    /// What happens next.
    pub fn pop(&mut self) -> Option<(Duration, Event)> {
        self.events.pop().map(|Reverse((at, _, event))| (Duration::from_nanos(at), event))
    }
}
