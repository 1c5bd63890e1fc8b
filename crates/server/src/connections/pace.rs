//! A request's body, as long as it arrives fast enough: it must never hold memory and a connection for ever.

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::BoxError;
use hyper::body::{Body, Bytes, Frame, SizeHint};
use tokio::time::{Instant, Sleep, sleep, sleep_until};

/// The time over which a body's speed is taken: long enough for any network to recover from a pause.
const WINDOW: Duration = Duration::from_secs(20);

/// Bytes of a window: 1 KiB a second, which the slowest of networks carry.
const LEAST: usize = 20 << 10;

/// Time for a whole body. The largest is read at 1 Mbit a second.
const LONGEST: Duration = Duration::from_secs(300);

/// A body arrives too slowly.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SlowBody {
    /// Less than 1 KiB a second.
    #[error(
        "the body arrives too slowly: less than {LEAST} bytes in {} seconds; send it again over a faster connection",
        WINDOW.as_secs()
    )]
    Trickles,
    /// It takes too long as a whole.
    #[error("the body did not arrive within {} seconds; send less at once", LONGEST.as_secs())]
    Long,
}

/// A body that arrives. The clock runs from its first reading on: what waits for this server is not slow.
pub struct Arriving<B> {
    body: B,
    clock: Option<Clock>,
}

struct Clock {
    window: Pin<Box<Sleep>>,
    bytes: usize,
    deadline: Instant,
}

impl<B> Arriving<B> {
    pub fn new(body: B) -> Self {
        Self { body, clock: None }
    }
}

impl Clock {
    fn start() -> Self {
        Self { window: Box::pin(sleep(WINDOW)), bytes: 0, deadline: Instant::now() + LONGEST }
    }

    /// Ready if the body is too slow; otherwise wakes the task at the end of the window.
    fn poll(&mut self, context: &mut Context<'_>) -> Poll<SlowBody> {
        while self.window.as_mut().poll(context).is_ready() {
            if self.bytes < LEAST {
                return Poll::Ready(SlowBody::Trickles);
            }
            if Instant::now() >= self.deadline {
                return Poll::Ready(SlowBody::Long);
            }
            self.bytes = 0;
            self.window = Box::pin(sleep_until(Instant::now() + WINDOW));
        }
        Poll::Pending
    }
}

impl<B> Body for Arriving<B>
where
    B: Body<Data = Bytes, Error: Into<BoxError>> + Unpin,
{
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let Self { body, clock } = &mut *self;
        let clock = clock.get_or_insert_with(Clock::start);
        // A body that keeps a task busy is looked at as well.
        if let Poll::Ready(slow) = clock.poll(context) {
            return Poll::Ready(Some(Err(slow.into())));
        }
        let frame = Pin::new(body).poll_frame(context);
        if let Poll::Ready(Some(Ok(frame))) = &frame {
            clock.bytes += frame.data_ref().map_or(0, Bytes::len);
        }
        frame.map(|frame| frame.map(|frame| frame.map_err(Into::into)))
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;
    use std::future::poll_fn;

    use super::*;

    /// So many bytes every so often.
    struct Dripping {
        bytes: usize,
        every: Duration,
        next: Pin<Box<Sleep>>,
        left: usize,
    }

    impl Dripping {
        fn new(bytes: usize, every: Duration, left: usize) -> Self {
            Self { bytes, every, next: Box::pin(sleep(every)), left }
        }
    }

    impl Body for Dripping {
        type Data = Bytes;
        type Error = Infallible;

        fn poll_frame(
            mut self: Pin<&mut Self>,
            context: &mut Context<'_>,
        ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
            if self.left == 0 {
                return Poll::Ready(None);
            }
            if self.next.as_mut().poll(context).is_pending() {
                return Poll::Pending;
            }
            self.left -= 1;
            let every = self.every;
            self.next = Box::pin(sleep(every));
            Poll::Ready(Some(Ok(Frame::data(Bytes::from(vec![0; self.bytes])))))
        }
    }

    /// Reads to the end, or to the error.
    async fn read(body: Dripping) -> Result<(), SlowBody> {
        let mut arriving = Arriving::new(body);
        loop {
            match poll_fn(|context| Pin::new(&mut arriving).poll_frame(context)).await {
                None => return Ok(()),
                Some(Ok(_)) => {}
                Some(Err(error)) => return Err(*error.downcast().expect("a slow body")),
            }
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_body_below_the_floor_is_cut_off_and_one_above_is_not() {
        let second = Duration::from_secs(1);
        assert_eq!(read(Dripping::new(1, second, 10_000)).await, Err(SlowBody::Trickles));
        assert_eq!(read(Dripping::new(900, second, 10_000)).await, Err(SlowBody::Trickles));
        assert_eq!(read(Dripping::new(2048, second, 200)).await, Ok(()));
        assert_eq!(read(Dripping::new(1, second, 15)).await, Ok(()), "small and over within a window");
        assert_eq!(read(Dripping::new(1 << 20, Duration::from_secs(25), 2)).await, Err(SlowBody::Trickles));
    }

    #[tokio::test(start_paused = true)]
    async fn no_body_takes_for_ever() {
        let body = Dripping::new(4096, Duration::from_secs(1), usize::MAX);
        let began = Instant::now();
        assert_eq!(read(body).await, Err(SlowBody::Long));
        assert!(began.elapsed() <= LONGEST + WINDOW);
    }
}
