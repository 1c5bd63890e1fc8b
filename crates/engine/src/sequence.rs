//! A sequence: a growing list of tokens, and how much of it is computed.
//!
//! ```text
//! tokens     | prompt ............ | generated ... |        len
//! computed   ------------------------------->               KV exists in the table's blocks
//! pending                                    ------>        a step gives it a chunk of these
//! ```
//! There is no prefill phase and no decode phase: a sequence whose whole tokens get computed in a step is sampled in
//! that step, and has one pending token for the next.

use std::sync::Arc;
use std::time::Duration;

use ropeway_executor::{Sampled, SamplingParams};

use crate::guide::{Following, Guided, Progress};
use crate::kv::{BlockTable, Chain, Pool};
use crate::request::{Class, ClientId};
use crate::stream::{Event, EventSender, FinishReason, Usage};

/// A sequence's place in the roster, for as long as it lives.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Slot(pub u32);

/// What all sequences of a request have in common.
#[derive(Debug)]
pub struct Ticket {
    /// Requests are numbered in the order of their submission.
    pub number: u64,
    /// Who asks.
    pub client: ClientId,
    /// How urgent it is.
    pub class: Class,
    /// When it was submitted.
    pub arrival: Duration,
    /// When it is too late to begin.
    pub begin_by: Option<Duration>,
    /// When it is too late to go on.
    pub end_by: Option<Duration>,
    /// Tokens that end a sequence.
    pub ends: Vec<u32>,
    /// Tokens before which no end token is chosen.
    pub min_tokens: usize,
    /// Tokens of the prompt.
    pub prompt_len: usize,
    /// Most tokens of a sequence, prompt included.
    pub max_len: usize,
    /// Where its events go.
    pub(crate) events: EventSender,
}

/// One growing token list.
#[derive(Debug)]
pub struct Sequence {
    /// What it belongs to.
    pub ticket: Arc<Ticket>,
    /// Which of its request's sequences it is, from 0.
    pub index: u32,
    /// Prompt and generated tokens.
    pub tokens: Vec<u32>,
    /// How many of the tokens have their KV in the table's blocks.
    pub computed: usize,
    /// Its blocks.
    pub table: BlockTable,
    /// Names of its full blocks.
    pub chain: Chain,
    /// How its tokens are chosen.
    pub params: SamplingParams,
    /// Alternatives to report with each scored prompt token, if they are scored at all.
    pub score: Option<u32>,
    /// Prompt tokens whose scores were told: what is computed again after a preemption is not told again.
    pub told: usize,
    /// Who says what its tokens may be, if not the model alone.
    pub(crate) guide: Option<Guided>,
    /// Tokens its grammar put at the start of the answer, before anything is chosen.
    pub opening: usize,
    /// Pending tokens that were not chosen but forced, after the one that was.
    pub forced: usize,
    /// Whether its grammar lets anything follow its tokens.
    pub progress: Progress,
    /// Sequences that begin where this one's prompt ends, until they do.
    pub followers: Vec<Sequence>,
    /// When it was first part of a step.
    pub started: Option<Duration>,
    /// When its first token came.
    pub first_token: Option<Duration>,
    /// When its latest token came.
    pub last_token: Option<Duration>,
    /// Prompt tokens found in the cache when it was first planned.
    pub cached: usize,
    /// How often it was preempted.
    pub preemptions: u32,
}

impl Sequence {
    /// Tokens known.
    pub fn len(&self) -> usize {
        self.tokens.len()
    }

    /// Whether it has no tokens; never true, for the prompt has some.
    pub fn is_empty(&self) -> bool {
        self.tokens.is_empty()
    }

    /// Tokens known but not computed.
    pub fn pending(&self) -> usize {
        self.tokens.len() - self.computed
    }

    /// Whether it only waits for its next token.
    pub fn is_decoding(&self) -> bool {
        self.computed > 0 && self.pending() == 1 + self.forced
    }

    /// Whether nothing was chosen yet.
    pub fn is_prompt(&self) -> bool {
        self.generated() == self.opening
    }

    /// Tokens generated so far.
    pub fn generated(&self) -> usize {
        self.tokens.len() - self.ticket.prompt_len
    }

    /// Rows of logits it asks for when all its tokens are computed: its own and its followers'.
    pub fn rows(&self) -> usize {
        1 + self.followers.len()
    }

    /// Rows that a chunk of `tokens` asks for: a score for each prompt token that follows one of these, and the rows
    /// that choose what comes next if nothing else is known.
    pub fn rows_of(&self, tokens: usize) -> usize {
        let chosen = if tokens == self.pending() && self.may_grow() { self.rows() } else { 0 };
        self.scored(tokens).len() + chosen
    }

