//! A sequence: a growing list of tokens, and how much of it is computed.
//!
//! ```text
//! tokens     | prompt ............ | answer ....... | ?      known: tokens, and one that the step in flight chooses
//! computed   ---------------------------->                   KV exists in the table's blocks
//! flying                                  ------->           KV is being computed by the step in flight
//! pending                                         -->        a step gives it a chunk of these
//! ```
//! There is no prefill phase and no decode phase: a sequence whose whole tokens get computed in a step is sampled in
//! that step, and has one pending token for the next.

mod blocks;

use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use ropeway_executor::{Biases, Sampled, SamplingParams};

use crate::draft::{Drafting, Quotable};
use crate::guide::{Guidance, landing};
use crate::kv::{BlockTable, Chain};
use crate::request::{Class, ClientId};
use crate::stream::{Event, EventSender, FinishReason, Usage};
use crate::tokens::Tokens;

/// A sequence's place in the roster, for as long as it lives.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Slot {
    /// Which place.
    pub index: u32,
    /// How many sequences had the place before.
    pub life: u32,
}

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
    /// The request's biases until then.
    pub early_biases: Biases,
    /// Tokens of the prompt.
    pub prompt_len: usize,
    /// Most tokens of a sequence, prompt included.
    pub max_len: usize,
    /// What its sequences may quote.
    pub(crate) quotable: Quotable,
    /// Where its events go.
    pub(crate) events: EventSender,
}

/// Blocks of a sequence on their way from a lower tier.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fetching {
    /// Which transfer; none yet for one that is about to begin.
    pub transfer: Option<u64>,
    /// The first block that does not come.
    pub end: usize,
}

/// What a chunk in flight will give its sequence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Gives {
    /// No token: the prompt goes on.
    Nothing,
    /// One token, from this row of the step.
    Token(usize),
    /// What comes next depends on the results, so that nothing can be planned before they are there.
    Unclear,
}

/// One growing token list.
#[derive(Debug)]
pub struct Sequence {
    /// What it belongs to.
    pub ticket: Arc<Ticket>,
    /// Which of its request's sequences it is, from 0.
    pub index: u32,
    /// Prompt and generated tokens.
    pub tokens: Tokens,
    /// How many of the tokens have their KV in the table's blocks.
    pub computed: usize,
    /// Tokens after these that the step in flight computes.
    pub flying: usize,
    /// The latest step in flight that has a part of it, and what that will give.
    pub in_flight: Option<(u64, Gives)>,
    /// What is expected to follow; computed beside the pending token, and kept as far as it is right.
    pub drafting: Drafting,
    /// Its blocks.
    pub table: BlockTable,
    /// Names of its full blocks.
    pub chain: Chain,
    /// Blocks of it that are on their way from a lower tier, if any are: it waits for them.
    pub fetching: Option<Fetching>,
    /// How often that came to nothing.
    pub fetch_failures: u32,
    /// How its tokens are chosen.
    pub params: SamplingParams,
    /// Alternatives to report with each scored prompt token, if they are scored at all.
    pub score: Option<u32>,
    /// Prompt tokens whose scores were told: what is computed again after a preemption is not told again.
    pub told: usize,
    /// The part that its grammar has in it, if there is one.
    pub(crate) guidance: Guidance,
    /// Sequences that begin where this one's prompt ends, until they do.
    pub followers: Vec<Sequence>,
    /// When it was first part of a step.
    pub started: Option<Duration>,
    /// When its first token came.
    pub first_token: Option<Duration>,
    /// When its latest token came.
    pub last_token: Option<Duration>,
    /// Prompt tokens found in the cache when it was first planned, in any tier.
    pub cached: usize,
    /// Of these, how many a lower tier held.
    pub fetched: usize,
    /// Tokens that its client was charged for, or got for nothing: what is computed again is not charged again.
    pub charged: usize,
    /// How often it lost blocks that it had computed.
    pub preemptions: u32,
    /// Before this moment it does not compute again what it lost, unless there is plenty of room.
    pub resumes: Duration,
    /// How often blocks were taken from it. A chunk that was planned before has nothing to advance.
    pub epoch: u32,
    /// Whether anything was computed since blocks were last taken from it.
    progressed: bool,
}

