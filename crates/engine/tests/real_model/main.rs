//! What a request gets is bit for bit what it would have got alone, on the default model and the CPU: tokens,
//! log-probabilities and alternatives, greedy and sampled.

mod speculation;
mod windows;

use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use ropeway_cpu::{CpuExecutor, CpuOptions, Machine, Threads};
use ropeway_engine::{Class, Completion, Handle, Pace, Request, Settings, spawn};
use ropeway_executor::{SamplingParams, Seed};
use ropeway_model::StepLimits;

const FILE: &str = "SmolLM2-135M-Instruct.Q4_1.gguf";

/// The default model, or `None` with a printed reason.
fn smollm2() -> Option<PathBuf> {
    let given = std::env::var_os("ROPEWAY_TEST_MODEL_DIR").map(PathBuf::from);
    let home = std::env::var_os("ROPEWAY_HOME")
        .map(PathBuf::from)
        .or_else(|| Some(Path::new(&std::env::var_os("HOME")?).join(".cache/ropeway")));
    let cached = home.map(|home| home.join("models/smollm2-135m"));
    let found =
        [given, cached].into_iter().flatten().map(|folder| folder.join(FILE)).find(|path| path.is_file());
    if found.is_none() {
        eprintln!("skipped: {FILE} is not here; run `ropeway pull smollm2` or set ROPEWAY_TEST_MODEL_DIR");
    }
    found
}

/// Each test uses all cores; together they would only wait for each other.
fn my_turn() -> MutexGuard<'static, ()> {
    static TURN: Mutex<()> = Mutex::new(());
    TURN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// An engine that differs in what must not matter.
#[derive(Clone, Copy)]
struct Setup {
    threads: usize,
    step_tokens: usize,
    kv_tokens: usize,
}

const PLAIN: Setup = Setup { threads: 2, step_tokens: 512, kv_tokens: 8192 };

/// Steps as long as their tokens allow: how prompts are cut is up to `step_tokens` alone.
const UNHURRIED: Duration = Duration::from_secs(600);

impl Setup {
    fn start(self) -> Option<Handle> {
        let machine = Machine::with_threads(Threads::UpTo(self.threads));
        let options = CpuOptions {
            context: Some(512),
            kv_tokens: Some(self.kv_tokens),
            step: StepLimits { tokens: self.step_tokens, rows: 64 },
            ..CpuOptions::on(machine)
        };
        let executor =
            CpuExecutor::open(&smollm2()?, &options, &mut |_, _| {}).expect("the default model loads");
        let settings = Settings { pace: Pace::new(UNHURRIED), ..Settings::default() };
        Some(spawn(Box::new(executor), &settings).0)
    }
}

/// A prompt of made-up tokens; every other request samples, the rest are greedy.
fn request(number: u32, tokens: usize, new: usize) -> Request {
    let token = |index: usize| {
        (number.wrapping_mul(7919) + index as u32 * 31).wrapping_mul(2_654_435_761) % 40_000 + 100
    };
    let params = if number.is_multiple_of(2) {
        SamplingParams::greedy()
    } else {
        SamplingParams {
            temperature: 0.9,
            top_p: 0.95,
            seed: Seed(number.into()),
            ..SamplingParams::default()
        }
    };
    Request {
        prompt: (0..tokens).map(token).collect(),
        params: SamplingParams { logprobs: Some(2), ..params },
        max_tokens: Some(new),
        class: Class::ALL[number as usize % 3],
        ..Request::default()
    }
}

/// Requests of many lengths.
fn mixed(count: u32) -> Vec<Request> {
    (0..count)
        .map(|number| request(number, 3 + (number as usize * 29) % 61, 2 + number as usize % 5))
        .collect()
}

/// An answer with every number as its bits.
type Bits = Vec<(u32, u32, Vec<(u32, u32)>)>;

fn bits(completion: &Completion) -> Bits {
    let one = |sampled: &ropeway_executor::Sampled| {
        let top = sampled.top.iter().map(|(token, logprob)| (*token, logprob.to_bits())).collect();
        (sampled.token, sampled.logprob.to_bits(), top)
    };
    completion.tokens.iter().map(one).collect()
}

/// All at once.
fn together(handle: &Handle, requests: &[Request]) -> Vec<Completion> {
    let streams: Vec<_> =
        requests.iter().map(|request| handle.submit(request.clone()).expect("a request that fits")).collect();
    streams.into_iter().map(|mut stream| stream.collect()).collect()
}

/// Each after the end of the one before, and none finding anything in the cache.
fn alone(handle: &Handle, requests: &[Request]) -> Vec<Bits> {
    let salted = requests.iter().enumerate().map(|(index, request)| {
        let salt = format!("alone {index}").into_bytes();
        bits(&together(handle, &[Request { salt, ..request.clone() }])[0])
    });
    salted.collect()
}

