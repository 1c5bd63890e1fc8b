//! Fields that chat completions and completions have in common.

use std::collections::BTreeMap;
use std::fmt;
use std::num::NonZeroUsize;
use std::sync::Arc;

use ropeway_executor::{Biases, SamplingParams, Seed};
use ropeway_generation::sampling::random_seed;
use ropeway_generation::{Job, Prompt, RequestError, Sampling};
use serde::Deserialize;
use serde::de::{self, Deserializer, MapAccess, Visitor};
use serde_json::Value;
use utoipa::ToSchema;

use crate::stops::StopTexts;
use crate::token_ids::TokenList;

/// What holds where a request says nothing.
#[derive(Clone, Debug)]
pub struct Defaults {
    /// How tokens are chosen.
    pub params: SamplingParams,
    /// Most new tokens of a choice; `None` leaves it to the model and the context.
    pub max_tokens: Option<usize>,
}

/// Default length of a completion, as in OpenAI's API.
const COMPLETION_TOKENS: usize = 16;

impl Defaults {
    /// Those of OpenAI's chat completions, with a new seed each time.
    pub fn chat() -> Self {
        let params = SamplingParams { seed: random_seed(), ..SamplingParams::default() };
        Self { params, max_tokens: None }
    }

    /// Those of OpenAI's completions, with a new seed each time.
    pub fn completions() -> Self {
        Self { max_tokens: Some(COMPLETION_TOKENS), ..Self::chat() }
    }

    /// The same for the prompt of this number: prompts without a seed of their own get seeds that have nothing in common.
    pub fn numbered(&self, number: u64) -> Self {
        let params = SamplingParams { seed: mixed(self.params.seed, number), ..self.params.clone() };
        Self { params, ..*self }
    }
}

