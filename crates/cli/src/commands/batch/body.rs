//! What a line asks for, read strictly: a wrong value is an error, and so is what would change the answer but is not
//! done here. Fields that change nothing are ignored.

use std::collections::BTreeMap;

use ropeway_engine::{Class, Request};
use ropeway_executor::{SamplingParams, Seed};
use serde::Deserialize;
use serde_json::{Map, Value};

use super::error::LineError;
use super::line::Endpoint;

/// An odd number without pattern: lines without a seed of their own get seeds that have nothing in common.
const SEED_STRIDE: u64 = 0x9E37_79B9_7F4A_7C15;

/// What holds where a line says nothing.
#[derive(Clone, Debug, Default)]
pub struct Defaults {
    /// How tokens are chosen.
    pub params: SamplingParams,
    /// Most new tokens.
    pub max_tokens: Option<usize>,
}

/// What a line asks for.
#[derive(Debug)]
pub struct Ask {
    /// The kind of request.
    pub endpoint: Endpoint,
    /// What is continued.
    pub prompt: Prompt,
    /// Texts that end the answer.
    pub stops: Vec<String>,
    /// Whether the model's own end tokens are passed over.
    pub ignore_eos: bool,
    /// The rest, with neither prompt nor end tokens yet.
    pub request: Request,
}

/// What is continued.
#[derive(Debug)]
pub enum Prompt {
    /// A conversation, and variables for its template.
    Messages(Vec<Value>, Map<String, Value>),
    /// A text.
    Text(String),
    /// Tokens as they are.
    Tokens(Vec<u32>),
}

#[derive(Debug, Deserialize)]
struct Body {
    prompt: Option<Value>,
    messages: Option<Vec<Value>>,
    max_tokens: Option<usize>,
    max_completion_tokens: Option<usize>,
    min_tokens: Option<usize>,
    temperature: Option<f32>,
    top_p: Option<f32>,
    top_k: Option<u32>,
    min_p: Option<f32>,
    typical_p: Option<f32>,
    presence_penalty: Option<f32>,
    frequency_penalty: Option<f32>,
    #[serde(alias = "repeat_penalty")]
    repetition_penalty: Option<f32>,
    logit_bias: Option<BTreeMap<String, f32>>,
    seed: Option<i64>,
    stop: Option<Value>,
    n: Option<usize>,
    ignore_eos: Option<bool>,
    chat_template_kwargs: Option<Map<String, Value>>,
}

impl Ask {
    /// Reads the body of line `number`.
    pub fn read(body: Value, endpoint: Endpoint, number: u64, defaults: &Defaults) -> Result<Ask, LineError> {
        refuse_what_is_not_done(&body)?;
        let bad = |error: serde_json::Error| LineError::BadField(error.to_string());
        let mut body: Body = serde_json::from_value(body).map_err(bad)?;
        let request = Request {
            params: body.params(number, &defaults.params)?,
            max_tokens: body.max_completion_tokens.or(body.max_tokens).or(defaults.max_tokens),
            min_tokens: body.min_tokens.unwrap_or(0),
            n: body.n.unwrap_or(1),
            class: Class::Bulk,
            ..Request::default()
        };
        Ok(Ask {
            endpoint,
            prompt: body.prompt(endpoint)?,
            stops: stops(body.stop.take())?,
            ignore_eos: body.ignore_eos.unwrap_or(false),
            request,
        })
    }
}

impl Body {
    fn prompt(&mut self, endpoint: Endpoint) -> Result<Prompt, LineError> {
        if endpoint == Endpoint::Chat {
            let messages = self.messages.take().filter(|messages| !messages.is_empty());
            let variables = self.chat_template_kwargs.take().unwrap_or_default();
            let nothing = LineError::NothingAsked("\"messages\"");
            return messages.map(|messages| Prompt::Messages(messages, variables)).ok_or(nothing);
        }
        match self.prompt.take() {
            None | Some(Value::Null) => Err(LineError::NothingAsked("\"prompt\" or \"messages\"")),
            Some(Value::String(text)) => Ok(Prompt::Text(text)),
            Some(other) => serde_json::from_value(other).map(Prompt::Tokens).map_err(|_| {
                LineError::BadField("\"prompt\" must be one text or one list of token ids".into())
            }),
        }
    }

    fn params(&self, number: u64, defaults: &SamplingParams) -> Result<SamplingParams, LineError> {
        let or = |field, value: Option<f32>, [least, most]: [f32; 2], default| match value {
            Some(value) if !(least..=most).contains(&value) => {
                Err(LineError::OutOfRange { field, least, most })
            }
            given => Ok(given.unwrap_or(default)),
        };
        let seed = self.seed.map(|seed| Seed(seed as u64));
        let own = Seed(defaults.seed.0.wrapping_add(number.wrapping_mul(SEED_STRIDE)));
        Ok(SamplingParams {
            temperature: or("temperature", self.temperature, [0.0, 10.0], defaults.temperature)?,
            top_k: self.top_k.unwrap_or(defaults.top_k),
            top_p: or("top_p", self.top_p, [0.0, 1.0], defaults.top_p)?,
            min_p: or("min_p", self.min_p, [0.0, 1.0], defaults.min_p)?,
            typical_p: or("typical_p", self.typical_p, [0.0, 1.0], defaults.typical_p)?,
            repetition_penalty: or(
                "repetition_penalty",
                self.repetition_penalty,
                [0.1, 10.0],
                defaults.repetition_penalty,
            )?,
            presence_penalty: or("presence_penalty", self.presence_penalty, [-2.0, 2.0], 0.0)?,
            frequency_penalty: or("frequency_penalty", self.frequency_penalty, [-2.0, 2.0], 0.0)?,
            logit_bias: self.logit_bias()?,
            seed: seed.unwrap_or(own),
            ..defaults.clone()
        })
    }