fn all_bits(completions: &[Completion]) -> Vec<Bits> {
    completions.iter().map(bits).collect()
}

#[test]
fn alone_and_in_a_batch_of_64_mixed_requests() {
    let _turn = my_turn();
    let Some(handle) = PLAIN.start() else { return };
    let requests = mixed(64);
    let batched = all_bits(&together(&handle, &requests));
    let fullest = handle.board().records_after(0).iter().map(|record| record.running).max();
    assert!(fullest > Some(16), "at most {fullest:?} ran together");
    assert_eq!(alone(&handle, &requests), batched);
}

#[test]
fn whole_and_chunked_prompts_at_five_chunk_sizes() {
    let _turn = my_turn();
    let requests = [request(0, 150, 3), request(1, 131, 3)];
    let Some(whole) = PLAIN.start() else { return };
    let expected = alone(&whole, &requests);
    let longest =
        |handle: &Handle| handle.board().records_after(0).iter().map(|record| record.prefill_tokens).max();
    assert_eq!(longest(&whole), Some(150), "the whole prompt is one chunk");
    for step_tokens in [7, 16, 33, 64, 100] {
        let handle = Setup { step_tokens, ..PLAIN }.start().expect("the model is here");
        assert_eq!(all_bits(&together(&handle, &requests)), expected, "chunks of {step_tokens}");
        assert!(longest(&handle) <= Some(step_tokens));
    }
}

#[test]
fn cold_and_from_the_prefix_cache() {
    let _turn = my_turn();
    let Some(handle) = PLAIN.start() else { return };
    for number in [0, 1] {
        let asked = request(number, 140, 4);
        let cold = &together(&handle, std::slice::from_ref(&asked))[0];
        let cached = &together(&handle, std::slice::from_ref(&asked))[0];
        assert_eq!((cold.usage.cached, cached.usage.cached), (0, 128));
        assert_eq!(bits(cached), bits(cold));
        // The answer was cached, too: what continues it finds both.
        let answer: Vec<u32> = cold.tokens.iter().map(|sampled| sampled.token).collect();
        let longer = Request { prompt: [&asked.prompt[..], &answer, &[500; 40]].concat(), ..asked };
        let reused = &together(&handle, std::slice::from_ref(&longer))[0];
        assert!(reused.usage.cached >= 128);
        assert_eq!([bits(reused)], alone(&handle, &[longer])[..]);
    }
}

#[test]
fn uninterrupted_and_preempted() {
    let _turn = my_turn();
    // Six prompts of one block fit, but not what they grow to.
    let requests: Vec<Request> = (0..8).map(|number| request(number, 30, 40)).collect();
    let Some(roomy) = PLAIN.start() else { return };
    let expected = alone(&roomy, &requests);
    let tight = Setup { kv_tokens: 12 * 32, ..PLAIN }.start().expect("the model is here");
    let completions = together(&tight, &requests);
    let preemptions: u32 = completions.iter().map(|completion| completion.usage.preemptions).sum();
    assert!(preemptions > 0, "nobody was preempted");
    assert_eq!(all_bits(&completions), expected);
}

#[test]
fn any_order_of_arrival() {
    let _turn = my_turn();
    let Some(handle) = PLAIN.start() else { return };
    let requests = mixed(12);
    let expected = alone(&handle, &requests);
    for (salt, order) in [
        ("reversed", [11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0]),
        ("shuffled", [4, 9, 0, 11, 2, 7, 5, 10, 1, 8, 3, 6]),
    ] {
        let salted = |index: &usize| Request { salt: salt.into(), ..requests[*index].clone() };
        let arrived = together(&handle, &order.iter().map(salted).collect::<Vec<_>>());
        for (index, completion) in order.iter().zip(&arrived) {
            assert_eq!(bits(completion), expected[*index], "{salt}, request {index}");
        }
    }
    // Each comes while the one before is at work.
    let mut streams = Vec::new();
    for request in &requests {
        let mut stream =
            handle.submit(Request { salt: b"staggered".into(), ..request.clone() }).expect("fits");
        // The prompt is computed; all tokens are still to be read.
        stream.wait();
        streams.push(stream);
    }
    let staggered: Vec<Bits> = streams.iter_mut().map(|stream| bits(&stream.collect())).collect();
    assert_eq!(staggered, expected);
}

#[test]
fn one_thread_two_and_a_number_that_is_searched_for_while_they_run() {
    let _turn = my_turn();
    let requests = mixed(10);
    let Some(two) = PLAIN.start() else { return };
    let two = all_bits(&together(&two, &requests));
    for threads in [1, 4] {
        let other = Setup { threads, ..PLAIN }.start().expect("the model is here");
        assert_eq!(all_bits(&together(&other, &requests)), two, "{threads} threads");
    }
}
