//! A step allocates nothing once everything has its size. In a test binary of its own: it counts every allocation of
//! the process.

#[path = "../../../tests/counting_allocations.rs"]
mod counting;

use std::sync::Arc;

use ropeway_engine::cost::CostModel;
use ropeway_engine::{ClientId, Engine, EventStream, Request, Settings, Stepped};
use ropeway_executor::{Limits, SamplingParams};
use ropeway_testkit::{MockExecutor, SimClock};

const STREAMS: u32 = 64;

/// Allocations of a sequence that begins to stream: three for the index of its prompt, three for that of its answer.
const INDEXES: usize = 6;

/// Allocations during a turn of the engine, its readers reading along as they should.
fn turn(engine: &mut Engine, streams: &mut [EventStream]) -> usize {
    let before = counting::allocations();
    assert_eq!(engine.step(), Stepped::Ran);
    let allocated = counting::allocations() - before;
    for stream in streams {
        while stream.try_next().is_some() {}
    }
    allocated
}

#[test]
fn a_step_allocates_nothing_once_warm() {
    let limits = Limits {
        block_tokens: 16,
        blocks: 2048,
        context: 1024,
        step_tokens: 256,
        step_rows: STREAMS as usize,
        vocab: 1000,
        ..Limits::EXAMPLE
    };
    let clock = SimClock::new();
    let executor = MockExecutor::new(limits).with_time(clock.clone(), CostModel::default());
    let (mut engine, handle) = Engine::new(Box::new(executor), Arc::new(clock), &Settings::default());
    let biased = SamplingParams { logit_bias: [(7, 1.0), (9, -1.0)].into(), ..SamplingParams::greedy() };
    let ask = |i: u32, new| Request {
        client: ClientId::account(u64::from(i % 5)),
        params: if i.is_multiple_of(3) { biased.clone() } else { SamplingParams::greedy() },
        min_tokens: if i.is_multiple_of(4) { new } else { 0 },
        ..Request::greedy((0..50).map(|at| (i * 31 + at) % 1000).collect(), new)
    };
    let mut streams: Vec<_> = (0..STREAMS).map(|i| handle.submit(ask(i, 400)).expect("room")).collect();
    while engine.roster().running().len() < STREAMS as usize {
        turn(&mut engine, &mut streams);
    }
    // More wait than there are rows.
    streams.extend((0..STREAMS).map(|i| handle.submit(ask(STREAMS + i, 50)).expect("room")));
    for _ in 0..100 {
        turn(&mut engine, &mut streams);
    }
    let running = engine.roster().running().len();
    assert_eq!((running, engine.roster().waiting().len()), (64, 64));
    for step in 0..200 {
        assert_eq!(turn(&mut engine, &mut streams), 0, "allocations in step {step}");
    }
    // Some leave, others are let in and computed: nothing more is needed for that than the indexes that prompt lookup keeps
    // of their texts.
    streams.drain(..10);
    let allocated: usize = (0..40).map(|_| turn(&mut engine, &mut streams)).sum();
    assert_eq!(allocated, 10 * INDEXES, "allocations after some left");
}
