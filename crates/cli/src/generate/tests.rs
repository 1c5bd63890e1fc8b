//! The generator on an executor that counts upwards, and on a tiny real model.

use std::path::Path;

use ropeway_cpu::{CpuExecutor, CpuOptions};
use ropeway_executor::Sampled;
use ropeway_model::{LoadOptions, Precision};

use super::*;

/// The token after `n` is `n + 1`; remembers every chunk it was given, as its start and tokens.
#[derive(Default)]
struct Counting {
    chunks: Vec<(usize, Vec<u32>)>,
    histories: Vec<Vec<u32>>,
    fails: bool,
}

const LIMITS: Limits =
    Limits { block_tokens: 4, blocks: 8, context: 24, step_tokens: 8, step_rows: 1, vocab: 1000 };

impl Executor for Counting {
    fn limits(&self) -> Limits {
        LIMITS
    }

    fn execute(&mut self, batch: &Batch, output: &mut StepOutput) -> Result<(), ExecutorError> {
        batch.check(&LIMITS)?;
        if self.fails {
            return Err(ExecutorError::Device("gone".into()));
        }
        self.chunks.extend(batch.chunks.iter().map(|chunk| (chunk.start, batch.tokens.clone())));
        self.histories.push(batch.history.clone());
        let next = |row: &ropeway_executor::Row| {
            Ok(Sampled { token: batch.tokens[row.token] + 1, ..Sampled::default() })
        };
        output.rows = batch.rows.iter().map(next).collect();
        Ok(())
    }
}

static NEVER: AtomicBool = AtomicBool::new(false);

fn request<'a>(params: &'a SamplingParams, ends: &'a [u32]) -> Request<'a> {
    Request { params, ends, max_tokens: None, cancel: &NEVER }
}

/// The tokens of an answer and why it ended.
fn all<E: Executor>(generator: &mut Generator<E>, prompt: &[u32], request: Request<'_>) -> (Vec<u32>, End) {
    let mut answer = generator.answer(prompt, request).expect("a prompt that fits");
    let mut tokens = Vec::new();
    loop {
        match answer.advance().expect("a step") {
            Event::Computed => {}
            Event::Token(token) => tokens.push(token),
            Event::End(end) => return (tokens, end),
        }
    }
}

#[test]
fn an_answer_ends_at_an_end_token_which_is_not_part_of_it() {
    let mut generator = Generator::new(Counting::default());
    let params = SamplingParams::greedy();
    assert_eq!(all(&mut generator, &[1, 2], request(&params, &[6, 9])), (vec![3, 4, 5], End::Model));
}

#[test]
fn an_answer_has_at_most_max_tokens() {
    let mut generator = Generator::new(Counting::default());
    let params = SamplingParams::greedy();
    let request = Request { max_tokens: Some(2), ..request(&params, &[]) };
    assert_eq!(all(&mut generator, &[1], request), (vec![2, 3], End::MaxTokens));
    assert_eq!(generator.executor.chunks.len(), 2, "the last token is not computed in vain");
}

#[test]
fn an_answer_ends_where_the_context_does() {
    let mut generator = Generator::new(Counting::default());
    let params = SamplingParams::greedy();
    let (tokens, end) = all(&mut generator, &[1, 2, 3, 4], request(&params, &[]));
    assert_eq!((tokens.len(), end), (LIMITS.context - 4, End::Context));
}

#[test]
fn a_long_prompt_is_computed_in_chunks_of_the_step_limit() {
    let mut generator = Generator::new(Counting::default());
    let params = SamplingParams::greedy();
    let prompt: Vec<u32> = (100..118).collect();
    let mut answer = generator.answer(&prompt, request(&params, &[])).expect("fits");
    let pending: Vec<(Event, usize)> =
        (0..3).map(|_| (answer.advance().expect("a step"), answer.pending())).collect();
    assert_eq!(pending, [(Event::Computed, 10), (Event::Computed, 2), (Event::Token(118), 0)]);
}

#[test]
fn the_next_turn_computes_only_what_is_new() {
    let mut generator = Generator::new(Counting::default());
    let params = SamplingParams::greedy();
    all(&mut generator, &[1, 2, 3], request(&params, &[6]));
    generator.executor.chunks.clear();
    let mut answer = generator.answer(&[1, 2, 3, 4, 5, 6, 50], request(&params, &[])).expect("fits");
    assert_eq!((answer.reused(), answer.pending()), (5, 2));
    answer.advance().expect("a step");
    assert_eq!(generator.executor.chunks, [(5, vec![6, 50])]);
}

