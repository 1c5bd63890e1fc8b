//! Each filter against a plain reference that sorts everything in f64, and the sampler as a whole.

use proptest::prelude::*;
use ropeway_executor::{RowError, Sampled, SamplingParams, Seed};
use ropeway_kernels::Isa;

use super::{
    Sampler, Tokens,
    candidates::{self, Candidates},
    row::{Peak, Row},
};

/// Cuts closer than this to a boundary may fall either way in f32.
const MARGIN: f64 = 1e-4;

/// The reference: tokens left over with their probabilities, and how far the nearest cut was from a boundary.
struct Reference {
    left: Vec<(u32, f64)>,
    margin: f64,
}

impl Reference {
    fn new(logits: &[f32], params: &SamplingParams) -> Self {
        let scaled = logits.iter().map(|logit| f64::from(*logit) / f64::from(params.temperature));
        let left = scaled
            .enumerate()
            .filter(|(_, logit)| logit.is_finite())
            .map(|(id, logit)| (id as u32, logit.exp()));
        let mut this = Self { left: left.collect(), margin: f64::INFINITY };
        this.sort_by(|probability| probability);
        if params.top_k > 0 {
            this.left.truncate(params.top_k as usize);
        }
        this.normalise();
        if params.typical_p < 1.0 {
            let entropy: f64 = this.left.iter().map(|(_, p)| -p * p.ln()).sum();
            this.sort_by(|probability| -(-probability.ln() - entropy).abs());
            this.keep_mass(f64::from(params.typical_p), |probability| (-probability.ln() - entropy).abs());
        }
        this.sort_by(|probability| probability);
        if params.top_p < 1.0 {
            this.keep_mass(f64::from(params.top_p), f64::ln);
        }
        if params.min_p > 0.0 {
            this.keep_near_best(f64::from(params.min_p));
        }
        this
    }

    fn sort_by(&mut self, rank: impl Fn(f64) -> f64) {
        self.left.sort_by(|a, b| rank(b.1).total_cmp(&rank(a.1)).then(a.0.cmp(&b.0)));
    }

    fn normalise(&mut self) {
        let total: f64 = self.left.iter().map(|(_, p)| p).sum();
        self.left.iter_mut().for_each(|(_, p)| *p /= total);
    }

    fn keep_mass(&mut self, goal: f64, key: impl Fn(f64) -> f64) {
        let mut mass = 0.0;
        let mut kept = 0;
        while kept < self.left.len() && (kept == 0 || mass < goal) {
            mass += self.left[kept].1;
            self.margin = self.margin.min((mass - goal).abs());
            kept += 1;
        }
        if let (Some(last), Some(next)) = (self.left.get(kept - 1), self.left.get(kept)) {
            self.margin = self.margin.min((key(last.1) - key(next.1)).abs());
        }
        self.left.truncate(kept);
        self.normalise();
    }

    fn keep_near_best(&mut self, share: f64) {
        let best = self.left.iter().map(|(_, p)| *p).fold(0.0, f64::max);
        for (_, p) in self.left.iter().filter(|(_, p)| *p < best) {
            self.margin = self.margin.min((p / best - share).abs());
        }
        self.left.retain(|(_, p)| *p >= share.min(1.0) * best);
        self.normalise();
    }

    fn ids(&self) -> Vec<u32> {
        let mut ids: Vec<u32> = self.left.iter().map(|(id, _)| *id).collect();
        ids.sort_unstable();
        ids
    }
}

/// The tokens a draw may choose from.
fn filtered(logits: &[f32], params: &SamplingParams) -> Vec<u32> {
    if !candidates::filters(params, logits.len()) {
        return (0..logits.len() as u32).filter(|token| logits[*token as usize].is_finite()).collect();
    }
    let (isa, mut candidates) = (Isa::best(), Candidates::default());
    let peak = Peak::of(isa, logits).unwrap();
    candidates.filter(&Row::new(isa, logits, peak, params.temperature), params);
    candidates.ids()
}

/// A history without a prompt.
fn answer(all: &[u32]) -> Tokens<'_> {
    Tokens { all, prompt: 0 }
}

fn sample(
    logits: &[f32],
    params: &SamplingParams,
    history: &[u32],
    position: u64,
) -> Result<Sampled, RowError> {
    Sampler::new(Isa::best()).sample(&mut logits.to_vec(), params, answer(history), position)
}

