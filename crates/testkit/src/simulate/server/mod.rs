//! A server with continuous batching that is only a cost model: quick enough for a thousand of them.
//!
//! ```text
//! accept ─> waiting ─ rows and memory ─> prompts ─ computed in chunks ─> streams ─ a token a step ─> Done
//!                                        longest cached beginning         first token
//! ```
//! Every step gives each stream a token and fills the rest of its token budget with prompts, first come first served, as
//! vLLM does. Steps between two events are one [`Span`]. Memory for the whole answer is reserved when a prompt begins,
//! so nothing is ever preempted; cached blocks take what is left and leave in the order of their last use.
//!
//! For the real scheduler on the same costs see [`simulate`](super::simulate()): it takes a hundred times as long.

mod cache;
mod job;
mod span;

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::time::Duration;

use ropeway_engine::cost::Work;

use cache::BlockCache;
pub use job::{Job, Progress, Said, ServerModel};
use span::Span;

#[derive(Debug)]
struct Prompt {
    job: Job,
    cached: usize,
    computed: usize,
}

impl Prompt {
    fn is_computed(&self) -> bool {
        self.computed == self.job.prompt
    }
}

/// A stream and the step that gives it its last token.
#[derive(Debug)]
struct Stream {
    job: Job,
    last_step: u64,
}

/// One server.
#[derive(Debug)]
pub struct Server {
    model: ServerModel,
    cache: BlockCache,
    waiting: VecDeque<Job>,
    prompts: VecDeque<Prompt>,
    /// Streams by slot, and their slots by the step in which they end.
    streams: Vec<Option<Stream>>,
    free: Vec<usize>,
    ends: BinaryHeap<Reverse<(u64, usize)>>,
    /// Steps so far.
    step: u64,
    /// Positions that all streams hold.
    positions: u64,
    /// Blocks reserved for those that run, and those of them that hold no whole block of a known prompt.
    reserved: usize,
    private: usize,
    span: Option<Span>,
    busy: Duration,
}

impl Server {
    /// One that just started.
    pub fn new(model: ServerModel) -> Self {
        Self {
            model,
            cache: BlockCache::default(),
            waiting: VecDeque::new(),
            prompts: VecDeque::new(),
            streams: Vec::new(),
            free: Vec::new(),
            ends: BinaryHeap::new(),
            step: 0,
            positions: 0,
            reserved: 0,
            private: 0,
            span: None,
            busy: Duration::ZERO,
        }
    }

    /// Takes a request. One that fits begins with the next step.
    pub fn accept(&mut self, job: Job, now: Duration) {
        self.waiting.push_back(job);
        if !self.can_admit() {
            return;
        }
        match &mut self.span {
            Some(span) => span.cut(now),
            None => self.start(now),
        }
    }

    /// When something happens next.
    pub fn until(&self) -> Option<Duration> {
        self.span.map(|span| span.ends())
    }

    /// Ends the span that ends now and begins the next.
    pub fn advance(&mut self, said: &mut Vec<Said>) {
        let Some(span) = self.span.take() else { return };
        let now = span.ends();
        self.busy += now.saturating_sub(span.began);
        self.step += span.steps;
        self.positions += span.steps * self.running_streams() as u64;
        self.finish_streams(said);
        self.finish_prompts(said);
        self.start(now);
    }

    /// Requests that it computes.
    pub fn running(&self) -> usize {
        self.running_streams() + self.prompts.len()
    }

    /// Requests in its own queue.
    pub fn waiting(&self) -> usize {
        self.waiting.len()
    }

    /// Time in which it computed, up to the latest event.
    pub fn busy(&self) -> Duration {
        self.busy
    }

    /// How far everyone who has a token is now.
    pub fn progress(&self, now: Duration) -> impl Iterator<Item = Progress> {
        let step = self.step + self.span.map_or(0, |span| span.ended_by(now));
        self.streams.iter().flatten().map(move |stream| {
            // The last token has come when it is told, not before.
            let to_come = stream.last_step.saturating_sub(step).max(1) as usize;
            Progress { id: stream.job.id, tokens: stream.job.answer - to_come }
        })
    }

    /// Dies: everyone who was not done, in the order of their slots, and an empty server.
    pub fn crash(&mut self, now: Duration) -> Vec<Progress> {
        let mut lost: Vec<_> = self.progress(now).collect();
        let prompts = self.prompts.iter().map(|prompt| prompt.job.id);
        let none = prompts.chain(self.waiting.iter().map(|job| job.id));
        lost.extend(none.map(|id| Progress { id, tokens: 0 }));
        let busy = self.busy;
        *self = Self { busy, ..Self::new(self.model) };
        lost
    }

