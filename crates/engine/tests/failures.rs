//! What fails takes nothing else with it: not the prefix cache, not other requests, and a lost device not even the text.

use std::sync::Arc;

use ropeway_engine::{
    Completion, Device, Engine, EventStream, FinishReason, Handle, Request, SequenceError, Settings, Stepped,
    spawn,
};
use ropeway_executor::Limits;
use ropeway_testkit::{Fault, MockExecutor, SimClock};

const POISON: u32 = 999;

const LIMITS: Limits = Limits {
    block_tokens: 4,
    blocks: 64,
    context: 200,
    step_tokens: 16,
    step_rows: 8,
    vocab: 1000,
    ..Limits::EXAMPLE
};

fn engine(limits: Limits, faults: Vec<Fault>) -> (Engine, Handle) {
    let executor = MockExecutor::new(limits).with_faults(faults);
    Engine::new(Box::new(executor), Arc::new(SimClock::new()), &Settings::default())
}

fn run(engine: &mut Engine) {
    while engine.step() == Stepped::Ran {}
}

fn prompt(salt: u32, len: usize) -> Vec<u32> {
    (0..len as u32).map(|at| (salt * 37 + at * 13) % 900).collect()
}

fn tokens(completion: &Completion) -> Vec<u32> {
    completion.tokens.iter().map(|sampled| sampled.token).collect()
}

fn answer(engine: &mut Engine, handle: &Handle, prompt: Vec<u32>) -> Completion {
    let mut stream = handle.submit(Request::greedy(prompt, 3)).unwrap();
    run(engine);
    stream.collect()
}

#[test]
fn a_failing_request_leaves_the_prefix_cache_and_nobody_else_does() {
    for fault in [Fault::Row(POISON), Fault::Step(POISON), Fault::Panic(POISON)] {
        let (mut engine, handle) = engine(LIMITS, vec![fault]);
        let (healthy, mut poisoned) = (prompt(1, 30), prompt(2, 30));
        answer(&mut engine, &handle, healthy.clone());
        poisoned.push(POISON);
        let failed = answer(&mut engine, &handle, poisoned.clone());
        assert!(matches!(failed.reason, FinishReason::Failed(_)), "{fault:?}");
        poisoned.pop();
        let cached = |engine: &mut Engine, prompt| answer(engine, &handle, prompt).usage.cached;
        assert_eq!(cached(&mut engine, healthy), 28, "{fault:?}: the others' blocks are still found");
        assert_eq!(cached(&mut engine, poisoned), 0, "{fault:?}: its own blocks are not");
    }
}

#[test]
fn a_lost_device_is_restarted_and_every_text_goes_on() {
    for (ahead, first) in [(0, 2), (1, 2), (1, 5), (0, 7)] {
        let limits = Limits { ahead, ..LIMITS };
        let (mut engine, handle) = engine(limits, vec![Fault::Outage { first, restarts: 1 }]);
        let prompts: Vec<_> = (0..5).map(|salt| prompt(salt, 20 + salt as usize)).collect();
        let submit = |prompt: &Vec<u32>| handle.submit(Request::greedy(prompt.clone(), 12)).unwrap();
        let mut streams: Vec<_> = prompts.iter().map(submit).collect();
        run(&mut engine);
        let texts: Vec<_> = streams.iter_mut().map(|stream| tokens(&stream.collect())).collect();
        let alone = |prompt: &Vec<u32>| MockExecutor::expected(&LIMITS, prompt, 0, 12);
        assert_eq!(texts, prompts.iter().map(alone).collect::<Vec<_>>());
        assert_eq!((handle.board().device(), handle.board().metrics().restarts), (Device::Working, 1));
    }
}

#[test]
fn a_device_that_stays_lost_ends_every_request_and_says_so() {
    let (mut engine, handle) = engine(LIMITS, vec![Fault::Outage { first: 3, restarts: 99 }]);
    let mut streams: Vec<EventStream> =
        (0..12).map(|salt| handle.submit(Request::greedy(prompt(salt, 20), 12)).unwrap()).collect();
    run(&mut engine);
    assert_eq!((engine.step(), handle.board().device()), (Stepped::Lost, Device::Lost));
    assert_eq!(handle.board().queued(), 0);
    for stream in &mut streams {
        assert_eq!(stream.collect().reason, FinishReason::Failed(SequenceError::EngineGone));
    }
}

#[test]
fn a_request_that_loses_the_device_again_ends_with_those_beside_it_and_the_others_go_on() {
    for ahead in [0, 1] {
        let (mut engine, handle) = engine(Limits { ahead, ..LIMITS }, vec![Fault::Loss(POISON)]);
        let mut poisoned = handle.submit(Request::greedy(vec![1, 2, POISON], 12)).unwrap();
        let prompts: Vec<_> = (0..40).map(|salt| prompt(salt, 20)).collect();
        let submit = |prompt: &Vec<u32>| handle.submit(Request::greedy(prompt.clone(), 12)).unwrap();
        let mut streams: Vec<_> = prompts.iter().map(submit).collect();
        run(&mut engine);
        let failed = poisoned.collect().reason;
        assert!(matches!(failed, FinishReason::Failed(SequenceError::Step(_))), "{failed:?}");
        let mut whole = 0;
        for (stream, prompt) in streams.iter_mut().zip(&prompts) {
            let completion = stream.collect();
            if completion.reason == FinishReason::Length {
                assert_eq!(tokens(&completion), MockExecutor::expected(&LIMITS, prompt, 0, 12));
                whole += 1;
            }
        }
        assert!(whole >= streams.len() - LIMITS.step_rows, "no more than a step's requests end: {whole}");
        assert_eq!((handle.board().device(), handle.board().metrics().restarts), (Device::Working, 2));
    }
}

#[test]
fn a_device_that_is_lost_three_times_in_a_row_stays_lost_and_says_why() {
    let (mut engine, handle) = engine(LIMITS, vec![Fault::Loss(POISON)]);
    let mut streams: Vec<EventStream> = Vec::new();
    for _ in 0..2 {
        streams.push(handle.submit(Request::greedy(vec![1, 2, POISON], 12)).unwrap());
        run(&mut engine);
    }
    assert_eq!((engine.step(), handle.board().device()), (Stepped::Lost, Device::Lost));
    assert_eq!(streams[1].collect().reason, FinishReason::Failed(SequenceError::EngineGone));
    let why = handle.board().loss().expect("a reason").to_owned();
    assert!(why.contains("3 times in a row") && why.contains("token 999 is poison"), "{why}");
}

#[test]
fn losses_far_apart_do_not_add_up() {
    let outages = (1..=5).map(|nth| Fault::Outage { first: nth * 1500, restarts: 0 }).collect();
    let (mut engine, handle) = engine(LIMITS, outages);
    for salt in 0..100 {
        let prompt = prompt(salt, 20);
        let mut stream = handle.submit(Request::greedy(prompt.clone(), 100)).unwrap();
        run(&mut engine);
        assert_eq!(tokens(&stream.collect()), MockExecutor::expected(&LIMITS, &prompt, 0, 100));
    }
    assert_eq!((handle.board().device(), handle.board().metrics().restarts), (Device::Working, 5));
}

#[test]
fn an_idle_engine_hears_that_it_is_to_stop() {
    let (handle, thread) = spawn(Box::new(MockExecutor::small()), &Settings::default());
    handle.submit(Request::greedy(vec![1, 2, 3], 2)).unwrap().collect();
    handle.stop();
    thread.join().unwrap();
}
