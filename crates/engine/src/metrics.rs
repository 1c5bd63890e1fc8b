//! Totals and distributions since the start.

use std::time::Duration;

use crate::draft::DEEPEST;
use crate::record::StepRecord;
use crate::request::Class;
use crate::sequence::Sequence;
use crate::stream::{FinishReason, Usage};
use crate::tier::TierTotals;

/// Upper ends of the buckets of a distribution of seconds, from a fast token to a long wait.
pub const SECONDS: [f64; 20] = [
    0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.5, 0.75, 1.0, 2.5, 5.0, 10.0,
    30.0, 120.0, 480.0,
];

/// How often something took how long.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Histogram {
    /// Per bucket of [`SECONDS`], and one for everything above.
    pub counts: [u64; SECONDS.len() + 1],
    /// All of them together.
    pub sum: f64,
}

impl Histogram {
    /// Counts one more.
    pub fn observe(&mut self, time: Duration) {
        let seconds = time.as_secs_f64();
        self.counts[SECONDS.partition_point(|end| *end < seconds)] += 1;
        self.sum += seconds;
    }

    /// How many there are.
    pub fn count(&self) -> u64 {
        self.counts.iter().sum()
    }

    /// Their mean; 0 if there are none.
    pub fn mean(&self) -> f64 {
        self.sum / self.count().max(1) as f64
    }
}

/// What the requests of a class experienced.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Experience {
    /// From submission to the first step.
    pub queued: Histogram,
    /// From submission to the first token.
    pub first_token: Histogram,
    /// Between two tokens.
    pub inter_token: Histogram,
    /// From submission to the end.
    pub total: Histogram,
    /// Sequences that ended, by reason: end token or complete, length, cancelled, timed out, failed.
    pub finished: [u64; 5],
}

/// Why sequences ended, in the order of [`Experience::finished`].
pub const FINISHES: [&str; 5] = ["stop", "length", "cancelled", "timeout", "error"];

/// Totals and distributions since the start.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Metrics {
    /// Requests taken in.
    pub requests: u64,
    /// Steps computed.
    pub steps: u64,
    /// Time spent in steps.
    pub busy: Duration,
    /// Of it, time to compute.
    pub computing: Duration,
    /// Of that, time that the device itself took.
    pub device: Duration,
    /// Time that the host took to plan, launch and commit steps.
    pub host: Duration,
    /// What computing was predicted to take.
    pub predicted: Duration,
    /// Steps whose computing took more than [`FAITHFUL`] more or less than predicted.
    pub mispredicted_steps: u64,
    /// Prompt tokens computed.
    pub prefill_tokens: u64,
    /// Prompt tokens that the prefix cache saved.
    pub cached_tokens: u64,
    /// Tokens generated.
    pub generated_tokens: u64,
    /// Of these, tokens that a grammar forced.
    pub forced_tokens: u64,
    /// Tokens chosen among what a grammar allowed.
    pub guided_tokens: u64,
    /// Time that grammars took to say so, on all threads together.
    pub guiding: Duration,
    /// Sequences preempted.
    pub preemptions: u64,
    /// Tokens that were drafted.
    pub drafted_tokens: u64,
    /// Drafted tokens that were right.
    pub accepted_tokens: u64,
    /// The same by their place in the draft, from the first.
    pub accepted_at: [u64; DEEPEST],
    /// Steps' parts that had a draft.
    pub drafts: u64,
    /// Steps that failed as a whole and were computed in parts.
    pub failed_steps: u64,
    /// Times that the device was lost and restarted.
    pub restarts: u64,
    /// Time that steps waited for hardware that they share with other models.
    pub waited: Duration,
    /// What passed between memory and a lower tier.
    pub tier: TierTotals,
    /// Per class, in the order of [`Class::ALL`].
    pub classes: [Experience; 3],
    /// Sequences in the batch now.
    pub running: usize,
    /// Sequences waiting now.
    pub waiting: usize,
    /// Share of the rows that are in use now.
    pub slot_use: f64,
    /// Share of the blocks that are held now.
    pub kv_use: f64,
}

