//! The engine on an emulated GPU: answers are the same alone, in company, with too little memory and after a cached prefix.

mod emulator;
mod fixtures;

use ropeway_cuda::{CudaExecutor, CudaOptions};
use ropeway_engine::{Handle, Request, Settings, spawn};
use ropeway_executor::{SamplingParams, Seed};

const REQUESTS: usize = 5;

fn request(index: usize) -> Request {
    let prompt = (0..20 + index * 9).map(|at| ((at * 31 + index * 17) % 300) as u32).collect();
    let params = match index % 2 {
        0 => SamplingParams::greedy(),
        _ => SamplingParams {
            top_p: 0.9,
            seed: Seed(index as u64),
            repetition_penalty: 1.2,
            ..SamplingParams::default()
        },
    };
    Request { params, ..Request::greedy(prompt, 14) }
}

fn tokens(handle: &Handle, wanted: impl Iterator<Item = usize>) -> Vec<Vec<u32>> {
    let streams: Vec<_> = wanted.map(|index| handle.submit(request(index)).expect("a request")).collect();
    let all =
        |mut stream: ropeway_engine::EventStream| stream.collect().tokens.iter().map(|t| t.token).collect();
    streams.into_iter().map(all).collect()
}

#[test]
fn answers_do_not_depend_on_company_memory_or_the_prefix_cache() {
    let Some(options) = emulator::options() else { return };
    let case = fixtures::cases().remove(0);
    let start = |kv_tokens| {
        let options = CudaOptions { kv_tokens: Some(kv_tokens), step_tokens: 16, ..options.clone() };
        let executor = CudaExecutor::load(&case.checkpoint(), options, &mut |_, _| {}).expect("a model");
        spawn(Box::new(executor), &Settings::default())
    };
    let (alone, alone_thread) = start(1024);
    let want: Vec<_> = (0..REQUESTS).flat_map(|index| tokens(&alone, std::iter::once(index))).collect();
    assert!(want.iter().all(|answer| answer.len() == 14));
    // Again, with what is cached of them.
    assert_eq!(tokens(&alone, 0..REQUESTS), want);
    drop(alone);
    alone_thread.join().expect("an engine that ends");
    // Eight blocks: not enough for all of them at once.
    let (crowded, crowded_thread) = start(8 * 32);
    assert_eq!(tokens(&crowded, 0..REQUESTS), want);
    drop(crowded);
    crowded_thread.join().expect("an engine that ends");
}
