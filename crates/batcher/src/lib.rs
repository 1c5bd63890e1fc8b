//! Collects independent jobs into batches for a worker that is faster with many than with one.
//!
//! ```text
//! submit ──> queue ──> worker idle?       leaves at once
//!                      a batch runs?      collects; what came meanwhile leaves together
//!                      under load?        waits a little longer, while more are likely to come within the window
//!                      full?              leaves at once
//! ```
//! A job that is cancelled, fails or panics affects itself only: the others of its batch are run again without it. The
//! queue is bounded; whoever comes later is told at once.
//!
//! # Layout
//! - [`collector`]: who is waiting, and what leaves when; plain data and a clock from outside.
//! - [`service`]: a collector, its lock and the thread that works.
//! - [`record`]: what a batch came to, for logs and metrics.

pub mod collector;
pub mod record;
pub mod service;

pub use collector::{Collector, Decision, Load, Settings};
pub use record::{BatchRecord, Totals};
pub use service::{Answer, Batcher, Failed, Rejected, Worker};
