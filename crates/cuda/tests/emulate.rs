//! The whole executor on an emulated GPU: every family against transformers' logits, and a row's bits in any company.

mod emulator;
mod fixtures;

use fixtures::rows::{LongCase, bits};
use fixtures::{Case, cases, relative_error};
use ropeway_cpu::{CpuExecutor, CpuOptions};
use ropeway_cuda::kv::KvForm;
use ropeway_cuda::plan::Form;
use ropeway_cuda::{CudaExecutor, CudaOptions};
use ropeway_executor::{Batch, BlockId, Executor, SamplingParams, StepOutput};
use ropeway_model::{LoadOptions, Quantize};

fn open(case: &Case, options: &CudaOptions) -> CudaExecutor {
    let options = CudaOptions { context: case.context(), ..options.clone() };
    CudaExecutor::load(&case.checkpoint(), options, &mut |_, _| {})
        .unwrap_or_else(|error| panic!("{}: {error}", case.path))
}

fn table() -> Vec<BlockId> {
    vec![BlockId(1), BlockId(0)]
}

/// A step that gives logits of every token of a prompt.
fn scored(prompt: &[u32]) -> Batch {
    let mut batch = Batch::default();
    batch.push_chunk(prompt, 0, &table());
    for token in 0..prompt.len() {
        batch.score(token, 0, &SamplingParams::greedy());
    }
    batch
}

/// Logits of every token of a prompt.
fn all_logits(executor: &mut CudaExecutor, prompt: &[u32]) -> Vec<Vec<f32>> {
    let batch = scored(prompt);
    executor.execute(&batch, &mut StepOutput::default()).expect("a step");
    executor.logits(prompt.len()).expect("logits")
}

#[test]
fn families_and_file_formats_are_nearer_to_transformers_in_f32_than_transformers_in_bf16() {
    let Some(options) = emulator::options() else { return };
    let errors: Vec<f64> = cases()
        .iter()
        .map(|case| {
            let mut executor = open(case, &options);
            let error = case.error_beside_bf16(&all_logits(&mut executor, &case.prompt()));
            println!("{}: {error:.2} of transformers' error in bf16", case.path);
            // Of three rows of a model of 32 to 64 columns: either error may be a lucky one.
            assert!(error <= 1.5, "{}: {error}", case.path);
            error
        })
        .collect();
    let mean = errors.iter().sum::<f64>() / errors.len() as f64;
    assert!(mean <= 1.0, "{mean}");
}

#[test]
fn keys_and_values_in_8_bits_lose_little_in_every_family() {
    let Some(options) = emulator::options() else { return };
    let options = CudaOptions { kv: KvForm::Q8, ..options };
    for case in cases() {
        let mut executor = open(&case, &options);
        let error = case.error_beside_bf16(&all_logits(&mut executor, &case.prompt()));
        println!("{}: {error:.2} of transformers' error in bf16", case.path);
        assert!(error <= 2.5, "{}: {error}", case.path);
    }
}

/// The CPU's logits of every token of a prompt.
fn cpu_logits(case: &Case, quantize: Quantize) -> Vec<Vec<f32>> {
    let load = LoadOptions { quantize: Some(quantize), ..LoadOptions::default() };
    let options = CpuOptions { load, context: case.context(), ..CpuOptions::default() };
    let mut executor = CpuExecutor::load(&case.checkpoint(), &options, &mut |_, _| {}).expect("a model");
    let prompt = case.prompt();
    executor.forward(&scored(&prompt)).expect("a step");
    (0..prompt.len()).map(|row| executor.logits(row).to_vec()).collect()
}

fn packed(case: &Case, quantize: Quantize, options: &CudaOptions) -> CudaExecutor {
    let executor = open(case, &CudaOptions { quantize: Some(quantize), ..options.clone() });
    let program = executor.program().expect("a device");
    let plain = program.plan.matrices.iter().filter(|matrix| matrix.form == Form::Bf16).count();
    assert!(plain <= 1, "{}: only an embedding that is no head stays as it is", case.path);
    executor
}

#[test]
fn floats_packed_to_8_bits_while_loading_lose_little() {
    let Some(options) = emulator::options() else { return };
    let chosen = ["gemma2", "llama", "mixtral"];
    for case in cases().into_iter().filter(|case| chosen.contains(&case.path.as_str())) {
        let mut executor = packed(&case, Quantize::Q8, &options);
        let error = case.error(&all_logits(&mut executor, &case.prompt()));
        println!("{}: relative error {error:.1e}", case.path);
        assert!(error < 0.15, "{}: {error}", case.path);
    }
}

