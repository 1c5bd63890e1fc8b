//! How long a step will take, learnt from the steps that were taken.
//!
//! ```text
//! seconds = a + b * silent + c * rows + d * pairs + e * reads
//!           |   |            |          |           '- attention: positions whose keys and values each chunk reads
//!           |   |            |          '- attention: tokens times the positions each of them attends to
//!           |   |            '- a token whose logits are wanted: the layers' products, vocabulary head and sampling
//!           |   '- a token of a prompt that nobody hears of: the layers' products
//!           '- reading the weights once, and everything that happens once a step
//! ```
//! The two kinds of tokens have coefficients of their own, since on a GPU the second costs more than the first: what a few streams add to a
//! step is computed while weights are read, what a prompt adds comes on top. From streams alone nobody learns what prompts cost.
//!
//! Where the executor computes whole sizes ([`StepSizes::Listed`]), both kinds of tokens count as many times as the step's size is larger than
//! the step: one of 4,126 tokens is computed, and costs, as one of 4,224. Both in proportion, so that streams alone still teach nothing
//! about prompts.
//!
//! A stream reads all its positions for one token, a prompt's chunk reads them for hundreds: only both features of
//! attention together describe the two.
//!
//! Least squares over *relative* errors, so that a 5 ms step counts as much as a 500 ms one, with slow forgetting, so
//! that a machine that gets busier is noticed. A step that took far longer than predicted is believed only in part: the
//! next ones correct the rest if it was no accident. No coefficient is ever negative: steps that are all alike would
//! else be explained by a huge one and its opposite, which agree on these steps and on no other.
//!
//! The fit keeps the sums `A = x x'` and `b = x` of the steps' features (divided by what they took, so that the model
//! should give 1), and after each step improves the coefficients one by one, each to its best value not below zero.
//! Every improvement lowers the same convex error, so that nothing can run away.
//!
//! That takes some dozens of steps. Meanwhile all coefficients are multiplied by the *drift*: how much longer the last steps
//! took than the fit says.

use std::time::Duration;

use ropeway_executor::{CostGuess, StepSizes};

/// Features of a step.
const FEATURES: usize = 5;

/// Share of the past that survives a step: a memory of some 100 steps.
const MEMORY: f64 = 0.99;

/// A step that takes longer than this many times the prediction counts as taking that long.
const SURPRISE: f64 = 3.0;

/// Steps in the beginning that are believed whatever they say.
const BEGINNING: u32 = 10;

/// How strongly a coefficient stays where it is, as a share of the say of a step that it explains alone: what no step has
/// shown for long is kept.
const INERTIA: f64 = 0.001;

/// Share of the latest step in the machine's slowness.
const SLOWNESS: f64 = 0.2;

/// Rounds of improvement per step: features that go together, as tokens and steps of the same size do, are told apart
/// slowly. The next step goes on from there.
const ROUNDS: usize = 40;

/// Share of the latest step in the drift: the last ten steps or so.
const DRIFT: f64 = 0.125;

/// Most that a single step moves the drift by, as a ratio of measured to predicted time.
const MOST_DRIFT: f64 = 2.0;

/// Per feature, what makes it about 1 in a usual step; keeps the arithmetic well conditioned.
const SCALE: [f64; FEATURES] = [1.0, 64.0, 16.0, 65_536.0, 4096.0];

/// Least share of the first guess: no work takes no time.
const LEAST: f64 = 1e-3;

/// What a step has to compute.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Work {
    /// Tokens of all chunks.
    pub tokens: usize,
    /// Rows of logits.
    pub rows: usize,
    /// For every token, the positions it attends to, added up.
    pub pairs: u64,
    /// For every chunk, the positions it reads, added up.
    pub reads: u64,
}

impl Work {
    /// A chunk of `tokens` after `start` others, with `rows` rows of logits.
    pub fn chunk(start: usize, tokens: usize, rows: usize) -> Self {
        let (start, n) = (start as u64, tokens as u64);
        Self { tokens, rows, pairs: n * start + n * (n + 1) / 2, reads: start + n }
    }

    /// Both together.
    pub fn and(self, other: Self) -> Self {
        Self {
            tokens: self.tokens + other.tokens,
            rows: self.rows + other.rows,
            pairs: self.pairs + other.pairs,
            reads: self.reads + other.reads,
        }
    }

