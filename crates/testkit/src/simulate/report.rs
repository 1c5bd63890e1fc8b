//! What a simulation came to.

use std::time::Duration;

use ropeway_engine::Usage;

use super::{Timeline, Times};

/// Where the blocks of prompts came from; of requests that were answered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Found {
    /// All of them, the incomplete last ones included.
    pub blocks: u64,
    /// Found in memory.
    pub memory: u64,
    /// Found on disk. The rest was computed.
    pub disk: u64,
}

impl Found {
    pub(super) fn add(&mut self, usage: &Usage, block_tokens: usize) {
        let blocks = |tokens: usize| (tokens / block_tokens) as u64;
        self.blocks += usage.prompt.div_ceil(block_tokens) as u64;
        self.memory += blocks(usage.cached - usage.fetched);
        self.disk += blocks(usage.fetched);
    }
}

/// What the requests of a class experienced.
#[derive(Clone, Debug, Default)]
pub struct Experience {
    /// Sequences answered.
    pub answered: u64,
    /// Requests turned down because the queue was full.
    pub rejected: u64,
    /// Sequences that ended too early: their time was over, or something failed.
    pub failed: u64,
    /// From arrival to the first step.
    pub queued: Times,
    /// From arrival to the first token.
    pub first_token: Times,
    /// Between two tokens of a stream.
    pub inter_token: Times,
    /// From arrival to the end.
    pub total: Times,
}

impl Experience {
    /// Counts all of `other` too.
    pub fn merge(&mut self, other: &Experience) {
        self.answered += other.answered;
        self.rejected += other.rejected;
        self.failed += other.failed;
        self.queued.merge(&other.queued);
        self.first_token.merge(&other.first_token);
        self.inter_token.merge(&other.inter_token);
        self.total.merge(&other.total);
    }
}

/// What a simulation came to.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// Simulated time.
    pub elapsed: Duration,
    /// Of it, time spent in steps.
    pub busy: Duration,
    /// Steps computed.
    pub steps: u64,
    /// Prompt tokens computed.
    pub prefilled: u64,
    /// Prompt tokens that the prefix cache saved.
    pub cached: u64,
    /// Where prompts came from, in blocks.
    pub found: Found,
    /// Blocks that the disk was too busy to take.
    pub lost_blocks: u64,
    /// Tokens generated.
    pub generated: u64,
    /// Sequences preempted.
    pub preempted: u64,
    /// Drafts: one per sequence and step that had any.
    pub drafts: u64,
    /// Tokens drafted.
    pub drafted: u64,
    /// Of these, how many were right.
    pub accepted: u64,
    /// Per class, in the order of [`Class::ALL`].
    pub classes: [Experience; 3],
    /// Sequences in the batch, added up over steps and weighted by their time.
    pub(super) running: f64,
    /// Share of the blocks held, likewise.
    pub(super) held: f64,
    /// Waiting and running over time.
    pub timeline: Timeline,
}

impl Report {
    /// All classes together.
    pub fn everyone(&self) -> Experience {
        let mut all = Experience::default();
        self.classes.iter().for_each(|class| all.merge(class));
        all
    }

    /// Generated tokens per simulated second.
    pub fn tokens_per_second(&self) -> f64 {
        self.generated as f64 / self.elapsed.as_secs_f64().max(1e-9)
    }

    /// Share of the time in which something was computed.
    pub fn utilisation(&self) -> f64 {
        self.busy.as_secs_f64() / self.elapsed.as_secs_f64().max(1e-9)
    }

    /// Tokens that a sequence got of a step, on average.
    pub fn tokens_per_step(&self) -> f64 {
        self.generated as f64 / self.generated.saturating_sub(self.accepted).max(1) as f64
    }

    /// Generated tokens per second in which something was computed: prompts included.
    pub fn tokens_per_busy_second(&self) -> f64 {
        self.generated as f64 / self.busy.as_secs_f64().max(1e-9)
    }

    /// Mean number of sequences in a step.
    pub fn mean_running(&self) -> f64 {
        self.running / self.busy.as_secs_f64().max(1e-9)
    }

    /// Mean share of the blocks held while something was computed.
    pub fn mean_held(&self) -> f64 {
        self.held / self.busy.as_secs_f64().max(1e-9)
    }
}
