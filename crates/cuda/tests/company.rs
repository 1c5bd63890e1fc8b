//! A row's bits in random steps: prompts in pieces of any size, decoded rows, few or many at once, blocks in any order that others used before.
//! All on one executor, so that what was captured for a step is replayed for others.

mod emulator;
mod fixtures;

use std::cell::RefCell;

use fixtures::rows::bits;
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use ropeway_cuda::{CudaExecutor, CudaOptions, KvForm};
use ropeway_executor::{Batch, BlockId, Executor, SamplingParams, StepOutput};
use ropeway_model::{DecoderSpec, Quantize};

/// What differs between models.
#[derive(Clone, Copy, Debug)]
struct Model {
    head_dim: usize,
    heads: usize,
    kv_heads: usize,
    window: Option<usize>,
    kv: KvForm,
    quantize: Option<Quantize>,
    tma: bool,
}

const PLAIN: Model =
    Model { head_dim: 64, heads: 4, kv_heads: 2, window: None, kv: KvForm::Bf16, quantize: None, tma: false };

/// Tokens of the sequences: around the ends of blocks and segments, with up to five segments, and many that are short.
const LENGTHS: [usize; 6] = [1, 32, 33, 129, 257, 513];
const SHORT: usize = 24;
const SEQUENCES: usize = LENGTHS.len() + SHORT;

fn length(sequence: usize) -> usize {
    LENGTHS.get(sequence).copied().unwrap_or(5 + sequence * 7 % 40)
}

fn token(sequence: usize, position: usize) -> u32 {
    ((position + 3 * sequence) * 7919 % 64) as u32
}

/// Tokens and rows of a step, and blocks of all sequences.
const STEP: usize = 256;
const BLOCKS: usize = 200;
const BLOCK: usize = 32;

/// A sequence's next tokens, up to so many.
type Piece = (usize, usize);

/// What comes first: decoded rows of several segments are rare otherwise.
const LONG_PROMPTS: [Piece; 4] = [(3, 125), (4, 250), (5, STEP), (5, 250)];

/// Some sequences' next tokens: one at a time, many of them, or pieces of prompts beside a few.
fn step() -> impl Strategy<Value = Vec<Piece>> {
    let decoded = (0..SEQUENCES, Just(1));
    let any = (0..SEQUENCES, prop_oneof![Just(1), 2..40usize, 40..130usize]);
    prop_oneof![prop::collection::vec(decoded, 1..SEQUENCES), prop::collection::vec(any, 1..8)]
}

/// A model with what it gives for each token of each sequence alone.
struct Bench {
    executor: CudaExecutor,
    alone: Vec<Vec<Vec<u32>>>,
}

impl Bench {
    fn new(model: Model, options: &CudaOptions) -> Self {
        let config = serde_json::json!({
            "model_type": "mistral", "vocab_size": 64, "hidden_size": 32, "intermediate_size": 32, "num_hidden_layers": 2,
            "num_attention_heads": model.heads, "num_key_value_heads": model.kv_heads, "head_dim": model.head_dim,
            "max_position_embeddings": 2048, "sliding_window": model.window, "rms_norm_eps": 1e-5, "rope_theta": 10000.0,
            "tie_word_embeddings": true, "hidden_act": "silu"
        });
        let spec = DecoderSpec::from_hugging_face(&config).expect("a configuration");
        let Model { kv, quantize, tma, .. } = model;
        let kv_tokens = Some(BLOCKS * BLOCK);
        let options = CudaOptions {
            kv_tokens,
            step_tokens: STEP,
            step_rows: STEP,
            kv,
            quantize,
            tma,
            ..options.clone()
        };
        let executor = CudaExecutor::random(spec, 7, options).expect("a model");
        let mut bench = Self { executor, alone: Vec::new() };
        bench.alone = (0..SEQUENCES).map(|sequence| bench.compute_alone(sequence)).collect();
        bench
    }

    /// Every token's logits, with the sequence's prompt in pieces as large as a step.
    fn compute_alone(&mut self, sequence: usize) -> Vec<Vec<u32>> {
        let table: Vec<BlockId> = (0..BLOCKS as u32).map(BlockId).collect();
        let tokens: Vec<u32> = (0..length(sequence)).map(|position| token(sequence, position)).collect();
        let mut all = Vec::new();
        for start in (0..tokens.len()).step_by(STEP) {
            let end = (start + STEP).min(tokens.len());
            let mut batch = Batch::default();
            batch.push_chunk(&tokens[start..end], start, &table[..end.div_ceil(BLOCK)]);
            for row in 0..end - start {
                batch.score(row, 0, &SamplingParams::greedy());
            }
            all.extend(self.run(&batch));
        }
        all
    }

