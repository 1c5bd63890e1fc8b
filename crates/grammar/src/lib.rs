//! Structured output: what an answer has to look like, compiled for a model's tokenizer.
//!
//! ```text
//! GrammarSpec ─ Compiler::admit ─> Admitted ─ Compiler::compile_admitted ─> Arc<Compiled> ─ begin ─> a guide per sequence
//!               (limits, trial)               (cache)                                               (masks, forced tokens)
//! ```
//! Parsing and masks are llguidance's. This crate turns its callers' wishes into grammars that it reads, tells it the tokenizer's
//! bytes, bounds what a grammar may cost, keeps compiled ones, and gives the engine the guides it knows.
//!
//! It relies on nothing that a client wrote: sizes are limited before anything is compiled, what it would take is found out
//! in a process that can be ended, and a panic on the way is an error of that request. Every sequence gets a parser of its own, with nothing shared but
//! what never changes, so that its answer depends on its own tokens alone. It must never be called on the engine's thread
//! to compile anything.
//!
//! # Layout
//! - `spec`: what can be asked for. `schema`, `tools`, `gbnf`: from there to what llguidance reads.
//! - `vocabulary`: the tokenizer as llguidance sees it.
//! - `complexity`: limits on what is written. `workers`: trials in processes that can be ended.
//! - `compiler`: admission and compilation; `cache`. `parsers`: llguidance's, within limits. `guide`: one sequence's way through a grammar, within its share of memory.

#![forbid(unsafe_code)]

mod cache;
mod compiler;
mod complexity;
mod error;
mod gbnf;
mod guide;
mod landing;
mod parsers;
mod schema;
mod spec;
mod tools;
mod vocabulary;
mod workers;

pub use compiler::{Admitted, Compiled, Compiler, Stats};
pub use error::GrammarError;
pub use spec::{GrammarSpec, Reasoning, Strictness};
pub use tools::{Tool, either, tool_call};
pub use workers::{Account, Workers, work};
