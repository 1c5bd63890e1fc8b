//! Which class goes first.
//!
//! The most urgent, except that every class with something to prefill gets a turn at least once per [`TURN`]: a bulk
//! job crawls on a machine that is never idle, but it does not stand still. Within a class the policy's order holds.

use std::time::Duration;

use crate::request::Class;

/// Longest time a class goes without a turn. One step in two seconds costs the urgent classes some percent at most.
const TURN: Duration = Duration::from_secs(2);

/// When each class last had a turn, or nothing to use it for.
#[derive(Clone, Copy, Debug, Default)]
pub struct Turns([Duration; Class::ALL.len()]);

impl Turns {
    /// `class` had a turn, or did not need one.
    pub fn took(&mut self, class: Class, now: Duration) {
        self.0[class as usize] = now;
    }

    /// The place of `class` in the step: those overdue first, then by urgency.
    pub fn rank(&self, class: Class, now: Duration) -> usize {
        if self.is_overdue(class, now) { class as usize } else { Class::ALL.len() + class as usize }
    }

    /// Whether `class` is due for a turn.
    pub fn is_overdue(&self, class: Class, now: Duration) -> bool {
        now.saturating_sub(self.0[class as usize]) >= TURN
    }
}