    /// The first without the second, which was part of it.
    pub fn without(self, other: Self) -> Self {
        Self {
            tokens: self.tokens - other.tokens,
            rows: self.rows - other.rows,
            pairs: self.pairs - other.pairs,
            reads: self.reads - other.reads,
        }
    }

    /// Tokens without logits; below zero where tokens have several rows, of which each but the first costs no token.
    fn silent(self) -> f64 {
        self.tokens as f64 - self.rows as f64
    }

    /// Its features, if the products are computed for so many tokens per token.
    fn features(self, computed: f64) -> [f64; FEATURES] {
        let (silent, rows) = (computed * self.silent(), computed * self.rows as f64);
        let raw = [1.0, silent, rows, self.pairs as f64, self.reads as f64];
        std::array::from_fn(|i| raw[i] / SCALE[i])
    }
}

/// The fitted coefficients, and the steps they are fitted to.
#[derive(Clone, Debug)]
pub struct CostModel {
    /// Seconds per scaled feature.
    seconds: [f64; FEATURES],
    /// The same before anything was measured.
    guess: [f64; FEATURES],
    /// `x x'` of all steps, the older the less.
    products: [[f64; FEATURES]; FEATURES],
    /// `x` of all steps, the older the less.
    sums: [f64; FEATURES],
    /// Logarithm of how much longer the latest steps took than the fit says.
    drift: f64,
    /// Logarithm of how much longer steps take than the first guess says.
    slowness: f64,
    observed: u32,
    /// Numbers of tokens that products are computed for.
    sizes: StepSizes,
}

impl From<CostGuess> for CostModel {
    fn from(guess: CostGuess) -> Self {
        Self::known(guess.coefficients())
    }
}

impl Default for CostModel {
    fn default() -> Self {
        CostGuess::SMALL_CPU.into()
    }
}

impl CostModel {
    /// A model with known coefficients: seconds per step, per token, per row on top of its token, per pair and per read position.
    pub fn known(coefficients: [f64; FEATURES]) -> Self {
        let coefficients = whole_rows(coefficients);
        let seconds = std::array::from_fn(|i| coefficients[i] * SCALE[i]);
        // What costs nothing as far as is known may turn out to cost something.
        let small = whole_rows(CostGuess::SMALL_CPU.coefficients());
        let guess = std::array::from_fn(|i| seconds[i].max(LEAST * small[i] * SCALE[i]));
        Self {
            seconds,
            guess,
            products: [[0.0; FEATURES]; FEATURES],
            sums: [0.0; FEATURES],
            drift: 0.0,
            slowness: 0.0,
            observed: 0,
            sizes: StepSizes::Multiples(1),
        }
    }

    /// The same for an executor that computes these sizes.
    pub fn with_sizes(self, sizes: StepSizes) -> Self {
        Self { sizes, ..self }
    }

    /// Its coefficients, as [`CostModel::known`] takes them. A row's own share is negative where streams cost less than prompts.
    pub fn coefficients(&self) -> [f64; FEATURES] {
        let [step, token, row, pair, read] = self.by_feature();
        [step, token, row - token, pair, read]
    }

    fn by_feature(&self) -> [f64; FEATURES] {
        std::array::from_fn(|i| self.coefficient(i))
    }

    /// Seconds that the step should take.
    pub fn predict(&self, work: Work) -> f64 {
        self.coefficient(0) + self.computed(work) * self.products(work) + self.attention(work)
    }

    /// Seconds that the step should take without what is computed beyond its tokens.
    pub fn predict_filled(&self, work: Work) -> f64 {
        self.coefficient(0) + self.marginal(work)
    }

    /// Seconds that the work adds to a step that takes place anyway, on average over the sizes of steps.
    pub fn marginal(&self, work: Work) -> f64 {
        self.products(work) + self.attention(work)
    }

    fn products(&self, work: Work) -> f64 {
        let [_, token, row, ..] = self.by_feature();
        (token * work.silent() + row * work.rows as f64).max(0.0)
    }

    /// Seconds of the work that do not depend on the size of its step.
    pub fn attention(&self, work: Work) -> f64 {
        let [.., pair, read] = self.by_feature();
        pair * work.pairs as f64 + read * work.reads as f64
    }

    /// Tokens that products are computed for, per token of the step.
    fn computed(&self, work: Work) -> f64 {
        self.sizes.computed(work.tokens) as f64 / work.tokens.max(1) as f64
    }

    /// Seconds that so many tokens cost more because their logits are wanted.
    pub fn logits(&self, rows: usize) -> f64 {
        let [_, token, row, ..] = self.by_feature();
        (row - token).max(0.0) * rows as f64
    }

