//! Why a line got no answer. Each is told in the line's place in the output; the other lines go on.

use ropeway_engine::{Rejected, SequenceError};
use ropeway_text::TextError;

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
    #[error("the url {0:?} is not served; use /v1/chat/completions or /v1/completions")]
    UnknownUrl(String),
    /// There is nothing to answer.
    #[error("the line asks nothing; give it {0}")]
    NothingAsked(&'static str),
    /// A field is not what it should be.
    #[error("a field is not as expected: {0}")]
    BadField(String),
    /// A number is too small or too large.
    #[error("{field} must be from {least} to {most}")]
    OutOfRange {
        /// Which.
        field: &'static str,
        /// At least this.
        least: f32,
        /// At most this.
        most: f32,
    },
    /// It asks for something that would change the answer and is not done here.
    #[error("{0} is not supported in batches; leave it out")]
    Unsupported(&'static str),
    /// Its text could not become tokens.
    #[error(transparent)]
    Text(#[from] TextError),
    /// The engine turned it down.
    #[error(transparent)]
    Rejected(#[from] Rejected),
    /// It failed on the way.
    #[error(transparent)]
    Failed(#[from] SequenceError),
}

impl LineError {
    /// The HTTP status that a server would have answered with.
    pub fn status(&self) -> u16 {
        match self {
            LineError::Failed(_) => 500,
            _ => 400,
        }
    }

    /// Its kind, for programs.
    pub fn code(&self) -> &'static str {
        match self {
            LineError::Failed(_) => "server_error",
            _ => "invalid_request",
        }
    }
}
