//! Machines and requests of a liveness scenario, as plain data that can be printed and made smaller.

use std::fmt;
use std::time::Duration;

use ropeway_engine::cost::CostModel;
use ropeway_engine::{Class, ClientId, Pace, Request, Settings};
use ropeway_executor::Limits;

use crate::rng::Rng;
use crate::shrink::Shrink;
use crate::step_time::StepTime;

/// Tokens of a block in every liveness scenario.
pub const BLOCK_TOKENS: usize = 16;

/// Token ids are below this.
const VOCAB: usize = 50_000;

/// Requests that are printed of a scenario.
const SHOWN: usize = 50;

/// Memory of a tight machine, as a multiple of what the largest request needs.
const TIGHT: f64 = 1.1;

/// When a request is submitted.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum When {
    /// At this time.
    At(Duration),
    /// So long after another request, by its index, has finished: one client that reads an answer and asks again.
    After {
        /// Index of the request before.
        earlier: usize,
        /// Time between its end and this request.
        pause: Duration,
    },
}

/// One request to come.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RequestSpec {
    /// When it is submitted.
    pub when: When,
    /// The account it is charged to.
    pub account: u32,
    /// The account's session that it belongs to.
    pub session: u32,
    /// How urgent it is.
    pub class: Class,
    /// Tokens at the beginning of the prompt that all requests have in common.
    pub shared: usize,
    /// Tokens of the prompt, the shared ones included.
    pub prompt: usize,
    /// Tokens of each answer.
    pub answer: usize,
    /// Answers.
    pub n: usize,
    /// Whether the prompt's tokens are scored.
    pub scored: bool,
    /// Whether the rule at hand is about this request, rather than about what happens beside it.
    pub measured: bool,
}

impl RequestSpec {
    /// A request of the default class at `at`, with one answer and nothing in common with others.
    pub fn new(at: f64, prompt: usize, answer: usize) -> Self {
        Self {
            when: When::At(Duration::from_secs_f64(at)),
            account: 0,
            session: 0,
            class: Class::Default,
            shared: 0,
            prompt,
            answer,
            n: 1,
            scored: false,
            measured: false,
        }
    }

    /// The same `pause` seconds after the request of index `earlier` finished.
    pub fn after(self, earlier: usize, pause: f64) -> Self {
        Self { when: When::After { earlier, pause: Duration::from_secs_f64(pause) }, ..self }
    }

    /// The same for another class.
    pub fn of(self, class: Class) -> Self {
        Self { class, ..self }
    }

    /// The same for another account.
    pub fn from(self, account: u32) -> Self {
        Self { account, ..self }
    }

    /// The same as what the rule at hand is about.
    pub fn measured(self) -> Self {
        Self { measured: true, ..self }
    }

    /// Tokens of KV memory that it needs when it is done.
    pub fn tokens(&self) -> usize {
        // Each answer beyond the first begins in a copy of the prompt's last block.
        self.prompt + self.answer + (self.n - 1) * (self.answer + BLOCK_TOKENS)
    }

    /// The request; `index` makes the prompt differ from every other one after its shared beginning.
    pub fn build(&self, index: usize) -> Request {
        let mut text = Rng::new(0);
        let mut prompt: Vec<u32> = (0..self.shared).map(|_| text.below(VOCAB) as u32).collect();
        let mut text = Rng::new(1 + index as u64);
        prompt.extend((self.shared..self.prompt).map(|_| text.below(VOCAB) as u32));
        Request {
            client: ClientId { account: u64::from(self.account), session: u64::from(self.session) },
            class: self.class,
            n: self.n,
            score_prompt: self.scored.then_some(0),
            ..Request::greedy(prompt, self.answer)
        }
    }
}

/// An executor, and how the engine on it is set up.
#[derive(Clone, Debug)]
pub struct MachineSpec {
    /// Most tokens in one step.
    pub step_tokens: usize,
    /// Most rows in one step.
    pub step_rows: usize,
    /// Blocks of KV memory.
    pub blocks: usize,
    /// Steps that may be launched while another one is in flight.
    pub ahead: usize,
    /// What steps really take.
    pub time: StepTime,
    /// What the engine believes in the beginning.
    pub guess: CostModel,
    /// Time between two tokens of a stream that the engine aims at.
    pub target: Duration,
}

impl MachineSpec {
    /// A machine with ample memory whose cost is known to the engine.
    pub fn known(cost: CostModel) -> Self {
        Self {
            step_tokens: 512,
            step_rows: 64,
            blocks: 8192,
            ahead: 0,
            guess: cost.clone(),
            time: cost.into(),
            target: Duration::from_millis(100),
        }
    }

    /// A small model on two cores: 5 ms per step, 0.7 ms per token.
    pub fn fast() -> Self {
        Self::known(CostModel::known([0.005, 0.0007, 0.0003, 3e-7, 1e-6]))
    }

    /// A model of several billion parameters on two cores: 250 ms per step, far above the inter-token target.
    pub fn slow() -> Self {
        Self::known(CostModel::known([0.25, 0.005, 0.002, 1e-6, 1e-6]))
    }