fn chosen(logits: &[f32], params: &SamplingParams) -> u32 {
    sample(logits, params, &[], 0).unwrap().token
}

/// Rows from flat to peaked, some tokens masked, some equal.
fn logits() -> impl Strategy<Value = Vec<f32>> {
    let logit = prop_oneof![
        8 => -12.0f32..12.0,
        2 => Just(f32::NEG_INFINITY),
        2 => (-3i8..3).prop_map(f32::from),
    ];
    prop::collection::vec(logit, 1..400)
        .prop_filter("one token must be left", |row| row.iter().any(|logit| logit.is_finite()))
}

fn share() -> impl Strategy<Value = f32> {
    0.01f32..0.999
}

fn check(logits: &[f32], params: &SamplingParams) -> Result<(), TestCaseError> {
    let reference = Reference::new(logits, params);
    prop_assume!(reference.margin > MARGIN);
    prop_assert_eq!(filtered(logits, params), reference.ids());
    Ok(())
}

proptest! {
    #[test]
    fn top_k_keeps_what_the_reference_keeps(row in logits(), top_k in 1u32..500) {
        check(&row, &SamplingParams { top_k, ..SamplingParams::default() })?;
    }

    #[test]
    fn top_p_keeps_what_the_reference_keeps(row in logits(), top_p in share(), temperature in 0.2f32..4.0) {
        check(&row, &SamplingParams { top_p, temperature, ..SamplingParams::default() })?;
    }

    #[test]
    fn min_p_keeps_what_the_reference_keeps(row in logits(), min_p in share(), temperature in 0.2f32..4.0) {
        check(&row, &SamplingParams { min_p, temperature, ..SamplingParams::default() })?;
    }

    #[test]
    fn typical_p_keeps_what_the_reference_keeps(row in logits(), typical_p in share(), temperature in 0.2f32..4.0) {
        check(&row, &SamplingParams { typical_p, temperature, ..SamplingParams::default() })?;
    }

    #[test]
    fn all_filters_together_keep_what_the_reference_keeps(
        row in logits(), top_k in 0u32..300, typical_p in share(), top_p in share(), min_p in 0.0f32..0.3,
    ) {
        check(&row, &SamplingParams { top_k, typical_p, top_p, min_p, ..SamplingParams::default() })?;
    }

    #[test]
    fn penalties_and_bias_match_their_formulas(
        row in prop::collection::vec(-9.0f32..9.0, 8),
        history in prop::collection::vec(0u32..10, 0..20),
        prompt in 0usize..25,
        window in prop::option::of(0u32..25),
        penalties in (0.5f32..2.0, -2.0f32..2.0, -2.0f32..2.0),
        bias in prop::collection::vec((0u32..10, -5.0f32..5.0), 0..4),
    ) {
        let (repetition_penalty, presence_penalty, frequency_penalty) = penalties;
        let params = SamplingParams { repetition_penalty, presence_penalty, frequency_penalty,
            penalty_window: window, logit_bias: bias.into_iter().collect(), ..SamplingParams::greedy() };
        let mut ours = row.clone();
        let history = Tokens { all: &history, prompt };
        Sampler::new(Isa::best()).sample(&mut ours, &params, history, 0).unwrap();
        prop_assert_eq!(ours, adjusted(row, &params, history));
    }

    #[test]
    fn no_parameters_make_it_panic_or_leave_the_vocabulary(
        row in prop::collection::vec(any::<f32>(), 0..40),
        floats in prop::array::uniform7(any::<f32>()),
        top_k in any::<u32>(), window in any::<Option<u32>>(), seed in any::<u64>(),
        bias in prop::collection::vec((any::<u32>(), any::<f32>()), 0..3),
        history in prop::collection::vec(any::<u32>(), 0..9),
        logprobs in prop::option::of(0u32..60),
    ) {
        let [temperature, top_p, min_p, typical_p, repetition_penalty, presence_penalty, frequency_penalty] = floats;
        let params = SamplingParams { allowed: None, temperature, top_k, top_p, min_p, typical_p, repetition_penalty,
            presence_penalty, frequency_penalty, penalty_window: window, logit_bias: bias.into_iter().collect(), seed: Seed(seed), is_seeded: true, logprobs };
        if let Ok(sampled) = sample(&row, &params, &history, seed) {
            prop_assert!((sampled.token as usize) < row.len());
        }
    }
}

