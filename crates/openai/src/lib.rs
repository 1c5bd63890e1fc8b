//! OpenAI's wire formats, without HTTP: request bodies to [`Job`](ropeway_generation::Job)s, generated text to response
//! bodies.
//!
//! Shared by the server's routes and by the lines of a batch file, so that a body means the same in both. Unknown fields
//! are ignored; a known one that can't be honoured is an error, never silence. It must never know a socket, a status code
//! or a file.
//!
//! # Layout
//! - [`chat`], [`completions`], [`embeddings`]: a request and its responses each.
//! - [`sampling`]: fields that chat and completions share; [`messages`], [`texts`], [`token_ids`], [`stops`],
//!   [`structured`], [`speculation`], [`tool_choice`]: parts of a request.
//! - [`foreign_ids`]: ids of a tokenizer that is not the model's.
//! - [`logprobs`], [`usage`], [`error`], [`object`]: parts of a response.

#![forbid(unsafe_code)]

pub mod chat;
pub mod completions;
pub mod embeddings;
pub mod error;
pub mod foreign_ids;
pub mod logprobs;
pub mod messages;
pub mod object;
pub mod sampling;
pub mod speculation;
pub mod stops;
pub mod structured;
pub mod texts;
pub mod token_ids;
pub mod tool_choice;
pub mod usage;

pub use chat::ChatCompletionRequest;
pub use completions::CompletionRequest;
pub use embeddings::EmbeddingsRequest;
pub use sampling::Defaults;
