//! What comes back to the caller: one event per token, in order.
//!
//! The engine never waits for a reader. Events are queued until they are read; their number is bounded by the
//! request's tokens. Dropping the [`EventStream`] cancels the request at the next step.

use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use ropeway_executor::{RowError, Sampled};

use crate::draft::DraftTotals;

/// Events a reader may fall behind before the queue grows.
const ROOM: usize = 64;

/// Something that happened to a request.
#[derive(Clone, Debug, PartialEq)]
pub enum Event {
    /// Another server computes a sequence from here on; the engine of this process never sends it.
    Placed {
        /// Which of the request's sequences, from 0.
        sequence: u32,
        /// The server's name.
        upstream: Arc<str>,
    },
    /// A part of the prompt is computed: so many of its tokens are now, and so many of these were cached.
    Prefilled {
        /// Prompt tokens whose KV exists.
        computed: usize,
        /// Of these, how many were there before.
        cached: usize,
    },
    /// What the model thought of a prompt token, in the order of the prompt from its second token on.
    Scored(Sampled),
    /// Sequence `sequence` has a new token.
    Token {
        /// Which of the request's sequences, from 0.
        sequence: u32,
        /// The token, and its log-probabilities if they were asked for.
        sampled: Sampled,
        /// What was drafted for the sequence until now: whoever stops reading here knows it.
        drafting: DraftTotals,
    },
    /// A sequence is over.
    Finished {
        /// Which of the request's sequences, from 0.
        sequence: u32,
        /// Why.
        reason: FinishReason,
        /// What it used.
        usage: Usage,
    },
}

/// Why a sequence is over.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FinishReason {
    /// It reached one of its end tokens, which is not part of the answer.
    End(u32),
    /// What it had to follow is complete: nothing more may be said.
    Complete,
    /// It has as many tokens as were asked for, or as fit.
    Length,
    /// The caller dropped the stream.
    Cancelled,
    /// Its deadline or queue timeout passed.
    TimedOut,
    /// It could not go on; other requests are not affected.
    Failed(SequenceError),
}

/// A failure confined to one sequence.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SequenceError {
    /// No token could be chosen.
    #[error(transparent)]
    Row(#[from] RowError),
    /// Its part of a step failed even alone.
    #[error("the model could not compute this request: {0}")]
    Step(String),
    /// The engine stopped under it.
    #[error("the engine stopped before this request was done; send it again")]
    EngineGone,
}

/// What a sequence used, in tokens and time.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Usage {
    /// What was drafted for it.
    pub drafting: DraftTotals,
    /// Tokens of the prompt.
    pub prompt: usize,
    /// Of these, how many came from the prefix cache, in any tier.
    pub cached: usize,
    /// Of these, how many a lower tier held.
    pub fetched: usize,
    /// New tokens, an end token included.
    pub generated: usize,
    /// From submission to the first step it was part of.
    pub queued: Duration,
    /// From submission to its first token.
    pub first_token: Duration,
    /// From submission to its end.
    pub total: Duration,
    /// How often it was preempted.
    pub preemptions: u32,
}

impl Usage {
    /// Steps that chose one of its tokens: every other token was drafted and right. Tokens that a grammar forced, which
    /// take no step of their own, are counted as if they did.
    pub fn sampled_steps(&self) -> usize {
        self.generated.saturating_sub(self.drafting.accepted)
    }
}

#[derive(Debug, Default)]
struct Queue {
    events: VecDeque<Event>,
    waker: Option<Waker>,
    /// Whether a thread sleeps until something arrives: waking nobody would still cost a system call per token.
    sleeps: bool,
    /// Sequences that have not finished.
    open: usize,
}

#[derive(Debug)]
struct Channel {
    queue: Mutex<Queue>,
    arrived: Condvar,
    /// One per sequence.
    cancelled: Box<[AtomicBool]>,
}

