//! An executor that computes nothing, takes as long as it is told, and notices every mistake with blocks.
//!
//! A real executor's output depends on the KV of every earlier position. So does this one's: each position's "KV" is
//! a running digest of all tokens up to it, kept in the block the table names, and a sampled token is a function of
//! the digest it finds there, or, where positions are read back to a [reach](Limits::reach), of all digests in it. A block that
//! is reused too early, shared wrongly or not copied in time gives another digest, and so another text than
//! [`MockExecutor::expected`] says.

use std::collections::VecDeque;
use std::time::Duration;

use ropeway_engine::Clock;
use ropeway_engine::cost::Work;
use ropeway_executor::{
    Ask, Batch, BlockId, Executor, ExecutorError, GuideId, Guides, Limits, Row, RowError, RowResult, Sampled,
    StepOutput, guides,
};

use crate::SimClock;
use crate::rng::mix;
use crate::step_time::StepTime;

/// Something that goes wrong, by what the batch contains.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// Rows whose sequence holds this token in the chunk give no finite logits.
    Row(u32),
    /// Any step with this token in it fails.
    Step(u32),
    /// Any step with this token in it panics.
    Panic(u32),
    /// Any step with this token in it loses the device; it can be restarted.
    Loss(u32),
    /// The call of this number fails to launch, counted from 0; the next ones are fine.
    Hiccup(u64),
    /// The call of this number loses the device, and with it what all blocks held.
    Outage {
        /// Number of the call.
        first: u64,
        /// How many attempts to restart the device fail after it.
        restarts: u64,
    },
}

/// The executor. Steps run one after another from their launches on; with [`Limits::ahead`] one may be launched while
/// another runs, and is fed from it.
#[derive(Debug)]
pub struct MockExecutor {
    limits: Limits,
    /// Digest per position, `block_tokens` per block.
    digests: Vec<u64>,
    time: Option<(SimClock, StepTime)>,
    faults: Vec<Fault>,
    /// Calls so far.
    calls: u64,
    /// Whether the device is lost.
    lost: bool,
    /// Attempts to restart that will fail.
    restarts: u64,
    /// Steps in flight, the oldest first.
    flights: VecDeque<Flight>,
    /// Memory for results, kept.
    spare: Vec<Vec<RowResult>>,
    /// The tokens of the batch, with those that were fed.
    tokens: Vec<u32>,
}

#[derive(Debug)]
struct Flight {
    /// When it is done.
    done: Duration,
    /// How long it takes.
    device: Duration,
    results: Result<Vec<RowResult>, ExecutorError>,
}

impl MockExecutor {
    /// An executor with these limits that takes no time.
    pub fn new(limits: Limits) -> Self {
        let digests = vec![0; limits.blocks * limits.block_tokens];
        Self {
            limits,
            digests,
            time: None,
            faults: Vec::new(),
            calls: 0,
            lost: false,
            restarts: 0,
            flights: VecDeque::with_capacity(limits.ahead + 1),
            spare: Vec::new(),
            tokens: Vec::new(),
        }
    }

    /// Large enough for examples.
    pub fn small() -> Self {
        Self::new(Limits::EXAMPLE)
    }

    /// Every step takes what `time` says, on `clock`; a plain cost model is a time without disturbances.
    pub fn with_time(mut self, clock: SimClock, time: impl Into<StepTime>) -> Self {
        self.time = Some((clock, time.into()));
        self
    }

    /// Goes wrong in these ways.
    pub fn with_faults(mut self, faults: Vec<Fault>) -> Self {
        self.faults = faults;
        self
    }

    /// The tokens that any correct engine gets from continuing `prompt` alone.
    pub fn expected(limits: &Limits, prompt: &[u32], seed: u64, count: usize) -> Vec<u32> {
        let next = |digest: &mut u64, token: &u32| {
            *digest = absorb(*digest, *token);
            Some(*digest)
        };
        let mut digests: Vec<u64> = prompt.iter().scan(0, next).collect();
        let mut tokens = Vec::with_capacity(count);
        for position in prompt.len()..prompt.len() + count {
            let seen = see(limits, position - 1, |position| digests[position]);
            let token = choose(seen, seed, position as u64, limits.vocab);
            tokens.push(token);
            digests.push(absorb(digests[position - 1], token));
        }
        tokens
    }

