//! With drafts a request gets bit for bit what it gets without: tokens, log-probabilities, alternatives, reasons and usage.

use std::path::Path;
use std::sync::Arc;

use ropeway_cpu::{CpuExecutor, CpuOptions, Machine, Threads};
use ropeway_engine::{
    Completion, Event, FinishReason, Handle, Pace, Request, Settings, Speculation, Usage, spawn,
    spawn_with_draft_model,
};
use ropeway_executor::{SamplingParams, Seed};
use ropeway_kernels::Isa;
use ropeway_model::{LoadOptions, Precision, StepLimits};

use super::{Bits, UNHURRIED, bits, my_turn, smollm2};

/// A tiny checkpoint of random weights.
const TINY: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/fixtures/models/llama");

/// What an engine of a test is like.
#[derive(Clone, Copy)]
struct Setup {
    isa: Isa,
    kv_tokens: usize,
    speculation: Speculation,
}

impl Setup {
    fn options(self) -> CpuOptions {
        CpuOptions {
            context: Some(128),
            kv_tokens: Some(self.kv_tokens),
            step: StepLimits { tokens: 128, rows: 128 },
            ..CpuOptions::on(Machine::new(self.isa, Threads::UpTo(2)))
        }
    }

    fn settings(self) -> Settings {
        Settings { pace: Pace::new(UNHURRIED), speculation: self.speculation, ..Settings::default() }
    }

    fn start(self, model: &Path) -> Handle {
        let executor = CpuExecutor::open(model, &self.options(), &mut |_, _| {}).expect("it loads");
        spawn(Box::new(executor), &self.settings()).0
    }
}

/// Requests whose texts repeat themselves, each sampled in another way, for a vocabulary of so many tokens.
fn requests(vocab: u32) -> Vec<Request> {
    let greedy = SamplingParams { logprobs: Some(2), ..SamplingParams::greedy() };
    let warm = SamplingParams { temperature: 0.8, ..greedy.clone() };
    let params = [
        greedy.clone(),
        warm.clone(),
        SamplingParams { temperature: 1.5, top_p: 0.9, ..greedy.clone() },
        SamplingParams { top_k: 20, min_p: 0.05, ..warm.clone() },
        SamplingParams {
            repetition_penalty: 1.1,
            presence_penalty: 0.3,
            frequency_penalty: 0.2,
            ..warm.clone()
        },
        SamplingParams { logit_bias: [(28, 4.0), (30, f32::NEG_INFINITY)].into(), ..warm.clone() },
        SamplingParams { repetition_penalty: 1.3, penalty_window: Some(8), ..greedy.clone() },
        SamplingParams { logprobs: None, ..greedy },
    ];
    let request = |(number, params): (usize, SamplingParams)| {
        let cycle = (0..7 + number).map(|index| (number * 97 + index * 31) as u32 % (vocab - 50) + 50);
        let prompt: Vec<u32> = cycle.cycle().take(28).collect();
        Request {
            // What is expected is said as well, and is wrong from some token on.
            prediction: if number.is_multiple_of(3) { prompt[..20].to_vec() } else { Vec::new() },
            prompt,
            params: SamplingParams { seed: Seed(number as u64), ..params },
            max_tokens: Some(56 + number),
            min_tokens: if number.is_multiple_of(2) { 10 } else { 0 },
            ends: vec![28, 198],
            n: if number == 2 { 3 } else { 1 },
            ..Request::default()
        }
    };
    params.into_iter().enumerate().map(request).collect()
}

/// Everything that is told of a sequence, but for what speculation itself adds to it.
#[derive(Debug, PartialEq)]
struct Told {
    bits: Bits,
    reason: FinishReason,
    prompt: usize,
    generated: usize,
}

