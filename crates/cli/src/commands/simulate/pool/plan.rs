//! A pool, and what happens to it.

use std::time::Duration;

use ropeway_pool::dispatch::{Capacity, Settings};
use ropeway_testkit::simulate::server::ServerModel;

/// How often servers die, and for how long.
#[derive(Clone, Copy, Debug)]
pub struct Deaths {
    /// Mean time from one death of a server to its next.
    pub every: Duration,
    /// How long it takes to start again.
    pub lasts: Duration,
}

/// A pool, and what happens to it.
#[derive(Clone, Copy, Debug)]
pub struct PoolPlan {
    /// How many servers.
    pub servers: usize,
    /// What each can do.
    pub model: ServerModel,
    /// What each may be given.
    pub capacity: Capacity,
    /// The dispatcher in front.
    pub settings: Settings,
    /// How servers die, if they do.
    pub deaths: Option<Deaths>,
    /// For deaths.
    pub seed: u64,
}
