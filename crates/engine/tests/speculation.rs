//! Drafts on simulated hardware: a draft model under shortage and failures, and what drafting costs where it is of no use.

use std::sync::Arc;
use std::time::Duration;

use ropeway_engine::cost::CostModel;
use ropeway_engine::draft::{Proposals, Wanted};
use ropeway_engine::metrics::Metrics;
use ropeway_engine::{
    Class, Clock, DraftModel, Drafter, Engine, Event, EventStream, Mismatch, Request, Settings, Speculation,
    Stepped,
};
use ropeway_executor::{Executor, Limits, SamplingParams, Seed};
use ropeway_testkit::{Fault, MockExecutor, SimClock};

const VOCAB: usize = 1000;

fn limits(blocks: usize) -> Limits {
    Limits {
        block_tokens: 4,
        blocks,
        context: 400,
        step_tokens: 64,
        step_rows: 64,
        vocab: VOCAB,
        ..Limits::EXAMPLE
    }
}

/// Half of the requests begin alike.
fn request(number: u64) -> Request {
    let shared =
        (0..21).map(|at| if number.is_multiple_of(2) { at } else { (at + number as u32 * 17) % 500 });
    let prompt: Vec<u32> = shared.chain((0..number as u32 % 9).map(|at| at + 500)).collect();
    let params = SamplingParams { seed: Seed(number), ..SamplingParams::default() };
    Request {
        params,
        class: Class::ALL[number as usize % 3],
        ..Request::greedy(prompt, 30 + number as usize)
    }
}

fn tokens(stream: &mut EventStream) -> Vec<u32> {
    let mut tokens = Vec::new();
    while let Some(event) = stream.try_next() {
        if let Event::Token { sampled, .. } = event {
            tokens.push(sampled.token);
        }
    }
    tokens
}

/// Runs twelve requests on a target and a draft model with these executors; all answers have to be right.
fn run(target: MockExecutor, draft: MockExecutor) -> Metrics {
    let clock: Arc<dyn Clock> = Arc::new(SimClock::new());
    let drafter = DraftModel::new(Box::new(draft), Arc::clone(&clock), &target.limits()).expect("they match");
    let (engine, handle) = Engine::new(Box::new(target), clock, &Settings::default());
    let mut engine = engine.with_drafter(Box::new(drafter), Speculation::Always(5));
    let mut streams: Vec<_> = (0..12).map(|number| handle.submit(request(number)).expect("fits")).collect();
    while engine.step() == Stepped::Ran {}
    for (number, stream) in (0..).zip(&mut streams) {
        let Request { prompt, max_tokens, .. } = request(number);
        let expected = MockExecutor::expected(&limits(64), &prompt, number, max_tokens.expect("given"));
        assert_eq!(tokens(stream), expected, "request {number}");
    }
    handle.board().metrics()
}

#[test]
fn a_draft_model_that_agrees_is_always_right() {
    let metrics = run(MockExecutor::new(limits(400)), MockExecutor::new(limits(400)));
    assert!(metrics.drafted_tokens > 200, "{} drafted", metrics.drafted_tokens);
    // What lookup proposes may be wrong, and so may what was drafted beyond an answer's end.
    let wrong = metrics.drafted_tokens - metrics.accepted_tokens;
    assert!(wrong * 20 <= metrics.drafted_tokens, "{wrong} of {} wrong", metrics.drafted_tokens);
}

#[test]
fn answers_are_right_with_few_blocks_on_either_side() {
    for (blocks, draft_blocks) in [(24, 400), (400, 24), (24, 24), (400, 1)] {
        let metrics = run(MockExecutor::new(limits(blocks)), MockExecutor::new(limits(draft_blocks)));
        assert_eq!(metrics.preemptions > 0, blocks == 24, "{blocks} blocks");
    }
}

#[test]
fn a_draft_model_that_fails_costs_no_answer() {
    for fault in [
        Fault::Hiccup(3),
        Fault::Step(501),
        Fault::Outage { first: 5, restarts: 0 },
        Fault::Outage { first: 5, restarts: 9 },
    ] {
        let draft = MockExecutor::new(limits(400)).with_faults(vec![fault]);
        let metrics = run(MockExecutor::new(limits(400)), draft);
        assert_eq!(metrics.failed_steps, 0, "{fault:?}");
    }
}

#[test]
fn a_draft_model_with_another_vocabulary_is_refused() {
    let draft = Box::new(MockExecutor::new(Limits { vocab: 999, ..limits(400) }));
    let refused = DraftModel::new(draft, Arc::new(SimClock::new()), &limits(400)).err();
    assert_eq!(refused, Some(Mismatch::Vocabulary { draft: 999, target: VOCAB }));
}

/// Drafts that are never right, and cost time.
struct Wrong {
    clock: SimClock,
    price: Duration,
}

impl Drafter for Wrong {
    fn draft(&mut self, wanted: &mut dyn Iterator<Item = Wanted<'_>>, proposals: &mut Proposals) {
        let mut deepest = 0;
        for Wanted { slot, sequence, most } in wanted {
            let tokens = [sequence.tokens.prompt(), sequence.tokens.answer()].concat();
            let right = MockExecutor::expected(&limits(64), &tokens, sequence.params.seed.0, most);
            proposals.push(slot, right.into_iter().map(|token| (token + 1) % VOCAB as u32));
            deepest = deepest.max(most);
        }
        self.clock.advance(self.price * deepest as u32);
    }

    fn pass(&self, _: usize) -> f64 {
        self.price.as_secs_f64()
    }
}

/// Simulated seconds from the 50th token of the last of so many streams to the end.
fn seconds(streams: u64, drafter: Option<Duration>) -> f64 {
    let clock = SimClock::new();
    let cost = CostModel::known([0.005, 4e-4, 2e-4, 3e-8, 2e-7]);
    let room = Limits { context: 1000, step_tokens: 512, step_rows: 512, ..limits(64 * 250) };
    let executor = MockExecutor::new(room).with_time(clock.clone(), cost);
    let off = Settings { speculation: Speculation::Off, ..Settings::default() };
    let settings = if drafter.is_some() { Settings::default() } else { off };
    let (mut engine, handle) = Engine::new(Box::new(executor), Arc::new(clock.clone()), &settings);
    if let Some(price) = drafter {
        let wrong = Wrong { clock: clock.clone(), price };
        engine = engine.with_drafter(Box::new(wrong), Speculation::default());
    }
    let ask = |number| Request { max_tokens: Some(450), ..request(number) };
    let mut events: Vec<_> = (0..streams).map(|number| handle.submit(ask(number)).expect("fits")).collect();
    let (mut warm, mut counts) = (None, vec![0; events.len()]);
    while engine.step() == Stepped::Ran {
        for (count, stream) in counts.iter_mut().zip(&mut events) {
            *count += tokens(stream).len();
        }
        if warm.is_none() && counts.iter().all(|count| *count >= 50) {
            warm = Some(clock.now());
        }
    }
    clock.now().saturating_sub(warm.expect("all had 50")).as_secs_f64()
}

#[test]
fn drafts_that_are_always_wrong_cost_next_to_nothing_at_any_load() {
    for streams in [1, 4, 16, 64] {
        let without = seconds(streams, None);
        for price in [Duration::ZERO, Duration::from_millis(1), Duration::from_millis(5)] {
            let ratio = seconds(streams, Some(price)) / without;
            assert!(ratio <= 1.03, "{streams} streams, {price:?} a draft: {ratio:.3}");
        }
    }
}