impl Channel {
    fn lock(&self) -> MutexGuard<'_, Queue> {
        // Nothing can panic while the queue is locked; were it to, its events would still be whole.
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The sending end of a request's events: the engine's, or that of another [`Backend`](crate::Backend). Dropping it
/// ends every sequence that is still open with [`SequenceError::EngineGone`].
#[derive(Debug)]
pub struct EventSender {
    channel: Arc<Channel>,
}

impl EventSender {
    /// Queues an event for the reader; never waits. After the last sequence finished, events are dropped.
    pub fn send(&self, event: Event) {
        let mut queue = self.channel.lock();
        if queue.open == 0 {
            return;
        }
        queue.open -= usize::from(matches!(event, Event::Finished { .. }));
        queue.events.push_back(event);
        let (waker, sleeps) = (queue.waker.take(), std::mem::take(&mut queue.sleeps));
        drop(queue);
        if sleeps {
            self.channel.arrived.notify_one();
        }
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    /// Whether the reader wants no more of this sequence.
    pub fn is_cancelled(&self, sequence: u32) -> bool {
        self.channel.cancelled[sequence as usize].load(Ordering::Relaxed)
    }
}

impl Drop for EventSender {
    /// An engine that is gone leaves nobody waiting: every open sequence ends.
    fn drop(&mut self) {
        let open = self.channel.lock().open;
        for _ in 0..open {
            let reason = FinishReason::Failed(SequenceError::EngineGone);
            self.send(Event::Finished { sequence: 0, reason, usage: Usage::default() });
        }
    }
}

/// The caller's end: the events of one request. Dropping it cancels what is not finished.
#[derive(Debug)]
pub struct EventStream {
    channel: Arc<Channel>,
}

/// Both ends of the event channel of a request with so many sequences. Public so that a [`Backend`](crate::Backend)
/// other than this engine can answer requests.
pub fn channel(sequences: usize) -> (EventSender, EventStream) {
    let events = VecDeque::with_capacity(ROOM);
    let queue = Mutex::new(Queue { events, waker: None, sleeps: false, open: sequences });
    let cancelled = (0..sequences).map(|_| AtomicBool::new(false)).collect();
    let channel = Arc::new(Channel { queue, arrived: Condvar::new(), cancelled });
    (EventSender { channel: Arc::clone(&channel) }, EventStream { channel })
}

impl EventStream {
    /// Wants no more of one sequence: it ends at the next step, and its events end with that.
    pub fn cancel(&self, sequence: u32) {
        if let Some(cancelled) = self.channel.cancelled.get(sequence as usize) {
            cancelled.store(true, Ordering::Relaxed);
        }
    }

    /// Waits for the next event; `None` after the last sequence finished.
    pub fn wait(&mut self) -> Option<Event> {
        let mut queue = self.channel.lock();
        loop {
            if let Some(event) = queue.events.pop_front() {
                return Some(event);
            }
            if queue.open == 0 {
                return None;
            }
            queue.sleeps = true;
            queue = self.channel.arrived.wait(queue).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// The next event if it is there already.
    pub fn try_next(&mut self) -> Option<Event> {
        self.channel.lock().events.pop_front()
    }
}

impl futures_core::Stream for EventStream {
    type Item = Event;

    fn poll_next(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Event>> {
        let mut queue = self.channel.lock();
        match queue.events.pop_front() {
            Some(event) => Poll::Ready(Some(event)),
            None if queue.open == 0 => Poll::Ready(None),
            None => {
                queue.waker = Some(context.waker().clone());
                Poll::Pending
            }
        }
    }
}

impl Drop for EventStream {
    fn drop(&mut self) {
        for cancelled in &self.channel.cancelled {
            cancelled.store(true, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn token(token: u32) -> Event {
        let sampled = Sampled { token, ..Sampled::default() };
        Event::Token { sequence: 0, sampled, drafting: DraftTotals::default() }
    }

    fn finished() -> Event {
        Event::Finished { sequence: 0, reason: FinishReason::Length, usage: Usage::default() }
    }

    #[test]
    fn events_arrive_in_order_and_the_stream_ends_after_the_last_sequence() {
        let (sender, mut stream) = channel(1);
        let writer = std::thread::spawn(move || {
            sender.send(token(1));
            sender.send(token(2));
            sender.send(finished());
        });
        let events: Vec<_> = std::iter::from_fn(|| stream.wait()).collect();
        writer.join().expect("writer");
        assert_eq!(events, [token(1), token(2), finished()]);
    }

    #[test]
    fn dropping_the_stream_is_seen_by_the_engine() {
        let (sender, stream) = channel(1);
        assert!(!sender.is_cancelled(0));
        drop(stream);
        assert!(sender.is_cancelled(0));
        sender.send(finished());
    }

    #[test]
    fn an_engine_that_dies_ends_every_open_sequence() {
        let (sender, mut stream) = channel(2);
        sender.send(finished());
        drop(sender);
        assert_eq!(stream.wait(), Some(finished()));
        assert!(matches!(
            stream.wait(),
            Some(Event::Finished { reason: FinishReason::Failed(SequenceError::EngineGone), .. })
        ));
        assert_eq!(stream.wait(), None);
    }
}
