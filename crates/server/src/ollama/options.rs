//! `options`: how tokens are chosen, in Ollama's words.

use ropeway_executor::SamplingParams;
use ropeway_generation::job::seed;
use ropeway_generation::{Job, Prompt, RequestError, Sampling};
use ropeway_openai::stops::StopTexts;
use serde::Deserialize;
use utoipa::ToSchema;

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
    #[schema(value_type = Option<Vec<String>>)]
    stop: Option<StopTexts>,
    num_ctx: Option<usize>,
}

/// Ollama's own defaults, so that a client that sets nothing gets answers of the kind it is used to.
const TEMPERATURE: f32 = 0.8;
const TOP_K: u32 = 40;
const TOP_P: f32 = 0.9;
const REPEAT_LAST_N: u32 = 64;

impl Options {
    /// A job that continues `prompt` as asked. `context` is the model's.
    pub fn job(self, prompt: Prompt, context: usize) -> Result<Job, RequestError> {
        if let Some(asked) = self.num_ctx.filter(|asked| *asked > context) {
            return Err(RequestError::invalid(format!(
                "num_ctx is {asked}, but this model is served with {context} tokens; start the server with --context {asked}"
            )));
        }
        let sampling = Sampling::new(SamplingParams {
            temperature: self.temperature.unwrap_or(TEMPERATURE),
            top_k: self.top_k.map_or(TOP_K, |k| u32::try_from(k).unwrap_or(0)),
            top_p: self.top_p.unwrap_or(TOP_P),
            min_p: self.min_p.unwrap_or(0.0),
            typical_p: self.typical_p.unwrap_or(1.0),
            repetition_penalty: self.repeat_penalty.unwrap_or(1.0),
            penalty_window: Some(self.penalty_window(context)),
            presence_penalty: self.presence_penalty.unwrap_or(0.0),
            frequency_penalty: self.frequency_penalty.unwrap_or(0.0),
            seed: seed(self.seed),
            ..SamplingParams::default()
        })?;
        // -1 and -2 mean "as long as it takes" and "as long as it fits".
        let max_tokens = self.num_predict.or(self.max_tokens).and_then(|most| usize::try_from(most).ok());
        let stop = self.stop.unwrap_or_default().into_texts();
        Ok(Job { max_tokens, stop, ..Job::with_sampling(prompt, sampling) })
    }

    /// How many of the latest tokens penalties look at, the prompt's among them; -1 is the whole context.
    fn penalty_window(&self, context: usize) -> u32 {
        let all = u32::try_from(context).unwrap_or(u32::MAX);
        self.repeat_last_n.map_or(REPEAT_LAST_N, |n| u32::try_from(n).unwrap_or(all))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn penalties_look_at_the_latest_tokens_with_a_window_of_64_by_default_and_of_the_context_for_minus_1() {
        let window = |repeat_last_n| {
            let options = Options { repeat_last_n, ..Options::default() };
            let job = options.job(Prompt::Text("x".into()), 4096).unwrap();
            job.sampling.into_params().penalty_window
        };
        assert_eq!([None, Some(7), Some(0), Some(-1)].map(window), [64, 7, 0, 4096].map(Some));
    }
}
