//! Everything needed to run the real engine without a model: time that passes only when told, and an executor that
//! computes nothing but notices every mistake.
//!
//! # Layout
//! - [`clock`]: simulated time.
//! - [`mock`]: the executor.

#![forbid(unsafe_code)]

pub mod clock;
pub mod mock;

pub use clock::SimClock;
pub use mock::{Fault, MockExecutor};
