//! How long a step will take, learnt from the steps that were taken.
//!
//! ```text
//! seconds = a + b * tokens + c * rows + d * pairs
//!           |   |            |          '- attention: tokens times the positions each of them looks at
//!           |   |            '- vocabulary head and sampling, per row of logits
//!           |   '- the layers' products, per token
//!           '- reading the weights once, and everything that happens once a step
//! ```
//! Recursive least squares over *relative* errors, so that a 5 ms step counts as much as a 500 ms one, with slow
//! forgetting, so that a machine that gets busier is noticed. A measurement far from the prediction is believed only
//! in part: the next ones correct the rest if it was no accident.

use std::time::Duration;

/// Share of the past that survives a step: a memory of some 100 steps.
const MEMORY: f64 = 0.99;

/// Beyond this factor a measurement counts as that factor.
const SURPRISE: f64 = 3.0;

/// How sure the first coefficients are (variance, in units of their own scale): not at all.
const DOUBT: f64 = 100.0;

/// Per feature, what makes it about 1 in a usual step; keeps the arithmetic well conditioned.
const SCALE: [f64; 4] = [1.0, 64.0, 16.0, 65_536.0];

/// Seconds per scaled feature before anything was measured: a small model on two cores.
const FIRST_GUESS: [f64; 4] = [0.005, 0.064, 0.005, 0.02];

/// What a step has to compute.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Work {
    /// Tokens of all chunks.
    pub tokens: usize,
    /// Rows of logits.
    pub rows: usize,
    /// For every token, the positions it looks at, added up.
    pub pairs: u64,
}

impl Work {
    /// A chunk of `tokens` after `start` others, with `rows` rows of logits.
    pub fn chunk(start: usize, tokens: usize, rows: usize) -> Self {
        let (start, n) = (start as u64, tokens as u64);
        Self { tokens, rows, pairs: n * start + n * (n + 1) / 2 }
    }

    /// Both together.
    pub fn and(self, other: Self) -> Self {
        Self {
            tokens: self.tokens + other.tokens,
            rows: self.rows + other.rows,
            pairs: self.pairs + other.pairs,
        }
    }

    /// The first without the second, which was part of it.
    pub fn without(self, other: Self) -> Self {
        Self {
            tokens: self.tokens - other.tokens,
            rows: self.rows - other.rows,
            pairs: self.pairs - other.pairs,
        }
    }

    fn features(self) -> [f64; 4] {
        let raw = [1.0, self.tokens as f64, self.rows as f64, self.pairs as f64];
        std::array::from_fn(|i| raw[i] / SCALE[i])
    }
}

/// The fitted coefficients, and how sure they are.
#[derive(Clone, Debug)]
pub struct CostModel {
    seconds: [f64; 4],
    covariance: [[f64; 4]; 4],
}

impl Default for CostModel {
    fn default() -> Self {
        Self::new(FIRST_GUESS)
    }
}

impl CostModel {
    fn new(seconds: [f64; 4]) -> Self {
        Self { seconds, covariance: doubtful() }
    }

    /// A model with known coefficients: seconds per step, per token, per row and per pair.
    pub fn known(step: f64, token: f64, row: f64, pair: f64) -> Self {
        Self::new([step * SCALE[0], token * SCALE[1], row * SCALE[2], pair * SCALE[3]])
    }

    /// Its coefficients: seconds per step, per token, per row and per pair.
    pub fn coefficients(&self) -> [f64; 4] {
        std::array::from_fn(|i| self.coefficient(i))
    }

    /// Seconds that the step should take.
    pub fn predict(&self, work: Work) -> f64 {
        self.coefficient(0) + self.marginal(work)
    }

    /// Seconds that the work adds to a step that takes place anyway.
    pub fn marginal(&self, work: Work) -> f64 {
        let [_, token, row, pair] = self.coefficients();
        token * work.tokens as f64 + row * work.rows as f64 + pair * work.pairs as f64
    }

    /// Seconds that `tokens` after `start` others take by themselves, in steps of `step_tokens`.
    pub fn alone(&self, start: usize, tokens: usize, step_tokens: usize) -> f64 {
        let steps = tokens.div_ceil(step_tokens.max(1)) as f64;
        steps * self.coefficient(0) + self.marginal(Work::chunk(start, tokens, 0))
    }

    /// The longest chunk after `start` others that adds no more than `seconds`, if each of its tokens asks for
    /// `rows_each` rows.
    ///
    /// Solves `d/2 n^2 + (b + c rows_each + d start + d/2) n = seconds`.
    pub fn tokens_within(&self, seconds: f64, start: usize, rows_each: usize) -> usize {
        let [_, token, row, pair] = self.coefficients();
        let linear = token + row * rows_each as f64 + pair * (start as f64 + 0.5);
        let root = (linear * linear + 2.0 * pair * seconds.max(0.0)).sqrt();
        // The stable form of the quadratic's positive root; also right when `pair` is 0.
        (2.0 * seconds.max(0.0) / (linear + root)) as usize
    }

