//! Sequences that follow a grammar: alone and beside others, cut, forked, preempted, and when the grammar fails.

use std::sync::Arc;

use ropeway_engine::{
    Completion, Engine, Event, FinishReason, Grammar, Guide, GuideError, Handle, Progress, Request,
    SequenceError, Settings, Speculation, Stepped, SystemClock, spawn,
};
use ropeway_executor::{Limits, RowError, SamplingParams, Seed};
use ropeway_testkit::MockExecutor;

const END: u32 = 99;

/// An answer is `fields` times a chosen token below 50, followed by as many forced tokens as `keys` says, all 50 above
/// it. It begins with `opening` times token 60, and may end before the last field if `ends_early`.
#[derive(Clone, Copy, Debug)]
struct Form {
    opening: usize,
    fields: usize,
    keys: usize,
    ends_early: bool,
    fails: Option<Failure>,
}

#[derive(Clone, Copy, Debug)]
enum Failure {
    Mask,
    PanicInMask,
    PanicInAccept,
}

const FORM: Form = Form { opening: 2, fields: 3, keys: 4, ends_early: false, fails: None };

struct Filling {
    form: Form,
    /// Tokens that must come before the next choice.
    due: Vec<u32>,
    left: usize,
    /// `due` and `left` before each token that was taken.
    past: Vec<(Vec<u32>, usize)>,
}

impl Grammar for Form {
    fn begin(&self) -> Box<dyn Guide> {
        Box::new(Filling { form: *self, due: vec![60; self.opening], left: self.fields, past: Vec::new() })
    }

    fn as_any(&self) -> &dyn std::any::Any {
        self
    }
}

impl Filling {
    fn progress(&self) -> Progress {
        if self.left == 0 && self.due.is_empty() { Progress::Complete } else { Progress::Open }
    }

    fn may_end(&self) -> bool {
        self.form.ends_early && self.left < 2 && self.due.is_empty()
    }

    fn fails_at(&self, left: usize) -> Option<Failure> {
        self.form.fails.filter(|_| self.left == left)
    }
}

impl Guide for Filling {
    fn allow(&mut self, mask: &mut [u32]) -> Result<(), GuideError> {
        match self.fails_at(2) {
            Some(Failure::Mask) => return Err(GuideError("too complex".into())),
            Some(Failure::PanicInMask) => panic!("a bug in a mask"),
            _ => {}
        }
        mask.fill(0);
        let allowed = self.due.first().map_or(0..50, |token| *token..*token + 1);
        for token in allowed.chain([END].into_iter().filter(|_| self.may_end())) {
            mask[token as usize / 32] |= 1 << (token % 32);
        }
        Ok(())
    }

    fn accept(&mut self, token: u32) -> Result<Progress, GuideError> {
        if matches!(self.fails_at(2), Some(Failure::PanicInAccept)) {
            panic!("a bug in a parser");
        }
        self.past.push((self.due.clone(), self.left));
        if self.due.is_empty() {
            assert!(token < 50, "token {token} was not allowed");
            self.left -= 1;
            self.due = vec![token + 50; self.form.keys];
        } else {
            assert_eq!(token, self.due.remove(0));
        }
        Ok(self.progress())
    }

    fn forced(&mut self, tokens: &mut Vec<u32>) -> Result<Progress, GuideError> {
        while !self.due.is_empty() {
            self.past.push((self.due.clone(), self.left));
            tokens.push(self.due.remove(0));
        }
        Ok(self.progress())
    }

    fn can_rollback(&self) -> bool {
        true
    }

    fn allowed(&mut self, tokens: &[u32]) -> Result<usize, GuideError> {
        let is_allowed = |token: u32| self.due.first().map_or(token < 50, |due| *due == token);
        Ok(usize::from(self.left > 0 && tokens.first().is_some_and(|token| is_allowed(*token))))
    }

    fn rollback(&mut self, tokens: usize) -> Result<(), GuideError> {
        let kept = self.past.len() - tokens;
        (self.due, self.left) = self.past[kept].clone();
        self.past.truncate(kept);
        Ok(())
    }
}

fn limits(blocks: usize, step_tokens: usize) -> Limits {
    Limits { block_tokens: 4, blocks, context: 200, step_tokens, step_rows: 8, vocab: 100, ..Limits::EXAMPLE }
}

fn engine(blocks: usize, step_tokens: usize) -> Handle {
    spawn(Box::new(MockExecutor::new(limits(blocks, step_tokens))), &Settings::default()).0
}

fn request(number: u32, form: Form) -> Request {
    Request {
        grammar: Some(Arc::new(form)),
        params: SamplingParams { seed: Seed(number.into()), ..SamplingParams::default() },
        ..Request::greedy((0..9).map(|at| (number * 7 + at) % 50).collect(), 100)
    }
}

