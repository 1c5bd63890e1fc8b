//! Server-sent events: the `data:` lines of an answer, one event per line, which is how all model servers write them.
//!
//! Lines are cut out of what arrives without copying them again; comments and other fields are skipped. A line has a longest length, so
//! that a server can't fill this one's memory.

use std::task::{Context, Poll, ready};

use bytes::{Buf, Bytes, BytesMut};

use super::http::Answer;
use crate::error::UpstreamError;

/// The longest line. SGLang may repeat a whole answer, with log-probabilities, in each event.
const MOST_LINE: usize = 16 << 20;

/// What follows the last event in OpenAI's format.
pub(super) const DONE: &[u8] = b"[DONE]";

/// The events of an answer.
pub(super) struct SseLines {
    answer: Answer,
    buffer: BytesMut,
    /// Bytes of the buffer that have no end of a line in them.
    scanned: usize,
}

impl SseLines {
    pub(super) fn new(answer: Answer) -> Self {
        Self { answer, buffer: BytesMut::new(), scanned: 0 }
    }

    /// What stands behind the next `data:`; `None` at the end of the answer.
    pub(super) fn poll_data(
        &mut self,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Bytes, UpstreamError>>> {
        loop {
            while let Some(line) = self.line() {
                if let Some(data) = data(line) {
                    return Poll::Ready(Some(Ok(data)));
                }
            }
            if self.buffer.len() > MOST_LINE {
                let why = format!("a line of its stream is longer than {} MiB", MOST_LINE >> 20);
                return Poll::Ready(Some(Err(self.answer.broken_off(why))));
            }
            match ready!(self.answer.poll_bytes(context)) {
                Some(Ok(bytes)) => self.buffer.extend_from_slice(&bytes),
                Some(Err(error)) => return Poll::Ready(Some(Err(error))),
                None => return Poll::Ready(None),
            }
        }
    }

    /// Who answers.
    pub(super) fn upstream(&self) -> &str {
        self.answer.upstream()
    }

    /// Reads the rest, which nobody wants, so that the connection can be used again.
    pub(super) fn drain(self) {
        self.answer.drain();
    }

    /// The stream ended before its answer did.
    pub(super) fn ended_early(&self) -> UpstreamError {
        self.answer.broken_off("its stream ended before the answer was complete".into())
    }

    /// The next whole line without its end.
    fn line(&mut self) -> Option<Bytes> {
        let Some(end) = self.buffer[self.scanned..].iter().position(|&byte| byte == b'\n') else {
            self.scanned = self.buffer.len();
            return None;
        };
        let line = self.buffer.split_to(self.scanned + end).freeze();
        self.buffer.advance(1);
        self.scanned = 0;
        Some(line)
    }
}

/// What a line says, if it is one of data.
fn data(mut line: Bytes) -> Option<Bytes> {
    if !line.starts_with(b"data:") {
        return None;
    }
    line.advance(b"data:".len());
    line.truncate(line.trim_ascii_end().len());
    line.advance(line.len() - line.trim_ascii_start().len());
    Some(line)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn data_is_told_from_comments_and_other_fields() {
        let read = |line: &'static str| data(Bytes::from_static(line.as_bytes()));
        assert_eq!(read("data: {\"a\": 1}\r").as_deref(), Some(&b"{\"a\": 1}"[..]));
        assert_eq!(read("data:x").as_deref(), Some(&b"x"[..]));
        for other in ["", ": ping", "event: message", "id: 4"] {
            assert_eq!(read(other), None, "{other}");
        }
    }
}
