//! What can go wrong with an upstream, told so that an operator knows what to do, and so that the pool knows whether another
//! upstream may be tried.

use std::time::Duration;

/// A failed conversation with an upstream. Messages name the upstream and never hold its key.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum UpstreamError {
    /// No connection came about: refused, unreachable, no such host, or not within the time for it.
    #[error("{upstream} can't be reached: {why}; check its address and whether it runs")]
    Unreachable {
        /// The upstream's name.
        upstream: String,
        /// What the system says.
        why: String,
    },
    /// The TLS handshake failed.
    #[error(
        "the TLS handshake with {upstream} failed: {why}; give its certificate authority with tls-roots, or fix its certificate"
    )]
    Tls {
        /// The upstream's name.
        upstream: String,
        /// What the handshake says.
        why: String,
    },
    /// It wants another key, or this one may not do this (401, 403).
    #[error("{upstream} refuses the key ({status}); give one with key-file or key-env")]
    Unauthorized {
        /// The upstream's name.
        upstream: String,
        /// The status it answered.
        status: u16,
    },
    /// It answers something else than the API that it is taken for, such as a web page.
    #[error("{upstream} does not answer as {expected} would: {why}; check its address and its kind")]
    Foreign {
        /// The upstream's name.
        upstream: String,
        /// What it was taken for.
        expected: String,
        /// What came instead.
        why: String,
    },
    /// It is too busy (429, 503).
    #[error("{upstream} is too busy ({status})")]
    Busy {
        /// The upstream's name.
        upstream: String,
        /// The status it answered.
        status: u16,
        /// When it wants to be asked again.
        retry_after: Option<Duration>,
    },
    /// It turned the request itself down (another 4xx): no other upstream would take it either.
    #[error("{message}")]
    Refused {
        /// The upstream's name.
        upstream: String,
        /// The status it answered.
        status: u16,
        /// Its own words.
        message: String,
    },
    /// It failed (5xx), or said so in the stream.
    #[error("{upstream} failed: {why}")]
    Failed {
        /// The upstream's name.
        upstream: String,
        /// What it says.
        why: String,
    },
    /// The connection ended in the middle of an answer.
    #[error("{upstream} broke off: {why}")]
    BrokenOff {
        /// The upstream's name.
        upstream: String,
        /// What the connection says.
        why: String,
    },
    /// Nothing came within the time for it.
    #[error("{upstream} sent nothing for {} seconds while {waited_for} was expected", after.as_secs_f64())]
    Silent {
        /// The upstream's name.
        upstream: String,
        /// What was expected, such as `the first token`.
        waited_for: &'static str,
        /// How long it was waited for.
        after: Duration,
    },
    /// It has no way to do what is asked.
    #[error("{0}")]
    Unsupported(String),
}

impl UpstreamError {
    /// Whether the fault is the request's, so that no upstream is to blame and none needs to be tried again.
    pub fn is_the_requests(&self) -> bool {
        // Other statuses, such as that a model is not there, are this upstream's own.
        matches!(self, Self::Refused { status: 400 | 413 | 422, .. } | Self::Unsupported(_))
    }
}
