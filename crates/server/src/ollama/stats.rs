//! The last line of an answer: why it ended and how long everything took.
//!
//! ```text
//! total_duration        from the request's body to the end of the answer
//! load_duration         until the model was there, which takes a while if it had to be loaded
//! prompt_eval_duration  from the first step to the first token
//! eval_duration         from the first token to the last
//! ```
//! The rest of the total is the time the request waited for its turn.

use std::time::{Duration, Instant};

use ropeway_generation::{Finish, StopReason};
use serde_json::Value;

/// Measures one answer.
#[derive(Clone, Copy, Debug)]
pub struct Stopwatch {
    start: Instant,
    load: Duration,
}

impl Stopwatch {
    /// Starts now.
    pub fn start() -> Self {
        Self { start: Instant::now(), load: Duration::ZERO }
    }

    /// The model is there.
    pub fn loaded(&mut self) {
        self.load = self.start.elapsed();
    }

    /// Adds what is known at the end to the last object.
    pub fn finish(self, last: &mut Value, finish: &Finish) {
        let Finish { reason, usage, .. } = finish;
        let first = if usage.first_token.is_zero() { usage.total } else { usage.first_token };
        last["done"] = true.into();
        last["done_reason"] = if *reason == StopReason::Length { "length" } else { "stop" }.into();
        last["total_duration"] = nanoseconds(self.start.elapsed());
        last["load_duration"] = nanoseconds(self.load);
        last["prompt_eval_count"] = usage.prompt.into();
        last["prompt_eval_duration"] = nanoseconds(first.saturating_sub(usage.queued));
        last["eval_count"] = usage.generated.into();
        last["eval_duration"] = nanoseconds(usage.total.saturating_sub(first));
    }
}

/// At least one: clients divide by it.
pub fn nanoseconds(time: Duration) -> Value {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX).max(1).into()
}
