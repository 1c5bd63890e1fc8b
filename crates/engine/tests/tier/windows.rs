//! Models whose layers all look back over a window: what fell out of it is given to others.

use std::sync::Arc;
use std::time::Duration;

use ropeway_engine::request::room;
use ropeway_engine::{FinishReason, Request, Stepped, Tier};
use ropeway_executor::Limits;
use ropeway_testkit::{DiskNature, Fault, MockExecutor, SimClock, SimDisk};

use crate::bench::{Bench, said};

/// Memory for 128 tokens, a context of 512, and nobody looks back further than 40.
const LIMITS: Limits = Limits {
    block_tokens: 16,
    blocks: 8,
    context: 512,
    reach: Some(40),
    step_tokens: 64,
    step_rows: 8,
    ..Limits::EXAMPLE
};

fn bench(tier: Option<Arc<dyn Tier>>, clock: &SimClock) -> Bench {
    Bench::new(LIMITS, tier, clock, Vec::new())
}

fn prompt(of: u32, len: u32) -> Vec<u32> {
    (0..len).map(|token| (of * 37 + token * token) % 900).collect()
}

fn expected(prompt: &[u32], new: usize) -> Vec<u32> {
    MockExecutor::expected(&LIMITS, prompt, 0, new)
}

#[test]
fn a_text_may_be_longer_than_the_memory_that_its_window_needs() {
    assert_eq!(room(&LIMITS), 512, "memory holds 128 tokens");
    let mut bench = bench(None, &SimClock::new());
    let question = prompt(1, 300);
    let mut stream = bench.handle.submit(Request::greedy(question.clone(), 150)).expect("room");
    let mut most = 0;
    while bench.engine.step() == Stepped::Ran {
        bench.engine.roster().audit();
        let decoding = bench.handle.board().metrics().generated_tokens > 0;
        let held = bench.engine.roster().pool.counts().referenced;
        most = most.max(if decoding { held } else { 0 });
    }
    assert_eq!(said(&stream.collect()), expected(&question, 150));
    assert!((3..=4).contains(&most), "{most} blocks for a window of 40 tokens");
}

#[test]
fn more_streams_fit_beside_each_other_than_their_texts_have_memory() {
    let mut bench = bench(None, &SimClock::new());
    let questions: Vec<_> = (0..6).map(|of| prompt(of, 60 + 30 * of)).collect();
    let mut streams: Vec<_> = questions
        .iter()
        .map(|question| bench.handle.submit(Request::greedy(question.clone(), 100)).expect("room"))
        .collect();
    bench.turn_until_idle();
    for (question, stream) in questions.iter().zip(&mut streams) {
        assert_eq!(said(&stream.collect()), expected(question, 100));
    }
}

#[test]
fn a_prompt_is_found_by_the_last_window_of_it_alone() {
    let mut bench = bench(None, &SimClock::new());
    let question = prompt(1, 200);
    bench.ask(&question, 4);
    let kept = (0..13).filter(|block| {
        let names = bench.handle.names(&[], &question);
        names.get(*block).is_some_and(|name| bench.engine.roster().pool.find(*name).is_some())
    });
    assert!(kept.count() < 12, "memory has room for eight blocks");
    let again = bench.ask(&question, 4);
    assert_eq!((said(&again), again.usage.cached), (expected(&question, 4), 192));
}

#[test]
fn only_the_last_window_comes_back_from_disk() {
    let clock = SimClock::new();
    let disk = SimDisk::new(clock.clone(), DiskNature::RELIABLE);
    let tier = || Some(Arc::new(disk.clone()) as Arc<dyn Tier>);
    let question = prompt(1, 200);
    let mut before = bench(tier(), &clock);
    before.ask(&question, 4);
    before.engine.end(Duration::from_secs(1));
    drop(before);
    let mut after = bench(tier(), &clock);
    let again = after.ask(&question, 4);
    assert_eq!((said(&again), again.usage.cached), (expected(&question, 4), 192));
    assert_eq!(again.usage.fetched, 48, "three blocks hold the 39 positions before the next");
}

#[test]
fn a_window_of_which_a_block_does_not_come_is_computed() {
    let clock = SimClock::new();
    let disk = SimDisk::new(clock.clone(), DiskNature { lies: 1.0, ..DiskNature::RELIABLE });
    let question = prompt(1, 200);
    let mut before = bench(Some(Arc::new(disk.clone())), &clock);
    before.ask(&question, 4);
    before.engine.end(Duration::from_secs(1));
    drop(before);
    let mut after = bench(Some(Arc::new(disk)), &clock);
    let again = after.ask(&question, 4);
    assert_eq!((said(&again), again.usage.cached), (expected(&question, 4), 0));
    assert!(after.handle.board().metrics().tier.failed_transfers > 0);
}

#[test]
fn what_a_failed_text_left_behind_is_not_found_again() {
    let poison = 899;
    let mut bench = Bench::new(LIMITS, None, &SimClock::new(), vec![Fault::Row(poison)]);
    let mut question: Vec<u32> = prompt(1, 200).iter().map(|token| token % 800).collect();
    let good = question.clone();
    question[198] = poison;
    let failed = bench.ask(&question, 4);
    assert!(matches!(failed.reason, FinishReason::Failed(_)), "{:?}", failed.reason);
    let again = bench.ask(&good, 4);
    assert_eq!((said(&again), again.usage.cached), (expected(&good, 4), 0));
}
