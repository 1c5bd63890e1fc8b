//! An executor that only takes time: as long as a cost model says, on a simulated clock.

use std::time::Duration;

use ropeway_engine::cost::{CostModel, Work};
use ropeway_executor::{
    Batch, BlockId, Chunk, Executor, ExecutorError, Guides, Limits, Row, Sampled, StepOutput,
};

use crate::SimClock;
use crate::rng::mix;

/// The token that follows `token` at this position, in a vocabulary of so many. Texts of such tokens hardly ever repeat
/// themselves, so that only a drafter that knows the rule can draft them.
pub(super) fn next_token(token: u32, position: u64, vocab: usize) -> u32 {
    (mix(position << 32 | u64::from(token)) % vocab as u64) as u32
}

/// The executor. The token it "samples" depends on the one before it and on its position alone.
#[derive(Debug)]
pub struct TimedExecutor {
    limits: Limits,
    cost: CostModel,
    /// The clock that passes; without one, a step takes no time at all.
    clock: Option<SimClock>,
    /// What steps take where that is not in proportion to their work.
    gpu: Option<GpuTimes>,
    /// What it takes to copy a block to or from a lower tier.
    copy: Duration,
    /// What the step in flight chose.
    sampled: Vec<u32>,
    /// How long it took.
    device: Duration,
}

/// What a GPU's steps take, in seconds; streams attend as the executor's cost says.
#[derive(Clone, Copy, Debug)]
pub struct GpuTimes {
    /// All but attention of a step that is computed as so many tokens: weights are read for few as for one.
    pub step: fn(usize) -> f64,
    /// Attention of a prompt's chunk after so many tokens, of so many: what few of them attend to is read by few blocks.
    pub attention: fn(usize, usize) -> f64,
}

impl TimedExecutor {
    /// An executor whose steps take what `cost` says on `clock`, at the sizes that it computes.
    pub fn new(limits: Limits, cost: CostModel, clock: Option<SimClock>) -> Self {
        let cost = cost.with_sizes(limits.sizes);
        let (copy, sampled, device) = (Duration::ZERO, Vec::new(), Duration::ZERO);
        Self { limits, cost, clock, gpu: None, copy, sampled, device }
    }

    /// The same, with blocks that take so long to be copied to or from a lower tier.
    pub fn with_copies(mut self, copy: Duration) -> Self {
        self.copy = copy;
        self
    }

    /// The same with a GPU's steps, which are not in proportion to their work.
    pub fn with_times(mut self, times: GpuTimes) -> Self {
        self.gpu = Some(times);
        self
    }

    fn seconds(&self, batch: &Batch) -> f64 {
        let chunk = |chunk: &Chunk| Work::chunk(chunk.start, chunk.tokens.len(), 0);
        let work =
            |chunks: &mut dyn Iterator<Item = &Chunk>| chunks.map(chunk).fold(Work::default(), Work::and);
        let Some(times) = self.gpu else {
            let rows = Work { rows: batch.rows.len(), ..Work::default() };
            return self.cost.predict(rows.and(work(&mut batch.chunks.iter())));
        };
        let (prompts, streams): (Vec<&Chunk>, Vec<&Chunk>) =
            batch.chunks.iter().partition(|chunk| chunk.tokens.len() > 1);
        let attention = |chunk: &&Chunk| (times.attention)(chunk.start, chunk.tokens.len());
        (times.step)(self.limits.sizes.computed(batch.tokens.len()))
            + self.cost.attention(work(&mut streams.into_iter()))
            + prompts.iter().map(attention).sum::<f64>()
    }

    fn pass(&self, time: Duration) {
        if let Some(clock) = &self.clock {
            clock.advance(time);
        }
    }
}

impl Executor for TimedExecutor {
    fn limits(&self) -> Limits {
        self.limits
    }

    fn launch(&mut self, batch: &Batch, _: &dyn Guides) -> Result<(), ExecutorError> {
        debug_assert_eq!(batch.check(&self.limits), Ok(()));
        self.device = Duration::from_secs_f64(self.seconds(batch));
        self.pass(self.device);
        let follows = |row: &Row| next_token(batch.tokens[row.token], row.position, self.limits.vocab);
        self.sampled.clear();
        self.sampled.extend(batch.rows.iter().map(follows));
        Ok(())
    }

    fn collect(&mut self, _: &dyn Guides, output: &mut StepOutput) -> Result<(), ExecutorError> {
        output.clear();
        output.device = self.device;
        let sampled = |token: &u32| Ok(Sampled { token: *token, ..Sampled::default() });
        output.rows.extend(self.sampled.iter().map(sampled));
        Ok(())
    }

    fn export(&mut self, _: BlockId, _: &mut [u8]) -> Result<(), ExecutorError> {
        self.pass(self.copy);
        Ok(())
    }

    fn import(&mut self, _: BlockId, _: &[u8]) -> Result<(), ExecutorError> {
        self.pass(self.copy);
        Ok(())
    }
}
