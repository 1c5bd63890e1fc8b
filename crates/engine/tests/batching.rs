//! The rules of continuous batching, on a mock executor whose tokens depend on every earlier position's block.

use std::sync::Arc;
use std::time::Duration;

use ropeway_engine::cost::CostModel;
use ropeway_engine::{
    Class, Completion, Engine, Event, EventStream, FinishReason, Handle, Rejected, Request, SequenceError,
    Settings, Stepped,
};
use ropeway_executor::{Limits, Seed};
use ropeway_testkit::{Fault, MockExecutor, SimClock};

const LIMITS: Limits = Limits {
    block_tokens: 4,
    blocks: 64,
    context: 200,
    step_tokens: 32,
    step_rows: 8,
    vocab: 1000,
    ..Limits::EXAMPLE
};

fn engine(limits: Limits, faults: Vec<Fault>) -> (Engine, Handle, SimClock) {
    let clock = SimClock::new();
    let cost = CostModel::known([0.005, 0.001, 0.0005, 1e-7, 1e-6]);
    let executor = MockExecutor::new(limits).with_time(clock.clone(), cost).with_faults(faults);
    let (engine, handle) = Engine::new(Box::new(executor), Arc::new(clock.clone()), &Settings::default());
    (engine, handle, clock)
}

fn run(engine: &mut Engine) {
    while engine.step() == Stepped::Ran {}
}

/// Some prompt of this length, its own for every `salt`.
fn prompt(salt: u32, len: usize) -> Vec<u32> {
    (0..len as u32).map(|i| (salt * 37 + i * 13) % 900).collect()
}

fn tokens(completion: &Completion) -> Vec<u32> {
    completion.tokens.iter().map(|sampled| sampled.token).collect()
}

fn expected(prompt: &[u32], count: usize) -> Vec<u32> {
    MockExecutor::expected(&LIMITS, prompt, 0, count)
}

#[test]
fn mixed_requests_get_what_each_would_get_alone() {
    let (mut engine, handle, _) = engine(LIMITS, vec![]);
    let prompts: Vec<_> = (0..30).map(|i| prompt(i, 1 + (i as usize * 7) % 90)).collect();
    let mut streams: Vec<EventStream> = Vec::new();
    for (i, prompt) in prompts.iter().enumerate() {
        streams.push(handle.submit(Request::greedy(prompt.clone(), 1 + i % 17)).unwrap());
        engine.step();
    }
    run(&mut engine);
    for (i, (stream, prompt)) in streams.iter_mut().zip(&prompts).enumerate() {
        let completion = stream.collect();
        assert_eq!(completion.reason, FinishReason::Length);
        assert_eq!(tokens(&completion), expected(prompt, 1 + i % 17));
    }
}

#[test]
fn preempted_sequences_resume_with_the_same_text() {
    // Room for one and a half of four sequences.
    let (mut engine, handle, _) = engine(Limits { blocks: 24, ..LIMITS }, vec![]);
    let prompts: Vec<_> = (0..4).map(|i| prompt(i, 20)).collect();
    let submit = |prompt: &Vec<u32>| handle.submit(Request::greedy(prompt.clone(), 40)).unwrap();
    let mut streams: Vec<_> = prompts.iter().map(submit).collect();
    run(&mut engine);
    let completions: Vec<_> = streams.iter_mut().map(EventStream::collect).collect();
    for (completion, prompt) in completions.iter().zip(&prompts) {
        assert_eq!(tokens(completion), expected(prompt, 40));
    }
    assert!(completions.iter().any(|completion| completion.usage.preemptions > 0), "nobody was preempted");
}

