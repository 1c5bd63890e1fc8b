//! Attention by itself: all forms of prompts' and decoded rows bit for bit over random cases, and the speed of prompts and decoded rows at the shapes of
//! known models.

use ropeway_cuda::attention::trial::{AttentionBench, AttentionCase, Bounds, Piece};
use ropeway_cuda::attention::{DecodeStrategy, PromptForm};
use ropeway_cuda::driver::Stream;
use ropeway_cuda::{CudaError, KvForm};

use crate::{Failed, Task};

/// The form of prompt attention that every GPU has, then Hopper's own.
fn forms(laboratory: &AttentionBench) -> &'static [PromptForm] {
    match laboratory.stream.device().properties().capability {
        90 => &[PromptForm::Warps, PromptForm::Warpgroups],
        _ => &[PromptForm::Warps],
    }
}

/// Random cases.
const CASES: u64 = 40;

/// Sizes of random cases.
const BOUNDS: Bounds = Bounds { kv_heads: 4, group: 8, tokens: 1000, pieces: 3 };

/// Sizes of random decoded rows: some with up to 47 segments, and many with few.
const DECODE_BOUNDS: [Bounds; 2] =
    [Bounds { tokens: 3000, pieces: 8, ..BOUNDS }, Bounds { tokens: 200, pieces: 300, ..BOUNDS }];

/// How decoded rows can attend.
const STRATEGIES: [DecodeStrategy; 3] = [DecodeStrategy::Few, DecodeStrategy::Rows, DecodeStrategy::Segments];

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

impl Heads {
    fn trial(&self, pieces: Vec<Piece>, kv: KvForm) -> AttentionCase {
        let (heads, kv_heads, head_dim) = (self.query, self.key, self.dim);
        AttentionCase { heads, kv_heads, head_dim, window: None, cap: None, pieces, kv, seed: 1 }
    }
}

const MODELS: [Heads; 3] = [
    Heads { name: "1.5b", query: 12, key: 2, dim: 128 },
    Heads { name: "8b", query: 32, key: 8, dim: 128 },
    Heads { name: "135m", query: 9, key: 3, dim: 64 },
];

/// Rows and keys of decoded steps.
const DECODES: [(usize, usize); 8] =
    [(1, 256), (64, 256), (256, 192), (256, 256), (256, 320), (1, 4096), (64, 4096), (1, 17_616)];

/// Keys and values that decoded steps read before any of them again: more than caches hold.
const UNCACHED_BYTES: usize = 256 << 20;

/// Layers at most.
const LAYERS: usize = 128;

/// The steps of a prompt of 17,616 tokens.
const PIECES: [Piece; 3] = [
    Piece { after: 0, tokens: 8192 },
    Piece { after: 8192, tokens: 8192 },
    Piece { after: 16_384, tokens: 1232 },
];

pub fn check(task: &Task) -> Result<(), Failed> {
    let laboratory = AttentionBench::open(&task.options)?;
    laboratory.prepare(forms(&laboratory))?;
    compare(&laboratory)?;
    compare_decodes(&laboratory)?;
    let models: Vec<&Heads> = MODELS.iter().filter(|model| task.wants_model(model.name)).collect();
    measure(&laboratory, &models, task.options.kv)?;
    measure_decodes(&laboratory, &models, task.options.kv)
}

