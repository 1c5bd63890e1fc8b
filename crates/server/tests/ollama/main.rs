//! Ollama's API as its own command line and clients see it, on a library that is made up.

#[path = "../../../../tests/default_models.rs"]
mod default_models;
mod demand;
mod derived;
mod disk;
mod go_bodies;
mod questions;
#[path = "../operation/support.rs"]
#[allow(dead_code, reason = "other tests use the rest")]
mod support;
