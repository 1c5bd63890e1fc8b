//! What a run of a pool came to.

use std::time::Duration;

use ropeway_pool::dispatch::UpstreamStatus;
use ropeway_testkit::simulate::{Experience, Times};

use super::source::Question;

/// What a run came to.
#[derive(Clone, Debug, Default)]
pub struct PoolOutcome {
    /// Per class, in the order of [`Class::ALL`](ropeway_engine::Class::ALL); accounts that ask for far more are not in it.
    pub classes: [Experience; 3],
    /// Accounts that ask for far more than the others.
    pub heavy: Experience,
    /// Simulated time.
    pub elapsed: Duration,
    /// Requests that came.
    pub asked: u64,
    /// Prompt tokens, tokens of them that servers held, and tokens that the dispatcher expected them to hold.
    pub prompt_tokens: u64,
    pub cached_tokens: u64,
    pub expected_tokens: u64,
    /// Blocks of prompts, the incomplete last ones included, and those that servers held.
    pub prompt_blocks: u64,
    pub cached_blocks: u64,
    /// Tokens of answers.
    pub generated: u64,
    /// Servers that died.
    pub deaths: u64,
    /// Streams that went on elsewhere, and requests that were tried again before their first token.
    pub moved: u64,
    pub retried: u64,
    /// Requests that were given up because of failures.
    pub lost: u64,
    /// From a stream's break to its next token.
    pub gaps: Times,
    /// Most requests that waited in the dispatcher and in a server's own queue, as far as probes saw it.
    pub most_waiting: usize,
    pub most_waiting_there: usize,
    /// What the pool did while new visitors came.
    pub throughput: Throughput,
}

/// What a pool did from the first visitor to the last. Conversations that go on after that are no load to speak of.
#[derive(Clone, Copy, Debug, Default)]
pub struct Throughput {
    /// How long that was.
    pub seconds: f64,
    /// Requests that came.
    pub asked: u64,
    /// Tokens of answers that were complete by then.
    pub generated: u64,
    /// Busy time of servers: the mean, and of the busiest.
    pub mean_busy: Duration,
    pub most_busy: Duration,
    /// Requests that a server may have at a time.
    pub windows: Windows,
}

/// Limits of servers: the least, the mean and the most.
#[derive(Clone, Copy, Debug, Default)]
pub struct Windows {
    pub least: usize,
    pub mean: f64,
    pub most: usize,
}

impl Windows {
    /// The limits in these statuses.
    pub fn of(statuses: &[UpstreamStatus]) -> Self {
        let limits = || statuses.iter().map(|status| status.limit);
        Self {
            least: limits().min().unwrap_or(0),
            mean: limits().sum::<usize>() as f64 / statuses.len().max(1) as f64,
            most: limits().max().unwrap_or(0),
        }
    }
}

impl PoolOutcome {
    /// Everyone together.
    pub fn everyone(&self) -> Experience {
        let mut all = self.heavy.clone();
        self.classes.iter().for_each(|class| all.merge(class));
        all
    }

    /// Where what happens to a question is counted.
    pub fn seen(&mut self, question: &Question) -> &mut Experience {
        if question.is_heavy { &mut self.heavy } else { &mut self.classes[question.class as usize] }
    }

    /// Share of prompt tokens that servers held.
    pub fn hits(&self) -> f64 {
        self.cached_tokens as f64 / self.prompt_tokens.max(1) as f64
    }

    /// Share of prompt blocks that servers held.
    pub fn block_hits(&self) -> f64 {
        self.cached_blocks as f64 / self.prompt_blocks.max(1) as f64
    }
}

impl Throughput {
    /// Requests a second.
    pub fn requests_per_second(&self) -> f64 {
        self.asked as f64 / self.seconds.max(1e-9)
    }

    /// Tokens a second.
    pub fn tokens_per_second(&self) -> f64 {
        self.generated as f64 / self.seconds.max(1e-9)
    }

    /// Share of the time in which servers computed.
    pub fn utilisation(&self) -> f64 {
        self.mean_busy.as_secs_f64() / self.seconds.max(1e-9)
    }

    /// How much longer than the mean the busiest server computed.
    pub fn imbalance(&self) -> f64 {
        self.most_busy.as_secs_f64() / self.mean_busy.as_secs_f64().max(1e-9)
    }
}
