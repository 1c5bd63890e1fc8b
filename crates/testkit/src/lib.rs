//! Everything needed to run the real engine without a model: time that passes only when told, and an executor that
//! computes nothing but notices every mistake.
//!
//! # Layout
//! - [`clock`]: simulated time. [`rng`]: seeded numbers.
//! - [`mock`]: the executor; [`step_time`]: how long its steps take.
//! - [`disk`]: a tier below memory that is slow, fails, lies and forgets.
//! - [`readers`]: reads many streams at once.
//! - [`chaos`]: seeded scenarios with faults, in which every rule of the engine is checked.
//! - [`liveness`]: seeded scenarios of shortage and slowness, in which every request must finish within a stated bound.
//! - [`trial`]: runs a rule over seeds; [`shrink`]: makes a failing scenario smaller.
//! - [`trace`]: recorded traffic. [`simulate`]: workloads on a machine that is only a cost model.

#![forbid(unsafe_code)]

pub mod chaos;
pub mod clock;
pub mod disk;
pub mod drafter;
pub mod liveness;
pub mod mock;
pub mod readers;
pub mod rng;
pub mod shrink;
pub mod simulate;
pub mod step_time;
pub mod trace;
pub mod trial;

pub use clock::SimClock;
pub use disk::{DiskNature, SimDisk};
pub use mock::{Fault, MockExecutor};