    /// The bits of a step's rows.
    fn run(&mut self, batch: &Batch) -> Vec<Vec<u32>> {
        self.executor.execute(batch, &mut StepOutput::default()).expect("a step");
        self.executor.logits(batch.rows.len()).expect("logits").iter().map(|row| bits(row)).collect()
    }

    /// Runs the steps, after the prompts of long sequences; the last token of every piece must give what it gives alone.
    fn check(&mut self, steps: &[Vec<Piece>]) -> Result<(), TestCaseError> {
        let mut places = Places::default();
        for (number, step) in
            LONG_PROMPTS.iter().map(|piece| vec![*piece]).chain(steps.iter().cloned()).enumerate()
        {
            let (mut batch, mut wanted) = (Batch::default(), Vec::new());
            for (sequence, most) in step {
                let Some((start, end)) = places.advance(sequence, most, STEP - batch.tokens.len()) else {
                    continue;
                };
                let tokens: Vec<u32> = (start..end).map(|position| token(sequence, position)).collect();
                batch.push_chunk(&tokens, start, &places.tables[sequence]);
                batch.score(batch.tokens.len() - 1, 0, &SamplingParams::greedy());
                wanted.push((sequence, end - 1));
            }
            if batch.tokens.is_empty() {
                continue;
            }
            for (row, (sequence, position)) in self.run(&batch).into_iter().zip(wanted) {
                prop_assert_eq!(
                    &row,
                    &self.alone[sequence][position],
                    "step {}, sequence {}",
                    number,
                    sequence
                );
            }
            places.end_step();
        }
        Ok(())
    }
}

/// Where sequences are, and whose the blocks are.
struct Places {
    done: [usize; SEQUENCES],
    in_step: [bool; SEQUENCES],
    tables: Vec<Vec<BlockId>>,
    free: Vec<BlockId>,
}

impl Default for Places {
    fn default() -> Self {
        // Neighbours in a table are no neighbours in memory.
        let free = (0..BLOCKS).map(|index| BlockId((index * 77 % BLOCKS) as u32)).collect();
        Self { done: [0; SEQUENCES], in_step: [false; SEQUENCES], tables: vec![Vec::new(); SEQUENCES], free }
    }
}

impl Places {
    /// Takes a sequence's next positions, once a step; one that is at its end begins again, in other blocks.
    fn advance(&mut self, sequence: usize, most: usize, room: usize) -> Option<(usize, usize)> {
        if self.in_step[sequence] || room == 0 {
            return None;
        }
        if self.done[sequence] == length(sequence) {
            self.done[sequence] = 0;
            self.free.splice(..0, self.tables[sequence].drain(..));
        }
        let start = self.done[sequence];
        let end = (start + most.min(room)).min(length(sequence));
        let missing = end.div_ceil(BLOCK) - self.tables[sequence].len();
        self.tables[sequence].extend(self.free.drain(self.free.len() - missing..));
        (self.in_step[sequence], self.done[sequence]) = (true, end);
        Some((start, end))
    }

    fn end_step(&mut self) {
        self.in_step = [false; SEQUENCES];
    }
}

/// Random steps give every row the bits that it has alone.
fn check(model: Model) {
    let Some(options) = emulator::options() else { return };
    // `PROPTEST_CASES` asks for more.
    let cases = std::env::var("PROPTEST_CASES").ok().and_then(|cases| cases.parse().ok()).unwrap_or(1);
    let bench = RefCell::new(Bench::new(model, &options));
    let config = Config { cases, failure_persistence: None, max_shrink_iters: 200, ..Config::default() };
    let steps = prop::collection::vec(step(), 8..16);
    let verdict = TestRunner::new(config).run(&steps, |steps| bench.borrow_mut().check(&steps));
    verdict.unwrap_or_else(|failure| panic!("{model:?}: {failure}"));
}

#[test]
fn heads_of_64_values_in_bf16() {
    check(PLAIN);
}

#[test]
fn heads_of_128_values_that_tma_copies() {
    check(Model { head_dim: 128, kv_heads: 1, tma: true, ..PLAIN });
}

#[test]
fn small_heads_in_8_bits_with_a_window() {
    check(Model { head_dim: 16, heads: 6, kv_heads: 3, window: Some(150), kv: KvForm::Q8, ..PLAIN });
}

#[test]
fn more_query_heads_a_kv_head_than_a_warp_takes_of_many_rows() {
    check(Model { heads: 12, kv_heads: 1, window: Some(40), ..PLAIN });
}

#[test]
fn weights_packed_to_4_bits() {
    check(Model { heads: 2, quantize: Some(Quantize::Q4), ..PLAIN });
}
