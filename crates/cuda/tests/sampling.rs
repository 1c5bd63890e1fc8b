//! Sampling on an emulated GPU against the CPU's sampler, on the same logits; guides, feeds, copies and transfers of blocks.

mod emulator;
#[path = "../src/bin/cuda-check/every_filter.rs"]
mod every_filter;
mod fixtures;

use std::sync::Mutex;

use ropeway_cpu::sampling::{Sampler, Tokens};
use ropeway_cuda::{CudaExecutor, CudaOptions};
use ropeway_executor::{
    Batch, BlockId, Executor, GuideId, Guides, History, RowError, SamplingParams, StepOutput, Unguided,
};
use ropeway_kernels::Isa;

fn llama() -> Option<CudaExecutor> {
    let options = CudaOptions { kv_tokens: Some(32 * 64), ..emulator::options()? };
    let case = fixtures::cases().remove(0);
    Some(CudaExecutor::load(&case.checkpoint(), options, &mut |_, _| {}).expect("the first fixture"))
}

#[test]
fn every_filter_chooses_what_the_cpu_chooses() {
    let Some(mut executor) = llama() else { return };
    let (mut batch, mut output) = (Batch::default(), StepOutput::default());
    let history: Vec<u32> = (0..50).map(|index| index * 31 % 49).collect();
    for row in 0..60 {
        batch.push_chunk(&[row as u32 * 5], 0, &[BlockId(row as u32)]);
        let history = History { prompt: &history[..20], answer: &history[20..], drafted: &[] };
        batch.sample_last(&every_filter::params(row), history);
    }
    executor.execute(&batch, &mut output).expect("a step");
    let mut sampler = Sampler::new(Isa::best());
    let logits = executor.logits(60).expect("logits");
    for (index, (row, mut logits)) in batch.rows.iter().zip(logits).enumerate() {
        let tokens = Tokens { all: &batch.history[row.history.clone()], prompt: row.prompt };
        let want = sampler.sample(&mut logits, &row.params, tokens, row.position);
        let got = &output.rows[index];
        match (&want, got) {
            (Ok(want), Ok(got)) => {
                assert_eq!(want.token, got.token, "row {index}: {:?}", row.params);
                assert!((want.logprob - got.logprob).abs() < 1e-5, "row {index}: {want:?} {got:?}");
                let ids = |top: &[(u32, f32)]| top.iter().map(|entry| entry.0).collect::<Vec<_>>();
                assert_eq!(ids(&want.top), ids(&got.top), "row {index}");
            }
            _ => assert_eq!(&want, got, "row {index}"),
        }
    }
}

/// Allows multiples of 3, refuses guide 1, panics for guide 2, and remembers what was chosen.
#[derive(Default)]
struct Threes(Mutex<Vec<u32>>);

impl Guides for Threes {
    fn allow(&self, guide: GuideId, mask: &mut [u32]) -> Result<(), RowError> {
        if guide.0 == 1 {
            return Err(RowError::Grammar("no".into()));
        }
        assert!(guide.0 != 2, "a bug in a guide");
        mask.fill(0);
        for token in (0..320).step_by(3) {
            mask[token / 32] |= 1 << (token % 32);
        }
        Ok(())
    }

    fn chose(&self, _: GuideId, token: u32) -> Result<(), RowError> {
        self.0.lock().expect("unpoisoned").push(token);
        Ok(())
    }
}

#[test]
fn guided_rows_choose_among_what_is_allowed_and_a_refused_one_fails_alone() {
    let Some(mut executor) = llama() else { return };
    let (mut batch, mut output, guides) = (Batch::default(), StepOutput::default(), Threes::default());
    for row in 0..7 {
        batch.push_chunk(&[row + 1], 0, &[BlockId(row)]);
        batch.sample_last(&SamplingParams::greedy(), History::default());
        match row {
            0 => {}
            6 => batch.guide_last(GuideId(2)),
            _ => batch.guide_last(GuideId(row % 2)),
        }
    }
    executor.launch(&batch, &guides).expect("a step");
    executor.collect(&guides, &mut output).expect("its results");
    let chosen = guides.0.into_inner().expect("unpoisoned");
    assert_eq!(chosen.len(), 2);
    assert!(chosen.iter().all(|token| token % 3 == 0), "{chosen:?}");
    for row in [1, 3, 5] {
        assert_eq!(output.rows[row], Err(RowError::Grammar("no".into())));
    }
    assert_eq!(output.rows[6], Err(RowError::Panicked));
    assert!(output.rows[0].is_ok());
}