#[test]
fn floats_packed_to_4_bits_while_loading_have_the_cpu_s_quants() {
    let Some(options) = emulator::options() else { return };
    let chosen = ["gemma2", "llama"];
    for case in cases().into_iter().filter(|case| chosen.contains(&case.path.as_str())) {
        let mut executor = packed(&case, Quantize::Q4, &options);
        let got = all_logits(&mut executor, &case.prompt());
        let wanted = cpu_logits(&case, Quantize::Q4);
        let error = got.iter().zip(wanted).map(|(got, want)| {
            let want: Vec<f64> = want.iter().map(|x| f64::from(*x)).collect();
            relative_error(got, &want)
        });
        let error = error.fold(0.0, f64::max);
        println!("{}: relative error {error:.1e}", case.path);
        // The CPU rounds activations to 8 bits, the GPU to bf16. Other quants would be off by as much as the logits are large.
        assert!(error < 0.4, "{}: {error}", case.path);
    }
}

#[test]
fn a_row_s_bits_are_the_same_in_a_prompt_and_decoded_alone_or_among_many_whatever_its_segments() {
    let Some(options) = emulator::options() else { return };
    let case = LongCase { head_dim: 16, window: None, quantize: None, kv: KvForm::Bf16, crowds: &[0, 150] };
    // Heads of 64 and 128 values attend by warpgroup products in prompts: the emulated GPU is a Hopper.
    let narrow = LongCase { kv: KvForm::Q8, ..case };
    for case in [
        case,
        LongCase { window: Some(200), ..case },
        LongCase { head_dim: 64, window: Some(200), crowds: &[0], ..case },
        LongCase { head_dim: 128, crowds: &[0], ..case },
        LongCase { quantize: Some(Quantize::Q4), ..case },
        narrow,
        LongCase { head_dim: 80, window: Some(200), crowds: &[0], ..narrow },
        LongCase { head_dim: 64, crowds: &[0], ..narrow },
        LongCase { head_dim: 128, window: Some(200), crowds: &[0], ..narrow },
    ] {
        case.check(&options);
    }
    let by_tma = CudaOptions { tma: true, ..options };
    LongCase { head_dim: 64, window: Some(200), crowds: &[0], ..case }.check(&by_tma);
    LongCase { head_dim: 128, crowds: &[0], ..case }.check(&by_tma);
}

#[test]
fn heads_of_64_and_128_values_lose_little_in_8_bits() {
    let Some(options) = emulator::options() else { return };
    let tokens: Vec<u32> = (0..150).map(|index| index * 7919 % 64).collect();
    let table: Vec<BlockId> = (0..5).map(BlockId).collect();
    for head_dim in [64, 128] {
        let [wide, narrow] = KvForm::ALL.map(|kv| {
            let case = LongCase { head_dim, window: None, quantize: None, kv, crowds: &[] };
            let mut executor = case.load(&options).expect("a model");
            let mut batch = Batch::default();
            batch.push_chunk(&tokens, 0, &table);
            batch.score(tokens.len() - 1, 0, &SamplingParams::greedy());
            executor.execute(&batch, &mut StepOutput::default()).expect("a step");
            executor.logits(1).expect("logits").remove(0)
        });
        let wide: Vec<f64> = wide.into_iter().map(f64::from).collect();
        let error = relative_error(&narrow, &wide);
        println!("heads of {head_dim}: {error:.1e}");
        assert!(error > 0.0 && error < 0.05, "heads of {head_dim}: {error}");
    }
}

/// One case per head dimension and kind of layer; the others differ in data only.
fn some_cases() -> Vec<Case> {
    let chosen =
        ["llama", "gemma2", "qwen3-moe", "llama-rope-dynamic", "llama-mlx-4bit-g32", "llama-mlx-8bit-g64"];
    cases().into_iter().filter(|case| chosen.contains(&case.path.as_str())).collect()
}

#[test]
fn chunks_and_company_leave_a_row_s_bits_as_they_are() {
    let Some(options) = emulator::options() else { return };
    let narrow = CudaOptions { kv: KvForm::Q8, ..options.clone() };
    let plain = some_cases().into_iter().map(|case| (case, &options));
    for (case, options) in plain.chain(some_cases().into_iter().take(3).map(|case| (case, &narrow))) {
        let mut executor = open(&case, options);
        let prompt = case.prompt();
        let whole = all_logits(&mut executor, &prompt);
        for chunk in [1, 5, 17] {
            for start in (0..prompt.len()).step_by(chunk) {
                let end = (start + chunk).min(prompt.len());
                let mut batch = Batch::default();
                // Another sequence's prompt beside it.
                batch.push_chunk(&prompt[..chunk.min(prompt.len())], 0, &[BlockId(5)]);
                batch.push_chunk(&prompt[start..end], start, &table());
                batch.score(batch.tokens.len() - 1, 0, &SamplingParams::greedy());
                executor.execute(&batch, &mut StepOutput::default()).expect("a step");
                let row = executor.logits(1).expect("logits").remove(0);
                assert_eq!(
                    bits(&row),
                    bits(&whole[end - 1]),
                    "{} {:?} {chunk} {start}",
                    case.path,
                    options.kv
                );
            }
        }
    }
}
