//! Sampling parameters whose ranges were checked: the same ranges for every caller.

use std::hash::{BuildHasher, RandomState};
use std::ops::RangeInclusive;

use ropeway_executor::{SamplingParams, Seed};

use crate::error::RequestError;

/// Divisor of the logits; 0 is greedy. Beyond a few units every token is as likely as any other.
pub const TEMPERATURE: RangeInclusive<f32> = 0.0..=100.0;

/// A share of the probability mass: `top_p`, `min_p`, `typical_p`.
pub const PROBABILITY: RangeInclusive<f32> = 0.0..=1.0;

/// Factor on the logits of tokens that were there before; 1 is off.
pub const REPETITION_PENALTY: RangeInclusive<f32> = 0.01..=100.0;

/// Subtrahend of presence and frequency penalties, as in OpenAI's API; 0 is off.
pub const PENALTY: RangeInclusive<f32> = -2.0..=2.0;

/// Addend of a logit bias, as in OpenAI's API.
pub const LOGIT_BIAS: RangeInclusive<f32> = -100.0..=100.0;

/// Most alternatives that a log-probability comes with, as in OpenAI's API.
pub const MOST_LOGPROBS: u32 = 20;

/// Sampling parameters within their ranges.
#[derive(Clone, Debug, PartialEq)]
pub struct Sampling(SamplingParams);

impl Sampling {
    /// Checks every range. An error names the parameter as most clients know it.
    pub fn new(params: SamplingParams) -> Result<Self, RequestError> {
        for (field, value, range) in [
            ("temperature", params.temperature, TEMPERATURE),
            ("top_p", params.top_p, PROBABILITY),
            ("min_p", params.min_p, PROBABILITY),
            ("typical_p", params.typical_p, PROBABILITY),
            ("repetition_penalty", params.repetition_penalty, REPETITION_PENALTY),
            ("presence_penalty", params.presence_penalty, PENALTY),
            ("frequency_penalty", params.frequency_penalty, PENALTY),
        ] {
            if !range.contains(&value) {
                let (low, high) = range.into_inner();
                let message = format!("{field} is {value}, but must be from {low} to {high}");
                return Err(RequestError::invalid(message).at(field));
            }
        }
        if params.logprobs.is_some_and(|count| count > MOST_LOGPROBS) {
            let message = format!("at most {MOST_LOGPROBS} alternatives");
            return Err(RequestError::invalid(message).at("top_logprobs"));
        }
        if params.logit_bias.iter().any(|(_, bias)| !LOGIT_BIAS.contains(bias)) {
            return Err(RequestError::invalid("a bias must be from -100 to 100").at("logit_bias"));
        }
        Ok(Self(params))
    }

    /// The parameters themselves.
    pub fn params(&self) -> &SamplingParams {
        &self.0
    }

    /// The parameters as the executor takes them.
    pub fn into_params(self) -> SamplingParams {
        self.0
    }
}

/// A seed for a request that brought none: another one each time.
pub fn random_seed() -> Seed {
    // The standard library's hash keys come from the system's random numbers.
    Seed(RandomState::new().hash_one(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_outside_their_range_are_refused_by_name() {
        let plain = SamplingParams::default;
        for (params, field) in [
            (SamplingParams { temperature: -1.0, ..plain() }, "temperature"),
            (SamplingParams { temperature: f32::NAN, ..plain() }, "temperature"),
            (SamplingParams { top_p: 1.5, ..plain() }, "top_p"),
            (SamplingParams { min_p: -0.1, ..plain() }, "min_p"),
            (SamplingParams { typical_p: 2.0, ..plain() }, "typical_p"),
            (SamplingParams { repetition_penalty: 0.0, ..plain() }, "repetition_penalty"),
            (SamplingParams { presence_penalty: 3.0, ..plain() }, "presence_penalty"),
            (SamplingParams { frequency_penalty: -3.0, ..plain() }, "frequency_penalty"),
            (SamplingParams { logprobs: Some(21), ..plain() }, "top_logprobs"),
            (SamplingParams { logit_bias: [(1, 101.0)].into(), ..plain() }, "logit_bias"),
        ] {
            let error = Sampling::new(params).expect_err(field);
            assert_eq!(error.field.as_deref(), Some(field));
        }
        assert!(Sampling::new(plain()).is_ok());
    }
}
