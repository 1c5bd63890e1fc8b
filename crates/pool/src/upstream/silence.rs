//! How long an upstream may say nothing.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::time::{Instant, Sleep, sleep_until, timeout_at};

use crate::error::UpstreamError;
use crate::settings::Timeouts;

/// Watches a stream: first for its first token, then for the next one.
///
/// The timer is moved only when it fires, so that a token costs a look at the clock and nothing else.
pub(super) struct Silence {
    timer: Pin<Box<Sleep>>,
    since: Instant,
    limit: Duration,
    waited_for: &'static str,
    between_tokens: Duration,
}

impl Silence {
    /// From now on, the first token is waited for.
    pub(super) fn before_the_first_token(timeouts: &Timeouts) -> Self {
        let (since, limit) = (Instant::now(), timeouts.first_token);
        Self {
            timer: Box::pin(sleep_until(since + limit)),
            since,
            limit,
            waited_for: "the first token",
            between_tokens: timeouts.between_tokens,
        }
    }

    /// Something came.
    pub(super) fn heard(&mut self) {
        (self.since, self.limit) = (Instant::now(), self.between_tokens);
        self.waited_for = "the next token";
    }

    /// The error, once nothing came for too long.
    pub(super) fn poll(&mut self, upstream: &str, context: &mut Context<'_>) -> Poll<UpstreamError> {
        loop {
            // A limit that became shorter with the first token: the timer stands too far away.
            let due = self.since + self.limit;
            if self.timer.deadline() > due {
                self.timer.as_mut().reset(due);
            }
            ready!(self.timer.as_mut().poll(context));
            if Instant::now() >= due {
                return Poll::Ready(self.error(upstream));
            }
            self.timer.as_mut().reset(due);
        }
    }

    /// Waits for something within the time for the first token.
    pub(super) async fn bound<T>(
        &self,
        upstream: &str,
        work: impl Future<Output = Result<T, UpstreamError>>,
    ) -> Result<T, UpstreamError> {
        timeout_at(self.since + self.limit, work).await.unwrap_or_else(|_| Err(self.error(upstream)))
    }

    fn error(&self, upstream: &str) -> UpstreamError {
        UpstreamError::Silent { upstream: upstream.into(), waited_for: self.waited_for, after: self.limit }
    }
}
