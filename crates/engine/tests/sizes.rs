//! Steps on an executor that computes whole sizes, as a GPU does: whatever is beyond one costs all of the next.

use std::sync::Arc;
use std::time::Duration;

use ropeway_engine::cost::CostModel;
use ropeway_engine::{ClientId, Engine, EventStream, Handle, Request, Settings, StepRecord, Stepped};
use ropeway_executor::{CostGuess, Limits, StepSizes};
use ropeway_testkit::SimClock;
use ropeway_testkit::simulate::{GpuTimes, TimedExecutor};

/// As of the CUDA executor: from 1,024 on, multiples of 128.
const SIZES: StepSizes = StepSizes::Listed(&{
    let mut sizes = [0; 71];
    let (small, mut index) = ([1, 8, 16, 32, 48, 64, 96, 128, 192, 256, 384, 512, 640, 768, 1024], 0);
    while index < sizes.len() {
        sizes[index] = if index < small.len() { small[index] } else { sizes[index - 1] + 128 };
        index += 1;
    }
    sizes
});

/// An 8B model on an H200, and what it is taken for before the first step.
const LIMITS: Limits = Limits {
    block_tokens: 32,
    blocks: 20_000,
    context: 131_072,
    step_tokens: 8192,
    step_rows: 1024,
    vocab: 1 << 31,
    sizes: SIZES,
    cost: CostGuess { step: 4_000_000_000, token: 18_000_000, row: 500_000, pair: 1_000, read: 37_000 },
    ..Limits::EXAMPLE
};
const COST: [f64; 5] = [4.6e-3, 2.15e-5, -7e-6, 1.0e-9, 3.7e-8];

fn engine() -> (Engine, Handle) {
    let clock = SimClock::new();
    let executor = TimedExecutor::new(LIMITS, CostModel::known(COST), Some(clock.clone()));
    Engine::new(Box::new(executor), Arc::new(clock), &Settings::default())
}

/// Computes prompts of these lengths that come at once, with answers of 64 tokens, to their end. The steps until the last prompt is
/// read.
fn burst(engine: &mut Engine, handle: &Handle, prompts: &[usize]) -> Vec<StepRecord> {
    let before = handle.board().records_after(0).last().map_or(0, |record| record.step);
    let submit = |(number, len): (usize, &usize)| {
        let client = ClientId::account(number as u64);
        // Differs from all others in its first token, so that nothing is found in the cache.
        let prompt = vec![before as u32 * 1000 + number as u32; *len];
        handle.submit(Request { client, ..Request::greedy(prompt, 64) }).expect("the queue has room")
    };
    let _streams: Vec<EventStream> = prompts.iter().enumerate().map(submit).collect();
    while engine.step() == Stepped::Ran {}
    let mut left: usize = prompts.iter().sum();
    let mut reads = |record: &StepRecord| {
        let began = left > 0;
        left -= record.prefill_tokens;
        began
    };
    handle.board().records_after(before).into_iter().take_while(|record| reads(record)).collect()
}

fn seconds(steps: &[StepRecord]) -> f64 {
    steps.iter().map(|step| step.device.as_secs_f64()).sum()
}

#[test]
fn every_step_of_a_burst_ends_at_a_size_or_with_the_last_prompt() {
    let (mut engine, handle) = engine();
    let alike = [128; 256];
    let mixed: Vec<usize> = (0..256).map(|number| 1 + number * number * 37 % 700).collect();
    let long = [20_000, 60_000, 300, 9_000, 5, 4_500];
    for prompts in [&alike[..], &mixed, &long, &alike] {
        let steps = burst(&mut engine, &handle, prompts);
        // A long prompt leaves every second step to the streams beside it.
        for step in steps[..steps.len() - 1].iter().filter(|step| step.prefill_tokens > 0) {
            let tokens = step.prefill_tokens + step.decode_tokens;
            assert_eq!(SIZES.computed(tokens), tokens, "{step}");
            assert!(step.predicted <= step.allowed.mul_f64(1.05), "{step}");
        }
    }
    // 32,768 tokens and 1,152 of streams beside them, at 93 ms for 4,096.
    let steps = burst(&mut engine, &handle, &alike);
    assert!(seconds(&steps) < 0.78, "{}", seconds(&steps));
}

#[test]
fn what_steps_cost_is_known_to_a_percent_however_full_their_sizes_are() {
    let (mut engine, handle) = engine();
    for round in 0..20 {
        let prompts: Vec<usize> =
            (0..=round % 7).map(|number| 1 + (round * 811 + number * 97) % 1500).collect();
        for step in burst(&mut engine, &handle, &prompts) {
            let error = step.predicted.as_secs_f64() / step.device.as_secs_f64() - 1.0;
            assert!(round < 10 || error.abs() < 0.01, "{step}");
        }
    }
}

/// A 1.5B model on an H200 as it was measured: small steps cost nearly the same, and few tokens of a prompt wait for what few blocks read.
const SMALL: Limits = Limits {
    cost: CostGuess { step: 1_500_000_000, token: 3_900_000, row: 700_000, pair: 651, read: 8_700 },
    ..LIMITS
};
const SMALL_COST: [f64; 5] = [1.5e-3, 4.1e-6, -0.8e-6, 2.8e-10, 5e-9];
const SMALL_TIMES: GpuTimes = GpuTimes {
    step: |size| 1.45e-3 + (size as f64 * 2.5e-6).max(size as f64 * 4.1e-6 - 2e-4),
    attention: |start, tokens| {
        let pairs = tokens as f64 * (start as f64 + tokens as f64 / 2.0);
        1e-4 + (pairs * 2.8e-10).max((start + tokens) as f64 * 2.6e-7)
    },
};

#[test]
fn short_answers_beside_a_long_prompt_take_little_longer_than_alone() {
    const LENGTHS: [usize; 3] = [17_616, 85, 113];
    let clock = SimClock::new();
    let cost = CostModel::known(SMALL_COST);
    let executor = TimedExecutor::new(SMALL, cost, Some(clock.clone())).with_times(SMALL_TIMES);
    let (mut engine, handle) = Engine::new(Box::new(executor), Arc::new(clock), &Settings::default());
    let mut salt = 0;
    let mut totals = |prompts: &[usize]| -> Vec<Duration> {
        let submit = |len: &usize| {
            salt += 1;
            handle.submit(Request::greedy(vec![salt; *len], 64)).expect("the queue has room")
        };
        let mut streams: Vec<EventStream> = prompts.iter().map(submit).collect();
        while engine.step() == Stepped::Ran {}
        streams.iter_mut().map(|stream| stream.collect().usage.total).collect()
    };
    for round in 0..5 {
        let alone = LENGTHS.map(|len| totals(&[len])[0]);
        let together = totals(&LENGTHS);
        let ratio = |at: usize| together[at].as_secs_f64() / alone[at].as_secs_f64();
        assert!(ratio(1) < 1.5 && ratio(2) < 1.5, "round {round}: {alone:?} alone, {together:?} together");
        // The long one waits for the short ones, and little more.
        let waited = together[0].saturating_sub(alone[0]);
        assert!(waited < alone[1] + Duration::from_millis(50), "round {round}: {waited:?}");
    }
}