/// By how much the time to compute a step may differ from its prediction, as a share of it.
pub const FAITHFUL: f64 = 0.2;

fn is_faithful(record: &StepRecord) -> bool {
    let predicted = record.predicted.as_secs_f64();
    (record.execute.as_secs_f64() - predicted).abs() <= FAITHFUL * predicted
}

impl Metrics {
    /// Seconds that a grammar takes for a token that is chosen by it.
    pub fn guiding_each(&self) -> f64 {
        self.guiding.as_secs_f64() / self.guided_tokens.max(1) as f64
    }

    /// The experience of a class.
    pub fn class(&mut self, class: Class) -> &mut Experience {
        &mut self.classes[class as usize]
    }

    /// Counts a step.
    pub(crate) fn step(&mut self, record: &StepRecord, rows: usize) {
        self.steps += 1;
        self.busy += record.plan + record.execute + record.commit;
        self.computing += record.execute;
        self.device += record.device;
        self.host += record.host();
        self.predicted += record.predicted;
        self.mispredicted_steps += u64::from(!is_faithful(record));
        self.prefill_tokens += record.prefill_tokens as u64;
        self.cached_tokens += record.cached_tokens as u64;
        self.preemptions += record.preempted as u64;
        self.drafted_tokens += record.drafted as u64;
        self.drafts += record.drafts as u64;
        self.accepted_tokens += record.accepted as u64;
        self.waited += record.waited;
        self.forced_tokens += record.forced as u64;
        self.generated_tokens += record.forced as u64;
        self.guided_tokens += record.guided as u64;
        self.guiding += record.guiding;
        self.running = record.running;
        self.waiting = record.waiting;
        self.slot_use = record.running as f64 / rows.max(1) as f64;
        self.kv_use = record.blocks.referenced as f64 / record.blocks.total().max(1) as f64;
    }

    /// A sequence has a new token, or several at once.
    pub(crate) fn token(&mut self, sequence: &mut Sequence, now: Duration) {
        let experience = self.class(sequence.class());
        match sequence.last_token.replace(now) {
            Some(last) => experience.inter_token.observe(now.saturating_sub(last)),
            None => experience.first_token.observe(now.saturating_sub(sequence.ticket.arrival)),
        }
        sequence.first_token.get_or_insert(now);
    }

    /// Counts a sequence that ended.
    pub(crate) fn finish(&mut self, class: Class, reason: &FinishReason, usage: &Usage) {
        let experience = self.class(class);
        experience.queued.observe(usage.queued);
        experience.total.observe(usage.total);
        experience.finished[match reason {
            FinishReason::End(_) | FinishReason::Complete => 0,
            FinishReason::Length => 1,
            FinishReason::Cancelled => 2,
            FinishReason::TimedOut => 3,
            FinishReason::Failed(_) => 4,
        }] += 1;
    }

    /// Generated tokens per second of step time.
    pub fn tokens_per_second(&self) -> f64 {
        self.generated_tokens as f64 / self.busy.as_secs_f64().max(1e-9)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_falls_into_the_first_bucket_that_reaches_it() {
        let mut histogram = Histogram::default();
        for seconds in [0.0005, 0.001, 0.0011, 1000.0] {
            histogram.observe(Duration::from_secs_f64(seconds));
        }
        assert_eq!((histogram.counts[0], histogram.counts[1], histogram.counts[20]), (2, 1, 1));
        assert_eq!(histogram.count(), 4);
    }

    #[test]
    fn a_step_far_from_its_prediction_is_counted() {
        let mut metrics = Metrics::default();
        for milliseconds in [79, 81, 119, 121] {
            let (execute, predicted) = (Duration::from_millis(milliseconds), Duration::from_millis(100));
            metrics.step(&StepRecord { execute, predicted, ..StepRecord::default() }, 1);
        }
        assert_eq!((metrics.steps, metrics.mispredicted_steps), (4, 2));
        assert_eq!((metrics.computing, metrics.predicted), (metrics.predicted, Duration::from_millis(400)));
    }
}