    /// Seconds that `tokens` after `start` others take by themselves, in steps of `step_tokens`.
    pub fn alone(&self, start: usize, tokens: usize, step_tokens: usize) -> f64 {
        let steps = tokens.div_ceil(step_tokens.max(1)) as f64;
        // Every step but the last reads on its own what is there after it.
        let again = (steps - 1.0).max(0.0) * (start as f64 + step_tokens as f64 * steps / 2.0);
        let [step, .., read] = self.by_feature();
        steps * step + read * again + self.marginal(Work::chunk(start, tokens, 0))
    }

    /// Seconds of the shortest step that computes a prompt after `start` tokens at `share` of the speed of steps of
    /// `full` tokens.
    ///
    /// A chunk of `n` tokens costs `overhead + n * token`; solves `overhead / n + token = (overhead / full + token) / share`.
    /// The overhead is at least what the first guess says: chunks that are all alike do not show it, and a fit that puts it
    /// down to their tokens would keep them small.
    pub fn efficient(&self, start: usize, full: usize, share: f64) -> f64 {
        let [step, token, _, pair, read] = self.by_feature();
        let [guessed_step, .., guessed_read] = self.guessed();
        let overhead = step.max(guessed_step) + read.max(guessed_read) * start as f64;
        let token = token + pair * start as f64 + read;
        let spare = (overhead / full as f64 + token) / share - token;
        overhead + (overhead / spare).min(full as f64) * token
    }

    /// The longest chunk after `start` others that adds no more than `seconds`, if each of its tokens asks for
    /// `rows_each` rows.
    ///
    /// Solves `d/2 n^2 + (t + d start + d/2 + e) n = seconds - e start` with `t` for what a token costs, `b` or `c rows_each`.
    pub fn tokens_within(&self, seconds: f64, start: usize, rows_each: usize) -> usize {
        let [_, token, row, pair, read] = self.by_feature();
        let left = (seconds - read * start as f64).max(0.0);
        let token = if rows_each == 0 { token } else { row * rows_each as f64 };
        let linear = token + pair * (start as f64 + 0.5) + read;
        let root = (linear * linear + 2.0 * pair * left).sqrt();
        // The stable form of the quadratic's positive root; also right when `pair` is 0.
        (2.0 * left / (linear + root)) as usize
    }

    /// Learns from a measured step.
    pub fn observe(&mut self, work: Work, measured: Duration) {
        let fitted = self.predict(work) / self.drift.exp();
        let ratio = measured.as_secs_f64().max(1e-6) / fitted;
        let most = if self.observed < BEGINNING { f64::MAX } else { SURPRISE * fitted };
        let measured = measured.as_secs_f64().min(most).max(1e-6);
        let x = work.features(self.computed(work)).map(|feature| feature / measured);
        for i in 0..FEATURES {
            self.sums[i] = MEMORY * self.sums[i] + x[i];
            for j in 0..FEATURES {
                self.products[i][j] = MEMORY * self.products[i][j] + x[i] * x[j];
            }
        }
        self.observe_slowness(work, measured);
        self.observed = self.observed.saturating_add(1);
        self.improve();
        let news = ratio.clamp(1.0 / MOST_DRIFT, MOST_DRIFT).ln();
        self.drift = if self.observed < BEGINNING { 0.0 } else { self.drift + DRIFT * (news - self.drift) };
    }

    fn observe_slowness(&mut self, work: Work, measured: f64) {
        let news = (measured / dot(&work.features(self.computed(work)), &self.guess)).ln();
        let share = if self.observed == 0 { 1.0 } else { SLOWNESS };
        self.slowness += share * (news - self.slowness);
    }

    fn improve(&mut self) {
        let before = self.seconds;
        let typical = self.guess.map(|guess| guess * self.slowness.exp());
        for _ in 0..ROUNDS {
            for i in 0..FEATURES {
                let stay = INERTIA / (typical[i] * typical[i]);
                let others = dot(&self.products[i], &self.seconds) - self.products[i][i] * self.seconds[i];
                let best = (self.sums[i] - others + stay * before[i]) / (self.products[i][i] + stay);
                self.seconds[i] = best.max(LEAST * self.guess[i]);
            }
        }
    }

