//! The input file, a line of bounded length at a time.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read, Seek};
use std::path::Path;

use super::error::LineError;
use crate::failure::Failure;

/// The longest line: what a tokenizer takes at most, with room for JSON's escapes.
const LONGEST_LINE: usize = 32 << 20;

/// Lines of a file.
pub struct Input {
    reader: BufReader<File>,
    lines: u64,
    number: u64,
}

/// A line that is not blank.
pub struct Numbered {
    /// From 1.
    pub number: u64,
    /// Its text, or why it could not be read.
    pub text: Result<String, LineError>,
}

impl Input {
    /// Opens the file and counts its lines.
    pub fn open(path: &Path) -> Result<Input, Failure> {
        let hint = "give a file with one JSON object a line";
        let unreadable =
            |error: io::Error| Failure::new(format!("could not read {}: {error}", path.display()), hint);
        let mut reader = BufReader::new(File::open(path).map_err(unreadable)?);
        let lines = count_lines(&mut reader).map_err(unreadable)?;
        reader.rewind().map_err(unreadable)?;
        Ok(Input { reader, lines, number: 0 })
    }

    /// How many lines there are, blank ones included.
    pub fn lines(&self) -> u64 {
        self.lines
    }

    /// The next line that is not blank.
    pub fn next_line(&mut self) -> io::Result<Option<Numbered>> {
        loop {
            let mut bytes = Vec::new();
            let most = LONGEST_LINE as u64 + 1;
            if (&mut self.reader).take(most).read_until(b'\n', &mut bytes)? == 0 {
                return Ok(None);
            }
            self.number += 1;
            let number = self.number;
            if bytes.len() > LONGEST_LINE {
                self.reader.skip_until(b'\n')?;
                return Ok(Some(Numbered { number, text: Err(LineError::TooLong(LONGEST_LINE)) }));
            }
            if !bytes.trim_ascii().is_empty() {
                let text = String::from_utf8(bytes).map_err(|error| LineError::NotJson(error.to_string()));
                return Ok(Some(Numbered { number, text }));
            }
        }
    }
}

/// Lines, the last counted even if nothing ends it.
fn count_lines(reader: &mut impl BufRead) -> io::Result<u64> {
    let mut lines = 0;
    while reader.skip_until(b'\n')? > 0 {
        lines += 1;
    }
    Ok(lines)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_line_counts_with_and_without_an_end() {
        for (text, lines) in [("", 0), ("a", 1), ("a\n", 1), ("a\nb", 2), ("\n\n", 2)] {
            assert_eq!(count_lines(&mut text.as_bytes()).expect("memory"), lines, "{text:?}");
        }
    }
}
