//! Other servers as backends: a queue in front of vLLM, SGLang, llama.cpp, Ollama or other Ropeways.
//!
//! ```text
//! Request ─> dispatch: wait for one's turn ─> flight: attempt at an upstream ─> Event
//!                      choose an upstream             fails before a token: elsewhere, within a budget
//!                                                     fails after some: goes on elsewhere from the tokens so far
//! ```
//! Requests wait here and not in an upstream's own queue, so that classes, fairness between clients, limits and
//! cancellation mean what they mean for a local engine.
//!
//! # Layout
//! - [`settings`]: what an operator says about an upstream; [`error`]: what can go wrong with one.
//! - [`pools`]: all upstreams of a server, looked after; [`lane`]: one model's queue and upstreams.
//! - [`tokens`]: a model whose upstreams speak tokens, as a backend; [`text`]: one whose upstreams answer as text;
//!   [`vectors`]: one that embeds or ranks. `prefix`: names of prompts' beginnings.
//! - [`dispatch`]: who is next, and which upstream gets it. No I/O, no clock of its own: `ropeway simulate --pool` runs the same code.
//! - [`upstream`]: one server as it is spoken to: connections, dialects, probes.
//! - [`chat`]: conversations at servers that keep their tokens to themselves; [`embeddings`]: vectors and ranks.

#![forbid(unsafe_code)]

pub mod chat;
pub mod dispatch;
pub mod embeddings;
pub mod error;
pub mod lane;
pub mod pools;
mod prefix;
pub mod settings;
pub mod text;
pub mod tokens;
pub mod upstream;
pub mod vectors;