impl Sequence {
    /// A sequence of which nothing is computed.
    pub(crate) fn new(
        ticket: Arc<Ticket>,
        index: u32,
        tokens: Tokens,
        chain: Chain,
        params: SamplingParams,
    ) -> Self {
        Self {
            ticket,
            index,
            tokens,
            computed: 0,
            flying: 0,
            in_flight: None,
            drafting: Drafting::default(),
            table: BlockTable::default(),
            chain,
            fetching: None,
            fetch_failures: 0,
            params,
            score: None,
            told: 0,
            guidance: Guidance::default(),
            followers: Vec::new(),
            started: None,
            first_token: None,
            last_token: None,
            cached: 0,
            fetched: 0,
            charged: 0,
            preemptions: 0,
            resumes: Duration::ZERO,
            epoch: 0,
            progressed: false,
        }
    }

    /// Tokens known, one that the step in flight chooses included.
    pub fn len(&self) -> usize {
        self.tokens.len() + usize::from(self.fed().is_some())
    }

    /// Whether it has no tokens; never true, for the prompt has some.
    pub fn is_empty(&self) -> bool {
        self.tokens.is_empty()
    }

    /// The row of the step in flight that chooses its last token, if that is not known yet.
    pub fn fed(&self) -> Option<usize> {
        match self.in_flight {
            Some((_, Gives::Token(row))) => Some(row),
            _ => None,
        }
    }

    /// Whether its next chunk can be planned: nothing is in flight on which that depends, and there is more to come.
    pub fn is_plannable(&self) -> bool {
        if self.fetching.is_some() {
            return false;
        }
        match self.in_flight {
            None | Some((_, Gives::Nothing)) => true,
            Some((_, Gives::Token(_))) => self.may_grow(),
            Some((_, Gives::Unclear)) => false,
        }
    }

    /// What was drafted for its next chunk: nothing while it is not known where that begins.
    pub fn drafts(&self) -> &[u32] {
        if self.in_flight.is_none() { self.drafting.drafts() } else { &[] }
    }

    /// Where its next chunk starts.
    pub fn start(&self) -> usize {
        self.computed + self.flying
    }

    /// Tokens known but neither computed nor in flight.
    pub fn pending(&self) -> usize {
        self.len() - self.start()
    }

    /// Whether it only waits for its next token.
    pub fn is_decoding(&self) -> bool {
        self.start() > 0 && self.pending() == self.guidance.pending() && !self.is_prompt_pending()
    }

    /// Whether a part of the prompt, or what its grammar put behind it, is not computed.
    fn is_prompt_pending(&self) -> bool {
        self.start() < self.ticket.prompt_len + self.guidance.opening
    }

    /// Whether nothing was chosen yet.
    pub fn is_prompt(&self) -> bool {
        self.generated() == self.guidance.opening
    }

    /// Tokens generated so far.
    pub fn generated(&self) -> usize {
        self.tokens.answer().len()
    }

    /// Sequences that it stands for: itself and its followers.
    pub fn rows(&self) -> usize {
        1 + self.followers.len()
    }

    /// Rows that a chunk of `tokens` asks for, of which there may be `most`: a score for each prompt token that follows
    /// one of these, and, if nothing else is known, those that choose what comes next.
    pub fn rows_of(&self, tokens: usize, most: usize) -> usize {
        let scored = self.scored(tokens).len();
        if tokens < self.pending() || !self.may_grow() {
            return scored;
        }
        let drafted = tokens - self.pending();
        let chosen = drafted - self.drafting.forced.among(drafted);
        scored + (self.rows() + chosen).min(most.saturating_sub(scored)).max(1)
    }

