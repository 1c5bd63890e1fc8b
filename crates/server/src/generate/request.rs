//! What clients send, and what they get back.

use std::sync::Arc;
use std::time::{Duration, Instant};

use ropeway_executor::Seed;
use serde::Deserialize;
use serde_json::{Value, json};
use utoipa::ToSchema;

use crate::error::ApiError;
use crate::generation::sampling::any_seed;
use crate::generation::{Answer, Caller, Job, Whole};
use crate::model::Model;

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
    stop: Option<Vec<String>>,
    /// Whether results come as they are ready.
    #[serde(default)]
    pub stream: bool,
}

impl Parameters {
    /// The model they name.
    pub fn model(&self) -> Option<&str> {
        self.model.as_deref()
    }

    /// Begins to continue a text.
    pub fn answer(&self, model: &Arc<Model>, prompt: Vec<u32>, caller: Caller) -> Result<Answer, ApiError> {
        let mut job = Job { continues: true, ..Job::new(prompt, caller) };
        job.max_tokens = Some(self.max_tokens.unwrap_or(MAX_TOKENS));
        job.params.temperature = self.temperature.unwrap_or(TEMPERATURE);
        job.params.top_p = self.top_p.unwrap_or(1.0);
        job.params.top_k = self.top_k.unwrap_or(0);
        job.params.seed = self.seed.map_or_else(any_seed, Seed);
        job.stops = self.stop.clone().unwrap_or_default();
        job.submit(model)
    }
}

/// A finished text.
pub fn result(prompt: &str, whole: &Whole, began: Instant) -> Value {
    let seconds = began.elapsed().as_secs_f64();
    let usage = &whole.usage;
    json!({
        "generated_text": whole.text,
        "prompt": prompt,
        "full_text": format!("{prompt}{}", whole.text),
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