    fn at(&self, table: &[BlockId], position: usize) -> usize {
        let block = table[position / self.limits.block_tokens].0 as usize;
        block * self.limits.block_tokens + position % self.limits.block_tokens
    }

    fn copy(&mut self, from: BlockId, to: BlockId) {
        let tokens = self.limits.block_tokens;
        let from = from.0 as usize * tokens;
        self.digests.copy_within(from..from + tokens, to.0 as usize * tokens);
    }

    /// Writes the digests of every chunk, as a forward pass writes keys and values.
    fn forward(&mut self, batch: &Batch) {
        for chunk in &batch.chunks {
            let table = &batch.blocks[chunk.blocks.clone()];
            let mut digest = match chunk.start {
                0 => 0,
                start => self.digests[self.at(table, start - 1)],
            };
            for (position, index) in (chunk.start..).zip(chunk.tokens.clone()) {
                digest = absorb(digest, self.tokens[index]);
                let at = self.at(table, position);
                self.digests[at] = digest;
            }
        }
    }

    /// Takes the batch's tokens, and those that the step in flight chose.
    fn feed(&mut self, batch: &Batch) {
        self.tokens.clear();
        self.tokens.extend_from_slice(&batch.tokens);
        let before = self.flights.back().and_then(|flight| flight.results.as_ref().ok());
        for feed in &batch.feeds {
            let row = before.and_then(|rows| rows.get(feed.row)).expect("a row of the step in flight");
            // Whoever has no token ends with that step, whatever is computed for it here.
            self.tokens[feed.token] = row.as_ref().map_or(0, |row| row.token);
        }
    }