    /// The longest chunk that asks for no more than `rows` rows.
    pub fn longest_chunk(&self, rows: usize) -> usize {
        let pending = self.pending();
        if self.rows_of(pending, rows) <= rows {
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
    pub fn scored(&self, tokens: usize) -> Range<usize> {
        self.scored_from(self.start(), tokens)
    }

    /// The same for a chunk that starts at `start`.
    pub fn scored_from(&self, start: usize, tokens: usize) -> Range<usize> {
        let (first, end) = (start + 1, start + tokens + 1);
        if self.rows_each() > 0 { first..end.min(self.ticket.prompt_len).max(first) } else { 0..0 }
    }

    /// Whether it may have more tokens than are known.
    pub fn may_grow(&self) -> bool {
        self.len() < self.ticket.max_len && !self.guidance.is_complete()
    }

    /// Whether it has all the tokens that it may have.
    pub fn is_over(&self) -> bool {
        self.tokens.len() >= self.ticket.max_len || self.guidance.is_complete()
    }

    /// Whether nothing but the model decides what comes next, one token a step: such a sequence can be planned ahead of
    /// what it says.
    pub fn is_plain(&self) -> bool {
        self.guidance.is_free() && self.followers.is_empty() && self.rows_each() == 0
    }

    /// Whether drafts can be computed behind its next token.
    pub(crate) fn is_draftable(&self) -> bool {
        self.is_decoding() && self.followers.is_empty() && self.rows_each() == 0 && self.guidance.can_draft()
    }

    /// Tokens before its end among which its grammar brings the answer to an end; nothing is drafted there.
    pub(crate) fn landing(&self) -> usize {
        let most = self.ticket.max_len - self.ticket.prompt_len;
        if self.guidance.is_free() { 0 } else { landing(most) }
    }

    /// How urgent it is.
    pub fn class(&self) -> Class {
        self.ticket.class
    }

    /// A step that has a chunk of `tokens` of it is in flight.
    pub fn take_off(&mut self, step: u64, tokens: usize, gives: Gives) {
        self.flying += tokens;
        self.in_flight = Some((step, gives));
    }

    /// The step is over, whatever came of it.
    pub fn land(&mut self, step: u64, tokens: usize, epoch: u32) {
        if self.epoch == epoch {
            self.flying -= tokens;
        }
        self.in_flight = self.in_flight.filter(|(latest, _)| *latest != step);
    }

    /// Tokens computed that nobody was charged for yet; they are now.
    pub fn charge(&mut self) -> usize {
        let new = self.computed.saturating_sub(self.charged);
        self.charged = self.charged.max(self.computed);
        new
    }

    /// What it used until now, if it ends for this reason.
    pub(crate) fn usage(&self, reason: &FinishReason, now: Duration) -> Usage {
        let since = |moment: Option<Duration>| moment.unwrap_or(now).saturating_sub(self.ticket.arrival);
        let ended = usize::from(matches!(reason, FinishReason::End(_)));
        Usage {
            prompt: self.ticket.prompt_len,
            cached: self.cached,
            fetched: self.fetched,
            generated: self.generated() + ended,
            queued: since(self.started),
            first_token: since(self.first_token),
            total: since(None),
            preemptions: self.preemptions,
            drafting: self.drafting.totals,
        }
    }

    /// Tells its reader of the last `count` tokens, which nobody chose.
    pub(crate) fn tell_last(&self, count: usize) {
        let answer = self.tokens.answer();
        for token in &answer[answer.len() - count..] {
            let sampled = Sampled { token: *token, ..Sampled::default() };
            self.tell_token(sampled);
        }
    }

    /// Tells its reader of a token.
    pub(crate) fn tell_token(&self, sampled: Sampled) {
        self.tell(Event::Token { sequence: self.index, sampled, drafting: self.drafting.totals });
    }

    /// Tells its reader.
    pub(crate) fn tell(&self, event: Event) {
        self.ticket.events.send(event);
    }
}
