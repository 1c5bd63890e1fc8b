//! Lines of a file in bounded memory.

use std::io::{self, BufRead, Read};

use super::Wrong;

/// Bytes of a line at most: the ids of a prompt of some million tokens.
const LONGEST: usize = 1 << 20;

/// Lines that are not blank, and where they are.
pub(super) struct Lines<R> {
    source: R,
    line: Vec<u8>,
    number: usize,
}

impl<R: BufRead> Lines<R> {
    pub(super) fn new(source: R) -> Self {
        Self { source, line: Vec::new(), number: 0 }
    }

    /// The number of the latest line, from 1.
    pub(super) fn number(&self) -> usize {
        self.number
    }

    /// Whether this is the next byte.
    pub(super) fn begin_with(&mut self, byte: u8) -> io::Result<bool> {
        Ok(self.source.fill_buf()?.first() == Some(&byte))
    }

    /// The next line without its end; `None` after the last.
    pub(super) fn next(&mut self) -> Result<Option<&str>, Wrong> {
        loop {
            self.line.clear();
            let most = LONGEST as u64 + 1;
            let read = self.source.by_ref().take(most).read_until(b'\n', &mut self.line)?;
            if read == 0 {
                return Ok(None);
            }
            self.number += 1;
            if read > LONGEST {
                return Err("it is longer than 1 MiB".to_owned().into());
            }
            if !self.line.trim_ascii().is_empty() {
                break;
            }
        }
        let text =
            std::str::from_utf8(self.line.trim_ascii()).map_err(|_| "it is no text in UTF-8".to_owned())?;
        Ok(Some(text))
    }
}
