//! CPU kernels: the loops a step is made of, and the team of threads that runs them.
//!
//! Everything here is plain arithmetic on flat arrays. Operations allocate nothing and spawn nothing; the
//! instruction set is chosen once ([`Isa`]); one packed layout serves all of them; and a row's result never
//! depends on which other rows share the batch, on chunking, or on the number of threads.
//!
//! # Layout
//! - [`isa`], [`pool`], [`compute`], [`memory`]: the machine.
//! - [`packed`], [`activations`]: operands in the forms the kernels read.
//! - [`prepare`], [`route`]: from rows of floats into those forms, norms and rotary embedding on the way.
//! - [`kv`]: how keys and values lie in a block; [`attention`]: the walk over them.
//! - [`matmul`]: products; `reference.rs` is the specification, one file per instruction set.
//! - [`elementwise`]: norms, activations, softmax.

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
mod vectorise;

pub use compute::Compute;
pub use isa::{Isa, IsaError};
