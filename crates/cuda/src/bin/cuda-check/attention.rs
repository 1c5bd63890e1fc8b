//! Prompt attention by itself: all forms bit for bit over random cases, and their speed at the shapes of known models.

use ropeway_cuda::driver::Stream;
use ropeway_cuda::prompts::trial::{Bounds, Laboratory, Piece, Trial, Uploaded};
use ropeway_cuda::prompts::{PromptForm, PromptKernel};
use ropeway_cuda::{CudaError, KvForm};

use crate::{Failed, Task};

/// The form that every GPU has, then Hopper's own.
const FORMS: [PromptForm; 2] = [PromptForm::Warps, PromptForm::Warpgroups];

/// Random cases.
const CASES: u64 = 40;

/// Sizes of random cases.
const BOUNDS: Bounds = Bounds { kv_heads: 4, group: 8, tokens: 1000, pieces: 3 };

/// How often a case is computed: what depends on the order of warps shows up in some runs only.
const ROUNDS: usize = 3;

/// Launches of which the fastest counts.
const LAUNCHES: usize = 5;

/// The heads of a known model.
struct Heads {
    name: &'static str,
    query: usize,
    key: usize,
    dim: usize,
}

const MODELS: [Heads; 3] = [
    Heads { name: "1.5b", query: 12, key: 2, dim: 128 },
    Heads { name: "8b", query: 32, key: 8, dim: 128 },
    Heads { name: "135m", query: 9, key: 3, dim: 64 },
];

/// The steps of a prompt of 17,616 tokens.
const PIECES: [Piece; 3] = [
    Piece { after: 0, tokens: 8192 },
    Piece { after: 8192, tokens: 8192 },
    Piece { after: 16_384, tokens: 1232 },
];

pub fn check(task: &Task) -> Result<(), Failed> {
    let laboratory = Laboratory::open(&task.options)?;
    if laboratory.stream.device().properties().capability != 90 {
        println!("skipped: only Hopper has two forms of prompt attention");
        return Ok(());
    }
    laboratory.prepare(&FORMS)?;
    compare(&laboratory)?;
    measure(&laboratory, task.options.kv)
}

fn compare(laboratory: &Laboratory) -> Result<(), Failed> {
    let stream = &laboratory.stream;
    for seed in 0..CASES {
        let trial = Trial::random(seed, BOUNDS);
        let uploaded = trial.upload(stream)?;
        let want = uploaded.run(stream, &laboratory.kernel(PromptForm::Warps, &trial)?)?;
        for form in &FORMS[1..] {
            let kernel = laboratory.kernel(*form, &trial)?;
            for _ in 0..ROUNDS {
                if uploaded.run(stream, &kernel)? != want {
                    return Err(Failed::Wrong(format!("{form:?} gives other bits than warps: {trial:?}")));
                }
            }
        }
    }
    println!("RES attention: {CASES} random cases, {ROUNDS} times each: all forms give the same bits");
    Ok(())
}

fn measure(laboratory: &Laboratory, kv: KvForm) -> Result<(), Failed> {
    for (heads, piece) in MODELS.iter().flat_map(|heads| PIECES.map(|piece| (heads, piece))) {
        let trial = Trial {
            heads: heads.query,
            kv_heads: heads.key,
            head_dim: heads.dim,
            window: None,
            cap: None,
            pieces: vec![piece],
            kv,
            seed: 1,
        };
        let uploaded = trial.upload(&laboratory.stream)?;
        let want = uploaded.run(&laboratory.stream, &laboratory.kernel(PromptForm::Warps, &trial)?)?;
        for form in FORMS {
            let kernel = laboratory.kernel(form, &trial)?;
            let same = uploaded.run(&laboratory.stream, &kernel)? == want;
            let seconds = fastest(&laboratory.stream, &uploaded, &kernel)?;
            println!(
                "RES attention {} {} after {}, {kv:?}, {form:?}: {:.3} ms, {:.0} TFLOP/s; the bits of warps: {same}",
                heads.name,
                piece.tokens,
                piece.after,
                seconds * 1e3,
                trial.operations() / seconds / 1e12
            );
            if !same {
                return Err(Failed::Wrong(format!("{form:?} gives other bits than warps: {trial:?}")));
            }
        }
    }
    Ok(())
}

/// Seconds of the fastest of several launches.
fn fastest(stream: &Stream, uploaded: &Uploaded, kernel: &PromptKernel) -> Result<f64, Failed> {
    let event = || stream.device().event().map_err(CudaError::from);
    let (before, after) = (event()?, event()?);
    let mut best = f64::INFINITY;
    for _ in 0..LAUNCHES {
        stream.record(&before).map_err(CudaError::from)?;
        uploaded.launch(stream, kernel)?;
        stream.record(&after).map_err(CudaError::from)?;
        after.synchronize().map_err(CudaError::from)?;
        best = best.min(after.seconds_since(&before).map_err(CudaError::from)?);
    }
    Ok(best)
}
