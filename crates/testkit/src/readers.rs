//! Reads many event streams the way a server does: each is looked at only when something arrived in it.
//!
//! A reader is woken through the stream's own waker, so that a thousand waiting requests cost nothing per step.
//! Everything happens on the caller's thread, in the order in which the engine sent it.

use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Wake, Waker};

use futures_core::Stream;
use ropeway_engine::{Event, EventStream};

/// Whether a reader reads on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reader {
    /// It does.
    Stays,
    /// It wants no more of this sequence of its request.
    Drops(u32),
    /// It goes away, which cancels its request.
    Leaves,
}

/// Streams that had something sent to them since they were last read.
type Rung = Arc<Mutex<Vec<usize>>>;

struct Bell {
    index: usize,
    rung: Rung,
}

impl Wake for Bell {
    fn wake(self: Arc<Self>) {
        self.rung.lock().unwrap_or_else(PoisonError::into_inner).push(self.index);
    }
}

struct Place<T> {
    waker: Waker,
    /// The stream, and what its reader knows.
    reading: Option<(EventStream, T)>,
}

/// Open streams, each with what its reader knows.
pub struct Readers<T> {
    places: Vec<Place<T>>,
    vacant: Vec<usize>,
    rung: Rung,
    /// Memory that takes turns with `rung`.
    spare: Vec<usize>,
}

impl<T> Default for Readers<T> {
    fn default() -> Self {
        Self { places: Vec::new(), vacant: Vec::new(), rung: Rung::default(), spare: Vec::new() }
    }
}

impl<T> Readers<T> {
    /// Reads one more stream.
    pub fn add(&mut self, stream: EventStream, knows: T) {
        let index = self.vacant.pop().unwrap_or_else(|| self.new_place());
        self.places[index].reading = Some((stream, knows));
        // The first look, which asks to be woken.
        self.rung.lock().unwrap_or_else(PoisonError::into_inner).push(index);
    }

    /// Open streams.
    pub fn open(&self) -> impl Iterator<Item = &T> {
        self.places.iter().filter_map(|place| place.reading.as_ref().map(|(_, knows)| knows))
    }

    /// How many streams are open.
    pub fn len(&self) -> usize {
        self.places.len() - self.vacant.len()
    }

    /// Whether no stream is open.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Reads everything that arrived; a stream is closed after its last event, or when its reader leaves.
    pub fn read(&mut self, mut on_event: impl FnMut(&mut T, Event) -> Reader) {
        let mut rung = std::mem::take(&mut self.spare);
        std::mem::swap(&mut rung, &mut self.rung.lock().unwrap_or_else(PoisonError::into_inner));
        for index in rung.drain(..) {
            self.read_one(index, &mut on_event);
        }
        self.spare = rung;
    }

    /// Makes every reader leave for which `leaves` says so; returns what they knew.
    pub fn dismiss(&mut self, leaves: impl Fn(&T) -> bool) -> Vec<T> {
        let mut left = Vec::new();
        for (index, place) in self.places.iter_mut().enumerate() {
            if let Some((_, knows)) = place.reading.take_if(|(_, knows)| leaves(knows)) {
                self.vacant.push(index);
                left.push(knows);
            }
        }
        left
    }

    fn read_one(&mut self, index: usize, on_event: &mut impl FnMut(&mut T, Event) -> Reader) {
        let Place { waker, reading } = &mut self.places[index];
        let mut context = Context::from_waker(waker);
        while let Some((stream, knows)) = reading {
            let ended = match Pin::new(&mut *stream).poll_next(&mut context) {
                Poll::Pending => return,
                Poll::Ready(Some(event)) => match on_event(knows, event) {
                    Reader::Stays => false,
                    Reader::Drops(sequence) => {
                        stream.cancel(sequence);
                        false
                    }
                    Reader::Leaves => true,
                },
                Poll::Ready(None) => true,
            };
            if ended {
                *reading = None;
                self.vacant.push(index);
            }
        }
    }

    fn new_place(&mut self) -> usize {
        let index = self.places.len();
        let waker = Waker::from(Arc::new(Bell { index, rung: Arc::clone(&self.rung) }));
        self.places.push(Place { waker, reading: None });
        index
    }
}
