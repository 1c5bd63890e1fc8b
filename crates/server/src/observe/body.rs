//! A body that knows when it was sent to its end.

use std::pin::Pin;
use std::task::{Context, Poll};

use axum::body::{Body, Bytes};
use hyper::body::{Body as _, Frame, SizeHint};

use super::Visit;

/// An answer's body, and the visit that ends with it.
pub struct Watched {
    body: Body,
    visit: Visit,
}

impl Watched {
    /// A body of this visit.
    pub fn new(body: Body, mut visit: Visit) -> Self {
        visit.complete = body.is_end_stream();
        Self { body, visit }
    }
}

impl hyper::body::Body for Watched {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        let frame = Pin::new(&mut self.body).poll_frame(context);
        // Bodies of known length are not asked for the end after their last frame.
        self.visit.complete |= matches!(frame, Poll::Ready(None)) || self.body.is_end_stream();
        frame
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
