//! `options`: how tokens are chosen, in Ollama's words.

use ropeway_executor::Seed;
use serde::Deserialize;
use utoipa::ToSchema;

use crate::error::ApiError;
use crate::generation::Job;
use crate::generation::sampling::any_seed;

/// What clients may set.
#[derive(Clone, Debug, Default, Deserialize, ToSchema)]
pub struct Options {
    num_predict: Option<i64>,
    max_tokens: Option<i64>,
    temperature: Option<f32>,
    top_k: Option<i64>,
    top_p: Option<f32>,
    min_p: Option<f32>,
    typical_p: Option<f32>,
    repeat_penalty: Option<f32>,
    repeat_last_n: Option<i64>,
    presence_penalty: Option<f32>,
    frequency_penalty: Option<f32>,
    seed: Option<i64>,
    stop: Option<Vec<String>>,
    num_ctx: Option<usize>,
}

/// Ollama's own defaults, so that a client that sets nothing gets answers of the kind it is used to.
const TEMPERATURE: f32 = 0.8;
const TOP_K: u32 = 40;
const TOP_P: f32 = 0.9;
const REPEAT_LAST_N: u32 = 64;

impl Options {
    /// Fills the job with what was asked for. `context` is the model's.
    pub fn apply(&self, job: &mut Job, context: usize) -> Result<(), ApiError> {
        if let Some(asked) = self.num_ctx.filter(|asked| *asked > context) {
            return Err(ApiError::invalid(format!(
                "num_ctx is {asked}, but this model is served with {context} tokens; start the server with --context {asked}"
            )));
        }
        let params = &mut job.params;
        params.temperature = self.temperature.unwrap_or(TEMPERATURE);
        params.top_k = self.top_k.map_or(TOP_K, |k| u32::try_from(k).unwrap_or(0));
        params.top_p = self.top_p.unwrap_or(TOP_P);
        params.min_p = self.min_p.unwrap_or(0.0);
        params.typical_p = self.typical_p.unwrap_or(1.0);
        params.repetition_penalty = self.repeat_penalty.unwrap_or(1.0);
        // -1 looks at the whole context.
        params.penalty_window = self.repeat_last_n.map_or(Some(REPEAT_LAST_N), |n| u32::try_from(n).ok());
        params.presence_penalty = self.presence_penalty.unwrap_or(0.0);
        params.frequency_penalty = self.frequency_penalty.unwrap_or(0.0);
        params.seed = self.seed.map_or_else(any_seed, |seed| Seed(seed as u64));
        job.stops = self.stop.clone().unwrap_or_default();
        // -1 and -2 mean "as long as it takes" and "as long as it fits".
        job.max_tokens = self.num_predict.or(self.max_tokens).and_then(|most| usize::try_from(most).ok());
        Ok(())
    }
}
