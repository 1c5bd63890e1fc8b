//! The compute machine: one thread pool and its scratch, leased by all models of the process.
//!
//! ```text
//! engine of model A   ─ lease(step)  ─┐
//! engine of model B   ─ lease(step)  ─┼─ arbiter ─ one lease at a time ─ thread pool
//! embedder            ─ lease(layer) ─┘
//! ```
//! Two models that compute at the same time would take the cores from each other in the middle of every operation, so
//! only the holder of a [`Lease`] computes. Waiting for it is measured apart from computing. A lease must never be held
//! by anyone who waits for something else: a client, a file or another lease.
//!
//! # Layout
//! - [`arbiter`]: who gets the next lease; plain data and a clock from outside.
//! - [`tuner`]: on how many threads a step runs; plain data and a clock from outside.
//! - [`machine`]: the pool, the lock around both, and the leases.

pub mod arbiter;
pub mod machine;
pub mod tuner;

pub use machine::{Lease, LeaseRequest, Machine, Seat, Tenant, Threads};
