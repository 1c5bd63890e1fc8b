//! The engine on the network.
//!
//! ```text
//! handler task: parse -> validate -> template -> tokenise -> submit -> (events) -> detokenise -> render
//! ```
//! One folder per API family; a family's wire types are its own. What they share is written once in [`generation`].
//! It relies on engines through their handles only; it must never know the scheduler, hold a lock while something is
//! generated, or load a model because a client named one.
//!
//! # Layout
//! - [`app`]: what all handlers share; [`model`]: the models served.
//! - [`generation`]: a validated job in, pieces of text out.
//! - [`openai`], [`anthropic`], [`ollama`], [`generate`]: the API families. [`ops`]: health and metrics. [`serve`]: listening and draining, over `connections`.
//! - [`error`], [`extract`], [`caller`]: failures, bodies and who asks.

#![forbid(unsafe_code)]

pub mod anthropic;
pub mod app;
pub mod caller;
mod connections;
pub mod error;
pub mod extract;
pub mod generate;
pub mod generation;
pub mod identity;
pub mod model;
mod ndjson;
pub mod ollama;
pub mod openai;
pub mod ops;
pub mod serve;
pub mod time;

pub use app::{App, router};
pub use model::{Alias, Model, ModelFacts, Models};
