//! Prompts of different length, each alone and all together: what company costs each of them.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::statistics::median;

/// What was found.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct Trio {
    pub new_tokens: usize,
    /// In the order in which they were sent.
    pub prompts: Vec<Prompt>,
    /// The longest step while they ran together, where the engine could be watched.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub longest_step_ms: Option<f64>,
}

#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct Prompt {
    pub tokens: usize,
    pub alone_first_token_ms: f64,
    pub alone_total_ms: f64,
    pub together_first_token_ms: f64,
    pub together_total_ms: f64,
    pub first_token_ratio: f64,
    pub total_ratio: f64,
    /// The longest time between two of its tokens, together.
    pub longest_gap_ms: f64,
}

/// All measurements of one prompt, in milliseconds.
#[derive(Clone, Debug, Default)]
pub struct Runs {
    first_token: Vec<f64>,
    total: Vec<f64>,
    gap: Vec<f64>,
}

/// One answer, in seconds.
#[derive(Clone, Copy, Debug)]
pub struct Timed {
    pub first_token: f64,
    pub total: f64,
    pub longest_gap: f64,
}

impl Runs {
    pub fn add(&mut self, timed: Timed) {
        self.first_token.push(timed.first_token * 1e3);
        self.total.push(timed.total * 1e3);
        self.gap.push(timed.longest_gap * 1e3);
    }

    /// Whether nothing was measured.
    pub fn is_empty(&self) -> bool {
        self.total.is_empty()
    }
}

impl Prompt {
    /// The medians of a prompt of `tokens`.
    pub fn of(tokens: usize, alone: Runs, together: Runs) -> Prompt {
        let [alone_first, alone_total] = [median(alone.first_token), median(alone.total)];
        let [first, total] = [median(together.first_token), median(together.total)];
        Prompt {
            tokens,
            alone_first_token_ms: alone_first,
            alone_total_ms: alone_total,
            together_first_token_ms: first,
            together_total_ms: total,
            first_token_ratio: first / alone_first,
            total_ratio: total / alone_total,
            longest_gap_ms: median(together.gap),
        }
    }
}

impl fmt::Display for Trio {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "trio: {} new tokens each", self.new_tokens)?;
        if let Some(longest) = self.longest_step_ms {
            write!(f, "; longest step {longest:.0} ms")?;
        }
        writeln!(f)?;
        for prompt in &self.prompts {
            writeln!(
                f,
                "  {:>6} tokens   first {:>6.0} -> {:>6.0} ms ({:.2}x)   total {:>6.0} -> {:>6.0} ms ({:.2}x)   \
                 longest gap {:>5.0} ms",
                prompt.tokens,
                prompt.alone_first_token_ms,
                prompt.together_first_token_ms,
                prompt.first_token_ratio,
                prompt.alone_total_ms,
                prompt.together_total_ms,
                prompt.total_ratio,
                prompt.longest_gap_ms
            )?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ratio_is_of_the_medians_together_and_alone() {
        let runs = |totals: [f64; 3]| {
            let mut runs = Runs::default();
            for total in totals {
                runs.add(Timed { first_token: total / 10.0, total, longest_gap: 0.01 });
            }
            runs
        };
        let prompt = Prompt::of(85, runs([1.0, 9.0, 1.0]), runs([2.0, 2.0, 0.1]));
        assert!((prompt.total_ratio - 2.0).abs() < 1e-9 && (prompt.first_token_ratio - 2.0).abs() < 1e-9);
    }
}
