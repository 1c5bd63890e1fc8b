//! The tokens of a sequence as they come, whatever the dialect: lines in, events out, with a limit on silence.

use std::collections::VecDeque;
use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll};

use futures_util::Stream;

use super::ask::TokenEvent;
use super::dialect::{ChunkReader, Reading};
use super::silence::Silence;
use super::sse::SseLines;
use crate::error::UpstreamError;

/// A sequence in the making. Ends after [`TokenEvent::Finished`] or the first error. Dropping it before closes its connection or resets
/// its stream, which every server takes as the word to stop.
pub struct TokenStream {
    /// `None` once everything is read.
    source: Option<Source>,
    ready: VecDeque<TokenEvent>,
}

struct Source {
    lines: SseLines,
    reader: Box<dyn ChunkReader>,
    silence: Silence,
}

/// What reading an event led to.
enum Step {
    Read,
    Over(Result<(), UpstreamError>),
}

impl fmt::Debug for TokenStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TokenStream").field("ready", &self.ready).finish_non_exhaustive()
    }
}

impl TokenStream {
    pub(super) fn of(lines: SseLines, reader: Box<dyn ChunkReader>, silence: Silence) -> Self {
        Self { source: Some(Source { lines, reader, silence }), ready: VecDeque::new() }
    }

    /// Of a sequence that was not streamed.
    pub(super) fn whole(events: VecDeque<TokenEvent>) -> Self {
        Self { source: None, ready: events }
    }
}

impl Source {
    fn poll_step(&mut self, ready: &mut VecDeque<TokenEvent>, context: &mut Context<'_>) -> Poll<Step> {
        match self.lines.poll_data(context) {
            Poll::Ready(Some(Ok(data))) => Poll::Ready(self.read(&data, ready)),
            Poll::Ready(Some(Err(error))) => Poll::Ready(self.cut(Some(error), ready)),
            Poll::Ready(None) => Poll::Ready(self.cut(None, ready)),
            Poll::Pending => {
                self.silence.poll(self.lines.upstream(), context).map(|silent| Step::Over(Err(silent)))
            }
        }
    }

    fn read(&mut self, data: &[u8], ready: &mut VecDeque<TokenEvent>) -> Step {
        let before = ready.len();
        let reading = self.reader.read(data, ready);
        if ready.len() > before {
            self.silence.heard();
        }
        match reading {
            Ok(Reading::More) => Step::Read,
            Ok(Reading::Over) => Step::Over(Ok(())),
            Err(fault) => Step::Over(Err(fault.of(self.lines.upstream()))),
        }
    }

    /// The answer ended by itself, or its connection did. A sequence that is known to be over is whole even so.
    fn cut(&mut self, error: Option<UpstreamError>, ready: &mut VecDeque<TokenEvent>) -> Step {
        if let Some(finished) = self.reader.finished() {
            ready.push_back(finished);
            return Step::Over(Ok(()));
        }
        Step::Over(Err(error.unwrap_or_else(|| self.lines.ended_early())))
    }
}

impl Stream for TokenStream {
    type Item = Result<TokenEvent, UpstreamError>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let this = &mut *self;
        loop {
            if let Some(event) = this.ready.pop_front() {
                return Poll::Ready(Some(Ok(event)));
            }
            let Some(source) = &mut this.source else { return Poll::Ready(None) };
            match source.poll_step(&mut this.ready, context) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(Step::Read) => {}
                Poll::Ready(Step::Over(outcome)) => {
                    let source = this.source.take();
                    if let Err(error) = outcome {
                        return Poll::Ready(Some(Err(error)));
                    }
                    // Whether the rest is worth reading is the dialect's to know.
                    source
                        .filter(|source| source.reader.ends_by_itself())
                        .into_iter()
                        .for_each(|s| s.lines.drain());
                }
            }
        }
    }
}