    fn running_streams(&self) -> usize {
        self.ends.len()
    }

    /// Whether the first of the queue can begin. An idle server takes anything.
    fn can_admit(&self) -> bool {
        let Some(job) = self.waiting.front() else { return false };
        let fits = self.reserved + self.model.blocks_of(job) <= self.model.blocks;
        self.running() == 0 || (self.running() < self.model.rows && fits)
    }

    fn admit(&mut self) {
        while self.can_admit()
            && let Some(job) = self.waiting.pop_front()
        {
            let known = job.blocks.len().min((job.prompt - 1) / self.model.block_tokens);
            let found = self.cache.found(&job.blocks[..known]);
            self.cache.touch(&job.blocks[..found]);
            let cached = found * self.model.block_tokens;
            self.reserve(&job);
            self.prompts.push_back(Prompt { job, cached, computed: cached });
        }
    }

    fn reserve(&mut self, job: &Job) {
        let blocks = self.model.blocks_of(job);
        self.reserved += blocks;
        self.private += blocks - self.shareable(job);
        self.make_room();
    }

    fn release(&mut self, job: &Job) {
        let blocks = self.model.blocks_of(job);
        self.reserved -= blocks;
        self.private -= blocks - self.shareable(job);
    }

    /// Blocks of a request that are in the cache while it runs.
    fn shareable(&self, job: &Job) -> usize {
        job.blocks.len().min(job.prompt / self.model.block_tokens)
    }

    fn make_room(&mut self) {
        self.cache.shrink_to(self.model.blocks.saturating_sub(self.private));
    }

    /// Begins the next span, if there is anything to do.
    fn start(&mut self, now: Duration) {
        self.admit();
        let streams = self.running_streams();
        let decode = Work { tokens: streams, rows: streams, pairs: self.positions, reads: self.positions };
        self.span = if !self.prompts.is_empty() {
            let work = self.compute_prompts(self.model.step_tokens.saturating_sub(streams).max(1));
            Some(Span { began: now, steps: 1, first: self.model.seconds(decode.and(work)), growth: 0.0 })
        } else if let Some(Reverse((last, _))) = self.ends.peek() {
            let [_, _, _, pair, read] = self.model.cost;
            let growth = (pair + read) * streams as f64;
            Some(Span { began: now, steps: last - self.step, first: self.model.seconds(decode), growth })
        } else {
            None
        };
    }

    /// Computes at most so many tokens of prompts, which are there when the span ends.
    fn compute_prompts(&mut self, mut budget: usize) -> Work {
        let mut work = Work::default();
        for prompt in &mut self.prompts {
            let tokens = budget.min(prompt.job.prompt - prompt.computed);
            if tokens == 0 {
                break;
            }
            let start = prompt.computed;
            prompt.computed += tokens;
            work = work.and(Work::chunk(start, tokens, usize::from(prompt.is_computed())));
            budget -= tokens;
        }
        work
    }

    fn finish_prompts(&mut self, said: &mut Vec<Said>) {
        while self.prompts.front().is_some_and(Prompt::is_computed)
            && let Some(Prompt { job, cached, .. }) = self.prompts.pop_front()
        {
            self.cache.touch(&job.blocks[..self.shareable(&job)]);
            self.make_room();
            said.push(Said::FirstToken { id: job.id, cached });
            self.positions += job.prompt as u64 + 1;
            let last_step = self.step + job.answer as u64 - 1;
            let stream = Stream { job, last_step };
            if last_step == self.step {
                self.finish(stream, said);
            } else {
                self.keep(stream);
            }
        }
    }

    fn keep(&mut self, stream: Stream) {
        let slot = self.free.pop().unwrap_or_else(|| {
            self.streams.push(None);
            self.streams.len() - 1
        });
        self.ends.push(Reverse((stream.last_step, slot)));
        self.streams[slot] = Some(stream);
    }

    fn finish_streams(&mut self, said: &mut Vec<Said>) {
        while let Some(Reverse((last, slot))) = self.ends.peek().copied()
            && last <= self.step
        {
            self.ends.pop();
            self.free.push(slot);
            if let Some(stream) = self.streams[slot].take() {
                self.finish(stream, said);
            }
        }
    }

    fn finish(&mut self, Stream { job, .. }: Stream, said: &mut Vec<Said>) {
        self.positions -= (job.prompt + job.answer) as u64;
        self.release(&job);
        self.cache.touch(&job.blocks);
        self.make_room();
        said.push(Said::Done { id: job.id });
    }
}

#[cfg(test)]
mod tests;
