//! Blocks that leave memory and come back from a simulated disk.

mod bench;
mod windows;

use std::sync::Arc;
use std::time::Duration;

use bench::{Bench, said};
use ropeway_engine::{Completion, Event, EventStream, FinishReason, Request, Stepped};
use ropeway_executor::Limits;
use ropeway_testkit::{DiskNature, MockExecutor, SimClock, SimDisk};

const LIMITS: Limits =
    Limits { block_tokens: 16, blocks: 24, context: 512, step_tokens: 64, step_rows: 8, ..Limits::EXAMPLE };

/// How this file's tests ask an engine.
trait Asking {
    fn rest(&mut self);
    fn ask_briefly(&mut self, prompt: &[u32]) -> Completion;
    fn submit(&self, prompt: &[u32]) -> EventStream;
}

fn bench(disk: &SimDisk, clock: &SimClock) -> Bench {
    Bench::new(LIMITS, Some(Arc::new(disk.clone())), clock, Vec::new())
}

impl Asking for Bench {
    /// Lets everything be stored that is worth it.
    fn rest(&mut self) {
        self.clock.advance(Duration::from_secs(2));
        self.turn_until_idle();
    }

    fn ask_briefly(&mut self, prompt: &[u32]) -> Completion {
        self.ask(prompt, 4)
    }

    fn submit(&self, prompt: &[u32]) -> EventStream {
        self.handle.submit(Request::greedy(prompt.to_vec(), 4)).expect("room")
    }
}

fn prompt(of: u32, len: u32) -> Vec<u32> {
    (0..len).map(|token| (of * 37 + token) % 900).collect()
}

fn expected(prompt: &[u32]) -> Vec<u32> {
    MockExecutor::expected(&LIMITS, prompt, 0, 4)
}

fn new_disk(clock: &SimClock, nature: DiskNature) -> SimDisk {
    SimDisk::new(clock.clone(), nature)
}

#[test]
fn what_was_computed_before_a_restart_is_not_computed_again() {
    let clock = SimClock::new();
    let disk = new_disk(&clock, DiskNature::RELIABLE);
    let question = prompt(1, 100);
    let mut before = bench(&disk, &clock);
    let first = before.ask_briefly(&question);
    assert_eq!((first.usage.cached, disk.blocks()), (0, 0), "nothing is stored at once");
    before.rest();
    assert_eq!(disk.blocks(), 6);
    drop(before);
    let again = bench(&disk, &clock).ask_briefly(&question);
    assert_eq!((again.usage.cached, again.usage.fetched), (96, 96));
    assert_eq!((said(&again), said(&first)), (expected(&question), expected(&question)));
    assert!(again.usage.first_token < first.usage.first_token / 3, "{:?}", again.usage);
}

#[test]
fn the_end_of_an_engine_stores_what_has_a_name() {
    let clock = SimClock::new();
    let disk = new_disk(&clock, DiskNature::RELIABLE);
    let mut bench = bench(&disk, &clock);
    bench.ask_briefly(&prompt(1, 100));
    bench.engine.end(Duration::from_secs(1));
    assert_eq!(disk.blocks(), 6);
}

#[test]
fn agents_that_take_turns_find_their_blocks_again_with_memory_for_few() {
    let clock = SimClock::new();
    let disk = new_disk(&clock, DiskNature::RELIABLE);
    let mut bench = bench(&disk, &clock);
    for round in 0..3 {
        for agent in 0..10 {
            let question = prompt(agent, 160);
            let answer = bench.ask_briefly(&question);
            assert_eq!(said(&answer), expected(&question));
            let cached = if round == 0 { 0 } else { 144 };
            assert_eq!(answer.usage.cached, cached, "agent {agent} in round {round}");
        }
    }
    let totals = bench.handle.board().metrics().tier;
    assert_eq!((totals.lost_blocks, totals.failed_transfers), (0, 0));
    assert_eq!(totals.fetched_tokens, 2 * 10 * 144);
}