#[test]
fn only_allowed_tokens_are_chosen() {
    let row = [5.0, 4.0, 3.0, 2.0, 1.0];
    for (allowed, chosen) in [(&[2, 4][..], 2), (&[0], 0), (&[4, 900], 4), (&[1, 2, 3], 1)] {
        let params = SamplingParams { allowed: Some(allowed.into()), ..SamplingParams::greedy() };
        assert_eq!(sample(&row, &params, &[], 0).unwrap().token, chosen);
    }
    let none = SamplingParams { allowed: Some([900].into()), ..SamplingParams::greedy() };
    assert_eq!(sample(&row, &none, &[], 0), Err(RowError::NothingAllowed));
}

fn adjusted(mut row: Vec<f32>, params: &SamplingParams, history: Tokens<'_>) -> Vec<f32> {
    for (token, bias) in params.logit_bias.iter() {
        if let Some(logit) = row.get_mut(*token as usize) {
            *logit += bias;
        }
    }
    let Tokens { all, prompt } = history;
    let window = params.penalty_window.map(|window| all.len().saturating_sub(window as usize));
    let (repeated, counted) = (window.unwrap_or(0), window.unwrap_or(prompt.min(all.len())));
    for (token, logit) in row.iter_mut().enumerate() {
        let count = |from: usize| all[from..].iter().filter(|seen| **seen as usize == token).count();
        if count(repeated) > 0 {
            let penalty = params.repetition_penalty;
            *logit = if *logit > 0.0 { *logit / penalty } else { *logit * penalty };
        }
        if count(counted) > 0 {
            *logit = *logit - count(counted) as f32 * params.frequency_penalty - params.presence_penalty;
        }
    }
    row
}

#[test]
fn greedy_takes_the_first_of_equal_maxima() {
    assert_eq!(chosen(&[1.0, 3.0, 3.0, 2.0], &SamplingParams::greedy()), 1);
    let long: Vec<f32> = (0..100).map(|token| if token % 40 == 39 { 5.0 } else { 0.0 }).collect();
    assert_eq!(chosen(&long, &SamplingParams::greedy()), 39);
    assert_eq!(chosen(&long, &SamplingParams { top_k: 1, ..SamplingParams::default() }), 39);
}

#[test]
fn the_narrowest_filters_leave_the_likeliest_token() {
    let row = [0.0, 2.0, 1.0, 1.9];
    let default = SamplingParams::default;
    for params in [
        SamplingParams { top_k: 1, ..default() },
        SamplingParams { top_p: 0.0, ..default() },
        SamplingParams { top_p: -1.0, ..default() },
        SamplingParams { min_p: 1.0, ..default() },
        SamplingParams { min_p: 7.0, ..default() },
        SamplingParams { temperature: 1e-40, ..default() },
        SamplingParams { temperature: 1e-6, top_p: 0.99, ..default() },
    ] {
        for position in 0..50 {
            assert_eq!(sample(&row, &params, &[], position).unwrap().token, 1, "{params:?}");
        }
    }
}

#[test]
fn the_widest_filters_leave_every_token_that_is_not_masked() {
    let row = [0.0, 2.0, f32::NEG_INFINITY, 1.9];
    let wide = SamplingParams { top_k: 4, top_p: 1.0, min_p: 1e-9, ..SamplingParams::default() };
    assert_eq!(filtered(&row, &wide), [0, 1, 3]);
    let nearly = SamplingParams { top_p: 0.999_999_9, ..SamplingParams::default() };
    assert_eq!(filtered(&row, &nearly), [0, 1, 3]);
}

#[test]
fn a_vocabulary_of_one_or_a_row_with_one_token_left_has_no_choice() {
    let params =
        SamplingParams { top_p: 0.5, typical_p: 0.5, min_p: 0.5, top_k: 3, ..SamplingParams::default() };
    assert_eq!(chosen(&[-3.0], &params), 0);
    assert_eq!(chosen(&[-3.0], &SamplingParams::default()), 0);
    let mut row = vec![f32::NEG_INFINITY; 3000];
    row[2048] = -1e30;
    for params in [params, SamplingParams::default(), SamplingParams::greedy()] {
        assert_eq!(chosen(&row, &params), 2048);
    }
}

