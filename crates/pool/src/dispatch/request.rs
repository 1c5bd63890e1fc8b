//! A request in the dispatcher's care: where it stands and what became of its attempts.

use std::time::Duration;

use super::avoided::Avoided;
use super::budget::Tries;
use super::queue::Waiter;
use super::types::{Ask, Ended, Ticket, UpstreamId};
use super::upstream::{Attempt, Sending, Tokens};

/// A request, from its arrival to its end.
#[derive(Debug)]
pub struct Request {
    /// What was asked.
    pub ask: Ask,
    /// Where it is.
    pub stage: Stage,
    /// Tokens of its answer so far.
    pub generated: usize,
    /// How often it was tried.
    pub tries: Tries,
    /// Where it failed.
    pub avoided: Avoided,
    came: Duration,
}

/// Where a request is.
#[derive(Clone, Copy, Debug)]
pub enum Stage {
    /// In the queue.
    Waiting(Waiter),
    /// At an upstream.
    Running(Run),
}

/// An attempt at an upstream.
#[derive(Clone, Copy, Debug)]
pub struct Run {
    /// Where.
    pub upstream: UpstreamId,
    /// When it was sent.
    pub sent: Duration,
    /// Prompt tokens to compute, until the first token came.
    computing: Option<usize>,
    /// Expected tokens to come.
    answer_left: usize,
    /// When the latest tokens came.
    latest: Duration,
}

impl Run {
    /// A request that is sent now.
    pub fn new(upstream: UpstreamId, sending: Sending, now: Duration) -> Self {
        let computing = Some(sending.computed());
        Self { upstream, sent: now, computing, answer_left: sending.answer, latest: now }
    }

    /// The first token came: how many prompt tokens were computed for it. `None` if it came before.
    pub fn first_token(&mut self, now: Duration) -> Option<usize> {
        self.latest = self.computing.map_or(self.latest, |_| now);
        self.computing.take()
    }

    /// More tokens came.
    pub fn tokens(&mut self, tokens: usize, now: Duration) -> Tokens {
        let expected = tokens.min(self.answer_left);
        self.answer_left -= expected;
        let latest = std::mem::replace(&mut self.latest, now);
        Tokens { count: tokens, expected, time: now.saturating_sub(latest) }
    }

    /// Whether a token came in this attempt.
    pub fn has_tokens(&self) -> bool {
        self.computing.is_none()
    }

    /// This attempt as it ended.
    pub fn attempt(&self, ended: Ended) -> Attempt {
        let (prompt_left, answer_left) = (self.computing.unwrap_or(0), self.answer_left);
        Attempt { ended, sent: self.sent, prompt_left, answer_left }
    }
}

impl Request {
    /// One that came now.
    pub fn new(ask: Ask, ticket: Ticket, now: Duration) -> Self {
        let deadline = ask.queue_timeout.map(|timeout| now + timeout);
        let waiter = Waiter { ticket, client: ask.client, class: ask.class, deadline, has_failed: false };
        let stage = Stage::Waiting(waiter);
        Self { ask, stage, generated: 0, tries: Tries::default(), avoided: Avoided::default(), came: now }
    }

    /// The request in the queue.
    pub fn waiter(&self) -> Option<Waiter> {
        match self.stage {
            Stage::Waiting(waiter) => Some(waiter),
            Stage::Running(_) => None,
        }
    }

    /// The request at an upstream.
    pub fn run(&mut self) -> Option<&mut Run> {
        match &mut self.stage {
            Stage::Running(run) => Some(run),
            Stage::Waiting(_) => None,
        }
    }

    /// Tokens came: what failed before was something else.
    pub fn progressed(&mut self, tokens: usize) {
        self.generated += tokens;
        self.tries.progressed();
        self.avoided = Avoided::default();
    }

    /// Whether it was ever at an upstream.
    pub fn was_sent(&self) -> bool {
        self.waiter().is_none_or(|waiter| waiter.has_failed)
    }

    /// What is sent: the tokens of an answer that was broken off are part of the prompt.
    pub fn sending(&self, cached: usize) -> Sending {
        Sending {
            prompt: self.ask.prompt_tokens + self.generated,
            cached,
            answer: self.ask.answer_tokens.saturating_sub(self.generated),
        }
    }

    /// Goes back to the queue after a failed attempt. A stream has its queue timeout once more for every move.
    pub fn wait_again(&mut self, ticket: Ticket, failed_at: UpstreamId, now: Duration) -> Waiter {
        let since = if self.generated == 0 { self.came } else { now };
        let Ask { client, class, queue_timeout, .. } = self.ask;
        let deadline = queue_timeout.map(|timeout| since + timeout);
        let waiter = Waiter { ticket, client, class, deadline, has_failed: true };
        self.avoided.add(failed_at);
        self.stage = Stage::Waiting(waiter);
        waiter
    }
}
