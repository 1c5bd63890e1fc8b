//! What a step came to, told to whoever looks.

use std::time::Duration;

use super::Engine;
use crate::flight::Flight;
use crate::record::StepRecord;

/// Steps between two audits of all blocks in release builds: an audit takes 50 to 75 us at 10,000 blocks, so that a step
/// pays one for it.
const AUDITED: u64 = 64;

impl Engine {
    /// Publishes a step that was computed in `execute` and collected at `collected`.
    pub(super) fn publish(&mut self, flight: &Flight, execute: Duration, collected: Duration) {
        let plan = &flight.plan;
        let record = StepRecord {
            step: flight.step,
            at: flight.began,
            prefill_tokens: plan.prefill_tokens,
            decode_tokens: plan.work.tokens - plan.prefill_tokens,
            cached_tokens: plan.cached_tokens,
            admitted: plan.admitted,
            preempted: plan.preempted,
            running: self.roster.running().len(),
            waiting: self.roster.waiting().len(),
            drafts: plan.chunks.iter().filter(|chunk| chunk.drafted > 0).count(),
            drafted: plan.chunks.iter().map(|chunk| chunk.drafted).sum(),
            guided: flight.guides.rows(),
            guiding: flight.guides.spent(),
            blocks: self.roster.pool.counts(),
            plan: flight.launched.saturating_sub(flight.began),
            launch: self.launch_time(flight, execute),
            execute,
            device: self.output.device,
            waited: self.output.waited,
            predicted: Duration::from_secs_f64(plan.predicted),
            allowed: Duration::from_secs_f64(plan.allowed),
            commit: self.clock.now().saturating_sub(collected),
            finished: self.record.finished,
            forced: self.record.forced,
            accepted: self.record.accepted,
        };
        self.metrics.step(&record, self.roster.limits().step_rows);
        self.board.publish(Some(&record), &self.metrics);
        // What was counted since belongs to the next record.
        self.record = StepRecord { step: self.record.step, ..StepRecord::default() };
        if cfg!(debug_assertions) || record.step.is_multiple_of(AUDITED) {
            self.roster.audit();
        }
    }

    /// Time that the host took to launch a step. Without steps ahead the engine waits for the device, which may compute in
    /// the launch itself, so that the host's part is what the device did not take.
    fn launch_time(&self, flight: &Flight, execute: Duration) -> Duration {
        match self.ahead {
            0 => execute.saturating_sub(self.output.device),
            _ => flight.launching,
        }
    }

    pub(super) fn publish_idle(&mut self) {
        debug_assert!(self.roster.waiting().is_empty(), "whoever waits on an empty machine gets a chunk");
        self.metrics.running = self.roster.running().len();
        self.metrics.waiting = self.roster.waiting().len();
        (self.metrics.slot_use, self.metrics.kv_use) = (0.0, 0.0);
        self.board.publish(None, &self.metrics);
        self.roster.audit();
    }
}