#[test]
fn several_sequences_of_a_request_share_their_prompt_and_part_ways() {
    let (mut engine, handle, _) = engine(LIMITS, vec![]);
    let prompt = prompt(1, 22);
    let mut stream = handle.submit(Request { n: 3, ..Request::greedy(prompt.clone(), 9) }).unwrap();
    engine.step();
    let after_prompt = engine.roster().pool.counts().referenced;
    assert_eq!(after_prompt, 6, "22 tokens in blocks of 4, once");
    run(&mut engine);
    let mut texts = vec![Vec::new(); 3];
    while let Some(event) = stream.wait() {
        if let Event::Token { sequence, sampled, .. } = event {
            texts[sequence as usize].push(sampled.token);
        }
    }
    for (i, text) in texts.iter().enumerate() {
        assert_eq!(*text, MockExecutor::expected(&LIMITS, &prompt, i as u64, 9));
    }
}

#[test]
fn a_cached_prefix_is_not_computed_again_and_is_reported() {
    let (mut engine, handle, _) = engine(LIMITS, vec![]);
    let shared = prompt(1, 41);
    let ask = |salt: &[u8]| Request { salt: salt.into(), ..Request::greedy(shared.clone(), 3) };
    let mut cached = Vec::new();
    for salt in ["", "", "tenant", "tenant"] {
        let mut stream = handle.submit(ask(salt.as_bytes())).unwrap();
        run(&mut engine);
        let completion = stream.collect();
        assert_eq!(tokens(&completion), expected(&shared, 3));
        cached.push(completion.usage.cached);
    }
    assert_eq!(cached, [0, 40, 0, 40], "a tenant's cache is its own");
}

#[test]
fn dropping_a_stream_frees_its_blocks_at_the_next_step_in_every_state() {
    let (mut engine, handle, _) = engine(Limits { blocks: 40, ..LIMITS }, vec![]);
    let streaming = handle.submit(Request::greedy(prompt(1, 5), 100)).unwrap();
    engine.step();
    let prefilling = handle.submit(Request::greedy(prompt(2, 90), 5)).unwrap();
    let waiting = handle.submit(Request::greedy(prompt(3, 120), 5)).unwrap();
    engine.step();
    assert_eq!((engine.roster().running().len(), engine.roster().waiting().len()), (2, 1));
    for stream in [waiting, prefilling, streaming] {
        let before = engine.roster().running().len() + engine.roster().waiting().len();
        drop(stream);
        engine.step();
        assert_eq!(engine.roster().running().len() + engine.roster().waiting().len(), before - 1);
    }
    assert_eq!(engine.roster().pool.counts().referenced, 0);
}

#[test]
fn one_poisoned_request_ends_alone_however_it_fails() {
    let poison = 999;
    for fault in [Fault::Row(poison), Fault::Step(poison), Fault::Panic(poison)] {
        let (mut engine, handle, _) = engine(LIMITS, vec![fault]);
        let healthy = prompt(1, 10);
        let mut one = handle.submit(Request::greedy(healthy.clone(), 5)).unwrap();
        let mut bad = handle.submit(Request::greedy(vec![5, poison, 7], 5)).unwrap();
        let mut two = handle.submit(Request::greedy(healthy.clone(), 5)).unwrap();
        run(&mut engine);
        assert!(matches!(
            bad.collect().reason,
            FinishReason::Failed(SequenceError::Row(_) | SequenceError::Step(_))
        ));
        for stream in [&mut one, &mut two] {
            assert_eq!(tokens(&stream.collect()), expected(&healthy, 5), "{fault:?}");
        }
    }
}

#[test]
fn a_request_boards_at_the_next_step_and_a_freed_slot_is_used_in_the_one_after() {
    let (mut engine, handle, _) = engine(Limits { step_rows: 2, ..LIMITS }, vec![]);
    let mut streams: Vec<_> =
        (0..3).map(|i| handle.submit(Request::greedy(prompt(i, 3), 4)).unwrap()).collect();
    engine.step();
    assert_eq!((engine.roster().running().len(), engine.roster().waiting().len()), (2, 1));
    for _ in 0..3 {
        engine.step();
    }
    assert_eq!((engine.roster().running().len(), engine.roster().waiting().len()), (0, 1));
    engine.step();
    assert_eq!(engine.roster().running().len(), 1);
    run(&mut engine);
    for (i, stream) in streams.iter_mut().enumerate() {
        assert_eq!(tokens(&stream.collect()), expected(&prompt(i as u32, 3), 4));
    }
}