/// Tokens one after another, each step collected before the next.
fn step_by_step(executor: &mut CudaExecutor, params: &SamplingParams) -> Vec<u32> {
    let (mut output, mut tokens) = (StepOutput::default(), vec![7]);
    for start in 0..4 {
        let mut batch = Batch::default();
        batch.push_chunk(&tokens[start..], start, &[BlockId(3)]);
        let history = History { prompt: &tokens[..1], answer: &tokens[1..], drafted: &[] };
        batch.sample_last(params, history);
        executor.execute(&batch, &mut output).expect("a step");
        tokens.push(output.rows[0].as_ref().expect("a token").token);
    }
    tokens
}

#[test]
fn a_step_launched_ahead_is_fed_what_the_one_before_chose_penalties_included() {
    let Some(mut executor) = llama() else { return };
    let params =
        SamplingParams { repetition_penalty: 5.0, presence_penalty: 3.0, ..SamplingParams::greedy() };
    let want = step_by_step(&mut executor, &params);
    let (mut output, mut tokens) = (StepOutput::default(), vec![7]);
    for start in 0..4 {
        let mut batch = Batch::default();
        batch.push_chunk(&[7], start, &[BlockId(4)]);
        // The step before is launched, not collected: its token is known to the device alone.
        let known = tokens.len() - 1;
        batch.sample_last(&params, History { prompt: &tokens[..1], answer: &tokens[1..], drafted: &[] });
        if start > 0 {
            batch.feed_last(0);
        }
        executor.launch(&batch, &Unguided).expect("a step");
        if start > 0 {
            executor.collect(&Unguided, &mut output).expect("the step before");
            tokens.push(output.rows[0].as_ref().expect("a token").token);
        }
        assert_eq!(known, start.saturating_sub(1));
    }
    executor.collect(&Unguided, &mut output).expect("the last step");
    tokens.push(output.rows[0].as_ref().expect("a token").token);
    assert_eq!(tokens, want);
}

#[test]
fn copied_and_exported_blocks_hold_what_the_originals_held() {
    let Some(mut executor) = llama() else { return };
    let mut batch = Batch::default();
    batch.push_chunk(&[1, 2, 3, 4], 0, &[BlockId(0)]);
    executor.execute(&batch, &mut StepOutput::default()).expect("a step");
    let next = |executor: &mut CudaExecutor, block: u32, copies: &[(u32, u32)]| {
        let (mut batch, mut output) = (Batch::default(), StepOutput::default());
        batch.push_chunk(&[9], 4, &[BlockId(block)]);
        batch.copies.extend(copies.iter().map(|(from, to)| (BlockId(*from), BlockId(*to))));
        batch.sample_last(
            &SamplingParams { logprobs: Some(3), ..SamplingParams::greedy() },
            History::default(),
        );
        executor.execute(&batch, &mut output).expect("a step");
        output.rows.remove(0)
    };
    let mut bytes = vec![0; executor.limits().block_bytes];
    executor.export(BlockId(0), &mut bytes).expect("a block");
    executor.import(BlockId(9), &bytes).expect("a block");
    // Over two stations, the second of which only holds it after the first copy.
    let copied = next(&mut executor, 6, &[(0, 5), (5, 6)]);
    let imported = next(&mut executor, 9, &[]);
    let original = next(&mut executor, 0, &[]);
    assert_eq!(copied, original);
    assert_eq!(imported, original);
    assert!(executor.import(BlockId(9), &bytes[1..]).is_err());
}
