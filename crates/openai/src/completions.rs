//! `/v1/completions`: texts and their continuations.

mod render;

pub(crate) use render::show_ids;
pub use render::{CompletionRender, PromptEcho, finish_reason};

use ropeway_generation::sampling::MOST_LOGPROBS;
use ropeway_generation::{Job, Prompt, RequestError};
use ropeway_text::{SpecialTokens, Tokenizer};
use serde::Deserialize;
use utoipa::ToSchema;

use crate::sampling::{Defaults, Fields, TokenShape};
use crate::speculation::SpeculationFields;
use crate::structured::StructuredFields;
use crate::texts::Texts;

/// Prompts of one request; more belong into `/generate/batch` or a batch file.
pub const MOST_PROMPTS: usize = 256;

/// What clients send.
#[derive(Clone, Debug, Deserialize, ToSchema)]
pub struct CompletionRequest {
    /// The model asked for.
    pub model: Option<String>,
    #[schema(value_type = Value)]
    prompt: Texts<MOST_PROMPTS>,
    max_tokens: Option<usize>,
    echo: Option<bool>,
    suffix: Option<String>,
    logprobs: Option<u32>,
    best_of: Option<usize>,
    /// Log-probabilities of the prompt's tokens, with so many alternatives, as in vLLM.
    prompt_logprobs: Option<u32>,
    #[serde(flatten)]
    structured: StructuredFields,
    #[serde(flatten)]
    speculation: SpeculationFields,
    /// Fields shared with chat completions.
    #[serde(flatten)]
    pub fields: Fields,
}

impl CompletionRequest {
    /// A job for each of its prompts.
    pub fn into_jobs(self, defaults: &Defaults) -> Result<Vec<Job>, RequestError> {
        self.check()?;
        let prompt_logprobs = self.logprobs.filter(|_| self.echoes()).max(self.prompt_logprobs);
        let structured = self.structured.read()?;
        let speculation = self.speculation.read()?;
        let suffix = self.suffix.filter(|suffix| !suffix.is_empty());
        let given = prompts(self.prompt)?;
        if suffix.is_some() && given.len() > 1 {
            let message = "a suffix is for one prompt; send the prompts one by one";
            return Err(RequestError::invalid(message).at("suffix"));
        }
        let prompts = given.into_iter().map(|prompt| before(prompt, suffix.as_deref()));
        let prompts: Vec<Prompt> = prompts.collect::<Result<_, _>>()?;
        if speculation.prediction.is_some() && prompts.len() > 1 {
            let message = "a prediction is for one prompt; send the prompts one by one";
            return Err(RequestError::invalid(message).at("prediction"));
        }
        let fields = self.fields;
        let job = |(index, prompt)| -> Result<Job, RequestError> {
            let job = fields.clone().job(prompt, self.logprobs, &defaults.numbered(index as u64))?;
            let max_tokens = self.max_tokens.or(job.max_tokens);
            let job = Job { max_tokens, prompt_logprobs, structured: structured.clone(), ..job };
            Ok(speculation.clone().of(job))
        };
        prompts.into_iter().enumerate().map(job).collect()
    }

    /// How its responses look.
    pub fn shape(&self) -> CompletionShape {
        CompletionShape {
            n: self.fields.choices().max(1),
            echo: self.echoes(),
            logprobs: self.logprobs.is_some(),
            include_usage: self.fields.delivery().include_usage,
            prompt_logprobs: self.prompt_logprobs,
            tokens: self.fields.token_shape(),
        }
    }

    fn check(&self) -> Result<(), RequestError> {
        let bad = |field: &str, message: &str| Err(RequestError::invalid(message).at(field));
        if self.best_of.is_some_and(|best| best != self.fields.choices()) {
            return bad("best_of", "best_of must equal n: every answer is returned");
        }
        if self.echoes() && self.fields.delivery().stream && self.logprobs.is_some() {
            return bad("echo", "echo with logprobs can't be streamed; set stream to false");
        }
        if self.prompt_logprobs.is_some() && self.fields.delivery().stream {
            return bad("prompt_logprobs", "prompt_logprobs can't be streamed; set stream to false");
        }
        if self.prompt_logprobs.is_some_and(|count| count > MOST_LOGPROBS) {
            let message = format!("at most {MOST_LOGPROBS} alternatives");
            return bad("prompt_logprobs", &message);
        }
        Ok(())
    }

    fn echoes(&self) -> bool {
        self.echo.unwrap_or(false)
    }
}

/// How completions look.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CompletionShape {
    /// Choices per prompt.
    pub n: usize,
    /// Whether choices begin with their prompt.
    pub echo: bool,
    /// Whether log-probabilities are wanted.
    pub logprobs: bool,
    /// Whether a stream ends with the usage.
    pub include_usage: bool,
    /// Alternatives to each of the prompt's tokens, if their log-probabilities are wanted.
    pub prompt_logprobs: Option<u32>,
    /// How tokens are shown.
    pub tokens: TokenShape,
}

impl CompletionShape {
    /// The text that the choices of a prompt begin with; empty without an echo.
    pub fn echo(&self, prompt: &Prompt, tokenizer: Option<&Tokenizer>) -> String {
        match prompt {
            Prompt::Text(text) | Prompt::Between { prefix: text, .. } if self.echo => text.clone(),
            Prompt::Tokens(tokens) if self.echo => {
                tokenizer.map(|tokenizer| tokenizer.decode(tokens, SpecialTokens::Keep)).unwrap_or_default()
            }
            _ => String::new(),
        }
    }
}

/// The prompt that is to be filled in before a suffix, if there is one.
fn before(prompt: Prompt, suffix: Option<&str>) -> Result<Prompt, RequestError> {
    match (prompt, suffix) {
        (prompt, None) => Ok(prompt),
        (Prompt::Text(prefix), Some(suffix)) => Ok(Prompt::Between { prefix, suffix: suffix.to_owned() }),
        _ => Err(RequestError::invalid("a prompt before a suffix is text").at("suffix")),
    }
}

/// The prompts; an empty list is one prompt without tokens.
fn prompts(given: Texts<MOST_PROMPTS>) -> Result<Vec<Prompt>, RequestError> {
    let texts = given.read("prompt")?;
    if texts.is_empty() {
        return Ok(vec![Prompt::Tokens(Vec::new())]);
    }
    Ok(texts.into_iter().map(Prompt::from).collect())
}
