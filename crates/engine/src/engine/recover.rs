//! What happens when a step fails: only the culprit ends.
//!
//! ```text
//! the step failed       its chunks are computed one by one; whoever fails alone ends, and leaves the prefix cache
//! the device was lost   it is restarted with empty blocks, and everyone is computed anew; if it can't be, everyone ends
//! lost again soon       whoever was computed ends, the others are computed anew
//! and a third time      everyone ends, and it stays lost
//! ```
//! Steps that were launched after the one that failed are void: their sequences are planned again.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use ropeway_executor::{ExecutorError, RowResult};

use super::Engine;
use crate::board::Device;
use crate::flight::Flight;
use crate::scheduler::{Plan, Planned};
use crate::stream::{FinishReason, SequenceError};

/// Attempts to restart a lost device before the engine gives up.
const RESTARTS: usize = 3;

/// Losses in a row after which the device stays lost.
const MOST_LOSSES: u32 = 3;

/// Steps between two losses after which the second is no more of the same trouble.
const SOUND: u64 = 1000;

/// How often the device was lost lately.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Losses {
    in_a_row: u32,
    /// The step that the latest one befell.
    step: u64,
}

impl Losses {
    /// Counts a loss; how many there were in a row.
    fn count(&mut self, step: u64) -> u32 {
        let is_same = self.in_a_row > 0 && step < self.step + SOUND;
        self.in_a_row = if is_same { self.in_a_row + 1 } else { 1 };
        self.step = step;
        self.in_a_row
    }
}

impl Engine {
    /// The newest flight did not take off.
    pub(super) fn launch_failed(&mut self, error: &ExecutorError) {
        let Some(failed) = self.flights.pop_back() else { return };
        // A lost device has lost those in flight as well.
        while !matches!(error, ExecutorError::Lost(_)) && !self.flights.is_empty() && !self.lost {
            self.collect();
        }
        self.recover(failed.step, &failed.plan, error);
        self.hangar.push(failed);
    }

    /// A step failed with this error.
    pub(super) fn recover(&mut self, step: u64, plan: &Plan, error: &ExecutorError) {
        while let Some(void) = self.flights.pop_back() {
            self.ground(void.step, &void.plan);
            self.due_copies.splice(..0, void.plan.copies.iter().copied());
            self.hangar.push(void);
        }
        if matches!(error, ExecutorError::Lost(_)) {
            return self.lose(step, plan, error);
        }
        self.metrics.failed_steps += 1;
        self.retry(step, plan);
    }

    /// Nothing of the step is in flight any more.
    fn ground(&mut self, step: u64, plan: &Plan) {
        for chunk in &plan.chunks {
            if self.roster.find(chunk.slot).is_some() {
                self.roster.get_mut(chunk.slot).land(step, chunk.certain(), chunk.epoch);
            }
        }
    }

    /// Computes the chunks of a failed step one by one.
    fn retry(&mut self, step: u64, plan: &Plan) {
        let mut flight = self.hangar.pop().unwrap_or_else(|| self.another_flight());
        flight.plan.copies.clone_from(&plan.copies);
        flight.fill_copies();
        let mut copied = self.run(&flight);
        for chunk in &plan.chunks {
            let Some(sequence) = self.roster.find(chunk.slot) else { continue };
            if sequence.epoch != chunk.epoch {
                // It lost the blocks, and with them this chunk's results.
                self.roster.get_mut(chunk.slot).land(step, chunk.certain(), chunk.epoch);
                continue;
            }
            flight.fill_one(&self.roster, *chunk);
            let result = copied.clone().and_then(|()| self.run(&flight));
            match result {
                Ok(()) => self.commit_one(step, *chunk),
                Err(error @ ExecutorError::Lost(_)) => {
                    copied = Err(error);
                    break;
                }
                Err(error) => self.end_culprit(*chunk, &error),
            }
        }
        self.hangar.push(flight);
        if let Err(error @ ExecutorError::Lost(_)) = copied {
            self.lose(step, plan, &error);
        }
    }

    fn another_flight(&self) -> Flight {
        Flight::new(self.roster.limits(), std::sync::Arc::clone(&self.clock))
    }

    fn commit_one(&mut self, step: u64, chunk: Planned) {
        let mut rows: Vec<RowResult> = std::mem::take(&mut self.output.rows);
        let now = self.clock.now();
        self.commit_chunk(step, chunk, &mut rows, now);
        self.output.rows = rows;
    }

    fn end_culprit(&mut self, chunk: Planned, error: &ExecutorError) {
        let now = self.clock.now();
        self.distrust(chunk.slot);
        self.finish(chunk.slot, &FinishReason::Failed(SequenceError::Step(error.to_string())), now);
    }

    /// Runs a flight's batch with nothing else in flight.
    fn run(&mut self, flight: &Flight) -> Result<(), ExecutorError> {
        let Self { executor, output, .. } = self;
        confined(|| executor.launch(&flight.batch, &flight.guides))?;
        confined(|| executor.collect(&flight.guides, output))
    }

    /// The device was lost in this step: it is restarted, unless it was lost too often.
    fn lose(&mut self, step: u64, plan: &Plan, error: &ExecutorError) {
        let losses = self.losses.count(step);
        if losses >= MOST_LOSSES {
            return self.stay_lost(&format!("lost {losses} times in a row, the last time: {error}"));
        }
        if losses > 1 {
            self.end_computed(plan, error);
        }
        self.restart();
    }

    /// Ends whoever a step was computed for: one of them may be what the device can't bear.
    fn end_computed(&mut self, plan: &Plan, error: &ExecutorError) {
        let now = self.clock.now();
        let reason = FinishReason::Failed(SequenceError::Step(error.to_string()));
        for chunk in &plan.chunks {
            if self.roster.find(chunk.slot).is_some() {
                self.finish(chunk.slot, &reason, now);
            }
        }
    }

    /// Restarts a lost device; everyone is computed anew.
    fn restart(&mut self) {
        self.board.set_device(Device::Restarting);
        self.due_copies.clear();
        self.roster.start_over();
        let mut restarted = Err(ExecutorError::Lost(String::new()));
        for _ in 0..RESTARTS {
            restarted = restarted.or_else(|_| confined(|| self.executor.restart()));
        }
        if let Err(error) = restarted {
            return self.stay_lost(&format!("it could not be restarted: {error}"));
        }
        self.metrics.restarts += 1;
        self.board.set_device(Device::Working);
    }

    /// Without a device everyone ends.
    fn stay_lost(&mut self, why: &str) {
        self.board.lose_device(why);
        self.lost = true;
        let now: Duration = self.clock.now();
        let everyone: Vec<_> = self.roster.everyone().collect();
        for slot in everyone {
            self.finish(slot, &FinishReason::Failed(SequenceError::EngineGone), now);
        }
    }
}

/// Runs `work`; a panic on the way is an error like any other.
pub(crate) fn confined<T>(work: impl FnOnce() -> Result<T, ExecutorError>) -> Result<T, ExecutorError> {
    let panicked = || ExecutorError::Step("it panicked; see the log".into());
    catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|_| Err(panicked()))
}
