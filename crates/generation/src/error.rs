//! Failed requests: a kind for programs, the field at fault, and a message for people. API families map all three to
//! their own wire form.

use std::time::Duration;

use ropeway_engine::{Rejected, SequenceError};
use ropeway_executor::RowError;
use ropeway_text::TextError;

/// The kinds of failure that callers tell apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ErrorKind {
    /// The request is wrong, or asks for what can't be done.
    InvalidRequest,
    /// The prompt does not fit into the context.
    ContextLengthExceeded,
    /// The backend takes no more requests now.
    Overloaded,
    /// It waited in the queue longer than it may.
    QueueTimeout,
    /// It took longer than it may.
    Timeout,
    /// A fault of the server, not of the request.
    Internal,
}

impl ErrorKind {
    /// The error code that API clients know the more specific kinds by.
    pub fn code(self) -> Option<&'static str> {
        match self {
            ErrorKind::ContextLengthExceeded => Some("context_length_exceeded"),
            ErrorKind::QueueTimeout => Some("queue_timeout"),
            ErrorKind::Timeout => Some("timeout"),
            ErrorKind::InvalidRequest | ErrorKind::Overloaded | ErrorKind::Internal => None,
        }
    }
}

/// A failed request.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct RequestError {
    /// What kind of failure it is.
    pub kind: ErrorKind,
    /// The request's field at fault, as the caller's wire format calls it.
    pub field: Option<String>,
    /// What happened, and what to do about it.
    pub message: String,
    /// When to try again, where that is known.
    pub retry_after: Option<Duration>,
    /// How much too long a prompt is, if it is.
    pub excess: Option<Excess>,
}

/// A prompt that does not fit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Excess {
    /// Its tokens, or at least so many.
    pub tokens: usize,
    /// Tokens that prompt and answer may have together.
    pub room: usize,
}

impl RequestError {
    /// A failure of this kind.
    pub fn new(kind: ErrorKind, message: impl Into<String>) -> Self {
        Self { kind, field: None, message: message.into(), retry_after: None, excess: None }
    }

    /// The request is wrong.
    pub fn invalid(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::InvalidRequest, message)
    }

    /// The prompt has so many tokens, or more, and does not fit.
    pub(crate) fn too_long(excess: Excess, message: impl Into<String>) -> Self {
        let error = Self { excess: Some(excess), ..Self::new(ErrorKind::ContextLengthExceeded, message) };
        error.at("messages")
    }

    /// Names the field at fault.
    pub fn at(mut self, field: impl Into<String>) -> Self {
        self.field = Some(field.into());
        self
    }
}

impl From<Rejected> for RequestError {
    fn from(rejected: Rejected) -> Self {
        let (kind, field) = match &rejected {
            Rejected::TooLong { .. } => (ErrorKind::ContextLengthExceeded, Some("messages")),
            Rejected::NothingToDo => (ErrorKind::InvalidRequest, Some("max_tokens")),
            Rejected::TooManySequences { .. } => (ErrorKind::InvalidRequest, Some("n")),
            Rejected::Grammar(_) => (ErrorKind::InvalidRequest, Some("response_format")),
            Rejected::EmptyPrompt | Rejected::UnknownToken { .. } => {
                (ErrorKind::InvalidRequest, Some("prompt"))
            }
            Rejected::Unsupported(_) => (ErrorKind::InvalidRequest, None),
            Rejected::QueueFull { .. } | Rejected::Unavailable { .. } | Rejected::Closed => {
                (ErrorKind::Overloaded, None)
            }
        };
        let (retry_after, excess) = match rejected {
            Rejected::QueueFull { retry_after, .. } | Rejected::Unavailable { retry_after, .. } => {
                (Some(retry_after), None)
            }
            Rejected::TooLong { tokens, room } => (None, Some(Excess { tokens, room })),
            _ => (None, None),
        };
        Self { kind, field: field.map(Into::into), message: rejected.to_string(), retry_after, excess }
    }
}

impl From<TextError> for RequestError {
    fn from(error: TextError) -> Self {
        Self::invalid(error.to_string())
    }
}

impl From<SequenceError> for RequestError {
    fn from(error: SequenceError) -> Self {
        let kind = match &error {
            SequenceError::Row(RowError::Grammar(_) | RowError::NothingAllowed)
            | SequenceError::Refused(_) => ErrorKind::InvalidRequest,
            // The server starts the engine again; the request may be sent again.
            SequenceError::EngineGone | SequenceError::Upstream(_) => ErrorKind::Overloaded,
            _ => ErrorKind::Internal,
        };
        Self::new(kind, error.to_string())
    }
}
