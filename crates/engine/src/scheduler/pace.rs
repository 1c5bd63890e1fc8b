//! How long a step may take for a prompt's sake, while others are streaming.
//!
//! ```text
//! nobody streams                    idle       2 x target: only newcomers wait for the step to end
//! the prompt has lost little yet    gentle     1.25 x what the streams take by themselves
//! the prompt has lost its share     target     --itl-target
//! ```
//! A step near what the streams need anyway lets short answers finish almost as if they were alone, at little cost to
//! a long prompt: it loses some hundreds of milliseconds of many seconds. So a prompt bears that as long as its loss
//! (time since its arrival less the time it would have needed alone for what is computed) stays below
//! [`PATIENCE`] of its own duration; then steps may take the target. A prompt that fits into one step has no such
//! patience: it is over at once.

use std::time::Duration;

use crate::cost::CostModel;
use crate::sequence::Sequence;

/// A gentle step, as a multiple of what the streams take by themselves.
const GENTLE: f64 = 1.25;

/// Share of its own duration that a prompt may lose before it insists.
const PATIENCE: f64 = 0.06;

/// A step without streams, as a multiple of the target. Longer steps compute prompts a little faster, and make
/// newcomers wait longer for their first.
const IDLE: f64 = 2.0;

/// Default time between two tokens of a stream that a prompt beside it may cause: 10 tokens a second, which is faster
/// than people read, and enough time for a chunk of some 100 tokens on two cores, so that prompts lose little.
pub const DEFAULT_ITL_TARGET: Duration = Duration::from_millis(100);

/// How long steps may take.
#[derive(Clone, Copy, Debug)]
pub struct Pace {
    target: f64,
}

impl Default for Pace {
    fn default() -> Self {
        Self::new(DEFAULT_ITL_TARGET)
    }
}

impl Pace {
    /// Steps up to `target` while somebody streams.
    pub fn new(target: Duration) -> Self {
        Self { target: target.as_secs_f64() }
    }

    /// Seconds that a step with this prompt in it may take; `streams` is what it takes without any prompt.
    pub(super) fn allowed(
        self,
        cost: &CostModel,
        sequence: &Sequence,
        now: Duration,
        streams: f64,
        step_tokens: usize,
    ) -> f64 {
        if streams == 0.0 {
            return IDLE * self.target;
        }
        let computed = sequence.computed.saturating_sub(sequence.cached);
        let service = cost.alone(sequence.cached, computed, step_tokens);
        let lost = now.saturating_sub(sequence.ticket.arrival).as_secs_f64() - service;
        let whole = cost.alone(sequence.cached, sequence.len() - sequence.cached, step_tokens);
        let patient = whole > self.target && lost < PATIENCE * whole;
        if patient { (GENTLE * streams).min(self.target) } else { self.target }
    }
}
