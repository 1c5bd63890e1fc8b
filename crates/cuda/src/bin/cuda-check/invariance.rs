//! The same tokens in any company: a request's answer alone, in a crowd of 256, and after a cached prefix, through the engine.

use ropeway_cuda::CudaOptions;
use ropeway_engine::{Handle, Request, Settings, spawn};
use ropeway_executor::{SamplingParams, Seed};

use crate::{Failed, Task, models};

/// Requests of the crowd.
const CROWD: usize = 256;

pub fn check(task: &Task) -> Result<(), Failed> {
    for model in models::wanted(task) {
        let options = CudaOptions { kv_tokens: Some(300_000), ..task.options.clone() };
        let executor = model.open(&options)?;
        let (handle, thread) = spawn(Box::new(executor), &Settings::default());
        let crowd = in_a_crowd(&handle)?;
        let (mut same, picked) = (0, [0, 7, 100, 255]);
        for index in picked {
            same += usize::from(alone(&handle, index)? == crowd[index]);
        }
        println!("RES {} answers alone == in a crowd of {CROWD}: {same} of {}", model.name, picked.len());
        drop(handle);
        let _ = thread.join();
        if same != picked.len() {
            return Err(Failed::Wrong(format!("{}: an answer depends on its company", model.name)));
        }
    }
    Ok(())
}

/// Prompts of different lengths, some greedy and some not.
fn request(index: usize) -> Request {
    let tokens = 20 + index * 37 % 700;
    let prompt = (0..tokens).map(|at| ((at * 7919 + index * 104_729) % 40_000) as u32).collect();
    let mut request = Request::greedy(prompt, 40);
    if index % 2 == 1 {
        request.params = SamplingParams {
            temperature: 0.8,
            top_p: 0.9,
            seed: Seed(index as u64),
            ..SamplingParams::default()
        };
    }
    request
}

fn in_a_crowd(handle: &Handle) -> Result<Vec<Vec<u32>>, Failed> {
    let wrong = |error: &dyn std::fmt::Display| Failed::Wrong(error.to_string());
    let streams: Result<Vec<_>, _> = (0..CROWD).map(|index| handle.submit(request(index))).collect();
    let streams = streams.map_err(|error| wrong(&error))?;
    Ok(streams.into_iter().map(|mut stream| tokens(&stream.collect())).collect())
}

fn alone(handle: &Handle, index: usize) -> Result<Vec<u32>, Failed> {
    let mut stream = handle.submit(request(index)).map_err(|error| Failed::Wrong(error.to_string()))?;
    Ok(tokens(&stream.collect()))
}

fn tokens(completion: &ropeway_engine::Completion) -> Vec<u32> {
    completion.tokens.iter().map(|sampled| sampled.token).collect()
}