    /// The first guess at the coefficients, on a machine as slow as this one turned out to be.
    fn guessed(&self) -> [f64; FEATURES] {
        std::array::from_fn(|i| self.guess[i] / SCALE[i] * self.slowness.exp())
    }

    fn coefficient(&self, i: usize) -> f64 {
        self.seconds[i] / SCALE[i] * self.drift.exp()
    }
}

/// Coefficients whose rows come on top of tokens as ones whose rows have their tokens in them.
fn whole_rows([step, token, row, pair, read]: [f64; FEATURES]) -> [f64; FEATURES] {
    [step, token, token + row, pair, read]
}

fn dot(a: &[f64; FEATURES], b: &[f64; FEATURES]) -> f64 {
    (0..FEATURES).map(|i| a[i] * b[i]).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seconds(value: f64) -> Duration {
        Duration::from_secs_f64(value)
    }

    /// Steps as they come: decodes of several widths, prompts of several lengths.
    fn mixed(i: usize) -> Work {
        let context = (i % 30 * 150) as u64;
        let decodes = Work { tokens: i % 30, rows: i % 30, pairs: context, reads: context };
        decodes.and(Work::chunk(i * 37 % 3000, 1 + i * 53 % 300, i % 2))
    }

    #[test]
    fn it_learns_any_machine_from_mixed_steps() {
        for truth in [
            CostModel::known([0.006, 7e-4, 2e-4, 3e-7, 2e-6]),
            CostModel::known([0.02, 2e-5, 1e-5, 1e-9, 2e-6]),
        ] {
            let mut model = CostModel::default();
            for i in 0..200 {
                model.observe(mixed(i), seconds(truth.predict(mixed(i))));
            }
            for i in 1000..1050 {
                let (got, want) = (model.predict(mixed(i)), truth.predict(mixed(i)));
                assert!((got / want - 1.0).abs() < 0.05, "{got} instead of {want}");
            }
        }
    }

    #[test]
    fn it_follows_a_machine_that_gets_twice_as_slow() {
        let truth = CostModel::known([0.006, 7e-4, 2e-4, 3e-7, 2e-6]);
        let mut model = CostModel::default();
        for i in 0..600 {
            let slower = if i < 200 { 1.0 } else { 2.0 };
            model.observe(mixed(i), seconds(slower * truth.predict(mixed(i))));
        }
        let ratio = model.predict(mixed(7)) / truth.predict(mixed(7));
        assert!((1.8..2.2).contains(&ratio), "{ratio}");
    }

    #[test]
    fn it_is_as_right_after_a_million_steps_as_after_a_hundred() {
        let truth = CostModel::known([0.005, 6e-4, 8e-4, 3.6e-7, 2e-6]);
        let mut model = CostModel::default();
        for i in 0..1_000_000_usize {
            // Hours of mixed steps, then hours of the same few streams with a prompt now and then.
            let few = i >= 500_000 && i % 5000 < 4900;
            let work = if few { Work { tokens: 4, rows: 4, pairs: 800, reads: 800 } } else { mixed(i % 97) };
            model.observe(work, seconds(truth.predict(work)));
            let ratio = model.predict(work) / truth.predict(work);
            assert!(i < 200 || (0.9..1.1).contains(&ratio), "step {i}: {ratio}");
        }
    }

    #[test]
    fn steps_that_are_all_alike_do_not_lead_it_astray() {
        let truth = CostModel::known([0.005, 9e-4, 8e-4, 3.6e-7, 2e-6]);
        let mut model = CostModel::default();
        let mut noise = 1_u64;
        for i in 0..3000 {
            noise = noise.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let busy = 1.0 + (noise >> 40) as f64 / f64::from(1 << 24);
            // One stream beside a prompt that gets the rest of a tile, again and again.
            let stream = Work::chunk(100 + i, 1, 1);
            let work = stream.and(Work::chunk(5 * (i % 1500), 5, 0));
            model.observe(work, seconds(busy * truth.predict(work)));
            for work in [stream, work, Work::chunk(2000, 100, 0)] {
                let ratio = model.predict(work) / truth.predict(work);
                assert!(i < 100 || (0.3..5.0).contains(&ratio), "step {i}: {ratio}");
            }
        }
    }

    #[test]
    fn streams_that_cost_less_than_prompts_do_not_change_what_prompts_cost() {
        // A GPU: 21 us for a token of a prompt, 14 us for a stream.
        let cost = |work: Work| {
            let streams = work.rows as f64;
            seconds(4.6e-3 + 21e-6 * (work.tokens as f64 - streams) + 14e-6 * streams)
        };
        let mut model = CostModel::known([4.6e-3, 2e-5, 0.0, 1e-9, 4e-8]);
        let prompt = Work { tokens: 8192, ..Work::default() };
        for _ in 0..4 {
            model.observe(prompt, cost(prompt));
        }
        for streams in (0..3000).map(|step| [1, 64, 256][step / 1000]) {
            let work = Work { tokens: streams, rows: streams, pairs: 0, reads: 0 };
            model.observe(work, cost(work));
        }
        let ratio = model.predict(prompt) / cost(prompt).as_secs_f64();
        assert!((0.9..1.1).contains(&ratio), "{ratio}");
    }

    #[test]
    fn sizes_that_streams_leave_half_empty_do_not_change_what_prompts_cost() {
        let sizes = StepSizes::Listed(&[1, 64, 128, 256, 4096, 8192]);
        let truth = CostModel::known([4.6e-3, 21e-6, -7e-6, 1e-9, 4e-8]).with_sizes(sizes);
        let mut model = CostModel::known([4e-3, 2e-5, 0.0, 1e-9, 4e-8]).with_sizes(sizes);
        let prompt = Work::chunk(0, 3000, 1);
        for _ in 0..4 {
            model.observe(prompt, seconds(truth.predict(prompt)));
        }
        for streams in (0..2000).map(|step| 256 - step % 256) {
            let work = Work { tokens: streams, rows: streams, pairs: 0, reads: 0 };
            model.observe(work, seconds(truth.predict(work)));
        }
        for work in [prompt, Work::chunk(0, 4097, 1)] {
            let ratio = model.predict(work) / truth.predict(work);
            assert!((0.95..1.05).contains(&ratio), "{ratio}");
        }
    }

    #[test]
    fn a_step_costs_as_much_as_its_size_computes() {
        let model =
            CostModel::known([0.01, 1e-5, 0.0, 0.0, 0.0]).with_sizes(StepSizes::Listed(&[8, 4096, 4608]));
        let predict = |tokens| model.predict(Work::chunk(0, tokens, 0));
        assert!((predict(4097) - predict(4608)).abs() < 1e-12 && predict(4096) < predict(4097));
        assert!((predict(0) - 0.01).abs() < 1e-12);
        let filled = model.predict_filled(Work::chunk(0, 4097, 0));
        assert!((filled - 0.01 - 4097e-5).abs() < 1e-12, "{filled}");
    }

    #[test]
    fn one_freak_step_changes_little() {
        let truth = CostModel::known([0.006, 7e-4, 2e-4, 3e-7, 2e-6]);
        let mut model = truth.clone();
        for i in 0..200 {
            model.observe(mixed(i), seconds(truth.predict(mixed(i))));
        }
        model.observe(mixed(3), seconds(10.0));
        let ratio = model.predict(mixed(5)) / truth.predict(mixed(5));
        assert!((0.9..1.2).contains(&ratio), "{ratio}");
    }

    #[test]
    fn chunks_that_are_all_alike_do_not_make_small_ones_look_as_fast_as_large_ones() {
        let truth = CostModel::known([0.005, 9e-4, 2e-4, 3e-7, 5e-6]);
        let mut model = truth.clone();
        for i in 0..500 {
            // Takes as long as if nothing but tokens and pairs cost time.
            let work = Work::chunk(200 * (i % 40), 200, 0);
            let tokens = 200.0 * (9e-4 + 3e-7 * (200 * (i % 40)) as f64);
            model.observe(work, seconds(1.05 * tokens));
        }
        let long = |model: &CostModel| model.efficient(8000, 512, 0.98);
        assert!(long(&model) > 0.9 * long(&truth), "{} against {}", long(&model), long(&truth));
    }

    #[test]
    fn the_longest_chunk_within_a_time_takes_that_time() {
        let model = CostModel::known([0.006, 7e-4, 2e-4, 3e-7, 2e-6]);
        for start in [0, 100, 7000] {
            for budget in [0.0, 0.001, 0.05, 1.0] {
                for rows_each in [0, 1] {
                    let tokens = model.tokens_within(budget, start, rows_each);
                    let chunk = |tokens| model.marginal(Work::chunk(start, tokens, rows_each * tokens));
                    assert!(tokens == 0 || chunk(tokens) <= budget + 1e-9);
                    assert!(chunk(tokens + 1) >= budget);
                }
            }
        }
    }
}
