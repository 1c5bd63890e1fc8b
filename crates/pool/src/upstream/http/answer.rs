//! An answer whose head is there: its body as it comes, or whole.

use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use hyper::body::{Body as _, Incoming};
use hyper::header::{CONTENT_TYPE, HeaderMap};
use hyper::{Response, StatusCode};
use tokio::time::timeout;

use super::pool::Lease;
use super::with_causes;
use crate::error::UpstreamError;

/// Longest body that is kept whole: log-probabilities of a long prompt with alternatives take about 100 bytes a token.
const MOST_BODY: usize = 64 << 20;

/// How long and how much is read after an answer's end for its connection's sake; more is not worth a new connection.
const DRAIN_TIME: Duration = Duration::from_secs(1);
const DRAIN_BYTES: usize = 64 << 10;

/// An answer. Dropping it before its end closes its connection, or resets its stream.
pub(crate) struct Answer {
    status: StatusCode,
    headers: HeaderMap,
    body: Incoming,
    /// `None` after the body's end.
    lease: Option<Lease>,
    upstream: Arc<str>,
}

impl Answer {
    pub(super) fn new(response: Response<Incoming>, lease: Lease, upstream: Arc<str>) -> Self {
        let (head, body) = response.into_parts();
        Self { status: head.status, headers: head.headers, body, lease: Some(lease), upstream }
    }

    pub(crate) fn status(&self) -> StatusCode {
        self.status
    }

    pub(crate) fn headers(&self) -> &HeaderMap {
        &self.headers
    }

    /// The name of who answers.
    pub(crate) fn upstream(&self) -> &Arc<str> {
        &self.upstream
    }

    /// Whether the body is said to be of this type, such as `text/html`.
    pub(crate) fn is_of_type(&self, kind: &str) -> bool {
        let given = self.headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok());
        given.is_some_and(|given| given.trim_start().to_ascii_lowercase().starts_with(kind))
    }

    /// The next bytes of the body; `None` at its end.
    pub(crate) fn poll_bytes(
        &mut self,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Bytes, UpstreamError>>> {
        loop {
            if self.lease.is_none() {
                return Poll::Ready(None);
            }
            match ready!(Pin::new(&mut self.body).poll_frame(context)) {
                None => self.lease.take().into_iter().for_each(Lease::give_back),
                Some(Err(error)) => {
                    self.lease = None;
                    return Poll::Ready(Some(Err(self.broken_off(with_causes(&error)))));
                }
                // Frames without data are trailers.
                Some(Ok(frame)) => {
                    if let Ok(bytes) = frame.into_data() {
                        return Poll::Ready(Some(Ok(bytes)));
                    }
                }
            }
        }
    }

    /// The whole body; one that is too long to be kept is an error.
    pub(crate) async fn whole(mut self) -> Result<Bytes, UpstreamError> {
        let mut whole = BytesMut::new();
        while let Some(bytes) = poll_fn(|context| self.poll_bytes(context)).await {
            whole.extend_from_slice(&bytes?);
            if whole.len() > MOST_BODY {
                return Err(self.broken_off(format!("its answer is longer than {} MiB", MOST_BODY >> 20)));
            }
        }
        Ok(whole.freeze())
    }

    /// Up to so many bytes of the body, for a message about it. What is not read closes the connection.
    pub(crate) async fn beginning(mut self, most: usize) -> Bytes {
        let mut begun = BytesMut::new();
        while begun.len() < most {
            match poll_fn(|context| self.poll_bytes(context)).await {
                Some(Ok(bytes)) => begun.extend_from_slice(&bytes),
                Some(Err(_)) | None => break,
            }
        }
        begun.truncate(most);
        begun.freeze()
    }

    /// Reads what is left of an answer that is over for its reader, so that its connection can be used again.
    pub(crate) fn drain(mut self) {
        if self.lease.is_none() {
            return;
        }
        tokio::spawn(timeout(DRAIN_TIME, async move {
            let mut read = 0;
            while let Some(Ok(bytes)) = poll_fn(|context| self.poll_bytes(context)).await {
                read += bytes.len();
                if read > DRAIN_BYTES {
                    return;
                }
            }
        }));
    }

    pub(crate) fn broken_off(&self, why: String) -> UpstreamError {
        UpstreamError::BrokenOff { upstream: self.upstream.to_string(), why }
    }
}