#[test]
fn two_that_begin_alike_fetch_what_they_share_once() {
    let clock = SimClock::new();
    let disk = new_disk(&clock, DiskNature::RELIABLE);
    let question = prompt(1, 100);
    let mut before = bench(&disk, &clock);
    before.ask_briefly(&question);
    before.rest();
    drop(before);
    let mut after = bench(&disk, &clock);
    let mut streams = [after.submit(&question), after.submit(&question)];
    after.turn_until_idle();
    for stream in &mut streams {
        let completion = stream.collect();
        assert_eq!((said(&completion), completion.usage.cached), (expected(&question), 96));
    }
    assert_eq!(after.handle.board().metrics().tier.fetched_tokens, 96);
}

#[test]
fn a_disk_that_never_answers_costs_patience_and_no_answer() {
    let clock = SimClock::new();
    let disk = new_disk(&clock, DiskNature { hangs: 1.0, ..DiskNature::RELIABLE });
    let question = prompt(1, 100);
    let mut bench = bench(&disk, &clock);
    bench.ask_briefly(&question);
    bench.rest();
    bench.handle.evict(bench.handle.names(&[], &question), false);
    bench.turn_until_idle();
    let answer = bench.ask_briefly(&question);
    assert_eq!((said(&answer), answer.usage.cached), (expected(&question), 0));
    assert!(bench.handle.board().metrics().tier.failed_transfers > 0);
}

#[test]
fn streams_go_on_while_another_waits_for_its_blocks() {
    let clock = SimClock::new();
    let slow = DiskNature { latency: Duration::from_millis(100), ..DiskNature::RELIABLE };
    let disk = new_disk(&clock, slow);
    let question = prompt(1, 160);
    let mut before = bench(&disk, &clock);
    before.ask_briefly(&question);
    before.rest();
    drop(before);
    let mut after = bench(&disk, &clock);
    let mut stream = after.handle.submit(Request::greedy(prompt(2, 20), 60)).unwrap();
    for _ in 0..5 {
        after.engine.step();
    }
    let mut waiting = after.submit(&question);
    let mut during = 0;
    while after.handle.board().metrics().tier.fetched_tokens == 0 {
        assert_eq!(after.engine.step(), Stepped::Ran, "there is a stream");
        during += std::iter::from_fn(|| stream.try_next())
            .filter(|event| matches!(event, Event::Token { .. }))
            .count();
    }
    assert!(during > 5, "{during} tokens while the other one waited");
    after.turn_until_idle();
    assert_eq!(said(&waiting.collect()), expected(&question));
}

#[test]
fn cancelling_a_request_whose_blocks_are_on_their_way_frees_its_memory() {
    let clock = SimClock::new();
    let disk = new_disk(&clock, DiskNature { latency: Duration::from_secs(1), ..DiskNature::RELIABLE });
    let question = prompt(1, 320);
    let mut before = bench(&disk, &clock);
    before.ask_briefly(&question);
    before.rest();
    drop(before);
    let mut after = bench(&disk, &clock);
    let stream = after.submit(&question);
    assert_eq!(after.engine.step(), Stepped::Waiting);
    assert!(after.engine.roster().pool.counts().referenced >= 19);
    drop(stream);
    after.turn_until_idle();
    assert_eq!(after.engine.roster().pool.counts().referenced, 0);
}

#[test]
fn it_is_known_where_blocks_are_and_they_can_be_sent_away() {
    let clock = SimClock::new();
    let disk = new_disk(&clock, DiskNature::RELIABLE);
    let question = prompt(1, 100);
    let mut bench = bench(&disk, &clock);
    bench.ask_briefly(&question);
    let names = bench.handle.names(&[], &question);
    let where_are = |bench: &mut Bench| {
        let (sender, receiver) = std::sync::mpsc::channel();
        bench.handle.locate(names.clone(), move |places| sender.send(places).unwrap());
        bench.turn_until_idle();
        let places = receiver.recv().unwrap();
        let count =
            |of: fn(&ropeway_engine::Located) -> bool| places.iter().filter(|place| of(place)).count();
        (count(|place| place.memory), count(|place| place.lower))
    };
    assert_eq!(where_are(&mut bench), (6, 0));
    bench.handle.evict(names.clone(), false);
    assert_eq!(where_are(&mut bench), (0, 6));
    bench.handle.evict(names.clone(), true);
    assert_eq!(where_are(&mut bench), (0, 0));
    assert!(matches!(bench.ask_briefly(&question).reason, FinishReason::Length));
}
