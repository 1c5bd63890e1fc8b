//! Who comes, how often, and with what.
//!
//! Visits come at independent times. A visit brings one request or several at once, all from one client: an agent
//! sends three, a pipeline eighteen.

use std::time::Duration;

use ropeway_engine::cost::{CostModel, Work};
use ropeway_engine::{Class, ClientId, Request};

use crate::rng::Rng;

/// Sequences that share a step on a busy machine; what a step costs by itself is divided among so many when the
/// capacity is estimated.
const BUSY: f64 = 32.0;

/// Visits looked at to estimate what a mean one costs.
const SAMPLE: usize = 2000;

/// A length in tokens.
#[derive(Clone, Copy, Debug)]
pub struct Length {
    /// Half are shorter.
    pub median: f64,
    /// Standard deviation of the logarithm; 0 makes all the same.
    pub spread: f64,
}

impl Length {
    /// Always `tokens`.
    pub const fn exactly(tokens: u32) -> Self {
        Self { median: tokens as f64, spread: 0.0 }
    }

    /// Around `median`, a few much longer: as people write.
    pub const fn around(median: u32) -> Self {
        Self { median: median as f64, spread: 0.8 }
    }

    fn draw(self, rng: &mut Rng, most: usize) -> usize {
        (rng.length(self.median, self.spread).round() as usize).clamp(1, most.max(1))
    }
}

/// One request of a visit.
#[derive(Clone, Copy, Debug)]
pub struct Kind {
    /// How urgent it is.
    pub class: Class,
    /// How many of them the visit brings.
    pub count: usize,
    /// Tokens at the beginning of the prompt that all requests of this kind have in common.
    pub shared: usize,
    /// Tokens of the prompt that are its own.
    pub prompt: Length,
    /// Tokens of the answer.
    pub answer: Length,
}

/// Requests that come together.
#[derive(Clone, Debug)]
pub struct Visit {
    /// How often it comes, in relation to the others.
    pub weight: f64,
    /// What it brings.
    pub kinds: Vec<Kind>,
}

/// Everything that comes.
#[derive(Clone, Debug)]
pub struct Workload {
    /// The visits there are.
    pub visits: Vec<Visit>,
    /// Share of the machine's capacity that they ask for.
    pub load: f64,
    /// Clients among whom visits are spread.
    pub clients: usize,
}

/// One request to come.
#[derive(Debug)]
pub struct Arrival {
    /// When.
    pub at: Duration,
    /// With what.
    pub request: Request,
}

impl Workload {
    /// Requests a second that make up the load on a machine with this cost.
    pub fn rate(&self, cost: &CostModel, context: usize) -> f64 {
        let mut rng = Rng::new(0);
        let (mut seconds, mut requests) = (0.0, 0);
        for _ in 0..SAMPLE {
            for kind in &self.visit(&mut rng).kinds {
                for _ in 0..kind.count {
                    let (prompt, answer) = lengths(&mut rng, kind, context);
                    seconds += needed(cost, prompt - kind.shared, answer);
                    requests += 1;
                }
            }
        }
        self.load * f64::from(requests) / seconds
    }

    /// `count` requests at `rate` a second, in the order of their arrival.
    pub fn arrivals(&self, seed: u64, rate: f64, count: usize, context: usize) -> Arrivals<'_> {
        let per_visit = self.requests_per_visit();
        let rng = Rng::new(seed);
        Arrivals {
            workload: self,
            rng,
            visits: rate / per_visit,
            context,
            left: count,
            number: 0,
            at: Duration::ZERO,
            ready: Vec::new(),
        }
    }

    fn requests_per_visit(&self) -> f64 {
        let weight: f64 = self.visits.iter().map(|visit| visit.weight).sum();
        let requests = |visit: &Visit| visit.kinds.iter().map(|kind| kind.count).sum::<usize>() as f64;
        self.visits.iter().map(|visit| visit.weight * requests(visit)).sum::<f64>() / weight
    }

    fn visit(&self, rng: &mut Rng) -> &Visit {
        let weight: f64 = self.visits.iter().map(|visit| visit.weight).sum();
        let mut left = rng.unit() * weight;
        for visit in &self.visits {
            left -= visit.weight;
            if left < 0.0 {
                return visit;
            }
        }
        self.visits.last().expect("a workload has visits")
    }
}

/// Tokens of the prompt, the shared ones included, and of the answer.
fn lengths(rng: &mut Rng, kind: &Kind, context: usize) -> (usize, usize) {
    let prompt = kind.shared + kind.prompt.draw(rng, context.saturating_sub(kind.shared + 2));
    let answer = kind.answer.draw(rng, context.saturating_sub(prompt));
    (prompt, answer)
}

/// Seconds of the machine that a request takes on a busy one.
fn needed(cost: &CostModel, prompt: usize, answer: usize) -> f64 {
    let [step, ..] = cost.coefficients();
    let prefill = cost.marginal(Work::chunk(0, prompt, 1));
    let tokens = answer.saturating_sub(1);
    let decode = cost.marginal(Work { rows: tokens, ..Work::chunk(prompt, tokens, 0) });
    prefill + decode + step * answer as f64 / BUSY
}

/// Requests in the order of their arrival.
#[derive(Debug)]
pub struct Arrivals<'a> {
    workload: &'a Workload,
    rng: Rng,
    /// Visits a second.
    visits: f64,
    context: usize,
    left: usize,
    number: u32,
    at: Duration,
    /// The rest of the latest visit.
    ready: Vec<Arrival>,
}

impl Iterator for Arrivals<'_> {
    type Item = Arrival;

    fn next(&mut self) -> Option<Arrival> {
        self.left = self.left.checked_sub(1)?;
        if self.ready.is_empty() {
            self.visit();
        }
        self.ready.pop()
    }
}

impl Arrivals<'_> {
    fn visit(&mut self) {
        self.at += self.rng.gap(self.visits);
        let client = ClientId::account(self.rng.below(self.workload.clients.max(1)) as u64);
        let visit = self.workload.visit(&mut self.rng);
        for (index, kind) in visit.kinds.iter().enumerate() {
            for _ in 0..kind.count {
                let request = self.request(index as u32, kind, client);
                self.ready.push(Arrival { at: self.at, request });
            }
        }
        self.ready.reverse();
    }

    fn request(&mut self, index: u32, kind: &Kind, client: ClientId) -> Request {
        let (len, answer) = lengths(&mut self.rng, kind, self.context);
        // What is not shared differs from its first token on, so that nothing else is found in the cache.
        let mut prompt = vec![index; len];
        prompt[kind.shared] = 1000 + self.number;
        self.number += 1;
        Request { client, class: kind.class, ..Request::greedy(prompt, answer) }
    }
}
