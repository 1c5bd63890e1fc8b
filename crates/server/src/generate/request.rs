//! What clients send, and what they get back.

use std::time::{Duration, Instant};

use ropeway_executor::{SamplingParams, Seed};
use ropeway_generation::sampling::random_seed;
use ropeway_generation::{Choice, Job, Prompt, RequestError, Sampling};
use ropeway_openai::stops::StopTexts;
use serde::Deserialize;
use serde_json::{Value, json};
use utoipa::ToSchema;

/// Default answer length.
const MAX_TOKENS: usize = 50;

/// Default temperature.
const TEMPERATURE: f32 = 0.7;

/// How texts are to be continued. Speculation settings are accepted and ignored: they change speed, not results.
#[derive(Clone, Debug, Default, Deserialize, ToSchema)]
pub struct Parameters {
    model: Option<String>,
    max_tokens: Option<usize>,
    temperature: Option<f32>,
    top_p: Option<f32>,
    top_k: Option<u32>,
    seed: Option<u64>,
    /// Cached prompts are shared only with requests of the same salt.
    cache_salt: Option<String>,
    #[schema(value_type = Option<Vec<String>>)]
    stop: Option<StopTexts>,
    /// Whether results come as they are ready.
    #[serde(default)]
    pub stream: bool,
}

impl Parameters {
    /// The model they name.
    pub fn model(&self) -> Option<&str> {
        self.model.as_deref()
    }

    /// What divides their cached prompts from others.
    pub fn cache_salt(&self) -> Option<&str> {
        self.cache_salt.as_deref()
    }

    /// The job that continues a text.
    pub fn job(&self, text: String) -> Result<Job, RequestError> {
        let sampling = Sampling::new(SamplingParams {
            temperature: self.temperature.unwrap_or(TEMPERATURE),
            top_p: self.top_p.unwrap_or(1.0),
            top_k: self.top_k.unwrap_or(0),
            seed: self.seed.map_or_else(random_seed, Seed),
            ..SamplingParams::default()
        })?;
        let max_tokens = Some(self.max_tokens.unwrap_or(MAX_TOKENS));
        let stop = self.stop.clone().unwrap_or_default().into_texts();
        Ok(Job { max_tokens, stop, ..Job::with_sampling(Prompt::Text(text), sampling) })
    }
}

/// A finished text.
pub fn result(prompt: &str, choice: &Choice, began: Instant) -> Value {
    let seconds = began.elapsed().as_secs_f64();
    let usage = &choice.finish.usage;
    json!({
        "generated_text": choice.text,
        "prompt": prompt,
        "full_text": format!("{prompt}{}", choice.text),
        "tokens_generated": usage.generated,
        "time_seconds": seconds,
        "tokens_per_second": usage.generated as f64 / seconds.max(1e-9),
        "time_to_first_token": usage.first_token.as_secs_f64(),
        "stats": {
            "prompt_tokens": usage.prompt,
            "cached_tokens": usage.cached,
            "queue_seconds": usage.queued.max(Duration::ZERO).as_secs_f64(),
            "preemptions": usage.preemptions,
        },
    })
}
