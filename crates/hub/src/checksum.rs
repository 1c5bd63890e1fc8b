//! Sha256 as a value, and copying that computes it on the way.
//!
//! Must never: read a file into memory, or copy more than the given limit.

use std::fmt;
use std::fs::File;
use std::io::{self, Read, Write};
use std::path::Path;

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use sha2::Digest;

use crate::cancel::Cancel;
use crate::error::SourceError;
use crate::progress::{Progress, Report, Stage};

/// How much is read at once: large enough that system calls do not count, small enough for any machine.
const CHUNK: usize = 256 * 1024;

/// A sha256 checksum; prints as 64 lower-case hexadecimal digits.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Sha256([u8; 32]);

/// What a copy has seen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Copied {
    /// How many bytes went through.
    pub bytes: u64,
    /// Their checksum.
    pub sha256: Sha256,
}

impl Sha256 {
    /// The checksum written as `hex`, for constants: anything but 64 hexadecimal digits fails to compile.
    pub const fn from_hex(hex: &str) -> Sha256 {
        match Sha256::parse(hex) {
            Some(sum) => sum,
            None => panic!("a sha256 is written as 64 hexadecimal digits"),
        }
    }

    /// The checksum written as `hex`, or `None` unless it is 64 hexadecimal digits.
    pub const fn parse(hex: &str) -> Option<Sha256> {
        let digits = hex.as_bytes();
        if digits.len() != 64 {
            return None;
        }
        let mut sum = [0; 32];
        let mut i = 0;
        while i < 32 {
            match (nibble(digits[2 * i]), nibble(digits[2 * i + 1])) {
                (Some(high), Some(low)) => sum[i] = high << 4 | low,
                _ => return None,
            }
            i += 1;
        }
        Some(Sha256(sum))
    }

    /// The checksum of `bytes`.
    pub fn of(bytes: &[u8]) -> Sha256 {
        Sha256(sha2::Sha256::digest(bytes).into())
    }
}

const fn nibble(digit: u8) -> Option<u8> {
    match digit {
        b'0'..=b'9' => Some(digit - b'0'),
        b'a'..=b'f' => Some(digit - b'a' + 10),
        b'A'..=b'F' => Some(digit - b'A' + 10),
        _ => None,
    }
}

/// Copies until `from` ends or `limit` bytes went through, telling `on_bytes` the running total after each chunk.
/// A source longer than the limit shows as `bytes == limit`: pass one more than is expected.
pub(crate) fn copy(
    from: &mut dyn Read,
    to: &mut dyn Write,
    limit: u64,
    on_bytes: &mut dyn FnMut(u64),
) -> io::Result<Copied> {
    let mut from = from.take(limit);
    let mut hasher = sha2::Sha256::new();
    let mut buffer = vec![0; CHUNK];
    let mut bytes = 0;
    loop {
        let n = match from.read(&mut buffer) {
            Ok(0) => break,
            Ok(n) => n,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(error),
        };
        hasher.update(&buffer[..n]);
        to.write_all(&buffer[..n])?;
        bytes += n as u64;
        on_bytes(bytes);
    }
    Ok(Copied { bytes, sha256: Sha256(hasher.finalize().into()) })
}

/// Reads a file through and reports it as being checked under the name `shown`.
pub(crate) fn of_file(
    path: &Path,
    shown: &str,
    cancel: &Cancel,
    report: Report<'_>,
) -> Result<Copied, SourceError> {
    let mut file = File::open(path).map_err(SourceError::io("open", path))?;
    let total = file.metadata().map_err(SourceError::io("read", path))?.len();
    let mut on_bytes = |done| report(Progress::Bytes { stage: Stage::Check, file: shown, done, total });
    let mut sink = Stoppable(cancel);
    let copied = copy(&mut file, &mut sink, total, &mut on_bytes);
    cancel.check()?;
    copied.map_err(SourceError::io("read", path))
}

/// Throws away what is written, until the word to stop is given.
struct Stoppable<'a>(&'a Cancel);

impl Write for Stoppable<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.0.is_cancelled() {
            return Err(io::Error::other("stopped"));
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl fmt::Display for Sha256 {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for Sha256 {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Sha256({self})")
    }
}

impl Serialize for Sha256 {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Sha256 {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let hex = String::deserialize(deserializer)?;
        Sha256::parse(&hex)
            .ok_or_else(|| serde::de::Error::custom("a sha256 is written as 64 hexadecimal digits"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OF_ABC: &str = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";

    #[test]
    fn a_checksum_prints_the_digits_it_was_parsed_from() {
        assert_eq!(Sha256::parse(OF_ABC).unwrap().to_string(), OF_ABC);
        assert_eq!(Sha256::of(b"abc").to_string(), OF_ABC);
    }

    #[test]
    fn anything_but_64_digits_is_no_checksum() {
        for bad in ["", "ab", &OF_ABC[1..], &format!("{OF_ABC}0"), &OF_ABC.replace('b', "g")] {
            assert_eq!(Sha256::parse(bad), None, "{bad}");
        }
    }

    #[test]
    fn a_copy_reports_size_and_checksum_and_stops_at_the_limit() {
        let mut written = Vec::new();
        let whole = copy(&mut &b"abc"[..], &mut written, 10, &mut |_| ()).unwrap();
        assert_eq!((whole.bytes, whole.sha256.to_string().as_str()), (3, OF_ABC));
        assert_eq!(written, b"abc");
        let cut = copy(&mut io::repeat(7), &mut io::sink(), 1_000_000, &mut |_| ()).unwrap();
        assert_eq!(cut.bytes, 1_000_000);
    }
}
