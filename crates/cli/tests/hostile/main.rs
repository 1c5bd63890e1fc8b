//! Attacks on a real server of the default model, one test for each row of the table in SECURITY.md: what an attacker does, and what
//! honest clients still get meanwhile.
//!
//! The fast form is part of `./check`: every wait is bounded, and no figure is asserted that a busy machine could miss. The long form
//! mixes all attacks with honest traffic for minutes and reports figures:
//! ```text
//! ROPEWAY_HOSTILE=long cargo test --release -p ropeway-cli --test hostile soak -- --nocapture
//! ```
//!
//! | module | what it is |
//! |---|---|
//! | `names` | flags and rights that the rows rely on |
//! | `client`, `memory`, `home` | who asks; what a server's process holds; a store with the default model in it |
//! | `attacks` | each attack, as a function that both forms use |
//! | `compilation`, `bodies`, `offloaded`, `ending`, `rows`, `tenants`, `rights`, `paths`, `health`, `files` | the rows |
//! | `soak`, `figures` | the long form |
#![cfg(unix)]

mod attacks;
mod bodies;
mod client;
mod compilation;
#[path = "../../../../tests/default_models.rs"]
mod default_models;
mod ending;
mod figures;
mod files;
mod health;
mod home;
mod memory;
mod names;
mod offloaded;
mod paths;
mod rights;
mod rows;
mod soak;
#[path = "../support/mod.rs"]
mod support;
mod tenants;

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Rows measure time and memory: one at a time, so that none is measured in another's attack.
fn my_turn() -> MutexGuard<'static, ()> {
    static TURN: Mutex<()> = Mutex::new(());
    TURN.lock().unwrap_or_else(PoisonError::into_inner)
}
