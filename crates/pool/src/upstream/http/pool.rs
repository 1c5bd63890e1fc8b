//! Connections that wait for the next request.
//!
//! HTTP/1.1 carries one request at a time: a connection is taken out, and comes back when its answer was read to the end. HTTP/2
//! carries many: connections stay here, with a count of their streams.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use hyper::client::conn::{http1, http2};
use tokio::task::{AbortHandle, JoinHandle};
use tokio::time::Instant;

use super::Body;
use super::connect::Connection;

/// Connections that are kept without work. More requests at once are common, but so many that end at once are not.
const MOST_IDLE: usize = 256;

/// Longest time without work: what lies between may have forgotten the connection by then.
const LONGEST_IDLE: Duration = Duration::from_secs(30);

/// Streams of one HTTP/2 connection; servers allow 100 or more, and a client that wants more than they allow would wait unseen.
const MOST_STREAMS: usize = 100;

/// A connection of HTTP/1.1. Dropping it closes it.
#[derive(Debug)]
pub(super) struct Http1 {
    pub(super) sender: http1::SendRequest<Body>,
    _task: Task,
}

impl Http1 {
    pub(super) fn new(sender: http1::SendRequest<Body>, task: &JoinHandle<()>) -> Self {
        Self { sender, _task: Task(task.abort_handle()) }
    }
}

/// The task that moves a connection's bytes; ended with its owner, which closes the connection at once.
#[derive(Debug)]
struct Task(AbortHandle);

impl Drop for Task {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// A connection of HTTP/2. It is closed after its last clone and last stream are gone.
#[derive(Clone, Debug)]
pub(super) struct Http2 {
    pub(super) sender: http2::SendRequest<Body>,
    pub(super) streams: Arc<AtomicUsize>,
}

/// A connection without work, and since when.
#[derive(Debug)]
struct Idle {
    connection: Http1,
    since: Instant,
}

impl Idle {
    fn is_usable(&self) -> bool {
        self.since.elapsed() < LONGEST_IDLE && !self.connection.sender.is_closed()
    }
}

/// The connections of one upstream.
#[derive(Debug, Default)]
pub(super) struct Pool {
    idle: Mutex<Vec<Idle>>,
    shared: Mutex<Vec<Http2>>,
}

impl Pool {
    /// A connection that is open as far as is known.
    pub(super) async fn take(&self) -> Option<Connection> {
        if let Some(shared) = self.with_a_free_stream() {
            return Some(Connection::Http2(shared));
        }
        loop {
            // The one used last is the least likely to be closed by the other end.
            let Idle { mut connection, .. } = lock(&self.idle).pop().filter(Idle::is_usable)?;
            // Its task may not have seen yet that the last answer is over.
            if connection.sender.ready().await.is_ok() {
                return Some(Connection::Http1(connection));
            }
        }
    }

    fn with_a_free_stream(&self) -> Option<Http2> {
        let mut shared = lock(&self.shared);
        shared.retain(|connection| !connection.sender.is_closed());
        shared.iter().find(|connection| connection.streams.load(Ordering::Relaxed) < MOST_STREAMS).cloned()
    }

    fn keep(&self, connection: Http1) {
        let mut idle = lock(&self.idle);
        idle.retain(Idle::is_usable);
        if idle.len() < MOST_IDLE && !connection.sender.is_closed() {
            idle.push(Idle { connection, since: Instant::now() });
        }
    }

    /// Keeps none: the other end may be gone without a word.
    pub(super) fn clear(&self) {
        lock(&self.idle).clear();
        lock(&self.shared).clear();
    }

    /// Shares a connection; one that is shared already stays where it is.
    fn share(&self, connection: &Http2) {
        let mut shared = lock(&self.shared);
        if !shared.iter().any(|other| Arc::ptr_eq(&other.streams, &connection.streams)) {
            shared.push(connection.clone());
        }
    }
}

fn lock<T>(all: &Mutex<Vec<T>>) -> MutexGuard<'_, Vec<T>> {
    // Nothing can panic while it is locked.
    all.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The right to read an answer from a connection.
#[derive(Debug)]
pub(super) enum Lease {
    /// Of a connection of one's own: closed when it is dropped, kept when it is given back.
    Alone { connection: Http1, pool: Arc<Pool> },
    /// Of a stream on a connection with others; dropping the answer's body resets it.
    Shared { _stream: CountedStream },
}

/// One of the streams that a connection's count holds.
#[derive(Debug)]
pub(super) struct CountedStream(Arc<AtomicUsize>);

impl Drop for CountedStream {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Lease {
    pub(super) fn alone(connection: Http1, pool: &Arc<Pool>) -> Self {
        Self::Alone { connection, pool: Arc::clone(pool) }
    }

    pub(super) fn shared(connection: &Http2, pool: &Pool) -> Self {
        pool.share(connection);
        connection.streams.fetch_add(1, Ordering::Relaxed);
        Self::Shared { _stream: CountedStream(Arc::clone(&connection.streams)) }
    }

    /// The answer was read to its end.
    pub(super) fn give_back(self) {
        if let Self::Alone { connection, pool } = self {
            pool.keep(connection);
        }
    }
}
