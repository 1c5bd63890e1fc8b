//! The way in: any number of threads submit, each request gets its own stream of events.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::Duration;

use ropeway_executor::{Biases, Limits, Sampled, SamplingParams, Seed};

use crate::board::Board;
use crate::clock::Clock;
use crate::draft::{Drafting, Quotable};
use crate::guide::Guidance;
use crate::kv::{BlockHash, BlockTable, Chain};
use crate::request::{Rejected, Request, room};
use crate::sequence::{Sequence, Ticket};
use crate::settings::Settings;
use crate::stream::{Event, EventStream, FinishReason, Usage, channel};
use crate::tier::Tier;
use crate::tokens::Tokens;

/// Room in the inbox for what is no request: who looks for blocks must not take a request's place.
const ERRANDS: usize = 16;

/// What reaches the engine.
pub(crate) enum Submission {
    /// A checked request.
    Sequence(Box<Sequence>),
    /// Somebody wants to know where blocks are.
    Locate { names: Vec<BlockHash>, tell: Box<dyn FnOnce(Vec<Located>) + Send> },
    /// Cached blocks are to leave memory, and lower tiers as well if they are to be forgotten.
    Evict { names: Vec<BlockHash>, forget: bool },
    /// Nothing, but an idle engine looks up.
    Wake,
}

/// Submits requests to an engine. Cheap to clone; the engine ends when the last one is dropped and all work is done.
#[derive(Clone)]
pub struct Handle {
    inbox: SyncSender<Submission>,
    board: Arc<Board>,
    clock: Arc<dyn Clock>,
    limits: Limits,
    queue: usize,
    next: Arc<AtomicU64>,
    tier: Option<Arc<dyn Tier>>,
}

/// Where a block is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Located {
    /// In memory.
    pub memory: bool,
    /// In a lower tier.
    pub lower: bool,
}

/// A whole continuation.
#[derive(Clone, Debug, PartialEq)]
pub struct Completion {
    /// The new tokens, without an end token.
    pub tokens: Vec<Sampled>,
    /// Why it ended.
    pub reason: FinishReason,
    /// What it used.
    pub usage: Usage,
}

impl Handle {
    pub(crate) fn new(
        limits: Limits,
        clock: Arc<dyn Clock>,
        settings: &Settings,
    ) -> (Self, Receiver<Submission>, Arc<Board>) {
        let (sender, inbox) = sync_channel(settings.queue + ERRANDS);
        let board = Arc::new(Board::default());
        let next = Arc::new(AtomicU64::new(0));
        let tier = settings.tier.clone().filter(|_| limits.block_bytes > 0);
        let (queue, shared) = (settings.queue, Arc::clone(&board));
        let handle = Self { inbox: sender, board: shared, clock, limits, queue, next, tier };
        (handle, inbox, board)
    }

    /// What the executor can hold.
    pub fn limits(&self) -> &Limits {
        &self.limits
    }

    /// What the engine shows: metrics and step records.
    pub fn board(&self) -> &Board {
        &self.board
    }

    /// Time until a place in the queue should be free if none is now, at the speed of the recent past.
    pub fn queue_wait(&self) -> Duration {
        self.board.queue.wait(self.clock.now())
    }

    /// Ends the engine after its current step: every open request ends with
    /// [`EngineGone`](crate::SequenceError::EngineGone), and no more are taken.
    pub fn stop(&self) {
        self.board.stop();
        // A full inbox keeps the engine awake as well.
        let _ = self.inbox.try_send(Submission::Wake);
    }

    /// Whether its thread is done: everything that was to be stored in a lower tier is on its way.
    pub fn has_ended(&self) -> bool {
        self.board.ended()
    }

    /// Where blocks go that memory has no room for, if there is such a place.
    pub fn tier(&self) -> Option<&Arc<dyn Tier>> {
        self.tier.as_ref()
    }

    /// Tells where the blocks with these names are, after the current step; never if the engine is busy or gone.
    pub fn locate(&self, names: Vec<BlockHash>, tell: impl FnOnce(Vec<Located>) + Send + 'static) {
        let _ = self.inbox.try_send(Submission::Locate { names, tell: Box::new(tell) });
    }

    /// Has cached blocks leave memory, as far as nobody uses them; they stay in lower tiers unless they are to be forgotten.
    pub fn evict(&self, names: Vec<BlockHash>, forget: bool) {
        let _ = self.inbox.try_send(Submission::Evict { names, forget });
    }

    /// The names of the full blocks of these tokens, as requests with this salt have them.
    pub fn names(&self, salt: &[u8], tokens: &[u32]) -> Vec<BlockHash> {
        Chain::new(BlockHash::root(salt), self.limits.block_tokens, tokens).prompt().to_vec()
    }