#[test]
fn a_short_prompt_overtakes_a_long_one_and_streams_keep_their_pace() {
    let limits = Limits { blocks: 2000, context: 4000, step_tokens: 512, ..LIMITS };
    let (mut engine, handle, clock) = engine(limits, vec![]);
    let mut long = handle.submit(Request::greedy(prompt(1, 3000), 4)).unwrap();
    engine.step();
    let mut short = handle.submit(Request::greedy(prompt(2, 20), 10)).unwrap();
    run(&mut engine);
    let (short, long) = (short.collect().usage, long.collect().usage);
    assert!(short.first_token < Duration::from_millis(250), "{short:?}");
    assert!(short.total < Duration::from_millis(600), "{short:?}");
    assert!(long.total > Duration::from_secs(3) && clock_passed(&clock) == long.total, "{long:?}");
}

fn clock_passed(clock: &SimClock) -> Duration {
    ropeway_engine::Clock::now(clock)
}

#[test]
fn a_full_queue_and_an_impossible_request_are_turned_down_at_once() {
    let executor = MockExecutor::new(LIMITS);
    let settings = Settings { queue: 2, ..Settings::default() };
    let clock = Arc::new(SimClock::new());
    let (mut engine, handle) = Engine::new(Box::new(executor), clock, &settings);
    let request = || Request::greedy(prompt(1, 5), 2);
    let _kept = [handle.submit(request()).unwrap(), handle.submit(request()).unwrap()];
    let full = Rejected::QueueFull { waiting: 2, retry_after: Duration::from_secs(1) };
    assert_eq!(handle.submit(request()).unwrap_err(), full);
    assert_eq!(
        handle.submit(Request::greedy(prompt(1, 200), 2)).unwrap_err(),
        Rejected::TooLong { tokens: 200, room: 200 }
    );
    engine.step();
    assert_eq!(handle.board().queued(), 0);
    assert!(handle.submit(request()).is_ok());
    drop(engine);
    assert_eq!(handle.submit(request()).unwrap_err(), Rejected::Closed);
}

#[test]
fn a_deadline_and_a_queue_timeout_end_a_request_wherever_it_is() {
    let (mut engine, handle, _) = engine(Limits { step_rows: 1, ..LIMITS }, vec![]);
    let long = Request { deadline: Some(Duration::from_millis(200)), ..Request::greedy(prompt(1, 5), 150) };
    let late = Request { queue_timeout: Some(Duration::from_millis(50)), ..Request::greedy(prompt(2, 5), 2) };
    let mut streams = [handle.submit(long).unwrap(), handle.submit(late).unwrap()];
    run(&mut engine);
    for stream in &mut streams {
        assert_eq!(stream.collect().reason, FinishReason::TimedOut);
    }
}

#[test]
fn bulk_makes_way_for_interactive_when_blocks_run_out() {
    let (mut engine, handle, _) = engine(Limits { blocks: 30, ..LIMITS }, vec![]);
    let ask = |class, salt, len| Request { class, ..Request::greedy(prompt(salt, len), 8) };
    let mut bulk = handle.submit(ask(Class::Bulk, 1, 80)).unwrap();
    for _ in 0..3 {
        engine.step();
    }
    let mut urgent = handle.submit(ask(Class::Interactive, 2, 60)).unwrap();
    run(&mut engine);
    let (bulk, urgent) = (bulk.collect(), urgent.collect());
    assert!(bulk.usage.preemptions > 0 && urgent.usage.preemptions == 0);
    assert!(urgent.usage.total < bulk.usage.total);
    assert_eq!(tokens(&bulk), expected(&prompt(1, 80), 8));
}

#[test]
fn seeds_and_end_tokens_are_honoured() {
    let (mut engine, handle, _) = engine(LIMITS, vec![]);
    let prompt = prompt(1, 9);
    let want = MockExecutor::expected(&LIMITS, &prompt, 77, 6);
    let mut request = Request::greedy(prompt, 6);
    request.params.seed = Seed(77);
    request.ends = vec![want[4]];
    let mut stream = handle.submit(request).unwrap();
    run(&mut engine);
    let completion = stream.collect();
    assert_eq!(completion.reason, FinishReason::End(want[4]));
    assert_eq!((tokens(&completion), completion.usage.generated), (want[..4].to_vec(), 5));
}