/// A seed and a number as one seed: the output function of `SplitMix64` at this place of its sequence.
fn mixed(Seed(seed): Seed, number: u64) -> Seed {
    let mut bits = seed.wrapping_add(number.wrapping_mul(0x9E37_79B9_7F4A_7C15));
    bits = (bits ^ (bits >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    bits = (bits ^ (bits >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    Seed(bits ^ (bits >> 31))
}

/// How tokens are chosen and when an answer ends.
#[derive(Clone, Debug, Default, Deserialize, ToSchema)]
pub struct Fields {
    temperature: Option<f32>,
    top_p: Option<f32>,
    top_k: Option<i64>,
    min_p: Option<f32>,
    typical_p: Option<f32>,
    presence_penalty: Option<f32>,
    frequency_penalty: Option<f32>,
    #[serde(alias = "repeat_penalty")]
    repetition_penalty: Option<f32>,
    #[schema(value_type = Option<BTreeMap<String, f32>>)]
    logit_bias: Option<LogitBias>,
    seed: Option<i64>,
    n: Option<usize>,
    #[schema(value_type = Option<Value>)]
    stop: Option<StopTexts>,
    min_tokens: Option<usize>,
    ignore_eos: Option<bool>,
    /// Further tokens that end the answer.
    #[schema(value_type = Option<Vec<u32>>)]
    stop_token_ids: Option<TokenList>,
    /// Words of one token each that the answer may not hold.
    #[schema(value_type = Option<Vec<String>>)]
    bad_words: Option<StopTexts>,
    /// The only tokens that may be chosen.
    #[schema(value_type = Option<Vec<u32>>)]
    allowed_token_ids: Option<TokenList>,
    /// Keep only so many of the prompt's last tokens.
    truncate_prompt_tokens: Option<usize>,
    use_beam_search: Option<bool>,
    user: Option<String>,
    session_id: Option<String>,
    priority: Option<Value>,
    /// Cached prompts are shared only with requests of the same salt.
    cache_salt: Option<String>,
    stream: Option<bool>,
    stream_options: Option<StreamOptions>,
    /// Whether answers come with the ids of their tokens, as in vLLM.
    return_token_ids: Option<bool>,
    /// Whether log-probabilities name tokens as `token_id:N`, as in vLLM.
    return_tokens_as_token_ids: Option<bool>,
    /// Latest tokens that penalties look at, as in llama.cpp; all if left out.
    repeat_last_n: Option<u32>,
}

#[derive(Clone, Copy, Debug, Default, Deserialize, ToSchema)]
struct StreamOptions {
    #[serde(default)]
    include_usage: bool,
}

/// How a response is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Delivery {
    /// Whether it is streamed.
    pub stream: bool,
    /// Whether a stream ends with the usage.
    pub include_usage: bool,
}

/// How a response shows tokens beside their text.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TokenShape {
    /// Whether it has the ids of the prompt's and the answer's tokens.
    pub ids: bool,
    /// Whether log-probabilities name tokens by their id.
    pub named_by_id: bool,
}

impl Fields {
    /// How the response shows tokens.
    pub fn token_shape(&self) -> TokenShape {
        TokenShape {
            ids: self.return_token_ids == Some(true),
            named_by_id: self.return_tokens_as_token_ids == Some(true),
        }
    }

    /// How the response is to be sent.
    pub fn delivery(&self) -> Delivery {
        Delivery {
            stream: self.stream.unwrap_or(false),
            include_usage: self.stream_options.is_some_and(|options| options.include_usage),
        }
    }

    /// Choices per prompt.
    pub fn choices(&self) -> usize {
        self.n.unwrap_or(1)
    }

    /// The session or user that the request is for, as far as the body says.
    pub fn user(&self) -> Option<&str> {
        self.session_id().or(self.user.as_deref())
    }

    /// The session that the request is part of.
    pub fn session_id(&self) -> Option<&str> {
        self.session_id.as_deref()
    }

    /// What divides its cached prompts from others, as vLLM's clients send it.
    pub fn cache_salt(&self) -> Option<&str> {
        self.cache_salt.as_deref()
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

    /// A job that continues `prompt` as asked, reporting so many alternatives per token if any.
    pub fn job(
        self,
        prompt: Prompt,
        logprobs: Option<u32>,
        defaults: &Defaults,
    ) -> Result<Job, RequestError> {
        if self.use_beam_search == Some(true) {
            let message = "beams are not searched here; leave it out, or ask for several answers with n";
            return Err(RequestError::invalid(message).at("use_beam_search"));
        }
        let sampling = Sampling::new(SamplingParams { logprobs, ..self.params(&defaults.params)? })?;
        let n = NonZeroUsize::new(self.choices());
        Ok(Job {
            n: n.ok_or_else(|| RequestError::invalid("n is 0; ask for at least one answer").at("n"))?,
            min_tokens: self.min_tokens.unwrap_or(0),
            ignore_eos: self.ignore_eos.unwrap_or(false),
            stop: self.stop.unwrap_or_default().into_texts(),
            stop_tokens: few_ids(self.stop_token_ids, "stop_token_ids")?.unwrap_or_default(),
            bad_words: self.bad_words.unwrap_or_default().into_texts(),
            last_prompt_tokens: self.truncate_prompt_tokens,
            max_tokens: defaults.max_tokens,
            tokens_at_once: self.return_token_ids == Some(true),
            ..Job::with_sampling(prompt, sampling)
        })
    }

    fn params(&self, defaults: &SamplingParams) -> Result<SamplingParams, RequestError> {
        let penalises = [self.presence_penalty, self.frequency_penalty, self.repetition_penalty];
        Ok(SamplingParams {
            temperature: self.temperature.unwrap_or(defaults.temperature),
            top_p: self.top_p.unwrap_or(defaults.top_p),
            // Clients say "all" as -1 or 0.
            top_k: self.top_k.map_or(defaults.top_k, |k| u32::try_from(k).unwrap_or(0)),
            min_p: self.min_p.unwrap_or(defaults.min_p),
            typical_p: self.typical_p.unwrap_or(defaults.typical_p),
            presence_penalty: self.presence_penalty.unwrap_or(defaults.presence_penalty),
            frequency_penalty: self.frequency_penalty.unwrap_or(defaults.frequency_penalty),
            repetition_penalty: self.repetition_penalty.unwrap_or(defaults.repetition_penalty),
            // A request's own penalties count tokens as OpenAI and vLLM do, which is without a window unless it has one.
            penalty_window: self
                .repeat_last_n
                .or_else(|| defaults.penalty_window.filter(|_| penalises.iter().all(Option::is_none))),
            logit_bias: biases(self.logit_bias.as_ref())?,
            allowed: few_ids(self.allowed_token_ids.clone(), "allowed_token_ids")?
                .map(allowed)
                .transpose()?,
            seed: self.seed.map_or(defaults.seed, |seed| Seed(seed.cast_unsigned())),
            is_seeded: self.seed.is_some() || defaults.is_seeded,
            logprobs: None,
        })
    }
}

/// Token ids in a field. Every prompt of a request has its own copy, so there may not be many.
const MOST_IDS: usize = 4096;

fn few_ids(given: Option<TokenList>, field: &str) -> Result<Option<Vec<u32>>, RequestError> {
    let ids = given.map(|given| given.read(field)).transpose()?;
    if ids.as_ref().is_some_and(|ids| ids.len() > MOST_IDS) {
        return Err(RequestError::invalid(format!("at most {MOST_IDS} token ids")).at(field));
    }
    Ok(ids)
}

fn allowed(mut ids: Vec<u32>) -> Result<Arc<[u32]>, RequestError> {
    if ids.is_empty() {
        let message = "no token is allowed; name some or leave it out";
        return Err(RequestError::invalid(message).at("allowed_token_ids"));
    }
    ids.sort_unstable();
    ids.dedup();
    Ok(ids.into())
}

fn biases(given: Option<&LogitBias>) -> Result<Biases, RequestError> {
    let bias = |(id, bias): (&String, &f32)| match id.parse() {
        Ok(id) => Ok((id, *bias)),
        Err(_) => Err(RequestError::invalid(format!("{id:?} is no token id")).at("logit_bias")),
    };
    given.into_iter().flat_map(|given| &given.0).map(bias).collect()
}

/// Biases of a request. Each token of its sequences is chosen with all of them.
const MOST_BIASES: usize = 1024;

/// By token, what is added to its logit.
#[derive(Clone, Debug)]
struct LogitBias(BTreeMap<String, f32>);

impl<'de> Deserialize<'de> for LogitBias {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct WireBiases;
        impl<'de> Visitor<'de> for WireBiases {
            type Value = LogitBias;

            fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(formatter, "logit_bias with at most {MOST_BIASES} token ids and their biases")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<LogitBias, A::Error> {
                let mut biases = BTreeMap::new();
                while let Some((id, bias)) = map.next_entry()? {
                    biases.insert(id, bias);
                    if biases.len() > MOST_BIASES {
                        return Err(de::Error::invalid_length(biases.len(), &self));
                    }
                }
                Ok(LogitBias(biases))
            }
        }
        deserializer.deserialize_map(WireBiases)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn params(fields: Value, defaults: &SamplingParams) -> SamplingParams {
        let fields: Fields = serde_json::from_value(fields).expect("fields");
        fields.params(defaults).expect("parameters")
    }

    #[test]
    fn a_request_decides_for_itself_and_the_defaults_for_the_rest() {
        let defaults =
            SamplingParams { temperature: 0.7, seed: Seed(5), top_k: 9, ..SamplingParams::default() };
        let got = params(json!({"top_p": 0.5, "logit_bias": {"7": -1}, "top_k": -1}), &defaults);
        assert_eq!((got.temperature, got.top_p, got.seed, got.top_k), (0.7, 0.5, Seed(5), 0));
        assert_eq!(*got.logit_bias, [(7, -1.0)]);
    }

    #[test]
    fn prompts_without_a_seed_have_different_ones() {
        let seed = |number| {
            Defaults { params: SamplingParams::default(), max_tokens: None }.numbered(number).params.seed
        };
        assert_eq!(seed(1), seed(1));
        assert!(seed(1) != seed(2) && seed(1) != seed(0));
    }

    #[test]
    fn penalties_of_a_request_have_no_window() {
        let defaults = SamplingParams { penalty_window: Some(64), ..SamplingParams::default() };
        assert_eq!(params(json!({}), &defaults).penalty_window, Some(64));
        for own in ["presence_penalty", "frequency_penalty", "repetition_penalty", "repeat_penalty"] {
            assert_eq!(params(json!({ own: 1.0 }), &defaults).penalty_window, None, "{own}");
        }
    }

    #[test]
    fn wrong_values_are_errors_that_name_the_field() {
        let job = |fields: Value| {
            let fields: Fields = serde_json::from_value(fields).map_err(|error| error.to_string())?;
            let job = fields.job(Prompt::Text("x".into()), None, &Defaults::chat());
            job.map_err(|error| error.field.unwrap_or_default())
        };
        for (fields, told) in [
            (json!({"temperature": -1}), "temperature"),
            (json!({"logit_bias": {"the": 1}}), "logit_bias"),
            (json!({"n": 0}), "n"),
            (json!({"n": "two"}), "expected usize"),
            (json!({"stop": 7}), "stop"),
            (
                json!({"logit_bias": (0..=MOST_BIASES).map(|id| (id.to_string(), 1.0.into())).collect::<serde_json::Map<_, Value>>()}),
                "at most 1024 token ids",
            ),
        ] {
            let error = job(fields.clone()).expect_err("a wrong value");
            assert!(error.contains(told), "{fields}: {error}");
        }
    }
}
