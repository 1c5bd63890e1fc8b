//! `options`: how tokens are chosen, in Ollama's words. The same words are a derived model's `parameters`.
//!
//! ```text
//! what the request says  >  what the derived model says  >  Ollama's defaults (in its own API only)
//! ```
//! Ollama's clients send maps of anything, with whole numbers as floats and `null` for what they leave open. Options that
//! concern another engine (`num_gpu`, `num_thread`) or nobody are ignored, with a note in the debug log.

use std::borrow::Cow;
use std::fmt;
use std::sync::atomic::{AtomicI64, Ordering};

use ropeway_executor::{SamplingParams, Seed};
use ropeway_generation::sampling::random_seed;
use ropeway_generation::{Job, Prompt, RequestError, Sampling};
use ropeway_openai::stops::StopTexts;
use serde::Deserialize;
use serde::de::{self, DeserializeOwned, Deserializer, IgnoredAny, MapAccess, Visitor};
use utoipa::ToSchema;

use crate::model::Model;

/// What clients may set.
#[derive(Clone, Debug, Default, PartialEq, ToSchema)]
pub struct Options {
    num_predict: Option<i64>,
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
    num_ctx: Option<i64>,
}

/// Ollama's own defaults, so that a client that sets nothing gets answers of the kind it is used to.
const TEMPERATURE: f32 = 0.8;
const TOP_K: u32 = 40;
const TOP_P: f32 = 0.9;
const REPEAT_LAST_N: u32 = 64;

/// What holds where neither a request nor its model says anything. A server that answers as text has its own defaults for what
/// OpenAI's API has no word for, and may turn down who sets it.
fn defaults(model: &Model) -> SamplingParams {
    let ollamas = ollamas_defaults();
    if model.generator.tokenizer().is_some() {
        return ollamas;
    }
    SamplingParams { top_k: 0, penalty_window: None, ..ollamas }
}

fn ollamas_defaults() -> SamplingParams {
    SamplingParams {
        temperature: TEMPERATURE,
        top_k: TOP_K,
        top_p: TOP_P,
        penalty_window: Some(REPEAT_LAST_N),
        seed: random_seed(),
        ..SamplingParams::default()
    }
}

impl Options {
    /// A job that continues `prompt` as asked, reporting so many alternatives per token if any.
    pub fn job(self, prompt: Prompt, logprobs: Option<u32>, model: &Model) -> Result<Job, RequestError> {
        let context = model.context();
        self.note_context(context);
        let sampling = Sampling::new(SamplingParams { logprobs, ..self.over(defaults(model), context) })?;
        let max_tokens = self.max_tokens();
        let stop = self.stop.unwrap_or_default().into_texts();
        Ok(Job { max_tokens, stop, ..Job::with_sampling(prompt, sampling) })
    }

    /// These, and `others` where these say nothing.
    #[must_use]
    pub fn or(self, others: &Options) -> Options {
        Options {
            num_predict: self.num_predict.or(others.num_predict),
            temperature: self.temperature.or(others.temperature),
            top_k: self.top_k.or(others.top_k),
            top_p: self.top_p.or(others.top_p),
            min_p: self.min_p.or(others.min_p),
            typical_p: self.typical_p.or(others.typical_p),
            repeat_penalty: self.repeat_penalty.or(others.repeat_penalty),
            repeat_last_n: self.repeat_last_n.or(others.repeat_last_n),
            presence_penalty: self.presence_penalty.or(others.presence_penalty),
            frequency_penalty: self.frequency_penalty.or(others.frequency_penalty),
            seed: self.seed.or(others.seed),
            stop: self.stop.or_else(|| others.stop.clone()),
            num_ctx: self.num_ctx.or(others.num_ctx),
        }
    }

    /// These as sampling parameters, and `defaults` where these say nothing.
    pub fn over(&self, defaults: SamplingParams, context: usize) -> SamplingParams {
        SamplingParams {
            temperature: self.temperature.unwrap_or(defaults.temperature),
            top_k: self.top_k.map_or(defaults.top_k, |k| u32::try_from(k).unwrap_or(0)),
            top_p: self.top_p.unwrap_or(defaults.top_p),
            min_p: self.min_p.unwrap_or(defaults.min_p),
            typical_p: self.typical_p.unwrap_or(defaults.typical_p),
            repetition_penalty: self.repeat_penalty.unwrap_or(defaults.repetition_penalty),
            penalty_window: self.penalty_window(context).or(defaults.penalty_window),
            presence_penalty: self.presence_penalty.unwrap_or(defaults.presence_penalty),
            frequency_penalty: self.frequency_penalty.unwrap_or(defaults.frequency_penalty),
            // -1 is Ollama's word for another one each time.
            seed: self
                .seed
                .filter(|seed| *seed != -1)
                .map_or(defaults.seed, |seed| Seed(seed.cast_unsigned())),
            ..defaults
        }
    }

    /// Most tokens of an answer; -1 and -2 mean "as long as it takes" and "as long as it fits".
    pub fn max_tokens(&self) -> Option<usize> {
        self.num_predict.and_then(|most| usize::try_from(most).ok())
    }

    /// Texts that end an answer.
    pub fn stops(&self) -> Vec<String> {
        self.stop.clone().unwrap_or_default().into_texts()
    }

    /// How many of the latest tokens penalties look at, the prompt's among them; -1 is the whole context.
    fn penalty_window(&self, context: usize) -> Option<u32> {
        let all = u32::try_from(context).unwrap_or(u32::MAX);
        self.repeat_last_n.map(|n| u32::try_from(n).unwrap_or(all))
    }

