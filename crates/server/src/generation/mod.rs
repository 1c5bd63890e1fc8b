//! The shared middle of every text API: a validated job in, pieces of text out.
//!
//! ```text
//! wire type ─ validate ─> Job ─ submit ─> engine events ─ detokenise, stop strings ─> Piece ─> rendered by the family
//! ```
//! It knows tokens, text and the engine's events; it must never know a wire format or a route.

mod answer;
pub mod chat;
mod prompt;
pub mod sampling;
pub mod structure;

use std::sync::Arc;
use std::time::Duration;

use answer::Form;
pub use answer::{Answer, Piece, Stopped, TokenReport, Whole};
pub use prompt::{text_bytes, text_prompt, text_prompts, token_prompt, tokens};
use ropeway_engine::{Class, ClientId, Grammar, Request};
use ropeway_executor::SamplingParams;

use crate::error::ApiError;
use crate::guard::clients::Permit;
use crate::guard::limits::Sizes;
use crate::model::Model;
use crate::observe::Progress;

/// Everything needed to answer, checked.
#[derive(Clone, Debug)]
pub struct Job {
    /// The model's tokens for the prompt.
    pub prompt: Vec<u32>,
    /// Whether the answer continues the prompt's text, rather than being a message of its own.
    pub continues: bool,
    /// How tokens are chosen.
    pub params: SamplingParams,
    /// Most new tokens; `None` leaves it to the model and the context.
    pub max_tokens: Option<usize>,
    /// Fewest new tokens.
    pub min_tokens: usize,
    /// Whether the model's own end tokens count.
    pub ignore_eos: bool,
    /// Texts that end the answer, and are not part of it.
    pub stops: Vec<String>,
    /// What the answer has to follow.
    pub grammar: Option<Arc<dyn Grammar>>,
    /// How many answers.
    pub n: usize,
    /// Report the prompt's log-probabilities, with so many alternatives.
    pub score_prompt: Option<u32>,
    /// Who asks, how urgently, and for how long.
    pub caller: Caller,
}

/// Who asks.
#[derive(Clone, Debug, Default)]
pub struct Caller {
    /// For fairness.
    pub client: ClientId,
    /// How urgent it is.
    pub class: Class,
    /// Cached blocks are shared only within the same salt.
    pub salt: Vec<u8>,
    /// Longest time to answer.
    pub deadline: Option<Duration>,
    /// Longest time in the queue.
    pub queue_timeout: Option<Duration>,
    /// What the request may ask for.
    pub limits: Sizes,
    /// The client's place among its own requests, where these are counted.
    pub permit: Option<Arc<Permit>>,
    /// Where it is told how the request goes.
    pub progress: Progress,
}

impl Job {
    /// A job with the model's defaults.
    pub fn new(prompt: Vec<u32>, caller: Caller) -> Self {
        Self {
            prompt,
            continues: false,
            params: SamplingParams::default(),
            max_tokens: None,
            min_tokens: 0,
            ignore_eos: false,
            stops: Vec::new(),
            grammar: None,
            n: 1,
            score_prompt: None,
            caller,
        }
    }

    /// Turns down what no family allows, before anything is made for the answer.
    pub fn check(&self) -> Result<(), ApiError> {
        self.caller.limits.check(self)?;
        sampling::check(&self.params)
    }

    /// Hands the job to the model's engine.
    pub fn submit(self, model: &Arc<Model>) -> Result<Answer, ApiError> {
        self.check()?;
        let ends = if self.ignore_eos { Vec::new() } else { model.tokenizer.eos_tokens().to_vec() };
        let request = Request {
            prompt: self.prompt,
            params: self.params.clone(),
            max_tokens: self.max_tokens,
            min_tokens: self.min_tokens,
            score_prompt: self.score_prompt,
            ends,
            grammar: self.grammar,
            n: self.n,
            client: self.caller.client,
            class: self.caller.class,
            salt: self.caller.salt.clone(),
            deadline: self.caller.deadline,
            queue_timeout: self.caller.queue_timeout,
        };
        let prompt_len = request.prompt.len();
        let stream = model.engine().submit(request)?;
        self.caller.progress.submitted(self.caller.class, prompt_len);
        let form = Form { n: self.n.max(1), stops: self.stops, continues: self.continues };
        Ok(Answer::new(Arc::clone(model), stream, prompt_len, &form, self.caller))
    }
}