fn collect(handle: &Handle, requests: &[Request]) -> (Vec<Vec<Told>>, Usage) {
    let streams: Vec<_> =
        requests.iter().map(|request| handle.submit(request.clone()).expect("it fits")).collect();
    let mut all = Usage::default();
    let told = streams.into_iter().zip(requests).map(|(mut stream, request)| {
        let mut answers = vec![Vec::new(); request.sequences()];
        let mut ends: Vec<Option<(FinishReason, Usage)>> = vec![None; request.sequences()];
        while let Some(event) = stream.wait() {
            match event {
                Event::Token { sequence, sampled, .. } => answers[sequence as usize].push(sampled),
                Event::Finished { sequence, reason, usage } => {
                    ends[sequence as usize] = Some((reason, usage));
                }
                Event::Placed { .. } | Event::Prefilled { .. } | Event::Scored(_) => {}
            }
        }
        let one = |(tokens, end): (Vec<_>, Option<(FinishReason, Usage)>)| {
            let (reason, usage) = end.expect("every sequence ends");
            all.drafting.accepted += usage.drafting.accepted;
            all.drafting.drafted += usage.drafting.drafted;
            all.preemptions += usage.preemptions;
            let completion = Completion { tokens, reason, usage };
            Told {
                bits: bits(&completion),
                reason: completion.reason,
                prompt: usage.prompt,
                generated: usage.generated,
            }
        };
        answers.into_iter().zip(ends).map(one).collect()
    });
    (told.collect(), all)
}

fn alone(handle: &Handle, requests: &[Request]) -> Vec<Vec<Told>> {
    requests.iter().flat_map(|request| collect(handle, std::slice::from_ref(request)).0).collect()
}

/// The same requests without drafts, with drafts, in a crowd, and with so little memory that they are preempted.
fn compare(isa: Isa, model: &Path, vocab: u32) {
    let requests = requests(vocab);
    let off = Setup { isa, kv_tokens: 4096, speculation: Speculation::Off };
    let without = alone(&off.start(model), &requests);
    let on = Setup { speculation: Speculation::Always(6), ..off };
    let handle = on.start(model);
    assert_eq!(alone(&handle, &requests), without, "{isa} alone");
    let (crowd, usage) = collect(&handle, &requests);
    assert_eq!(crowd, without, "{isa} in a crowd");
    assert!(usage.drafting.accepted > 10, "{usage:?}");
    assert!(usage.drafting.drafted > usage.drafting.accepted, "some are wrong: {usage:?}");
    let (crowd, usage) = collect(&Setup { kv_tokens: 288, ..on }.start(model), &requests);
    assert_eq!(crowd, without, "{isa} with little memory");
    assert!(usage.preemptions > 0, "{usage:?}");
}

#[test]
fn drafts_change_nothing_on_the_default_model() {
    let _turn = my_turn();
    let Some(model) = smollm2() else { return };
    compare(Isa::best(), &model, 40_000);
}

#[test]
fn drafts_change_nothing_on_any_instruction_set() {
    for isa in Isa::available() {
        compare(isa, Path::new(TINY), 200);
    }
}

#[test]
fn a_draft_model_changes_nothing() {
    let _turn = my_turn();
    let Some(path) = smollm2() else { return };
    // The recipe of docs/speculation.md: the same file, exactly and on the fast path.
    let exact = LoadOptions { precision: Precision::F32, ..LoadOptions::default() };
    let target = |setup: Setup| {
        let options = CpuOptions { load: exact, ..setup.options() };
        CpuExecutor::open(&path, &options, &mut |_, _| {}).expect("it loads")
    };
    let shorter = |request| Request { prediction: Vec::new(), max_tokens: Some(16), ..request };
    let requests: Vec<Request> = requests(40_000).into_iter().map(shorter).collect();
    let off = Setup { isa: Isa::best(), kv_tokens: 4096, speculation: Speculation::Off };
    let without = alone(&spawn(Box::new(target(off)), &off.settings()).0, &requests);
    let on = Setup { speculation: Speculation::Always(4), ..off };
    let mut executor = target(on);
    let seat = Some(Arc::clone(executor.tenant().seat()));
    let options = CpuOptions { seat, machine: executor.tenant().machine().clone(), ..on.options() };
    let draft = CpuExecutor::open(&path, &options, &mut |_, _| {}).expect("it loads");
    let (handle, _thread) =
        spawn_with_draft_model(Box::new(executor), Box::new(draft), &on.settings()).expect("they match");
    let (crowd, usage) = collect(&handle, &requests);
    assert_eq!(crowd, without);
    assert!(usage.drafting.accepted > 20, "{usage:?}");
}
