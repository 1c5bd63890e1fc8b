//! How a server is run: who is let in, how much they may ask for, what is written down, and what goes over the wire.
//!
//! The engine, the tokenizer and all layers are real; the executor computes nothing, and can be held up.

mod agents;
#[path = "../../../../tests/default_models.rs"]
mod default_models;
mod guard;
mod health;
mod identity;
mod intake;
mod kept;
mod library;
mod limits;
mod observe;
mod routes;
mod sockets;
mod support;
mod tenants;
