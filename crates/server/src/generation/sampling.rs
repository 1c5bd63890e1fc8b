//! Ranges of sampling parameters, the same for every family.

use ropeway_executor::{SamplingParams, Seed};

use crate::error::ApiError;

/// Most alternatives a log-probability may come with: what OpenAI allows.
pub const MOST_LOGPROBS: u32 = 20;

/// Turns down what would make no sense, by the name most clients know it by.
pub fn check(params: &SamplingParams) -> Result<(), ApiError> {
    let within = |value: f32, low: f32, high: f32, name: &str| {
        if (low..=high).contains(&value) {
            return Ok(());
        }
        Err(ApiError::invalid(format!("{name} is {value}, but must be from {low} to {high}")).about(name))
    };
    within(params.temperature, 0.0, 100.0, "temperature")?;
    within(params.top_p, 0.0, 1.0, "top_p")?;
    within(params.min_p, 0.0, 1.0, "min_p")?;
    within(params.typical_p, 0.0, 1.0, "typical_p")?;
    within(params.repetition_penalty, 0.01, 100.0, "repetition_penalty")?;
    within(params.presence_penalty, -2.0, 2.0, "presence_penalty")?;
    within(params.frequency_penalty, -2.0, 2.0, "frequency_penalty")?;
    if params.logprobs.is_some_and(|count| count > MOST_LOGPROBS) {
        return Err(ApiError::invalid(format!("at most {MOST_LOGPROBS} alternatives")).about("top_logprobs"));
    }
    if params.logit_bias.iter().any(|(_, bias)| !(-100.0..=100.0).contains(bias)) {
        return Err(ApiError::invalid("a bias must be from -100 to 100").about("logit_bias"));
    }
    Ok(())
}

/// A seed for a request that brought none: another one each time.
pub fn any_seed() -> Seed {
    use std::hash::{BuildHasher, RandomState};
    Seed(RandomState::new().hash_one(0))
}
