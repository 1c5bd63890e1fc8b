//! CPU kernels: the loops a step is made of, and the team of threads that runs them.
//!
//! Everything here is plain arithmetic on flat arrays. Operations allocate nothing and spawn nothing; the
//! instruction set is chosen once ([`Isa`]); one packed layout serves all of them; and a row's result never
//! depends on which other rows share the batch, on chunking, or on the number of threads.
//!
//! # Layout
//! - [`isa`], [`pool`], [`compute`], [`memory`]: what operations run on.
//! - [`packed`], [`activations`]: operands in the forms the kernels read.
//! - [`prepare`], [`route`]: from rows of floats into those forms, norms and rotary embedding on the way.
//! - [`kv`]: how keys and values lie in a block; [`attention`]: the walk over them, and over whole
//!   texts in both directions.
//! - [`matmul`]: products; `reference.rs` is the specification, one file per instruction set.
//! - [`elementwise`]: norms, activations; [`vectorise`]: plain loops compiled for the instruction set.

#![allow(
    clippy::inline_always,
    reason = "a part must take on its caller's instruction set, and only inlining gives it that"
)]
#![allow(
    clippy::needless_range_loop,
    reason = "tiles index several register arrays by the same row, half or step, as their formulas do"
)]
#![allow(clippy::wildcard_imports, reason = "intrinsics carry their own prefix and come by the dozen")]
#![allow(
    clippy::cast_ptr_alignment,
    reason = "buffers are aligned to 64 bytes and layouts keep each area aligned; each SAFETY comment says how"
)]
#![cfg_attr(test, allow(clippy::float_cmp, reason = "these tests expect exact values"))]

pub mod activations;
pub mod attention;
pub mod compute;
pub mod elementwise;
pub mod isa;
pub mod kv;
pub mod limits;
pub mod matmul;
pub mod memory;
pub mod packed;
pub mod pool;
pub mod prepare;
pub mod route;
pub mod vectorise;

pub use compute::Compute;
pub use isa::{Isa, IsaError};