fn tokens(completion: &Completion) -> Vec<u32> {
    completion.tokens.iter().map(|sampled| sampled.token).collect()
}

/// Whether the answer is a whole one.
fn fills(form: Form, tokens: &[u32]) -> bool {
    let (opening, fields) = tokens.split_at(form.opening.min(tokens.len()));
    let field = |field: &[u32]| field[0] < 50 && field[1..].iter().all(|key| *key == field[0] + 50);
    opening.iter().all(|token| *token == 60)
        && fields.len() == form.fields * (1 + form.keys)
        && fields.chunks(1 + form.keys).all(field)
}

#[test]
fn a_whole_answer_ends_by_itself_and_costs_one_step_per_chosen_token() {
    let clock = Arc::new(SystemClock::start());
    let (mut engine, handle) =
        Engine::new(Box::new(MockExecutor::new(limits(64, 64))), clock, &Settings::default());
    let mut stream = handle.submit(request(1, FORM)).expect("fits");
    let steps =
        std::iter::repeat_with(|| engine.step()).take_while(|stepped| *stepped == Stepped::Ran).count();
    let completion = stream.collect();
    assert!(fills(FORM, &tokens(&completion)), "{completion:?}");
    assert_eq!((completion.reason, completion.usage.generated, steps), (FinishReason::Complete, 17, 3));
    let metrics = handle.board().metrics();
    assert_eq!((metrics.forced_tokens, metrics.guided_tokens, metrics.generated_tokens), (14, 3, 17));
}

#[test]
fn an_answer_without_a_choice_needs_no_choice() {
    let form = Form { opening: 5, fields: 0, ..FORM };
    let completion = engine(64, 64).submit(request(1, form)).expect("fits").collect();
    assert_eq!((tokens(&completion), completion.reason), (vec![60; 5], FinishReason::Complete));
}

#[test]
fn batched_chunked_and_preempted_answers_are_those_given_alone() {
    let mixed = |number: u32| {
        let form = Form { opening: number as usize % 3, fields: 2 + number as usize % 4, ..FORM };
        let request = request(number, form);
        if number.is_multiple_of(3) {
            Request { grammar: None, max_tokens: Some(20), ..request }
        } else {
            request
        }
    };
    let alone: Vec<_> = (0..12)
        .map(|number| tokens(&engine(64, 64).submit(mixed(number)).expect("fits").collect()))
        .collect();
    for (blocks, step_tokens) in [(200, 64), (200, 8), (12, 8), (12, 11)] {
        let handle = engine(blocks, step_tokens);
        let streams: Vec<_> = (0..12).map(|number| handle.submit(mixed(number)).expect("fits")).collect();
        let together: Vec<_> = streams.into_iter().map(|mut stream| stream.collect()).collect();
        assert_eq!(together.iter().map(tokens).collect::<Vec<_>>(), alone, "{blocks} blocks");
        let preempted = together.iter().any(|completion| completion.usage.preemptions > 0);
        assert_eq!(preempted, blocks == 12, "{blocks} blocks");
    }
}

#[test]
fn answers_with_drafts_are_those_without() {
    let mixed = |number: u32| {
        let form = Form {
            opening: number as usize % 3,
            fields: 4 + number as usize % 9,
            keys: number as usize % 6,
            ends_early: number.is_multiple_of(2),
            ..FORM
        };
        let logprobs = number.is_multiple_of(4).then_some(2);
        let base = request(number, form);
        let params = SamplingParams { logprobs, ..base.params.clone() };
        Request { params, ends: vec![END], max_tokens: Some(20 + number as usize * 5), ..base }
    };
    let off = Settings { speculation: Speculation::Off, ..Settings::default() };
    let alone: Vec<_> = (0..12)
        .map(|number| {
            let executor = Box::new(MockExecutor::new(limits(64, 64)));
            spawn(executor, &off).0.submit(mixed(number)).expect("fits").collect()
        })
        .collect();
    // What will be said, with some tokens wrong or left out.
    let prediction = |number: u32| {
        let answer = tokens(&alone[number as usize]);
        let kept = answer.iter().enumerate().filter(|(at, _)| at % 11 != 10);
        kept.map(|(at, token)| if at % 7 == 6 { 98 } else { *token }).collect::<Vec<_>>()
    };
    for (blocks, step_tokens) in [(400, 64), (400, 8), (40, 8), (40, 16)] {
        let settings = Settings { speculation: Speculation::Always(8), ..Settings::default() };
        let limits = Limits { step_rows: step_tokens, ..limits(blocks, step_tokens) };
        let handle = spawn(Box::new(MockExecutor::new(limits)), &settings).0;
        let ask = |number| Request { prediction: prediction(number), ..mixed(number) };
        let streams: Vec<_> = (0..12).map(|number| handle.submit(ask(number)).expect("fits")).collect();
        for (mut stream, alone) in streams.into_iter().zip(&alone) {
            let drafted = stream.collect();
            assert_eq!((&drafted.tokens, &drafted.reason), (&alone.tokens, &alone.reason), "{blocks} blocks");
            assert_eq!(drafted.usage.generated, alone.usage.generated);
        }
        let metrics = handle.board().metrics();
        // Where a step has hardly more tokens than there are streams, there is no room for many.
        let least = if step_tokens == 64 { 50 } else { 1 };
        assert!(metrics.accepted_tokens >= least, "{} accepted", metrics.accepted_tokens);
        assert!(metrics.drafted_tokens > metrics.accepted_tokens, "some are wrong");
    }
}