#[test]
fn a_huge_bias_forces_or_forbids_a_token() {
    let force = |bias| SamplingParams { logit_bias: [(2, bias)].into(), ..SamplingParams::default() };
    for bias in [1e38, f32::MAX, f32::INFINITY] {
        assert_eq!(chosen(&[5.0, 4.0, 3.0], &force(bias)), 2);
    }
    for position in 0..200 {
        for bias in [-1e38, f32::NEG_INFINITY] {
            assert_ne!(sample(&[5.0, 4.0, 9.0], &force(bias), &[], position).unwrap().token, 2);
        }
    }
}

#[test]
fn a_row_that_is_not_finite_is_an_error_of_that_row() {
    for bad in [f32::NAN, f32::INFINITY] {
        for place in [0, 5, 17, 33] {
            let mut row = vec![0.5; 34];
            row[place] = bad;
            assert_eq!(sample(&row, &SamplingParams::greedy(), &[], 0), Err(RowError::NotFinite));
            assert_eq!(Sampler::new(Isa::best()).score(&row, 0, 3), Err(RowError::NotFinite));
        }
    }
    let masked = [f32::NEG_INFINITY; 20];
    assert_eq!(sample(&masked, &SamplingParams::greedy(), &[], 0), Err(RowError::NotFinite));
    assert_eq!(sample(&[], &SamplingParams::greedy(), &[], 0), Err(RowError::NotFinite));
    let forbid = SamplingParams { logit_bias: [(0, f32::NEG_INFINITY)].into(), ..SamplingParams::greedy() };
    assert_eq!(sample(&[1.0], &forbid, &[], 0), Err(RowError::NothingAllowed));
}

#[test]
fn a_long_flat_tail_counts_towards_the_mass() {
    // exp(-15.5) is little, but 200,000 times that is 3.7 % of the likeliest token.
    let mut row = vec![0.0; 200_001];
    row[0] = 15.5;
    let tail = 200_000.0 * (-15.5f64).exp();
    let expected = 1.0 + (0.99 * (1.0 + tail) - 1.0) / (-15.5f64).exp();
    let kept = filtered(&row, &SamplingParams { top_p: 0.99, ..SamplingParams::default() });
    assert!((kept.len() as f64 / expected - 1.0).abs() < 1e-3, "{} instead of {expected}", kept.len());
    assert_eq!(kept[..3], [0, 1, 2]);
}

/// Shares of each token over many positions.
fn frequencies(row: &[f32], params: &SamplingParams, draws: u64) -> Vec<f64> {
    let mut sampler = Sampler::new(Isa::best());
    let mut counts = vec![0u32; row.len()];
    for position in 0..draws {
        let sampled = sampler.sample(&mut row.to_vec(), params, answer(&[]), position).unwrap();
        counts[sampled.token as usize] += 1;
    }
    counts.iter().map(|count| f64::from(*count) / draws as f64).collect()
}

#[test]
fn tokens_come_as_often_as_their_probabilities_say() {
    let row = [1.0, f32::NEG_INFINITY, 0.3, -2.0, 2.1, 2.1, -0.4];
    let default = SamplingParams::default;
    for params in [
        SamplingParams { seed: Seed(1), ..default() },
        SamplingParams { seed: Seed(2), temperature: 0.5, ..default() },
        SamplingParams { seed: Seed(3), temperature: 3.0, top_k: 4, ..default() },
        SamplingParams { seed: Seed(4), top_p: 0.8, ..default() },
        SamplingParams { seed: Seed(5), min_p: 0.2, typical_p: 0.9, ..default() },
    ] {
        let mut expected = vec![0.0; row.len()];
        for (id, probability) in Reference::new(&row, &params).left {
            expected[id as usize] = probability;
        }
        for (token, (seen, wanted)) in frequencies(&row, &params, 40_000).iter().zip(&expected).enumerate() {
            assert!(
                (seen - wanted).abs() < 0.012,
                "token {token}: {seen} instead of {wanted} with {params:?}"
            );
        }
    }
}

