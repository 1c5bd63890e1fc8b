//! What can go wrong with a request, before any API family gives it its shape.

use std::time::Duration;

use axum::Json;
use axum::http::StatusCode;
use axum::http::header::RETRY_AFTER;
use axum::response::{IntoResponse, Response};
use ropeway_generation::{ErrorKind, Excess, RequestError};
use serde_json::Value;

/// The kinds of failure that all API families tell apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// The request makes no sense, or asks for what this server can't do.
    Invalid,
    /// Who asks is unknown.
    Unauthenticated,
    /// Who asks may not.
    Forbidden,
    /// There is no such model or route.
    NotFound,
    /// It contradicts what is there: a name that is taken, something that is in use.
    Conflict,
    /// The body is larger than the server reads.
    TooLarge,
    /// The body arrives too slowly.
    SlowBody,
    /// This client asks for too much at once.
    RateLimited,
    /// The server has too much to do, or is not ready.
    Overloaded,
    /// It took longer than it may.
    TimedOut,
    /// There is not enough memory for it.
    NoRoom,
    /// The server's fault.
    Internal,
}

impl Kind {
    /// Its HTTP status.
    pub fn status(self) -> StatusCode {
        match self {
            Kind::Invalid => StatusCode::BAD_REQUEST,
            Kind::Unauthenticated => StatusCode::UNAUTHORIZED,
            Kind::Forbidden => StatusCode::FORBIDDEN,
            Kind::NotFound => StatusCode::NOT_FOUND,
            Kind::Conflict => StatusCode::CONFLICT,
            Kind::TooLarge => StatusCode::PAYLOAD_TOO_LARGE,
            Kind::SlowBody => StatusCode::REQUEST_TIMEOUT,
            Kind::RateLimited => StatusCode::TOO_MANY_REQUESTS,
            Kind::Overloaded => StatusCode::SERVICE_UNAVAILABLE,
            Kind::TimedOut => StatusCode::GATEWAY_TIMEOUT,
            Kind::NoRoom => StatusCode::INSUFFICIENT_STORAGE,
            Kind::Internal => StatusCode::INTERNAL_SERVER_ERROR,
        }
    }
}

/// A failed request: what kind, what to tell, and about which parameter.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct ApiError {
    /// What kind of failure.
    pub kind: Kind,
    /// What happened and what to do.
    pub message: String,
    /// The parameter at fault.
    pub param: Option<String>,
    /// A word for programs, where the family has one.
    pub code: Option<&'static str>,
    /// When to try again.
    pub retry_after: Option<Duration>,
    /// How much too long a prompt is, if it is.
    pub excess: Option<Excess>,
}

/// How long a client turned away for load should wait where nobody knows better: a few seconds let a handful of short
/// requests finish.
pub const A_MOMENT: Duration = Duration::from_secs(2);

impl ApiError {
    /// A failure of this kind.
    pub fn new(kind: Kind, message: impl Into<String>) -> Self {
        Self { kind, message: message.into(), param: None, code: None, retry_after: None, excess: None }
    }

    /// The request is wrong.
    pub fn invalid(message: impl Into<String>) -> Self {
        Self::new(Kind::Invalid, message)
    }

    /// Names the parameter at fault.
    pub fn about(mut self, param: impl Into<String>) -> Self {
        self.param = Some(param.into());
        self
    }

    /// Gives programs a word to go by.
    pub fn coded(mut self, code: &'static str) -> Self {
        self.code = Some(code);
        self
    }

    /// The answer to a failed request: the family's body, and when to try again.
    pub fn response(&self, status: StatusCode, body: Value) -> Response {
        let mut response = (status, Json(body)).into_response();
        if let Some(time) = self.retry_after {
            let seconds = time.as_secs() + u64::from(time.subsec_nanos() > 0);
            response.headers_mut().insert(RETRY_AFTER, seconds.max(1).into());
        }
        response
    }

    /// Says when to try again.
    pub fn retry_after(mut self, time: Duration) -> Self {
        self.retry_after = Some(time);
        self
    }
}

impl From<RequestError> for ApiError {
    fn from(error: RequestError) -> Self {
        let (kind, retry_after) = match error.kind {
            ErrorKind::InvalidRequest | ErrorKind::ContextLengthExceeded => (Kind::Invalid, None),
            ErrorKind::Overloaded | ErrorKind::QueueTimeout => {
                (Kind::Overloaded, error.retry_after.or(Some(A_MOMENT)))
            }
            ErrorKind::Timeout => (Kind::TimedOut, None),
            ErrorKind::Internal => (Kind::Internal, None),
        };
        let code = error.kind.code();
        let RequestError { message, field: param, excess, .. } = error;
        Self { kind, message, param, code, retry_after, excess }
    }
}