#[test]
fn a_scored_prompt_reports_every_token_but_the_first_and_may_end_there() {
    let (mut engine, handle, _) = engine(Limits { step_rows: 4, ..LIMITS }, vec![]);
    let prompt = prompt(1, 25);
    for max_tokens in [0, 3] {
        let request = Request { score_prompt: Some(0), ..Request::greedy(prompt.clone(), max_tokens) };
        let mut stream = handle.submit(request).unwrap();
        run(&mut engine);
        let (mut scored, mut new) = (Vec::new(), Vec::new());
        while let Some(event) = stream.wait() {
            match event {
                Event::Scored(sampled) => scored.push(sampled.token),
                Event::Token { sampled, .. } => new.push(sampled.token),
                Event::Finished { reason, .. } => assert_eq!(reason, FinishReason::Length),
                Event::Placed { .. } | Event::Prefilled { .. } => {}
            }
        }
        assert_eq!(scored, prompt[1..]);
        assert_eq!(new, expected(&prompt, max_tokens));
    }
}

#[test]
fn a_stopped_engine_ends_every_open_request_and_takes_no_more() {
    let executor = MockExecutor::new(Limits { blocks: 100_000, context: 300_000, ..LIMITS });
    let (handle, thread) = ropeway_engine::spawn(Box::new(executor), &Settings::default());
    let mut stream = handle.submit(Request::greedy(prompt(1, 5), 250_000)).unwrap();
    while !matches!(stream.wait(), Some(Event::Token { .. })) {}
    handle.stop();
    thread.join().unwrap();
    assert_eq!(stream.collect().reason, FinishReason::Failed(SequenceError::EngineGone));
    assert_eq!(handle.submit(Request::greedy(prompt(1, 5), 2)).unwrap_err(), Rejected::Closed);
}

#[test]
fn a_full_queue_says_how_long_a_place_takes_at_the_measured_speed() {
    let clock = SimClock::new();
    // A token takes half a second, a request of ten tokens five.
    let cost = CostModel::known([0.5, 0.0, 0.0, 0.0, 0.0]);
    let executor = MockExecutor::new(Limits { step_rows: 1, ..LIMITS }).with_time(clock.clone(), cost);
    let settings = Settings { queue: 4, ..Settings::default() };
    let (mut engine, handle) = Engine::new(Box::new(executor), Arc::new(clock.clone()), &settings);
    let mut streams = Vec::new();
    let mut told = Vec::new();
    while clock_passed(&clock) < Duration::from_secs(50) {
        match handle.submit(Request::greedy(prompt(1, 4), 10)) {
            Ok(stream) => streams.push(stream),
            Err(Rejected::QueueFull { retry_after, .. }) => told.push(retry_after.as_secs_f64()),
            Err(other) => panic!("{other}"),
        }
        engine.step();
    }
    let late = &told[told.len() / 2..];
    assert!(late.iter().all(|seconds| (4.0..7.0).contains(seconds)), "{late:?}");
}

#[test]
fn a_request_takes_a_place_in_the_queue_for_each_of_its_sequences() {
    let settings = Settings { queue: 8, ..Settings::default() };
    let executor = Box::new(MockExecutor::new(LIMITS));
    let (mut engine, handle) = Engine::new(executor, Arc::new(SimClock::new()), &settings);
    let of = |n| Request { n, ..Request::greedy(prompt(1, 5), 2) };
    let streams = [handle.submit(of(5)), handle.submit(of(3))];
    assert_eq!(handle.board().queued(), 8);
    assert!(matches!(handle.submit(of(1)), Err(Rejected::QueueFull { waiting: 8, .. })));
    run(&mut engine);
    assert_eq!(handle.board().queued(), 0);
    assert!(streams.iter().all(Result::is_ok));
}