    /// A model has the context that it was loaded with: more is not to be had by a question, and less would save nothing.
    /// Clients ask for the same with every question, so that it is told when it changes only.
    fn note_context(&self, context: usize) {
        static TOLD: AtomicI64 = AtomicI64::new(0);
        let most = i64::try_from(context).unwrap_or(i64::MAX);
        let beyond = self.num_ctx.filter(|asked| *asked > most);
        if let Some(asked) = beyond.filter(|asked| TOLD.swap(*asked, Ordering::Relaxed) != *asked) {
            tracing::warn!(
                target: "ollama",
                "num_ctx is {asked}, but this model is served with {context} tokens, which hold; start the server with \
                 --context {asked} for more"
            );
        }
    }

    /// Reads one option. Of those that are unknown, only the name is left, in the log.
    fn read<'de, A: MapAccess<'de>>(&mut self, name: &str, map: &mut A) -> Result<(), A::Error> {
        match name {
            // Later Ollama clients say the first, OpenAI's habits the second.
            "num_predict" | "max_tokens" => self.num_predict = whole(name, map)?.or(self.num_predict),
            "temperature" => self.temperature = number(name, map)?,
            "top_k" => self.top_k = whole(name, map)?,
            "top_p" => self.top_p = number(name, map)?,
            "min_p" => self.min_p = number(name, map)?,
            "typical_p" => self.typical_p = number(name, map)?,
            "repeat_penalty" => self.repeat_penalty = number(name, map)?,
            "repeat_last_n" => self.repeat_last_n = whole(name, map)?,
            "presence_penalty" => self.presence_penalty = number(name, map)?,
            "frequency_penalty" => self.frequency_penalty = number(name, map)?,
            "seed" => self.seed = whole(name, map)?,
            "stop" => self.stop = value(name, "a text or a list of texts", map)?,
            "num_ctx" => self.num_ctx = whole(name, map)?,
            _ => {
                tracing::debug!(target: "ollama", option = name, "an option that means nothing here is ignored");
                map.next_value::<IgnoredAny>()?;
            }
        }
        Ok(())
    }
}

/// A whole number, which may be written with a point: JSON of other languages knows floats only.
fn whole<'de, A: MapAccess<'de>>(name: &str, map: &mut A) -> Result<Option<i64>, A::Error> {
    let given: Option<f64> = value(name, "a whole number", map)?;
    Ok(given.map(|number| number as i64))
}

fn number<'de, A: MapAccess<'de>>(name: &str, map: &mut A) -> Result<Option<f32>, A::Error> {
    value(name, "a number", map)
}

/// A value or `null`; an error names the option.
fn value<'de, T: DeserializeOwned, A: MapAccess<'de>>(
    name: &str,
    what: &str,
    map: &mut A,
) -> Result<Option<T>, A::Error> {
    map.next_value().map_err(|error| de::Error::custom(format!("the option {name:?} is {what}: {error}")))
}

impl<'de> Deserialize<'de> for Options {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Fields;
        impl<'de> Visitor<'de> for Fields {
            type Value = Options;

            fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                formatter.write_str("options as an object, or null")
            }

            fn visit_unit<E: de::Error>(self) -> Result<Options, E> {
                Ok(Options::default())
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Options, A::Error> {
                let mut options = Options::default();
                while let Some(name) = map.next_key::<Cow<'_, str>>()? {
                    options.read(&name, &mut map)?;
                }
                Ok(options)
            }
        }
        deserializer.deserialize_any(Fields)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn options(given: Value) -> Options {
        serde_json::from_value(given).expect("options")
    }

    fn params(given: Value) -> SamplingParams {
        let options = options(given);
        options.note_context(4096);
        options.over(ollamas_defaults(), 4096)
    }

    #[test]
    fn penalties_look_at_the_latest_tokens_with_a_window_of_64_by_default_and_of_the_context_for_minus_1() {
        let window = |n: Value| params(json!({ "repeat_last_n": n })).penalty_window;
        let given = [json!(null), json!(7), json!(0), json!(-1)];
        assert_eq!(given.map(window), [64, 7, 0, 4096].map(Some));
    }

    #[test]
    fn options_are_read_as_other_languages_write_them() {
        assert_eq!(options(Value::Null), Options::default());
        let given = json!({"num_predict": 12.0, "temperature": 1, "top_k": null, "num_gpu": 99, "use_mmap": {"a": [1]}});
        assert_eq!(
            options(given),
            Options { num_predict: Some(12), temperature: Some(1.0), ..Options::default() }
        );
        assert_eq!(options(json!({"stop": "x"})), options(json!({"stop": ["x"]})));
        let error = serde_json::from_value::<Options>(json!({"top_p": "high"})).expect_err("a text");
        assert!(error.to_string().contains("\"top_p\""), "{error}");
        assert!(serde_json::from_value::<Options>(json!([])).is_err());
    }

    #[test]
    fn a_context_beyond_the_models_is_no_error_and_minus_1_is_any_seed() {
        assert_eq!(params(json!({"num_ctx": 1_000_000})).top_k, TOP_K);
        assert_ne!(params(json!({"seed": -1})).seed, params(json!({"seed": -1})).seed);
        assert_eq!(params(json!({"seed": 7})).seed, Seed(7));
    }

    #[test]
    fn what_a_request_says_comes_before_what_the_model_says() {
        let of_model = options(json!({"temperature": 0.1, "stop": ["a"], "num_predict": 5}));
        let merged = options(json!({"temperature": 0.5})).or(&of_model);
        assert_eq!(merged, options(json!({"temperature": 0.5, "stop": ["a"], "num_predict": 5})));
    }
}
