//! What clients send, and what they get back.

use std::time::Instant;

use ropeway_engine::Usage;
use ropeway_engine::draft::DraftTotals;
use ropeway_executor::{SamplingParams, Seed};
use ropeway_generation::sampling::random_seed;
use ropeway_generation::{Choice, DraftDepth, Job, Prompt, RequestError, Sampling};
use ropeway_openai::stops::StopTexts;
use serde::Deserialize;
use serde_json::{Value, json};
use utoipa::ToSchema;

/// Default answer length.
const MAX_TOKENS: usize = 50;

/// Default temperature.
const TEMPERATURE: f32 = 0.7;

/// How texts are to be continued.
#[derive(Clone, Debug, Default, Deserialize, ToSchema)]
pub struct Parameters {
    model: Option<String>,
    max_tokens: Option<usize>,
    temperature: Option<f32>,
    top_p: Option<f32>,
    top_k: Option<u32>,
    seed: Option<u64>,
    session_id: Option<String>,
    /// Cached prompts are shared only with requests of the same salt.
    cache_salt: Option<String>,
    #[schema(value_type = Option<Vec<String>>)]
    stop: Option<StopTexts>,
    /// Whether tokens are drafted; changes speed, never the text. Without it, the server's own setting holds.
    use_speculative: Option<bool>,
    /// Most drafted tokens of a step, 0 to 16.
    speculation_depth: Option<i64>,
    /// Whether results come as they are ready.
    #[serde(default)]
    pub stream: bool,
}

impl Parameters {
    /// The model they name.
    pub fn model(&self) -> Option<&str> {
        self.model.as_deref()
    }

    /// The session they are part of.
    pub fn session_id(&self) -> Option<&str> {
        self.session_id.as_deref()
    }

    /// What divides their cached prompts from others.
    pub fn cache_salt(&self) -> Option<&str> {
        self.cache_salt.as_deref()
    }

    /// The job that continues a prompt.
    pub fn job(&self, prompt: Prompt) -> Result<Job, RequestError> {
        let sampling = Sampling::new(SamplingParams {
            temperature: self.temperature.unwrap_or(TEMPERATURE),
            top_p: self.top_p.unwrap_or(1.0),
            top_k: self.top_k.unwrap_or(0),
            seed: self.seed.map_or_else(random_seed, Seed),
            is_seeded: self.seed.is_some(),
            ..SamplingParams::default()
        })?;
        let max_tokens = Some(self.max_tokens.unwrap_or(MAX_TOKENS));
        let stop = self.stop.clone().unwrap_or_default().into_texts();
        let speculation = self.speculation()?;
        Ok(Job { max_tokens, stop, speculation, ..Job::with_sampling(prompt, sampling) })
    }

    fn speculation(&self) -> Result<Option<DraftDepth>, RequestError> {
        let depth = self.speculation_depth.map(|depth| DraftDepth::new(depth, "speculation_depth"));
        let depth = depth.transpose()?;
        Ok(if self.use_speculative == Some(false) { Some(DraftDepth::NONE) } else { depth })
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
        "stats": stats(usage),
    })
}

/// What the text used, and what speculation did for it.
fn stats(usage: &Usage) -> Value {
    let DraftTotals { drafts, drafted, accepted, .. } = usage.drafting;
    json!({
        "prompt_tokens": usage.prompt,
        "cached_tokens": usage.cached,
        "queue_seconds": usage.queued.as_secs_f64(),
        "preemptions": usage.preemptions,
        "steps": usage.sampled_steps(),
        "drafted": drafted,
        "accepted": accepted,
        "acceptance_rate": share(accepted, drafted),
        "mean_depth": share(drafted, drafts),
    })
}

/// A ratio; 0 where there is nothing to compare with, so that clients may count on a number.
pub fn share(part: usize, whole: usize) -> f64 {
    if whole == 0 { 0.0 } else { part as f64 / whole as f64 }
}
