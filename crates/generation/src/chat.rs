//! The seam to servers that answer as text: they get the job as it is, and keep their tokens to themselves.
//!
//! ```text
//! Job ─ check ─> ChatAsk ─ ChatBackend::ask ─> ChatEvents ─> GenerationEvent: text, reasoning, tool calls, usage at the end
//! ```
//! It relies on the other server for everything that tokens are needed for. What only a tokenizer of this process could do is
//! turned down by [`check`] with its field, never left out in silence.

use std::pin::Pin;
use std::time::Duration;

use futures_core::Stream;
use ropeway_engine::{Load, Request};

use crate::error::RequestError;
use crate::job::{Job, Prompt};
use crate::stream::GenerationEvent;

/// How long to wait where a backend does not say.
const SHORTEST_WAIT: Duration = Duration::from_secs(1);

/// What comes back for a job. Every choice ends with exactly one [`GenerationEvent::Finished`], whose usage counts tokens as
/// the other server does; outputs carry no tokens. Dropping it cancels the request.
pub type ChatEvents = Pin<Box<dyn Stream<Item = GenerationEvent> + Send>>;

/// A job for a server that answers as text.
#[derive(Debug)]
pub struct ChatAsk {
    /// What is asked. It needs no tokenizer here.
    pub job: Job,
    /// Who asks, how urgent it is and by when; it has no prompt.
    pub request: Request,
}

/// What a model behind another server can do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChatAbilities {
    /// It calls tools.
    pub tools: bool,
    /// It thinks before it answers, and tells that apart.
    pub thinking: bool,
}

impl Default for ChatAbilities {
    /// What is not known is tried: the other server says if it can't.
    fn default() -> Self {
        Self { tools: true, thinking: true }
    }
}

/// Answers jobs as text and keeps its tokens to itself.
pub trait ChatBackend: Send + Sync {
    /// Takes a job, or turns it down at once with the reason. Never waits.
    fn ask(&self, ask: ChatAsk) -> Result<ChatEvents, RequestError>;

    /// Tokens that a prompt and its answer may have together.
    fn context(&self) -> usize;

    /// What the model can do, as far as is known.
    fn abilities(&self) -> ChatAbilities {
        ChatAbilities::default()
    }

    /// What it holds now.
    fn load(&self) -> Load;

    /// Time after which a request that found no place, or had to wait too long, may find one.
    fn queue_wait(&self) -> Duration {
        SHORTEST_WAIT
    }

    /// Ends every open request and takes no more.
    fn stop(&self);
}

/// The error for what can't be done without the model's tokenizer.
pub fn no_tokenizer() -> RequestError {
    RequestError::invalid(
        "this model's tokenizer is not here: another server computes it and answers as text; leave this out, or have the \
         operator give `tokenizer` for its upstream",
    )
}

/// Turns down what can't be done without the model's tokenizer.
pub(crate) fn check(job: &Job) -> Result<(), RequestError> {
    let params = job.sampling.params();
    let (is_ids, is_infill) =
        (matches!(job.prompt, Prompt::Tokens(_)), matches!(job.prompt, Prompt::Between { .. }));
    let needs_tokens = [
        ("prompt", is_ids),
        ("suffix", is_infill),
        ("context", !job.context.is_empty()),
        ("prompt_logprobs", job.prompt_logprobs.is_some()),
        ("logprobs", params.logprobs.is_some()),
        ("logit_bias", !params.logit_bias.is_empty()),
        ("allowed_token_ids", params.allowed.is_some()),
        ("stop_token_ids", !job.stop_tokens.is_empty()),
        ("bad_words", !job.bad_words.is_empty()),
        ("return_token_ids", job.tokens_at_once),
        ("truncate_prompt_tokens", job.last_prompt_tokens.is_some()),
    ];
    if let Some((field, _)) = needs_tokens.iter().find(|(_, is_asked)| *is_asked) {
        return Err(no_tokenizer().at(*field));
    }
    if job.max_tokens == Some(0) {
        return Err(RequestError::invalid("max_tokens is 0; ask for at least one token").at("max_tokens"));
    }
    match &job.prompt {
        Prompt::Conversation(conversation) => conversation.check(),
        Prompt::Text(text) if text.is_empty() => {
            Err(RequestError::invalid("the prompt is empty; give it some text").at("prompt"))
        }
        _ => Ok(()),
    }
}