#[test]
fn a_draw_from_the_whole_vocabulary_reaches_all_of_it() {
    let row: Vec<f32> = (0..5000).map(|token| if token % 1000 == 999 { 10.0 } else { -30.0 }).collect();
    let shares = frequencies(&row, &SamplingParams::default(), 4000);
    for token in [999, 1999, 2999, 3999, 4999] {
        assert!((shares[token] - 0.2).abs() < 0.025, "token {token}: {}", shares[token]);
    }
}

#[test]
fn the_same_seed_and_position_give_the_same_token_whatever_was_sampled_before() {
    let row: Vec<f32> = (0..3000).map(|token| ((token * 7919) % 997) as f32 / 100.0).collect();
    let other = vec![1.0; 5000];
    let mut busy = Sampler::new(Isa::best());
    for (index, top_p) in [1.0, 0.9].into_iter().enumerate() {
        let params =
            SamplingParams { seed: Seed(42), top_p, repetition_penalty: 1.1, ..SamplingParams::default() };
        for position in 0..100 {
            busy.sample(&mut other.clone(), &params, answer(&[1, 2, 4000]), position * 31).unwrap();
            let among_others = busy.sample(&mut row.clone(), &params, answer(&[5, 5, 9]), position).unwrap();
            assert_eq!(sample(&row, &params, &[5, 5, 9], position).unwrap(), among_others, "filter {index}");
        }
    }
}

#[test]
fn different_seeds_give_different_texts() {
    let row = vec![0.0; 1000];
    let text = |seed| -> Vec<u32> {
        let params = SamplingParams { seed: Seed(seed), ..SamplingParams::default() };
        (0..20).map(|position| sample(&row, &params, &[], position).unwrap().token).collect()
    };
    assert_ne!(text(1), text(2));
    assert_eq!(text(1), text(1));
}

#[test]
fn log_probabilities_are_those_of_the_raw_logits() {
    let row = [2.0, 1.0, 0.0, 3.0];
    let params = SamplingParams {
        logprobs: Some(2),
        logit_bias: [(2, 100.0)].into(),
        temperature: 0.1,
        repetition_penalty: 2.0,
        ..SamplingParams::default()
    };
    let sampled = sample(&row, &params, &[3, 3], 0).unwrap();
    let normaliser = row.iter().map(|logit| f64::from(*logit).exp()).sum::<f64>().ln() as f32;
    assert_eq!(sampled.token, 2);
    assert!((sampled.logprob + normaliser).abs() < 1e-6, "{}", sampled.logprob);
    let top: Vec<u32> = sampled.top.iter().map(|(token, _)| *token).collect();
    assert_eq!(top, [3, 0]);
    assert!((sampled.top[0].1 - (3.0 - normaliser)).abs() < 1e-6, "{:?}", sampled.top);
    let scored = Sampler::new(Isa::best()).score(&row, 2, 0).unwrap();
    assert_eq!((scored.token, scored.logprob.to_bits(), scored.top.len()), (2, sampled.logprob.to_bits(), 0));
}

#[test]
fn unasked_log_probabilities_are_left_out_and_too_many_are_all_there_are() {
    let row = [2.0, 1.0, f32::NEG_INFINITY];
    let none = sample(&row, &SamplingParams::greedy(), &[], 0).unwrap();
    assert_eq!(none, Sampled { token: 0, logprob: 0.0, top: Vec::new() });
    let all = SamplingParams { logprobs: Some(99), ..SamplingParams::greedy() };
    assert_eq!(sample(&row, &all, &[], 0).unwrap().top.len(), 2);
}

#[test]
fn scratch_does_not_grow_once_warm() {
    let row: Vec<f32> = (0..20_000).map(|token| ((token * 7919) % 997) as f32 / 50.0).collect();
    let filters = SamplingParams {
        typical_p: 0.9,
        top_p: 0.9,
        repetition_penalty: 1.1,
        logprobs: Some(5),
        ..SamplingParams::default()
    };
    let mut sampler = Sampler::new(Isa::best());
    let mut step = |params: &SamplingParams, position| {
        sampler.sample(&mut row.clone(), params, answer(&[3; 50]), position).unwrap();
        let (raw, stretches) = (sampler.raw.capacity(), sampler.stretches.capacity());
        (raw, stretches, sampler.candidates.capacity())
    };
    step(&filters, 0);
    let warm = step(&SamplingParams::default(), 0);
    for position in 1..20 {
        step(&filters, position);
        assert_eq!(step(&SamplingParams::default(), position), warm);
    }
}
