//! Fields that chat completions and completions have in common.

use std::collections::BTreeMap;

use ropeway_executor::{SamplingParams, Seed};
use serde::Deserialize;
use serde_json::Value;
use utoipa::ToSchema;

use crate::error::ApiError;
use crate::generation::Job;
use crate::generation::sampling::any_seed;

/// How tokens are chosen and when an answer ends.
#[derive(Clone, Debug, Default, Deserialize, ToSchema)]
pub struct Fields {
    pub temperature: Option<f32>,
    pub top_p: Option<f32>,
    pub top_k: Option<i64>,
    pub min_p: Option<f32>,
    pub typical_p: Option<f32>,
    pub presence_penalty: Option<f32>,
    pub frequency_penalty: Option<f32>,
    pub repetition_penalty: Option<f32>,
    pub logit_bias: Option<BTreeMap<String, f32>>,
    pub seed: Option<i64>,
    pub n: Option<usize>,
    pub stop: Option<Stop>,
    pub min_tokens: Option<usize>,
    pub ignore_eos: Option<bool>,
    pub user: Option<String>,
    pub session_id: Option<String>,
    pub priority: Option<Value>,
    pub stream: Option<bool>,
    pub stream_options: Option<StreamOptions>,
}

/// One stop string or several.
#[derive(Clone, Debug, Deserialize, ToSchema)]
#[serde(untagged)]
pub enum Stop {
    One(String),
    Several(Vec<String>),
}

#[derive(Clone, Copy, Debug, Default, Deserialize, ToSchema)]
pub struct StreamOptions {
    #[serde(default)]
    pub include_usage: bool,
}

impl Fields {
    /// Whether the answer is to be streamed.
    pub fn streams(&self) -> bool {
        self.stream.unwrap_or(false)
    }

    /// Whether a stream ends with the usage.
    pub fn includes_usage(&self) -> bool {
        self.stream_options.is_some_and(|options| options.include_usage)
    }

    /// Who asks, as far as the body says.
    pub fn name(&self) -> Option<&str> {
        self.session_id.as_deref().or(self.user.as_deref())
    }

    /// The class asked for: a name, or a number as vLLM's clients send it (lower is more urgent).
    pub fn class(&self) -> Option<&str> {
        match self.priority.as_ref()? {
            Value::String(name) => Some(name),
            Value::Number(number) => match number.as_f64().unwrap_or(0.0) {
                urgent if urgent < 0.0 => Some("interactive"),
                later if later > 0.0 => Some("bulk"),
                _ => Some("default"),
            },
            _ => None,
        }
    }

    /// Fills the job with what was asked for.
    pub fn apply(self, job: &mut Job) -> Result<(), ApiError> {
        job.params = self.params()?;
        job.n = self.n.unwrap_or(1);
        if job.n == 0 {
            return Err(ApiError::invalid("n is 0; ask for at least one answer").about("n"));
        }
        job.min_tokens = self.min_tokens.unwrap_or(0);
        job.ignore_eos = self.ignore_eos.unwrap_or(false);
        job.stops = match self.stop {
            None => Vec::new(),
            Some(Stop::One(stop)) => vec![stop],
            Some(Stop::Several(stops)) => stops,
        };
        Ok(())
    }

    fn params(&self) -> Result<SamplingParams, ApiError> {
        let plain = SamplingParams::default();
        Ok(SamplingParams {
            temperature: self.temperature.unwrap_or(plain.temperature),
            top_p: self.top_p.unwrap_or(plain.top_p),
            // Clients say "all" as -1 or 0.
            top_k: self.top_k.map_or(0, |k| u32::try_from(k).unwrap_or(0)),
            min_p: self.min_p.unwrap_or(plain.min_p),
            typical_p: self.typical_p.unwrap_or(plain.typical_p),
            presence_penalty: self.presence_penalty.unwrap_or(plain.presence_penalty),
            frequency_penalty: self.frequency_penalty.unwrap_or(plain.frequency_penalty),
            repetition_penalty: self.repetition_penalty.unwrap_or(plain.repetition_penalty),
            logit_bias: biases(self.logit_bias.as_ref())?,
            seed: self.seed.map_or_else(any_seed, |seed| Seed(seed as u64)),
            ..plain
        })
    }
}

fn biases(given: Option<&BTreeMap<String, f32>>) -> Result<Vec<(u32, f32)>, ApiError> {
    let bias = |(id, bias): (&String, &f32)| match id.parse() {
        Ok(id) => Ok((id, *bias)),
        Err(_) => Err(ApiError::invalid(format!("{id:?} is no token id")).about("logit_bias")),
    };
    given.into_iter().flatten().map(bias).collect()
}
