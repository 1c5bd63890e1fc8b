//! Everything needed to run the real engine without a model: time that passes only when told, and an executor that
//! computes nothing but notices every mistake.
//!
//! # Layout
//! - [`clock`]: simulated time. [`rng`]: seeded numbers.
//! - [`mock`]: the executor.
//! - [`readers`]: reads many streams at once.
//! - [`chaos`]: seeded scenarios with faults, in which every rule of the engine is checked.
//! - [`simulate`]: workloads on a machine that is only a cost model.

#![forbid(unsafe_code)]

pub mod chaos;
pub mod clock;
pub mod mock;
pub mod readers;
pub mod rng;
pub mod simulate;

pub use clock::SimClock;
pub use mock::{Fault, MockExecutor};
