//! What is asked, independent of any model and of any wire format. Ranges hold by the types of its fields.

use std::num::NonZeroUsize;

use ropeway_executor::Seed;
use serde_json::Value;

use crate::conversation::Conversation;
use crate::sampling::{Sampling, random_seed};
use crate::speculation::DraftDepth;
use crate::structured::StructuredOutput;

/// What is continued.
#[derive(Clone, Debug)]
pub enum Prompt {
    /// A conversation, through the model's chat template. The answer is a message of its own.
    Conversation(Conversation),
    /// A text, continued as it is.
    Text(String),
    /// What is missing between two texts, for models that were trained to fill in.
    Between {
        /// The text before.
        prefix: String,
        /// The text after.
        suffix: String,
    },
    /// Token ids, continued as they are.
    Tokens(Vec<u32>),
}

impl Prompt {
    /// Bytes of text that have to be read before it can be submitted: how long that takes grows with them.
    pub fn bytes(&self) -> usize {
        match self {
            Prompt::Conversation(conversation) => {
                conversation.messages.iter().chain(&conversation.tools).map(text_bytes).sum()
            }
            Prompt::Text(text) => text.len(),
            Prompt::Between { prefix, suffix } => prefix.len() + suffix.len(),
            Prompt::Tokens(tokens) => tokens.len(),
        }
    }
}

/// Bytes of all texts in a JSON value.
pub fn text_bytes(value: &Value) -> usize {
    match value {
        Value::String(text) => text.len(),
        Value::Array(items) => items.iter().map(text_bytes).sum(),
        Value::Object(fields) => fields.iter().map(|(name, value)| name.len() + text_bytes(value)).sum(),
        Value::Null | Value::Bool(_) | Value::Number(_) => 1,
    }
}

/// A prompt, and how it is to be continued.
#[derive(Clone, Debug)]
pub struct Job {
    /// What is continued.
    pub prompt: Prompt,
    /// Tokens before the prompt's own, from an earlier answer.
    pub context: Vec<u32>,
    /// How tokens are chosen.
    pub sampling: Sampling,
    /// Most new tokens per choice; `None` leaves it to the model and the context.
    pub max_tokens: Option<usize>,
    /// Tokens before which the model can't end its answer.
    pub min_tokens: usize,
    /// Whether the model's own end tokens are passed over.
    pub ignore_eos: bool,
    /// Texts that end the answer, and are not part of it.
    pub stop: Vec<String>,
    /// Tokens that end the answer as the model's own end tokens do, even where those are passed over.
    pub stop_tokens: Vec<u32>,
    /// Words that the answer may not hold, each of one token.
    pub bad_words: Vec<String>,
    /// Keep only so many of the prompt's last tokens.
    pub last_prompt_tokens: Option<usize>,
    /// The form that the answer has to follow.
    pub structured: Option<StructuredOutput>,
    /// How many choices are generated.
    pub n: NonZeroUsize,
    /// Report the prompt's own log-probabilities, with so many alternatives.
    pub prompt_logprobs: Option<u32>,
    /// Most tokens drafted for a choice in a step; `None` leaves it to the engine.
    pub speculation: Option<DraftDepth>,
    /// What the caller expects as the answer: it is drafted.
    pub prediction: Option<String>,
    /// Whether tokens are reported as soon as they are chosen, even while their text is held back.
    pub tokens_at_once: bool,
}

impl Job {
    /// Bytes of text that have to be read before it can be submitted: how long that takes grows with them.
    pub fn bytes(&self) -> usize {
        self.prompt.bytes() + self.prediction.as_ref().map_or(0, String::len)
    }

    /// A job with these sampling parameters, and default options otherwise.
    pub fn with_sampling(prompt: Prompt, sampling: Sampling) -> Self {
        Self {
            prompt,
            context: Vec::new(),
            sampling,
            max_tokens: None,
            min_tokens: 0,
            ignore_eos: false,
            stop: Vec::new(),
            stop_tokens: Vec::new(),
            bad_words: Vec::new(),
            last_prompt_tokens: None,
            structured: None,
            n: NonZeroUsize::MIN,
            prompt_logprobs: None,
            speculation: None,
            prediction: None,
            tokens_at_once: false,
        }
    }
}

/// The seed of a client that sends signed numbers; another one each time if it sends none.
pub fn seed(given: Option<i64>) -> Seed {
    given.map_or_else(random_seed, |seed| Seed(seed.cast_unsigned()))
}
