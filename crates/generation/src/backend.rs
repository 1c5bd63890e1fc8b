//! What answers a model's requests, as whoever looks after it knows it: how busy it is, and how it is stopped.

use std::sync::Arc;
use std::time::Duration;

use ropeway_engine::board::Board;
use ropeway_engine::request::room;
use ropeway_engine::{Backend, Handle, Load};
use ropeway_executor::Limits;

use crate::chat::ChatBackend;

/// A backend that speaks tokens, or one that answers as text.
#[derive(Clone)]
pub enum AnyBackend {
    /// Tokens in, tokens out.
    Tokens(Arc<dyn Backend>),
    /// Conversations in, text out.
    Text(Arc<dyn ChatBackend>),
}

impl AnyBackend {
    /// What it holds now.
    pub fn load(&self) -> Load {
        match self {
            Self::Tokens(backend) => backend.load(),
            Self::Text(backend) => backend.load(),
        }
    }

    /// Time after which a request that found no place, or had to wait too long, may find one.
    pub fn queue_wait(&self) -> Duration {
        match self {
            Self::Tokens(backend) => backend.queue_wait(),
            Self::Text(backend) => backend.queue_wait(),
        }
    }

    /// Ends every open request and takes no more.
    pub fn stop(&self) {
        match self {
            Self::Tokens(backend) => backend.stop(),
            Self::Text(backend) => backend.stop(),
        }
    }

    /// Tokens that a prompt and its answer may have together.
    pub fn context(&self) -> usize {
        match self {
            Self::Tokens(backend) => room(&backend.limits()),
            Self::Text(backend) => backend.context(),
        }
    }

    /// The largest request in tokens and blocks, where it speaks tokens.
    pub fn limits(&self) -> Option<Limits> {
        self.tokens().map(Backend::limits)
    }

    /// The engine, if it is one of this process.
    pub fn engine(&self) -> Option<&Handle> {
        self.tokens().and_then(Backend::engine)
    }

    /// Metrics and step records, if it computes the requests itself.
    pub fn board(&self) -> Option<&Board> {
        self.tokens().and_then(Backend::board)
    }

    fn tokens(&self) -> Option<&dyn Backend> {
        match self {
            Self::Tokens(backend) => Some(&**backend),
            Self::Text(_) => None,
        }
    }
}