    /// Goes wrong if it is time to.
    fn suffer(&mut self) -> Result<(), ExecutorError> {
        for fault in &self.faults {
            match *fault {
                Fault::Step(token) if self.tokens.contains(&token) => {
                    return Err(ExecutorError::Step(format!("token {token} is poison")));
                }
                Fault::Loss(token) if self.tokens.contains(&token) => {
                    self.digests.fill(mix(u64::from(token)));
                    (self.lost, self.restarts) = (true, 0);
                    return Err(ExecutorError::Lost(format!("token {token} is poison")));
                }
                Fault::Panic(token) => assert!(!self.tokens.contains(&token), "token {token} is poison"),
                Fault::Outage { first, restarts } if first == self.calls => {
                    self.digests.fill(mix(first));
                    (self.lost, self.restarts) = (true, restarts);
                    return Err(ExecutorError::Lost("an outage".into()));
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// Runs a step to its end.
    fn run(&mut self, batch: &Batch, guides: &dyn Guides) -> Result<Vec<RowResult>, ExecutorError> {
        if let Some(Err(error)) = self.flights.back().map(|flight| &flight.results) {
            return Err(error.clone());
        }
        self.feed(batch);
        self.suffer()?;
        for (from, to) in &batch.copies {
            self.copy(*from, *to);
        }
        self.forward(batch);
        let mut results = self.spare.pop().unwrap_or_default();
        results.extend(batch.rows.iter().map(|row| self.sample(batch, guides, row)));
        Ok(results)
    }

    /// When a step that is launched now begins, and how long it takes.
    fn schedule(&mut self, batch: &Batch) -> (Duration, Duration) {
        let Some((clock, time)) = &mut self.time else { return (Duration::ZERO, Duration::ZERO) };
        let mut work = Work { rows: batch.rows.len(), ..Work::default() };
        for chunk in &batch.chunks {
            work = work.and(Work::chunk(chunk.start, chunk.tokens.len(), 0));
        }
        let free = self.flights.back().map_or(Duration::ZERO, |flight| flight.done);
        let begins = clock.now().max(free);
        (begins, time.next(begins, work))
    }

    /// Blocks of a lost device can't be reached, even before anybody was told.
    fn transfer(&self) -> Result<(), ExecutorError> {
        if self.lost { Err(ExecutorError::Lost("an outage".into())) } else { Ok(()) }
    }

    fn sample(&self, batch: &Batch, guides: &dyn Guides, row: &Row) -> RowResult {
        let chunk = &batch.chunks[batch.chunks.partition_point(|chunk| chunk.tokens.end <= row.token)];
        let tokens = &self.tokens[chunk.tokens.clone()];
        let poisoned = |fault: &Fault| matches!(fault, Fault::Row(token) if tokens.contains(token));
        if self.faults.iter().any(poisoned) {
            return Err(RowError::NotFinite);
        }
        let table = &batch.blocks[chunk.blocks.clone()];
        let position = chunk.start + (row.token - chunk.tokens.start);
        let digest = see(&self.limits, position, |position| self.digests[self.at(table, position)]);
        let chosen = || choose(digest, row.params.seed.0, row.position, self.limits.vocab);
        let token = match (row.ask, row.guide) {
            (Ask::Score(token), _) => token,
            (Ask::Sample, None) => chosen(),
            (Ask::Sample, Some(guide)) => self.choose_among(guides, guide, chosen())?,
        };
        Ok(Sampled { token, ..Sampled::default() })
    }

    /// The first allowed token from `wish` on, round the vocabulary.
    fn choose_among(&self, guides: &dyn Guides, guide: GuideId, wish: u32) -> Result<u32, RowError> {
        let vocab = self.limits.vocab as u32;
        let mut mask = vec![0; guides::mask_words(self.limits.vocab)];
        guides.allow(guide, &mut mask)?;
        let allowed = (wish..vocab).chain(0..wish).find(|token| guides::allows(&mask, *token));
        let token = allowed.ok_or(RowError::NothingAllowed)?;
        guides.chose(guide, token)?;
        Ok(token)
    }
}

impl Executor for MockExecutor {
    fn limits(&self) -> Limits {
        Limits { block_bytes: self.limits.block_tokens * size_of::<u64>(), ..self.limits }
    }

    fn launch(&mut self, batch: &Batch, guides: &dyn Guides) -> Result<(), ExecutorError> {
        batch.check(&self.limits)?;
        assert!(self.flights.len() <= self.limits.ahead, "no more steps in flight than may be");
        if self.faults.contains(&Fault::Hiccup(self.calls)) {
            self.calls += 1;
            return Err(ExecutorError::Step("a hiccup".into()));
        }
        let (begins, device) = self.schedule(batch);
        let results = self.run(batch, guides);
        self.calls += 1;
        self.flights.push_back(Flight { done: begins + device, device, results });
        Ok(())
    }

    fn collect(&mut self, _: &dyn Guides, output: &mut StepOutput) -> Result<(), ExecutorError> {
        let Flight { done, device, results } = self.flights.pop_front().expect("a step in flight");
        if let Some((clock, _)) = &self.time {
            clock.advance_to(done);
        }
        let mut results = results.inspect_err(|_| self.flights.clear())?;
        output.clear();
        output.device = device;
        output.rows.append(&mut results);
        self.spare.push(results);
        Ok(())
    }

    fn export(&mut self, block: BlockId, bytes: &mut [u8]) -> Result<(), ExecutorError> {
        self.transfer()?;
        let digests = &self.digests[block.0 as usize * self.limits.block_tokens..];
        for (digest, bytes) in digests.iter().zip(bytes.chunks_exact_mut(size_of::<u64>())) {
            bytes.copy_from_slice(&digest.to_le_bytes());
        }
        Ok(())
    }

    fn import(&mut self, block: BlockId, bytes: &[u8]) -> Result<(), ExecutorError> {
        self.transfer()?;
        let (words, rest) = bytes.as_chunks::<{ size_of::<u64>() }>();
        assert!(rest.is_empty() && words.len() == self.limits.block_tokens, "a whole block");
        let first = block.0 as usize * self.limits.block_tokens;
        for (digest, word) in self.digests[first..].iter_mut().zip(words) {
            *digest = u64::from_le_bytes(*word);
        }
        Ok(())
    }

    fn restart(&mut self) -> Result<(), ExecutorError> {
        if self.restarts == 0 {
            self.lost = false;
            return Ok(());
        }
        self.restarts -= 1;
        Err(ExecutorError::Lost("the outage lasts".into()))
    }
}

/// What a row at `position` makes of the digests that it reads.
fn see(limits: &Limits, position: usize, digest: impl Fn(usize) -> u64) -> u64 {
    let first = limits.reach.map_or(position, |reach| (position + 1).saturating_sub(reach));
    (first..position).fold(digest(position), |seen, position| mix(seen ^ digest(position)))
}

fn absorb(digest: u64, token: u32) -> u64 {
    mix(digest ^ (u64::from(token) + 0x9E37_79B9_7F4A_7C15))
}

fn choose(digest: u64, seed: u64, position: u64, vocab: usize) -> u32 {
    (mix(digest ^ seed.rotate_left(32) ^ position) % vocab as u64) as u32
}
