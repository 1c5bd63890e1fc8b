//! What a route's body holds in its large fields, and how much of it there can be.
//!
//! Every field that is not named here is counted in names and values, known to the route or not.

use crate::app::App;
use ropeway_generation::Excess;

use crate::error::ApiError;

/// Bytes that one text to embed may have. Encoders read some hundred to some thousand tokens of a text, so that the end of
/// a longer one could not matter.
const MOST_EMBEDDED_BYTES: usize = 1 << 20;

/// Token ids that one text to embed may have: more than any encoder reads.
const MOST_EMBEDDED_TOKENS: usize = 1 << 17;

/// Bytes of text that `/tokenize` reads, or what the context could hold if that is more: about 60 ms of work.
const MOST_COUNTED_BYTES: usize = 1 << 20;

/// Bytes of a text that is no part of a prompt: the longest grammar. One of the wrong type is repeated in the parser's
/// error, where a character may take twelve times its bytes.
const MOST_OTHER_BYTES: usize = 256 << 10;

/// Bytes that a tokenizer reads at once, whatever the context.
const MOST_TEXT_BYTES: usize = 16 << 20;

/// What a field holds.
#[derive(Clone, Copy, Debug)]
pub enum Holds {
    /// Messages, tools or variables, all of them in one prompt.
    Conversation,
    /// The same, or a text in their place.
    ConversationOrText,
    /// The answer that a client expects: texts that count together.
    Prediction,
    /// One prompt, as text.
    Prompt,
    /// Up to so many prompts, as texts or as lists of token ids, each on its own.
    Prompts(usize),
    /// The same, always in a list.
    PromptList(usize),
    /// Up to so many texts to embed, as texts or as lists of token ids.
    Embedded(usize),
    /// Token ids, as many as a context holds.
    Tokens,
    /// A text whose tokens are asked for, however many they are.
    Counted,
}

/// A field of a body, at the top.
#[derive(Clone, Copy, Debug)]
pub struct Field {
    /// Its name.
    pub name: &'static str,
    /// What it holds.
    pub holds: Holds,
}

impl Field {
    /// A field of this name.
    pub const fn new(name: &'static str, holds: Holds) -> Self {
        Self { name, holds }
    }
}

/// What a field has room for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Room {
    /// Bytes of text: of each one, or of all together if they end up in one prompt.
    pub text: usize,
    /// Bytes of a text that is the whole field.
    pub alone: usize,
    /// Whether texts count together.
    pub together: bool,
    /// Texts and lists; their numbers are token ids. `None` counts names and values.
    pub items: Option<usize>,
    /// Ids of each list.
    pub ids: usize,
}

impl Room {
    /// Fields that are no part of a prompt, whether the route knows them or not.
    pub const OTHER: Room =
        Room { text: MOST_OTHER_BYTES, alone: MOST_OTHER_BYTES, together: false, items: None, ids: 0 };
}

/// What the models that are served have room for; the largest counts, as a body's model is known at its end only.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Contexts {
    /// Bytes of a prompt that may fit.
    pub text: usize,
    /// Tokens of a prompt.
    pub tokens: usize,
}

impl Contexts {
    /// Those of an app's models.
    pub fn of(app: &App) -> Self {
        let models = app.models.all();
        let most = |size: fn(&crate::Model) -> usize| models.iter().map(|model| size(model)).max();
        let text = most(|model| model.generator.max_prompt_bytes());
        let tokens = most(crate::Model::context);
        let asked = app.limits.sizes.prompt_tokens.unwrap_or(usize::MAX);
        Self {
            text: text.unwrap_or(usize::MAX).min(MOST_TEXT_BYTES),
            tokens: tokens.unwrap_or(usize::MAX).min(asked),
        }
    }

    /// What a field has room for.
    pub fn room(self, holds: Holds) -> Room {
        let alone = self.text;
        let room = Room { text: self.text, alone, together: false, items: None, ids: self.tokens };
        match holds {
            Holds::Conversation => Room { alone: MOST_OTHER_BYTES, ..self.room(Holds::ConversationOrText) },
            // Not all that messages hold is rendered: names of roles and parts, thoughts of earlier answers.
            Holds::ConversationOrText => {
                Room { text: self.text.saturating_mul(2).saturating_add(1 << 16), together: true, ..room }
            }
            Holds::Prediction => Room { alone: MOST_OTHER_BYTES, together: true, ..room },
            Holds::Prompt => Room { items: Some(1), ids: 0, ..room },
            Holds::Prompts(most) => Room { items: Some(most), ..room },
            Holds::PromptList(most) => Room { items: Some(most), alone: MOST_OTHER_BYTES, ..room },
            Holds::Embedded(most) => Room {
                text: MOST_EMBEDDED_BYTES,
                alone: MOST_EMBEDDED_BYTES,
                items: Some(most),
                ids: MOST_EMBEDDED_TOKENS,
                ..room
            },
            Holds::Tokens => Room { text: 0, alone: 0, items: Some(1), ..room },
            Holds::Counted => {
                let text = self.text.max(MOST_COUNTED_BYTES);
                Room { text, alone: text, items: Some(1), ids: 0, ..room }
            }
        }
    }

    /// The error for a text that is too long for its field.
    pub fn text_too_long(self, field: Field) -> ApiError {
        let room = self.room(field.holds).text;
        let what = match field.holds {
            Holds::Embedded(_) => format!("a text has at most {room} bytes here; send its parts"),
            Holds::Counted => {
                format!("a text of which tokens are asked has at most {room} bytes; send its parts")
            }
            Holds::Prediction => format!(
                "the prediction has more than {room} bytes, which never fit into the {} tokens that prompt and answer have \
                 room for; shorten it",
                self.tokens
            ),
            _ => {
                let what = format!(
                    "This model's maximum context length is {} tokens for prompt and answer together. However, the prompt \
                     has more than {room} bytes, which never fit; shorten it, or raise --context or --kv-memory",
                    self.tokens
                );
                let excess = Excess { tokens: self.tokens + 1, room: self.tokens };
                let error = ApiError::invalid(what).about(field.name).coded("context_length_exceeded");
                return ApiError { excess: Some(excess), ..error };
            }
        };
        ApiError::invalid(what).about(field.name).coded("context_length_exceeded")
    }

    /// The error for a text that is no part of a prompt.
    pub fn other_text_too_long() -> ApiError {
        let what =
            format!("a text that is no part of a prompt has at most {MOST_OTHER_BYTES} bytes; leave it out");
        ApiError::invalid(what).coded("text_too_long")
    }

    /// The error for more token ids than a list may have.
    pub fn too_many_tokens(self, field: Field) -> ApiError {
        let room = self.room(field.holds).ids;
        let what =
            format!("a list has at most {room} token ids, which is what prompt and answer have room for");
        ApiError::invalid(what).about(field.name).coded("context_length_exceeded")
    }
}