    /// The same with memory for 1.1 times the largest of `requests`.
    pub fn tight(mut self, requests: &[RequestSpec]) -> Self {
        let largest = requests.iter().map(RequestSpec::tokens).max().unwrap_or(1);
        self.blocks = (TIGHT * largest as f64 / BLOCK_TOKENS as f64).ceil() as usize;
        self
    }

    /// The executor's limits.
    pub fn limits(&self) -> Limits {
        Limits {
            block_tokens: BLOCK_TOKENS,
            blocks: self.blocks,
            context: 1 << 15,
            step_tokens: self.step_tokens,
            step_rows: self.step_rows,
            vocab: VOCAB,
            ahead: self.ahead,
            ..Limits::EXAMPLE
        }
    }

    /// The engine's settings.
    pub fn settings(&self) -> Settings {
        Settings { pace: Pace::new(self.target), cost: Some(self.guess.clone()), ..Settings::default() }
    }
}

/// A machine and its requests.
#[derive(Clone, Debug)]
pub struct Scenario {
    /// The machine.
    pub machine: MachineSpec,
    /// The requests, in any order.
    pub requests: Vec<RequestSpec>,
    /// The simulation ends here even if requests are open; `None` ends it when all are finished.
    pub until: Option<Duration>,
}

impl Scenario {
    /// Runs until every request is finished.
    pub fn new(machine: MachineSpec, requests: Vec<RequestSpec>) -> Self {
        Self { machine, requests, until: None }
    }

    /// The same machine with only those requests that `keep` accepts. A request that followed a dropped one takes
    /// its place.
    pub fn only(&self, keep: impl Fn(usize, &RequestSpec) -> bool) -> Self {
        let kept: Vec<bool> =
            self.requests.iter().enumerate().map(|(index, request)| keep(index, request)).collect();
        let place = |index: usize| kept[..index].iter().filter(|kept| **kept).count();
        let mut requests = Vec::new();
        for (index, request) in self.requests.iter().enumerate().filter(|(index, _)| kept[*index]) {
            requests.push(RequestSpec { when: self.relinked(index, &kept, &place), ..*request });
        }
        Self { requests, ..self.clone() }
    }

    fn relinked(&self, index: usize, kept: &[bool], place: &impl Fn(usize) -> usize) -> When {
        let mut when = self.requests[index].when;
        while let When::After { earlier, pause } = when {
            if kept[earlier] {
                return When::After { earlier: place(earlier), pause };
            }
            when = self.requests[earlier].when;
        }
        when
    }
}

impl Shrink for Scenario {
    /// None if the run ends at a given time: such a scenario is about a steady state, and would be about another one
    /// with fewer requests.
    fn parts(&self) -> usize {
        if self.until.is_some() { 0 } else { self.requests.len() }
    }

    fn without(&self, parts: std::ops::Range<usize>) -> Self {
        self.only(|index, _| !parts.contains(&index))
    }

    fn simplified(&self, part: usize) -> Option<Self> {
        let mut simpler = self.clone();
        let request = simpler.requests.get_mut(part)?;
        let before = *request;
        *request = RequestSpec { n: 1, shared: 0, session: 0, scored: false, ..before };
        (*request != before).then_some(simpler)
    }

    fn shortened(&self, part: usize) -> Option<Self> {
        let mut smaller = self.clone();
        let request = smaller.requests.get_mut(part)?;
        let halves = |size: usize| size.div_ceil(2);
        let before = *request;
        (request.shared, request.prompt) = (request.shared / 2, halves(request.prompt));
        (request.answer, request.n) = (halves(request.answer), halves(request.n));
        (*request != before).then_some(smaller)
    }
}

impl fmt::Display for Scenario {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let MachineSpec { step_tokens, step_rows, blocks, ahead, time, guess, target } = &self.machine;
        writeln!(
            f,
            "{blocks} blocks of {BLOCK_TOKENS}; {step_tokens} tokens and {step_rows} rows a step, {ahead} ahead; target {target:?}"
        )?;
        writeln!(f, "{time}; the engine's guess: {:?}", guess.coefficients())?;
        for (index, request) in self.requests.iter().enumerate().take(SHOWN) {
            writeln!(f, "{index:>4}  {request}")?;
        }
        if self.requests.len() > SHOWN {
            writeln!(f, "      and {} more", self.requests.len() - SHOWN)?;
        }
        self.until.map_or(Ok(()), |until| writeln!(f, "until {until:?}"))
    }
}

impl fmt::Display for RequestSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.when {
            When::At(at) => write!(f, "at {:.3} s", at.as_secs_f64())?,
            When::After { earlier, pause } => write!(f, "{:.3} s after {earlier}", pause.as_secs_f64())?,
        }
        let Self { account, session, class, shared, prompt, answer, n, .. } = self;
        let scored = if self.scored { ", scored" } else { "" };
        let measured = if self.measured { ", measured" } else { "" };
        write!(
            f,
            "  {} {account}/{session}: prompt {prompt} ({shared} shared){scored}, {n} x {answer} tokens{measured}",
            class.name()
        )
    }
}
