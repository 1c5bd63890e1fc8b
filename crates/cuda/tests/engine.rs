//! The engine on an emulated GPU: answers are the same alone, in company, with too little memory, after a cached prefix, with blocks from
//! disk and with a draft model.

mod emulator;
mod fixtures;

use std::sync::Arc;

use fixtures::Case;
use ropeway_cpu::{CpuExecutor, CpuOptions};
use ropeway_cuda::{CudaExecutor, CudaOptions, KvForm, Pair};
use ropeway_engine::cost::CostModel;
use ropeway_engine::{Handle, Request, Settings, Speculation, spawn, spawn_with_draft_model};
use ropeway_executor::{Batch, BlockId, Executor, SamplingParams, Seed, StepOutput, sample_block};
use ropeway_kvdisk::{Disk, Options, ShelfSpec};

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

fn load(case: &Case, options: &CudaOptions) -> CudaExecutor {
    CudaExecutor::load(&case.checkpoint(), options.clone(), &mut |_, _| {}).expect("a model")
}

/// Stands for the digest of a model's files.
const WEIGHTS: [u8; 32] = [7; 32];

/// An engine that keeps blocks in this folder.
fn on_disk(
    mut executor: CudaExecutor,
    folder: &std::path::Path,
) -> (Handle, std::thread::JoinHandle<()>, Disk) {
    let disk =
        Disk::open(Options { floor: 0, ..Options::new(folder.to_owned(), 64 << 20) }).expect("a folder");
    let (identity, limits) = (executor.kv_identity(&WEIGHTS).expect("an identity"), executor.limits());
    let (block_bytes, block_tokens) = (limits.block_bytes, limits.block_tokens);
    let shelf = disk.shelf(ShelfSpec { identity, label: "test".into(), block_bytes, block_tokens });
    // Reading is worth it: an emulated GPU is a slow one.
    let cost = Some(CostModel::known([0.1, 0.01, 0.01, 0.0, 0.0]));
    let settings = Settings { tier: Some(Arc::new(shelf)), cost, ..Settings::default() };
    let (handle, thread) = spawn(Box::new(executor), &settings);
    (handle, thread, disk)
}

#[test]
fn blocks_come_back_from_disk_after_a_restart_with_the_same_bits_in_their_own_form_only() {
    let Some(options) = emulator::options() else { return };
    let case = fixtures::cases().remove(0);
    let folder = tempfile::tempdir().expect("a folder");
    let request = || Request::greedy((0..120).map(|at| at * 31 % 300).collect(), 10);
    for kv in KvForm::ALL {
        let options = CudaOptions { kv, ..options.clone() };
        let mut answers = Vec::new();
        for fetched in [0, 96] {
            let (handle, thread, disk) = on_disk(load(&case, &options), folder.path());
            let answer = handle.submit(request()).expect("a request").collect();
            assert_eq!(handle.board().metrics().tier.fetched_tokens, fetched, "{kv:?}");
            answers.push(answer.tokens);
            handle.stop();
            thread.join().expect("an engine that ends");
            drop(disk);
        }
        assert_eq!(answers[0], answers[1]);
    }
}

#[test]
fn a_block_holds_what_another_one_held_after_export_and_import() {
    let Some(options) = emulator::options() else { return };
    let mut executor = load(&fixtures::cases().remove(0), &options);
    let bytes = sample_block(&mut executor).expect("a block");
    assert!(bytes.iter().any(|byte| *byte != 0), "keys and values");
    let mut back = vec![0; bytes.len()];
    // More than pass through at a time.
    for block in 1..8 {
        executor.import(BlockId(block), &bytes).expect("an import");
    }
    for block in (0..8).rev() {
        executor.export(BlockId(block), &mut back).expect("an export");
        assert_eq!(back, bytes, "block {block}");
    }
}

#[test]
fn a_batch_of_copies_alone_copies_blocks_in_their_order() {
    let Some(options) = emulator::options() else { return };
    let mut executor = load(&fixtures::cases().remove(0), &options);
    let bytes = sample_block(&mut executor).expect("a block");
    let copies = [(0, 3), (3, 5), (5, 1)].map(|(from, to)| (BlockId(from), BlockId(to)));
    let batch = Batch { copies: copies.to_vec(), ..Batch::default() };
    executor.execute(&batch, &mut StepOutput::default()).expect("a step");
    let mut back = vec![0; bytes.len()];
    for block in [1, 3, 5] {
        executor.export(BlockId(block), &mut back).expect("an export");
        assert_eq!(back, bytes, "block {block}");
    }
}

#[test]
fn keys_and_values_in_8_bits_have_another_identity_and_half_the_bytes_but_for_scales() {
    let Some(options) = emulator::options() else { return };
    let case = fixtures::cases().remove(0);
    let [mut wide, mut narrow] = KvForm::ALL.map(|kv| load(&case, &CudaOptions { kv, ..options.clone() }));
    assert_ne!(
        wide.kv_identity(&WEIGHTS).expect("an identity"),
        narrow.kv_identity(&WEIGHTS).expect("an identity")
    );
    let spec = narrow.spec();
    let scales = spec.layers.len() * spec.kv_heads * 2 * 32 * 4;
    assert_eq!(narrow.limits().block_bytes, wide.limits().block_bytes / 2 + scales);
}

#[test]
fn what_a_gpu_kept_is_neither_a_cpu_s_nor_another_model_s() {
    let Some(options) = emulator::options() else { return };
    let case = fixtures::cases().remove(0);
    let mut gpu = load(&case, &options);
    let mut cpu =
        CpuExecutor::load(&case.checkpoint(), &CpuOptions::default(), &mut |_, _| {}).expect("a model");
    let on_gpu = gpu.kv_identity(&WEIGHTS).expect("an identity");
    assert_ne!(on_gpu, cpu.kv_identity(&WEIGHTS).expect("an identity"));
    assert_ne!(on_gpu, gpu.kv_identity(&[8; 32]).expect("an identity"));
    assert_eq!(on_gpu, load(&case, &options).kv_identity(&WEIGHTS).expect("an identity"));
}

#[test]
fn a_draft_model_on_the_same_gpu_leaves_answers_as_they_are() {
    let Some(options) = emulator::options() else { return };
    let checkpoint = fixtures::cases().remove(0).checkpoint();
    let (plain, _thread) =
        spawn(Box::new(load(&fixtures::cases().remove(0), &options)), &Settings::default());
    let want = tokens(&plain, 0..REQUESTS);
    let settings = Settings { speculation: Speculation::Always(3), ..Settings::default() };
    // Contexts count as on a real GPU.
    std::fs::write(emulator::memory(), (2u64 << 30).to_string()).expect("a file");
    // It drafts for itself: most of what it says is right.
    let Pair { target, draft } =
        Pair::load(&checkpoint, &checkpoint, &options, &mut |_, _| {}).expect("two models");
    assert_eq!(target.limits().blocks, draft.limits().blocks);
    let (drafted, _thread) =
        spawn_with_draft_model(Box::new(target), Box::new(draft), &settings).expect("the same tokens");
    assert_eq!(tokens(&drafted, 0..REQUESTS), want);
    let metrics = drafted.board().metrics();
    assert!(metrics.accepted_tokens > 0, "none of {} drafted tokens was right", metrics.drafted_tokens);
}