#[test]
fn a_cut_answer_says_length_wherever_it_is_cut() {
    let handle = engine(64, 64);
    let whole = tokens(&handle.submit(request(1, FORM)).expect("fits").collect());
    for most in 1..=whole.len() {
        let asked = Request { max_tokens: Some(most), ..request(1, FORM) };
        let completion = handle.submit(asked).expect("fits").collect();
        assert_eq!(tokens(&completion), whole[..most]);
        let reason = if most == whole.len() { FinishReason::Complete } else { FinishReason::Length };
        assert_eq!(completion.reason, reason, "{most}");
    }
}

#[test]
fn every_sequence_of_a_request_has_a_guide_of_its_own() {
    let handle = engine(64, 64);
    let mut stream = handle.submit(Request { n: 3, ..request(5, FORM) }).expect("fits");
    let mut answers = vec![Vec::new(); 3];
    let mut reasons = Vec::new();
    while let Some(event) = stream.wait() {
        match event {
            Event::Token { sequence, sampled, .. } => answers[sequence as usize].push(sampled.token),
            Event::Finished { reason, .. } => reasons.push(reason),
            _ => {}
        }
    }
    assert_eq!(reasons, vec![FinishReason::Complete; 3]);
    assert!(answers.iter().all(|answer| fills(FORM, answer)), "{answers:?}");
    assert!(answers[0] != answers[1] && answers[1] != answers[2], "{answers:?}");
}

#[test]
fn forced_tokens_are_asked_of_the_model_when_it_is_to_say_what_it_thought() {
    let handle = engine(64, 64);
    let asked = request(1, FORM);
    let params = SamplingParams { logprobs: Some(0), ..asked.params.clone() };
    let completion = handle.submit(Request { params, ..asked }).expect("fits").collect();
    assert!(fills(FORM, &tokens(&completion)));
    assert_eq!(completion.reason, FinishReason::Complete);
    assert_eq!(handle.board().metrics().forced_tokens, 0);
}

#[test]
fn min_tokens_bars_the_end_where_something_else_is_allowed() {
    // The end is allowed with one field left: with these seeds some answers use that.
    let form = Form { fields: 20, keys: 0, ends_early: true, ..FORM };
    let least = |min_tokens| -> Vec<usize> {
        let asked = |number| Request { min_tokens, ends: vec![END], ..request(number, form) };
        let handle = engine(64, 64);
        let completions = (0..30).map(|number| handle.submit(asked(number)).expect("fits").collect());
        completions.map(|completion| completion.tokens.len()).collect()
    };
    assert!(least(0).contains(&21), "nobody ended early");
    assert!(least(22).iter().all(|tokens| *tokens == 22));
    assert!(least(90).iter().all(|tokens| *tokens == 22), "a complete answer ends");
}

#[test]
fn a_failure_inside_a_grammar_ends_its_request_and_no_other() {
    let handle = engine(200, 64);
    for failure in [Failure::Mask, Failure::PanicInMask, Failure::PanicInAccept] {
        let bad = handle.submit(request(1, Form { fails: Some(failure), ..FORM })).expect("fits");
        let good = handle.submit(request(2, FORM)).expect("fits");
        let [bad, good] = [bad, good].map(|mut stream| stream.collect());
        assert!(fills(FORM, &tokens(&good)));
        let error = match failure {
            Failure::Mask => RowError::Grammar("too complex".into()),
            Failure::PanicInMask | Failure::PanicInAccept => RowError::Panicked,
        };
        assert_eq!(bad.reason, FinishReason::Failed(SequenceError::Row(error)));
        let before = tokens(&bad);
        assert!(before.len() < 17, "{before:?}");
    }
}
