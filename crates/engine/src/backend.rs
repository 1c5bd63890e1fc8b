//! What answers requests, as its callers know it: an engine of this process, or something that speaks for another one.
//!
//! A caller submits a [`Request`] and reads an [`EventStream`]. An implementation other than [`Handle`] makes the
//! stream with [`channel`](crate::channel) and fills it from wherever its tokens come from. It must never wait in
//! [`submit`](Backend::submit), and must end every sequence of a request with exactly one
//! [`Event::Finished`](crate::Event::Finished).

use std::time::Duration;

use ropeway_executor::Limits;

use crate::board::Board;
use crate::handle::Handle;
use crate::queue::SHORTEST_WAIT;
use crate::request::{Rejected, Request};
use crate::stream::EventStream;

/// Requests that a backend holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Load {
    /// Sequences that are not being computed yet.
    pub queued: usize,
    /// Sequences that are being computed.
    pub running: usize,
}

impl Load {
    /// Whether there is nothing to do.
    pub fn is_idle(&self) -> bool {
        *self == Self::default()
    }
}

/// Answers requests with streams of events. Dropping a stream cancels its request.
pub trait Backend: Send + Sync {
    /// Takes a request, or turns it down at once with the reason.
    fn submit(&self, request: Request) -> Result<EventStream, Rejected>;

    /// The largest request it can serve.
    fn limits(&self) -> Limits;

    /// What it holds now.
    fn load(&self) -> Load;

    /// Time after which a request that found no place, or had to wait too long, may find one.
    fn queue_wait(&self) -> Duration {
        SHORTEST_WAIT
    }

    /// Why it can compute nothing now, if that is so and may change by itself: what computes can't be reached.
    fn outage(&self) -> Option<String> {
        None
    }

    /// Ends every open request with [`EngineGone`](crate::SequenceError::EngineGone) and takes no more.
    fn stop(&self);

    /// The engine, if it is one of this process: where its blocks are, and what is below its memory.
    fn engine(&self) -> Option<&Handle> {
        None
    }

    /// Metrics and step records, if it computes the requests itself.
    fn board(&self) -> Option<&Board> {
        None
    }
}

impl Backend for Handle {
    fn submit(&self, request: Request) -> Result<EventStream, Rejected> {
        Handle::submit(self, request)
    }

    fn limits(&self) -> Limits {
        *Handle::limits(self)
    }

    fn load(&self) -> Load {
        let board = Handle::board(self);
        Load { queued: board.queued(), running: board.metrics().running }
    }

    fn queue_wait(&self) -> Duration {
        Handle::queue_wait(self)
    }

    fn stop(&self) {
        Handle::stop(self);
    }

    fn engine(&self) -> Option<&Handle> {
        Some(self)
    }

    fn board(&self) -> Option<&Board> {
        Some(Handle::board(self))
    }
}