    /// The longest chunk that asks for no more than `rows` rows.
    pub fn longest_chunk(&self, rows: usize) -> usize {
        let pending = self.pending();
        if self.rows_of(pending) <= rows {
            return pending;
        }
        // All but the last token ask for at most one row each.
        if self.score.is_some() { rows.min(pending - 1) } else { pending - 1 }
    }

    /// Rows that every token of a chunk asks for: one while the prompt is scored.
    pub fn rows_each(&self) -> usize {
        usize::from(self.score.is_some() && self.is_prompt())
    }

    /// Positions of the prompt tokens that a chunk of `tokens` scores.
    pub fn scored(&self, tokens: usize) -> std::ops::Range<usize> {
        let (first, end) = (self.computed + 1, self.computed + tokens + 1);
        if self.rows_each() > 0 { first..end.min(self.ticket.prompt_len).max(first) } else { 0..0 }
    }

    /// Whether it may have more tokens than it has.
    pub fn may_grow(&self) -> bool {
        self.tokens.len() < self.ticket.max_len && self.progress == Progress::Open
    }

    /// How urgent it is.
    pub fn class(&self) -> Class {
        self.ticket.class
    }

    /// Blocks that all its known tokens need.
    pub fn blocks_needed(&self, block_tokens: usize) -> usize {
        self.tokens.len().div_ceil(block_tokens)
    }

    /// Takes over cached blocks for what comes next, as far as there are any; the last token is always computed, for
    /// its logits are wanted. Returns the tokens gained.
    pub fn adopt_cached(&mut self, pool: &mut Pool, block_tokens: usize) -> usize {
        let before = self.computed;
        // A score needs the logits of the token before, and these are not cached.
        while self.score.is_none()
            && self.computed + block_tokens < self.tokens.len()
            && self.table.blocks().len() * block_tokens == self.computed
        {
            let cached = self.chain.get(self.computed / block_tokens).and_then(|hash| pool.find(hash));
            let Some(block) = cached else { break };
            self.table.adopt(pool, block);
            self.computed += block_tokens;
        }
        self.computed - before
    }

    /// Counts `tokens` more as computed, and names the blocks that became full.
    pub fn advance(&mut self, tokens: usize, pool: &mut Pool, block_tokens: usize) {
        let full = self.computed / block_tokens;
        self.computed += tokens;
        self.forced = self.forced.min(self.pending().saturating_sub(1));
        self.chain.extend(&self.tokens);
        for block in full..self.computed / block_tokens {
            if let Some(hash) = self.chain.get(block) {
                pool.register(self.table.blocks()[block], hash);
            }
        }
    }

    /// Appends the tokens that its grammar forced, as far as there is room.
    pub(crate) fn take_forced(&mut self, following: &Following) {
        let room = self.ticket.max_len - self.tokens.len();
        let fitting = &following.forced[..following.forced.len().min(room)];
        self.tokens.extend_from_slice(fitting);
        self.forced = fitting.len();
        // What was cut is not complete.
        if self.forced == following.forced.len() {
            self.progress = following.progress;
        }
    }

    /// Whether its grammar had to bring it to its end for want of room.
    pub(crate) fn has_landed(&self) -> bool {
        self.guide.as_ref().is_some_and(Guided::has_landed)
    }

    /// Gives up its blocks; what it computed may survive in the cache.
    pub fn release(&mut self, pool: &mut Pool) {
        self.table.release(pool);
        self.computed = 0;
    }

    /// What it used until now, if it ends for this reason.
    pub(crate) fn usage(&self, reason: &FinishReason, now: Duration) -> Usage {
        let since = |moment: Option<Duration>| moment.unwrap_or(now).saturating_sub(self.ticket.arrival);
        let ended = usize::from(matches!(reason, FinishReason::End(_)));
        Usage {
            prompt: self.ticket.prompt_len,
            cached: self.cached,
            generated: self.generated() + ended,
            queued: since(self.started),
            first_token: since(self.first_token),
            total: since(None),
            preemptions: self.preemptions,
        }
    }

    /// Tells its reader of the last `count` tokens, which nobody chose.
    pub(crate) fn tell_last(&self, count: usize) {
        for token in &self.tokens[self.tokens.len() - count..] {
            let sampled = Sampled { token: *token, ..Sampled::default() };
            self.tell(Event::Token { sequence: self.index, sampled });
        }
    }

    /// Tells its reader.
    pub(crate) fn tell(&self, event: Event) {
        self.ticket.events.send(event);
    }
}
