//! Log-probabilities as Ollama's clients expect them: with the text whose tokens they are about.

use ropeway_executor::Sampled;
use ropeway_generation::RequestError;
use ropeway_generation::sampling::MOST_LOGPROBS;
use ropeway_openai::logprobs;
use ropeway_text::Tokenizer;
use serde_json::Value;

use crate::model::Model;

/// How many alternatives are reported per token; `None` if no log-probabilities are asked for.
pub fn wanted(logprobs: Option<bool>, top_logprobs: Option<i64>) -> Result<Option<u32>, RequestError> {
    let top = u32::try_from(top_logprobs.unwrap_or(0)).ok().filter(|top| *top <= MOST_LOGPROBS);
    let Some(top) = top else {
        let what = format!("top_logprobs must be between 0 and {MOST_LOGPROBS}");
        return Err(RequestError::invalid(what).at("top_logprobs"));
    };
    Ok(logprobs.filter(|wanted| *wanted).map(|_| top))
}

/// The log-probabilities that no line has carried yet.
pub struct Logprobs {
    /// `None` if nobody wants them.
    tokenizer: Option<Tokenizer>,
    waiting: Vec<Value>,
}

impl Logprobs {
    /// Those of a model's answer, if they are wanted.
    pub fn new(model: &Model, wanted: Option<u32>) -> Self {
        let tokenizer = model.generator.tokenizer().filter(|_| wanted.is_some()).cloned();
        Self { tokenizer, waiting: Vec::new() }
    }

    /// More tokens were chosen. Their text may come later: it may be the beginning of a stop text.
    pub fn add(&mut self, tokens: &[Sampled]) {
        let Some(tokenizer) = &self.tokenizer else { return };
        if let Value::Array(entries) = logprobs::chat(tokenizer, tokens)["content"].take() {
            self.waiting.extend(entries.into_iter().map(without_empty_alternatives));
        }
    }

    /// A line that carries text carries what waits, too.
    pub fn attach(&mut self, line: &mut Value) {
        if !self.waiting.is_empty() {
            line["logprobs"] = std::mem::take(&mut self.waiting).into();
        }
    }
}

/// Ollama leaves `top_logprobs` out where none were asked for.
fn without_empty_alternatives(mut entry: Value) -> Value {
    let is_empty = entry["top_logprobs"].as_array().is_none_or(Vec::is_empty);
    if let (true, Some(fields)) = (is_empty, entry.as_object_mut()) {
        fields.remove("top_logprobs");
    }
    entry
}
