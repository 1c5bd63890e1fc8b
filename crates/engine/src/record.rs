//! What happened, step by step: one record feeds logs, metrics, the dashboard and benchmarks, so that they can't
//! disagree.

use std::collections::VecDeque;
use std::fmt;
use std::time::Duration;

use crate::kv::Counts;

/// Steps kept for whoever looks: some minutes of a busy server.
const KEPT: usize = 4096;

/// One step.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct StepRecord {
    /// Steps are numbered from 1.
    pub step: u64,
    /// When it began.
    pub at: Duration,
    /// Prompt tokens computed (or recomputed).
    pub prefill_tokens: usize,
    /// Tokens of streams computed: one each, and those that their grammars forced.
    pub decode_tokens: usize,
    /// Prompt tokens that the prefix cache saved.
    pub cached_tokens: usize,
    /// Sequences in the batch.
    pub running: usize,
    /// Sequences waiting.
    pub waiting: usize,
    /// Sequences that joined.
    pub admitted: usize,
    /// Sequences preempted.
    pub preempted: usize,
    /// Sequences that ended.
    pub finished: usize,
    /// Tokens chosen among what a grammar allowed.
    pub guided: usize,
    /// Tokens that a grammar forced.
    pub forced: usize,
    /// Sequences with a draft.
    pub drafts: usize,
    /// Tokens that were drafted.
    pub drafted: usize,
    /// Drafted tokens that were right.
    pub accepted: usize,
    /// Time that grammars took, on all threads together; a part of the time to compute.
    pub guiding: Duration,
    /// Blocks after the step.
    pub blocks: Counts,
    /// Time that the host took to decide.
    pub plan: Duration,
    /// Time that the host took to launch it, without what the device computed meanwhile.
    pub launch: Duration,
    /// Time to compute: until its results were there, since its launch or since those of the step before.
    pub execute: Duration,
    /// Of it, time that the device itself took.
    pub device: Duration,
    /// Time that the step waited before it was computed, for hardware that it shares with other models.
    pub waited: Duration,
    /// Time that the host took to publish.
    pub commit: Duration,
    /// What the step was expected to take.
    pub predicted: Duration,
    /// What the step was allowed to take.
    pub allowed: Duration,
}

impl StepRecord {
    /// Time that the host took: beside the device's where a step is launched ahead, else before and after it.
    pub fn host(&self) -> Duration {
        self.plan + self.launch + self.commit
    }
}

impl fmt::Display for StepRecord {
    /// One line a person can follow.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ms = |time: Duration| time.as_secs_f64() * 1e3;
        write!(
            f,
            "batch {:>6}  decode {:>3}  prefill {:>4}  cached {:>5}  running {:>3}  waiting {:>4}  kv {:>3.0} %  \
             {:>6.1} ms (predicted {:.1}, allowed {:.1}; device {:.2}, host {:.2})",
            self.step,
            self.decode_tokens,
            self.prefill_tokens,
            self.cached_tokens,
            self.running,
            self.waiting,
            100.0 * self.blocks.referenced as f64 / self.blocks.total().max(1) as f64,
            ms(self.plan + self.execute + self.commit),
            ms(self.predicted),
            ms(self.allowed),
            ms(self.device),
            ms(self.host()),
        )?;
        if self.preempted > 0 {
            write!(f, "  preempted {}", self.preempted)?;
        }
        if self.drafted > 0 {
            write!(f, "  drafted {} accepted {}", self.drafted, self.accepted)?;
        }
        Ok(())
    }
}

/// The latest steps.
#[derive(Clone, Debug)]
pub struct Records(VecDeque<StepRecord>);

impl Default for Records {
    fn default() -> Self {
        Self(VecDeque::with_capacity(KEPT))
    }
}

impl Records {
    /// Keeps `record`, dropping the oldest if there are too many.
    pub fn push(&mut self, record: StepRecord) {
        if self.0.len() == KEPT {
            self.0.pop_front();
        }
        self.0.push_back(record);
    }

    /// Those after step `step`, oldest first.
    pub fn after(&self, step: u64) -> impl Iterator<Item = &StepRecord> {
        self.0.iter().skip_while(move |record| record.step <= step)
    }

    /// The latest.
    pub fn latest(&self) -> Option<&StepRecord> {
        self.0.back()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_tells_of_drafts_where_there_were_some() {
        let record = StepRecord { drafts: 1, drafted: 5, accepted: 3, ..StepRecord::default() };
        assert!(record.to_string().ends_with("drafted 5 accepted 3"), "{record}");
        assert!(!StepRecord::default().to_string().contains("drafted"));
    }
}
