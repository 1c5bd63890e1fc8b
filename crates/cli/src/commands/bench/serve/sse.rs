//! Server-sent events as OpenAI's API sends them: every event is one `data:` line.
//!
//! It must never keep more of a stream than one unfinished line, and that one bounded.

/// Longest line: one holds a piece of text with its log-probabilities, or an error.
const LONGEST_LINE: usize = 8 << 20;

/// A line was longer than any sane event.
#[derive(Debug, PartialEq, Eq)]
pub struct TooLong;

/// Cuts a stream into events, however it arrives.
#[derive(Debug, Default)]
pub struct Events {
    unfinished: Vec<u8>,
}

impl Events {
    /// Takes the next bytes; calls `hear` with the data of every event that they complete.
    pub fn push(&mut self, mut bytes: &[u8], mut hear: impl FnMut(&[u8])) -> Result<(), TooLong> {
        while let Some(end) = bytes.iter().position(|byte| *byte == b'\n') {
            if self.unfinished.is_empty() {
                data(&bytes[..end]).map(&mut hear);
            } else {
                self.unfinished.extend_from_slice(&bytes[..end]);
                data(&self.unfinished).map(&mut hear);
                self.unfinished.clear();
            }
            bytes = &bytes[end + 1..];
        }
        self.unfinished.extend_from_slice(bytes);
        if self.unfinished.len() > LONGEST_LINE { Err(TooLong) } else { Ok(()) }
    }
}

/// The data of a line; `None` for comments, names of events and the empty lines between them.
fn data(line: &[u8]) -> Option<&[u8]> {
    let line = line.strip_suffix(b"\r").unwrap_or(line);
    let data = line.strip_prefix(b"data:")?;
    Some(data.strip_prefix(b" ").unwrap_or(data))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_are_the_same_however_the_stream_is_cut() {
        let stream = b": waiting\n\ndata: {\"a\": 1}\r\n\r\nevent: x\ndata:two\n\ndata: [DONE]\n\n";
        for size in 1..=stream.len() {
            let (mut events, mut heard) = (Events::default(), Vec::new());
            for piece in stream.chunks(size) {
                let hear = |data: &[u8]| heard.push(String::from_utf8(data.to_vec()).unwrap());
                events.push(piece, hear).unwrap();
            }
            assert_eq!(heard, ["{\"a\": 1}", "two", "[DONE]"], "pieces of {size}");
        }
    }

    #[test]
    fn a_line_without_end_is_given_up() {
        let mut events = Events::default();
        let chunk = vec![b'x'; 1 << 20];
        assert!((0..20).any(|_| events.push(&chunk, |_| ()) == Err(TooLong)));
    }
}
