//! Why a line got no answer. Each is told in the line's place in the output; the other lines go on.

use ropeway_generation::{ErrorKind, RequestError};

/// A line that can't be answered.
#[derive(Debug, thiserror::Error)]
pub enum LineError {
    /// It is longer than any prompt.
    #[error("the line is longer than {} MiB; shorten its prompt", .0 >> 20)]
    TooLong(usize),
    /// It is no JSON.
    #[error("the line is no JSON object: {0}")]
    NotJson(String),
    /// A line before it has the same id.
    #[error("the id {0:?} was used by an earlier line; give each line its own")]
    Duplicate(String),
    /// It names an endpoint that is not served here.
    #[error("the url {0:?} is not served; use /v1/chat/completions, /v1/completions or /v1/embeddings")]
    UnknownUrl(String),
    /// There is nothing to answer.
    #[error("the line asks nothing; give it {0}")]
    NothingAsked(&'static str),
    /// A field is not what it should be.
    #[error("a field is not as expected: {0}")]
    BadField(String),
    /// Its request is wrong, or failed on the way.
    #[error(transparent)]
    Request(#[from] RequestError),
}

impl LineError {
    /// The error as an API would tell it.
    pub fn into_request_error(self) -> RequestError {
        match self {
            LineError::Request(error) => error,
            other => RequestError::invalid(other.to_string()),
        }
    }
}

/// The HTTP status that a server would have answered with.
pub fn status(kind: ErrorKind) -> u16 {
    match kind {
        ErrorKind::InvalidRequest | ErrorKind::ContextLengthExceeded => 400,
        ErrorKind::Overloaded | ErrorKind::QueueTimeout => 503,
        ErrorKind::Timeout => 504,
        ErrorKind::Internal => 500,
    }
}
