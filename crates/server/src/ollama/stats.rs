//! The last line of an answer: why it ended and how long everything took.

use std::time::{Duration, Instant};

use ropeway_generation::{Finish, StopReason};
use serde_json::{Value, json};

/// Measures one answer.
#[derive(Clone, Copy, Debug)]
pub struct Stopwatch(Instant);

impl Stopwatch {
    /// Starts now.
    pub fn start() -> Self {
        Self(Instant::now())
    }

    /// Adds what is known at the end to the last object.
    pub fn finish(self, last: &mut Value, finish: &Finish) {
        let Finish { reason, usage, .. } = finish;
        let nanoseconds = |time: Duration| Value::from(time.as_nanos() as u64);
        let total = self.0.elapsed();
        let read = if usage.first_token.is_zero() { total } else { usage.first_token.min(total) };
        last["done"] = true.into();
        last["done_reason"] = if *reason == StopReason::Length { "length" } else { "stop" }.into();
        last["total_duration"] = nanoseconds(total);
        last["load_duration"] = json!(0);
        last["prompt_eval_count"] = usage.prompt.into();
        last["prompt_eval_duration"] = nanoseconds(read);
        last["eval_count"] = usage.generated.into();
        last["eval_duration"] = nanoseconds(total.saturating_sub(read));
    }
}