#[test]
fn a_changed_history_is_computed_from_the_change_on() {
    let mut generator = Generator::new(Counting::default());
    let params = SamplingParams::greedy();
    all(&mut generator, &[1, 2, 3], request(&params, &[4]));
    assert_eq!(generator.answer(&[1, 9, 3], request(&params, &[])).expect("fits").reused(), 1);
}

#[test]
fn the_same_prompt_again_still_computes_its_last_token() {
    let mut generator = Generator::new(Counting::default());
    let params = SamplingParams::greedy();
    let first = all(&mut generator, &[1, 2, 3], request(&params, &[6]));
    assert_eq!(generator.answer(&[1, 2, 3], request(&params, &[])).expect("fits").reused(), 2);
    assert_eq!(all(&mut generator, &[1, 2, 3], request(&params, &[6])), first);
}

#[test]
fn a_cancelled_answer_ends_before_its_next_step_and_stays_ended() {
    let (mut generator, cancel) = (Generator::new(Counting::default()), AtomicBool::new(false));
    let params = SamplingParams::greedy();
    let mut answer =
        generator.answer(&[1], Request { cancel: &cancel, ..request(&params, &[]) }).expect("fits");
    assert_eq!(answer.advance(), Ok(Event::Token(2)));
    cancel.store(true, Ordering::Relaxed);
    assert_eq!(answer.advance(), Ok(Event::End(End::Cancelled)));
    cancel.store(false, Ordering::Relaxed);
    assert_eq!(answer.advance(), Ok(Event::End(End::Cancelled)));
    assert_eq!(generator.executor.chunks.len(), 1);
}

#[test]
fn penalties_see_the_prompt_and_the_answer_and_cost_nothing_when_off() {
    let penalised = SamplingParams { repetition_penalty: 1.1, ..SamplingParams::greedy() };
    for (params, expected) in [(penalised, vec![1, 2, 3]), (SamplingParams::greedy(), vec![])] {
        let mut generator = Generator::new(Counting::default());
        all(&mut generator, &[1, 2], Request { max_tokens: Some(2), ..request(&params, &[]) });
        assert_eq!(generator.executor.histories.last(), Some(&expected));
    }
}

#[test]
fn a_prompt_that_is_empty_or_leaves_no_room_is_refused_with_the_numbers() {
    let mut generator = Generator::new(Counting::default());
    let params = SamplingParams::greedy();
    let mut refusal = |prompt: &[u32]| generator.answer(prompt, request(&params, &[])).err();
    assert_eq!(refusal(&[]), Some(GenerateError::Empty));
    assert_eq!(refusal(&[1; 24]), Some(GenerateError::TooLong { tokens: 24, room: 24 }));
    assert_eq!(refusal(&[1; 23]), None);
}

#[test]
fn after_a_failed_step_nothing_is_reused() {
    let mut generator = Generator::new(Counting::default());
    let params = SamplingParams::greedy();
    all(&mut generator, &[1, 2, 3], request(&params, &[5]));
    generator.executor.fails = true;
    let mut answer = generator.answer(&[1, 2, 3, 4], request(&params, &[])).expect("fits");
    assert!(matches!(answer.advance(), Err(GenerateError::Step(ExecutorError::Device(_)))));
    assert_eq!(generator.answer(&[1, 2, 3, 4], request(&params, &[])).expect("fits").reused(), 0);
}

#[test]
fn a_reused_prefix_gives_the_same_tokens_as_a_fresh_start() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/fixtures/models/llama");
    let load = LoadOptions { precision: Precision::F32, quantize: None };
    let options = CpuOptions { threads: 1, load, ..CpuOptions::default() };
    let fresh =
        || Generator::new(CpuExecutor::open(&path, &options, &mut |_, _| {}).expect("the fixture loads"));
    let params = SamplingParams { temperature: 0.9, ..SamplingParams::default() };
    let request = Request { max_tokens: Some(8), ..request(&params, &[]) };
    let (mut talking, first) = (fresh(), [7, 30, 200, 41]);
    let said = all(&mut talking, &first, request).0;
    let second = [&first[..], &said, &[12, 99, 3]].concat();
    assert!(talking.answer(&second, request).expect("fits").reused() > first.len());
    all(&mut talking, &first, request);
    assert_eq!(all(&mut talking, &second, request), all(&mut fresh(), &second, request));
}
