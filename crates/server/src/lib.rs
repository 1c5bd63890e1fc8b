//! The engine on the network.
//!
//! ```text
//! handler task: parse -> validate -> template -> tokenise -> submit -> (events) -> detokenise -> render
//! ```
//! One folder per API family; a family's wire types are its own. What they share with the command line is in the
//! `generation` and `openai` crates. It relies on engines through `Backend` only; it must never know the scheduler, hold
//! a lock while something is generated, or load a model because a client named one.
//!
//! # Layout
//! - [`app`]: what all handlers share; [`model`]: the models served; [`library`]: those on disk.
//! - [`generation`]: jobs submitted within a caller's limits, and observed; [`embedding`]: texts in, vectors or scores out.
//! - [`openai`], [`anthropic`], [`ollama`], [`generate`]: the API families; [`agents`]: who comes back, and what is kept for them. [`ops`]: health and metrics. [`serve`], [`tls`]: listening and draining, over `connections`.
//! - [`guard`]: who is let in; [`observe`]: logs and traces; [`routes`], [`family`]: paths, and whose they are; [`docs`]: what is told about them.
//! - [`ask`], [`caller`], [`error`]: the head of every handler, who asks, and failures. [`intake`]: bodies read within a budget; `offload`: long work.

#![forbid(unsafe_code)]

pub mod agents;
pub mod anthropic;
pub mod app;
pub mod ask;
pub mod caller;
pub mod connections;
pub mod docs;
pub mod embedding;
pub mod error;
pub mod family;
mod field;
pub mod generate;
pub mod generation;
pub mod guard;
pub mod intake;
pub mod library;
pub mod model;
mod ndjson;
pub mod observe;
mod offload;
pub mod ollama;
pub mod openai;
pub mod ops;
pub mod routes;
pub mod serve;
pub mod time;
pub mod tls;

pub use app::{App, router};
pub use model::{Alias, Model, ModelFacts, Models};
