//! An executor that only takes time: as long as a cost model says, on a simulated clock.

use ropeway_engine::cost::{CostModel, Work};
use ropeway_executor::{Batch, Executor, ExecutorError, Guides, Limits, Sampled, StepOutput};

use crate::SimClock;

/// The executor. Every token it "samples" is 0.
#[derive(Debug)]
pub struct TimedExecutor {
    limits: Limits,
    cost: CostModel,
    /// The clock that passes; without one, a step takes no time at all.
    clock: Option<SimClock>,
    /// Rows of the step in flight.
    rows: usize,
}

impl TimedExecutor {
    /// An executor whose steps take what `cost` says on `clock`.
    pub fn new(limits: Limits, cost: CostModel, clock: Option<SimClock>) -> Self {
        Self { limits, cost, clock, rows: 0 }
    }
}

impl Executor for TimedExecutor {
    fn limits(&self) -> Limits {
        self.limits
    }

    fn launch(&mut self, batch: &Batch, _: &dyn Guides) -> Result<(), ExecutorError> {
        debug_assert_eq!(batch.check(&self.limits), Ok(()));
        let mut work = Work { rows: batch.rows.len(), ..Work::default() };
        for chunk in &batch.chunks {
            work = work.and(Work::chunk(chunk.start, chunk.tokens.len(), 0));
        }
        if let Some(clock) = &self.clock {
            clock.advance(std::time::Duration::from_secs_f64(self.cost.predict(work)));
        }
        self.rows = batch.rows.len();
        Ok(())
    }

    fn collect(&mut self, _: &dyn Guides, output: &mut StepOutput) -> Result<(), ExecutorError> {
        output.clear();
        output.rows.resize(self.rows, Ok(Sampled::default()));
        Ok(())
    }
}
