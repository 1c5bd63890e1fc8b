//! What a run came to.

use std::time::Duration;

/// What a generated token counts in prompt tokens, as fairness between clients counts it.
const GENERATED: f64 = 2.0;

/// What one request experienced.
#[derive(Clone, Debug, Default)]
pub struct RequestOutcome {
    /// When it came.
    pub arrived: Option<Duration>,
    /// When the engine got it: at the end of the step during which it came.
    pub submitted: Option<Duration>,
    /// When its first token came.
    pub first: Option<Duration>,
    /// When the latest token of its first sequence came.
    pub last: Option<Duration>,
    /// When its last sequence finished.
    pub finished: Option<Duration>,
    /// Times between the tokens of its first sequence, in seconds, with the moment of the later one.
    pub gaps: Vec<(Duration, f64)>,
    /// Most preemptions of one of its sequences.
    pub preemptions: u32,
    /// Prompt tokens computed for it, not counting those computed again.
    pub prefilled: usize,
    /// Tokens generated.
    pub generated: usize,
    /// Steps before it was submitted.
    pub steps_before: usize,
    /// Steps from its submission to its first token.
    pub steps_to_first: usize,
}

impl RequestOutcome {
    /// Seconds from its arrival to its first token, if it had one.
    pub fn first_token(&self) -> Option<f64> {
        Some(self.first?.saturating_sub(self.arrived?).as_secs_f64())
    }

    /// Seconds from its arrival to its end, if it ended.
    pub fn total(&self) -> Option<f64> {
        Some(self.finished?.saturating_sub(self.arrived?).as_secs_f64())
    }

    /// Tokens received, as fairness between clients counts them.
    pub fn received(&self) -> f64 {
        self.prefilled as f64 + GENERATED * self.generated as f64
    }
}

/// One step.
#[derive(Clone, Copy, Debug)]
pub struct StepOutcome {
    /// When it began.
    pub at: Duration,
    /// Seconds it took.
    pub took: f64,
    /// Tokens of streams in it.
    pub streams: usize,
    /// Tokens of prompts in it.
    pub prefill: usize,
}

/// What a run came to.
#[derive(Clone, Debug, Default)]
pub struct RunReport {
    /// Per request of the scenario.
    pub outcomes: Vec<RequestOutcome>,
    /// All steps, in their order.
    pub steps: Vec<StepOutcome>,
    /// Seconds by which steps exceeded their cost.
    pub stalled: f64,
    /// When the run ended.
    pub ended: Duration,
}

/// The value that a share of `share` of `values` does not exceed; 0 if there are none.
pub fn quantile(values: &[f64], share: f64) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_unstable_by(f64::total_cmp);
    let place = (share * sorted.len() as f64).ceil() as usize;
    sorted.get(place.saturating_sub(1)).copied().unwrap_or(0.0)
}