    /// Learns from a measured step.
    pub fn observe(&mut self, work: Work, measured: Duration) {
        let predicted = self.predict(work);
        let measured = measured.as_secs_f64().max(1e-6).clamp(predicted / SURPRISE, predicted * SURPRISE);
        // Dividing by the target makes errors relative: the model should give 1.
        let x: [f64; 4] = work.features().map(|feature| feature / measured);
        let px: [f64; 4] = self.covariance.map(|row| dot(&row, &x));
        let spread = dot(&x, &px);
        if !(0.0..1e12).contains(&spread) {
            // Rounding has worn the covariance out: it says something impossible about this step. Learn anew.
            self.covariance = doubtful();
            return;
        }
        let gain = 1.0 / (MEMORY + spread);
        let error = 1.0 - dot(&self.seconds, &x);
        for i in 0..4 {
            self.seconds[i] += gain * px[i] * error;
            // Only one half is computed: were the halves to differ by a rounding error, forgetting would let that
            // grow without end.
            for j in 0..=i {
                self.covariance[i][j] -= gain * px[i] * px[j];
                self.covariance[j][i] = self.covariance[i][j];
            }
        }
        self.forget();
    }

    /// Lets old steps count less, but never grows less sure of a coefficient than at the start: what no step has
    /// shown for long stays as it was.
    fn forget(&mut self) {
        let largest = (0..4).map(|i| self.covariance[i][i]).fold(0.0, f64::max);
        if largest / MEMORY <= DOUBT {
            self.covariance = self.covariance.map(|row| row.map(|value| value / MEMORY));
        }
    }

    /// Work never takes negative time, whatever a fit over similar steps says.
    fn coefficient(&self, i: usize) -> f64 {
        (self.seconds[i] / SCALE[i]).max(1e-3 * FIRST_GUESS[i] / SCALE[i])
    }
}

fn doubtful() -> [[f64; 4]; 4] {
    std::array::from_fn(|i| std::array::from_fn(|j| if i == j { DOUBT } else { 0.0 }))
}

fn dot(a: &[f64; 4], b: &[f64; 4]) -> f64 {
    (0..4).map(|i| a[i] * b[i]).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seconds(value: f64) -> Duration {
        Duration::from_secs_f64(value)
    }

    /// Steps as they come: decodes of several widths, prompts of several lengths.
    fn mixed(i: usize) -> Work {
        let decodes = Work { tokens: i % 30, rows: i % 30, pairs: (i % 30 * 150) as u64 };
        decodes.and(Work::chunk(i * 37 % 3000, 1 + i * 53 % 300, i % 2))
    }

    #[test]
    fn it_learns_any_machine_from_mixed_steps() {
        for truth in [CostModel::known(0.006, 7e-4, 2e-4, 3e-7), CostModel::known(0.02, 2e-5, 1e-5, 1e-9)] {
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
        let truth = CostModel::known(0.006, 7e-4, 2e-4, 3e-7);
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
        let truth = CostModel::known(0.005, 6e-4, 8e-4, 3.6e-7);
        let mut model = CostModel::default();
        for i in 0..1_000_000_usize {
            // Hours of mixed steps, then hours of the same few streams with a prompt now and then.
            let few = i >= 500_000 && i % 5000 < 4900;
            let work = if few { Work { tokens: 4, rows: 4, pairs: 800 } } else { mixed(i % 97) };
            model.observe(work, seconds(truth.predict(work)));
            let ratio = model.predict(work) / truth.predict(work);
            assert!(i < 200 || (0.9..1.1).contains(&ratio), "step {i}: {ratio}");
        }
    }

    #[test]
    fn one_freak_step_changes_little() {
        let truth = CostModel::known(0.006, 7e-4, 2e-4, 3e-7);
        let mut model = truth.clone();
        for i in 0..200 {
            model.observe(mixed(i), seconds(truth.predict(mixed(i))));
        }
        model.observe(mixed(3), seconds(10.0));
        let ratio = model.predict(mixed(5)) / truth.predict(mixed(5));
        assert!((0.9..1.2).contains(&ratio), "{ratio}");
    }

    #[test]
    fn the_longest_chunk_within_a_time_takes_that_time() {
        let model = CostModel::known(0.006, 7e-4, 2e-4, 3e-7);
        for start in [0, 100, 7000] {
            for budget in [0.0, 0.001, 0.05, 1.0] {
                for rows_each in [0, 1] {
                    let tokens = model.tokens_within(budget, start, rows_each);
                    let chunk = |tokens| model.marginal(Work::chunk(start, tokens, rows_each * tokens));
                    assert!(chunk(tokens) <= budget + 1e-9);
                    assert!(chunk(tokens + 1) >= budget);
                }
            }
        }
    }
}
