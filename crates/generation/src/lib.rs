//! Text generation on a [`Backend`](ropeway_engine::Backend) or a [`ChatBackend`]: what is asked, and the text that comes back.
//!
//! ```text
//! Job ─ Generator::prepare ─> Prepared ─ Generator::submit ─> GenerationStream ─> GenerationEvent ... ─ Collector ─> Choice
//!      template, tokenise,    engine Request                  detokenise, stop strings,
//!      compile the grammar                                    reasoning, tool calls
//!
//! where the backend answers as text, the job is only checked, and its events pass through
//! ```
//! One implementation for every caller: the HTTP server, `ropeway run` and `ropeway batch`. It relies on the text and
//! grammar crates and on a backend's events. It must never know HTTP, a wire format or an operator's limits: callers
//! parse their own requests into a [`Job`] and render [`GenerationEvent`]s in their own form.
//!
//! # Layout
//! - [`job`]: what is asked; [`conversation`]: messages and tools; [`tools`]: which tools can be called; [`sampling`]: parameter ranges; [`structured`]: the
//!   form that an answer has to follow; [`speculation`]: how much may be drafted.
//! - [`chat`]: the seam to servers that answer as text; [`backend`]: what answers, whichever way it does.
//! - [`generator`]: a model that generates text. [`stream`]: its output, from the events of `choice`. [`collect`]: whole
//!   choices.
//! - [`error`]: failed requests; [`identity`]: ids of responses.

#![forbid(unsafe_code)]

pub mod backend;
pub mod chat;
mod choice;
pub mod collect;
pub mod conversation;
pub mod error;
pub mod generator;
pub mod identity;
pub mod job;
pub mod sampling;
pub mod speculation;
pub mod stream;
pub mod structured;
pub mod thinking;
pub mod tools;

pub use backend::AnyBackend;
pub use chat::{ChatAbilities, ChatAsk, ChatBackend, ChatEvents};
pub use collect::{Choice, Collector, Generated, ToolCall, collect};
pub use conversation::{Conversation, Ending, Overflow, ToolChoice};
pub use error::{ErrorKind, Excess, RequestError};
pub use generator::{AdmittedDraft, Drafted, Generator, Prepared, TokenModel};
pub use identity::{Identity, unique};
pub use job::{Job, Prompt};
pub use sampling::Sampling;
pub use speculation::DraftDepth;
pub use stream::{Finish, GenerationEvent, GenerationStream, StopReason, text_of};
pub use structured::StructuredOutput;
pub use tools::OfferedTools;
