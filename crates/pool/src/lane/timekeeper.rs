//! What happens in a lane because time passes: queue timeouts, upstreams that are tried again, and the end of patience.

use std::sync::{Arc, Weak};
use std::time::Duration;

use tokio::sync::Notify;

use super::{Lane, Missed, PATIENCE, State};
use crate::dispatch::Ticket;

/// Longest sleep: nothing depends on it, but a clock that stood still is noticed.
const LONGEST: Duration = Duration::from_secs(60);

/// Looks after a lane as long as anybody holds it.
pub async fn keep(lane: Weak<Lane>, changed: Arc<Notify>) {
    loop {
        let Some(wait) = lane.upgrade().map(|lane| lane.attend()) else { return };
        let _ = tokio::time::timeout(wait, changed.notified()).await;
    }
}

impl Lane {
    /// Ends what is overdue, hands out what can be, and says how long nothing will happen by itself.
    fn attend(&self) -> Duration {
        let now = self.now();
        let mut state = self.state();
        for ticket in state.dispatcher.expired(now) {
            state.miss(ticket, Missed::Overdue);
        }
        if state.is_deserted(now) {
            state.send_all_away(now);
        }
        state.hand_out(now);
        let patience = state.deserted.map(|since| since + PATIENCE);
        let next =
            [state.dispatcher.wake_at(), patience.filter(|end| *end > now)].into_iter().flatten().min();
        next.map_or(LONGEST, |at| at.saturating_sub(now).clamp(Duration::from_millis(1), LONGEST))
    }
}

impl State {
    fn miss(&mut self, ticket: Ticket, why: Missed) {
        if let Some(call) = self.waiting.remove(&ticket) {
            let _ = call.send(Err(why));
        }
    }

    fn send_all_away(&mut self, now: Duration) {
        let tickets: Vec<_> = self.waiting.keys().copied().collect();
        for ticket in tickets {
            self.dispatcher.withdraw(ticket, now);
            self.miss(ticket, Missed::NobodyThere);
        }
    }
}