fn compare(laboratory: &AttentionBench) -> Result<(), Failed> {
    let stream = &laboratory.stream;
    for seed in 0..CASES {
        let trial = AttentionCase::random(seed, BOUNDS);
        let uploaded = trial.upload(stream)?;
        let want = uploaded.run(stream, &laboratory.kernel(PromptForm::Warps, &trial)?)?;
        for form in &forms(laboratory)[1..] {
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

/// Compares decoded rows with the same rows as prompts.
fn compare_decodes(laboratory: &AttentionBench) -> Result<(), Failed> {
    let mut compared = [0; STRATEGIES.len()];
    for (seed, bounds) in (0..CASES).flat_map(|seed| DECODE_BOUNDS.map(|bounds| (seed, bounds))) {
        let strategy = compare_decoded(laboratory, &AttentionCase::random_decodes(seed, bounds))?;
        let index = STRATEGIES.iter().position(|one| *one == strategy);
        compared[index.expect("decoded rows attend")] += 1;
    }
    let counts: Vec<String> =
        STRATEGIES.iter().zip(compared).map(|(one, count)| format!("{count} {one:?}")).collect();
    println!("RES attention: random cases of decoded rows have the bits of prompts: {}", counts.join(", "));
    // The first one needs more shared memory than some GPUs have.
    if compared[1..].contains(&0) {
        return Err(Failed::Wrong("a way to attend decoded rows was in none of the cases".into()));
    }
    Ok(())
}

/// Compares the decoded rows of a case by all forms; how they were decoded.
fn compare_decoded(laboratory: &AttentionBench, trial: &AttentionCase) -> Result<DecodeStrategy, Failed> {
    let stream = &laboratory.stream;
    let prompt_kernel = laboratory.kernel(PromptForm::Warps, trial)?;
    let want = trial.upload_as_prompts(stream)?.run(stream, &prompt_kernel)?;
    let uploaded = trial.upload(stream)?;
    for form in trial.decode_forms(stream.device()) {
        let kernels = laboratory.decode_kernels(*form, trial)?;
        for _ in 0..ROUNDS {
            if uploaded.results(stream, || uploaded.launch_decodes(stream, &kernels))? != want {
                let what = format!("{:?} by {form:?}", uploaded.decodes());
                return Err(Failed::Wrong(format!("{what} gives other bits than a prompt: {trial:?}")));
            }
        }
    }
    Ok(uploaded.decodes())
}

fn measure(laboratory: &AttentionBench, models: &[&Heads], kv: KvForm) -> Result<(), Failed> {
    for (heads, piece) in models.iter().flat_map(|heads| PIECES.map(|piece| (heads, piece))) {
        let trial = heads.trial(vec![piece], kv);
        let uploaded = trial.upload(&laboratory.stream)?;
        let want = uploaded.run(&laboratory.stream, &laboratory.kernel(PromptForm::Warps, &trial)?)?;
        for &form in forms(laboratory) {
            let kernel = laboratory.kernel(form, &trial)?;
            let same = uploaded.run(&laboratory.stream, &kernel)? == want;
            let launch = || uploaded.launch(&laboratory.stream, &kernel);
            let seconds = fastest(&laboratory.stream, launch)?;
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

/// Prints what a layer's decoded rows take, in a graph of many layers.
fn measure_decodes(laboratory: &AttentionBench, models: &[&Heads], kv: KvForm) -> Result<(), Failed> {
    let stream = &laboratory.stream;
    for (heads, (rows, keys)) in models.iter().flat_map(|heads| DECODES.map(|shape| (heads, shape))) {
        let trial = heads.trial(vec![Piece { after: keys - 1, tokens: 1 }; rows], kv);
        let layers = UNCACHED_BYTES.div_ceil(trial.kv_bytes()).min(LAYERS);
        let uploaded = trial.upload_layers(stream, layers)?;
        for form in trial.decode_forms(stream.device()) {
            let kernels = laboratory.decode_kernels(*form, &trial)?;
            let graph = stream.capture(|| uploaded.launch_decodes(stream, &kernels))?;
            let launch = || stream.launch_graph(&graph).map_err(CudaError::from);
            let seconds = fastest(stream, launch)? / layers as f64;
            println!(
                "RES attention {} {rows} rows of {keys} keys, {kv:?}, {:?} by {form:?}: {:.1} us a layer, {:.2} TB/s",
                heads.name,
                uploaded.decodes(),
                seconds * 1e6,
                trial.kv_bytes() as f64 / seconds / 1e12
            );
        }
    }
    Ok(())
}

/// Seconds of the fastest of several launches.
fn fastest(stream: &Stream, launch: impl Fn() -> Result<(), CudaError>) -> Result<f64, Failed> {
    let event = || stream.device().event().map_err(CudaError::from);
    let (before, after) = (event()?, event()?);
    let mut best = f64::INFINITY;
    for _ in 0..LAUNCHES {
        stream.record(&before).map_err(CudaError::from)?;
        launch()?;
        stream.record(&after).map_err(CudaError::from)?;
        after.synchronize().map_err(CudaError::from)?;
        best = best.min(after.seconds_since(&before).map_err(CudaError::from)?);
    }
    Ok(best)
}