    /// Hands a request to the engine. Never waits: what can't be served, or not now, is turned down at once.
    pub fn submit(&self, request: Request) -> Result<EventStream, Rejected> {
        request.check(&self.limits)?;
        if self.board.stopped() {
            return Err(Rejected::Closed);
        }
        let (account, places) = (request.client.account, request.sequences());
        let queue = &self.board.queue;
        queue.enter(account, places, self.queue, self.clock.now()).map_err(Rejected::queue_full)?;
        let leave = || queue.leave(account, places, self.clock.now());
        let (sequence, stream) = self.prepare(request).inspect_err(|_| leave())?;
        let sent = self.inbox.try_send(Submission::Sequence(Box::new(sequence)));
        sent.inspect_err(|_| leave()).map_err(|_| Rejected::Closed)?;
        Ok(stream)
    }

    /// Continues every prompt the same way; results come in the order of the prompts. Waits while the queue is full,
    /// so that any number of prompts may be given.
    pub fn generate_batch(
        &self,
        prompts: impl IntoIterator<Item = Vec<u32>>,
        params: &Request,
    ) -> Vec<Result<Completion, Rejected>> {
        let mut results: Vec<Result<Completion, Rejected>> = Vec::new();
        let mut streams: std::collections::VecDeque<(usize, EventStream)> = std::collections::VecDeque::new();
        for (index, prompt) in prompts.into_iter().enumerate() {
            results.push(Err(Rejected::Closed));
            loop {
                match self.submit(Request { prompt: prompt.clone(), ..params.clone() }) {
                    Ok(stream) => streams.push_back((index, stream)),
                    Err(Rejected::QueueFull { .. }) if !streams.is_empty() => {
                        let (oldest, mut stream) = streams.pop_front().expect("not empty");
                        results[oldest] = Ok(stream.collect());
                        continue;
                    }
                    Err(reason) => results[index] = Err(reason),
                }
                break;
            }
        }
        for (index, mut stream) in streams {
            results[index] = Ok(stream.collect());
        }
        results
    }

    /// Everything that can be done before the engine's thread sees the request.
    fn prepare(&self, request: Request) -> Result<(Sequence, EventStream), Rejected> {
        let (events, stream) = channel(request.sequences());
        let arrival = self.clock.now();
        let prompt_len = request.prompt.len();
        let room = room(&self.limits);
        let max_len = request.max_tokens.map_or(room, |most| prompt_len.saturating_add(most).min(room));
        let after = |time: Option<Duration>| time.map(|time| arrival.saturating_add(time));
        let ticket = Arc::new(Ticket {
            number: self.next.fetch_add(1, Ordering::Relaxed),
            client: request.client,
            class: request.class,
            arrival,
            begin_by: after(request.queue_timeout),
            end_by: after(request.deadline),
            early_biases: match request.min_tokens {
                0 => Biases::default(),
                _ => request.params.logit_bias.with_banned(request.ends.iter().copied()),
            },
            ends: request.ends,
            min_tokens: request.min_tokens,
            prompt_len,
            max_len,
            quotable: Quotable::new(request.prediction),
            events,
        });
        let prompt: Arc<[u32]> = request.prompt.into();
        let block_tokens = self.limits.block_tokens;
        let chain = Chain::new(BlockHash::root(&request.salt), block_tokens, &prompt);
        let most = max_len.saturating_sub(prompt_len);
        let one = |index: u32| {
            let seed = Seed(request.params.seed.0.wrapping_add(u64::from(index)));
            let params = SamplingParams { seed, ..request.params.clone() };
            let tokens = Tokens::new(Arc::clone(&prompt), most);
            let chain = chain.clone().with_room(most);
            let mut sequence = Sequence::new(Arc::clone(&ticket), index, tokens, chain, params);
            sequence.table = BlockTable::with_capacity(max_len.div_ceil(block_tokens));
            if let Some(grammar) = request.grammar.as_deref().filter(|_| sequence.may_grow()) {
                let forces = sequence.params.logprobs.is_none();
                let begun = Guidance::begin(grammar, forces, &mut sequence.tokens, max_len);
                sequence.guidance = begun.map_err(|error| Rejected::Grammar(error.to_string()))?;
            }
            sequence.drafting = Drafting::new(request.speculation);
            Ok(sequence)
        };
        let mut leader = one(0)?;
        leader.score = request.score_prompt;
        leader.followers = (1..request.n.max(1) as u32).map(one).collect::<Result<_, _>>()?;
        Ok((leader, stream))
    }
}

impl EventStream {
    /// Waits for the end of a request's only sequence.
    pub fn collect(&mut self) -> Completion {
        let mut tokens = Vec::new();
        while let Some(event) = self.wait() {
            match event {
                Event::Placed { .. } | Event::Prefilled { .. } | Event::Scored(_) => {}
                Event::Token { sampled, .. } => tokens.push(sampled),
                Event::Finished { reason, usage, .. } => return Completion { tokens, reason, usage },
            }
        }
        Completion { tokens, reason: FinishReason::Cancelled, usage: Usage::default() }
    }
}