    fn logit_bias(&self) -> Result<Vec<(u32, f32)>, LineError> {
        let entries = self.logit_bias.iter().flatten();
        let bias = entries.map(|(token, bias)| match token.parse() {
            Ok(token) => Ok((token, *bias)),
            Err(_) => Err(LineError::BadField(format!("logit_bias names {token:?}, which is no token id"))),
        });
        bias.collect()
    }
}

fn stops(stop: Option<Value>) -> Result<Vec<String>, LineError> {
    match stop {
        None | Some(Value::Null) => Ok(Vec::new()),
        Some(Value::String(stop)) => Ok(vec![stop]),
        Some(other) => serde_json::from_value(other)
            .map_err(|_| LineError::BadField("\"stop\" must be one text or a list of texts".into())),
    }
}

/// Fields that would change the answer, and the values with which they do not.
fn refuse_what_is_not_done(body: &Value) -> Result<(), LineError> {
    let fields = [
        "tools",
        "functions",
        "response_format",
        "structured_outputs",
        "logprobs",
        "top_logprobs",
        "best_of",
        "echo",
        "suffix",
    ];
    let asked = |field: &&str| body.get(field).is_some_and(|value| !asks_nothing(field, value));
    fields.into_iter().find(asked).map_or(Ok(()), |field| Err(LineError::Unsupported(field)))
}

fn asks_nothing(field: &str, value: &Value) -> bool {
    match (field, value) {
        (_, Value::Null | Value::Bool(false)) => true,
        ("best_of", Value::Number(count)) => count.as_u64() == Some(1),
        ("response_format", Value::Object(format)) => format.get("type").is_some_and(|kind| kind == "text"),
        (_, Value::Array(list)) => list.is_empty(),
        ("suffix", Value::String(text)) => text.is_empty(),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn read(mut body: Value) -> Result<Ask, LineError> {
        body["prompt"] = json!("x");
        let defaults = Defaults {
            params: SamplingParams { temperature: 0.7, seed: Seed(5), ..SamplingParams::default() },
            max_tokens: Some(9),
        };
        Ask::read(body, Endpoint::Completion, 2, &defaults)
    }

    #[test]
    fn a_line_decides_for_itself_and_the_command_for_the_rest() {
        let ask = read(json!({"top_p": 0.5, "seed": 11, "stop": "a"})).expect("good");
        assert_eq!((ask.request.params.temperature, ask.request.params.top_p), (0.7, 0.5));
        assert_eq!((ask.request.params.seed, ask.request.max_tokens), (Seed(11), Some(9)));
        assert_eq!(ask.stops, ["a"]);
        let ask = read(json!({"max_completion_tokens": 3, "stop": ["a", "b"], "logit_bias": {"7": -1}}));
        let ask = ask.expect("good");
        assert_eq!((ask.request.max_tokens, ask.stops.len()), (Some(3), 2));
        assert_eq!(ask.request.params.logit_bias, [(7, -1.0)]);
    }

    #[test]
    fn lines_without_a_seed_have_different_ones() {
        let seed = |number| {
            let body = json!({"prompt": "x"});
            let ask = Ask::read(body, Endpoint::Completion, number, &Defaults::default()).expect("good");
            ask.request.params.seed
        };
        assert_ne!(seed(1), seed(2));
        assert_eq!(seed(1), seed(1));
    }

    #[test]
    fn wrong_values_and_what_is_not_done_here_are_errors_that_name_the_field() {
        for (body, told) in [
            (json!({"temperature": -1}), "temperature"),
            (json!({"top_p": 2}), "top_p"),
            (json!({"n": "two"}), "expected"),
            (json!({"logit_bias": {"the": 1}}), "logit_bias"),
            (json!({"stop": 7}), "stop"),
            (json!({"tools": [{"type": "function"}]}), "tools"),
            (json!({"response_format": {"type": "json_object"}}), "response_format"),
            (json!({"logprobs": true}), "logprobs"),
        ] {
            let error = read(body.clone()).expect_err("a wrong body").to_string();
            assert!(error.contains(told), "{body}: {error}");
        }
    }

    #[test]
    fn fields_that_ask_for_nothing_are_no_error() {
        let body = json!({
            "tools": [], "logprobs": null, "echo": false, "best_of": 1, "response_format": {"type": "text"},
            "model": "another", "user": "someone", "stream": false,
        });
        assert!(read(body).is_ok());
    }

    #[test]
    fn a_prompt_is_one_text_or_one_list_of_tokens() {
        let prompt = |prompt: Value| {
            let body = json!({ "prompt": prompt });
            Ask::read(body, Endpoint::Completion, 1, &Defaults::default()).map(|ask| ask.prompt)
        };
        assert!(matches!(prompt(json!([1, 2])), Ok(Prompt::Tokens(tokens)) if tokens == [1, 2]));
        assert!(matches!(prompt(json!(["a", "b"])), Err(LineError::BadField(_))));
    }
}
