//! The executor on CPU kernels: paged KV storage, forward pass, sampling.
//!
//! # Layout
//! - [`executor`]: the executor itself; `guess`: what a step will cost before any was measured.
//! - `identity`: what keys and values depend on besides the tokens.
//! - [`sampling`]: from a row of logits to a token.

#![allow(
    clippy::inline_always,
    reason = "a part must take on its caller's instruction set, and only inlining gives it that"
)]

pub mod executor;
mod guess;
mod identity;
pub mod sampling;

pub use executor::{CpuExecutor, CpuOptions};
pub use ropeway_machine::{Machine, Threads};
