//! Little-endian reads from a byte slice that may end anywhere.
//!
//! Every read names what it reads, so that a cut file says where. Never reads past the end, never allocates.

use crate::GgufError;
use std::ops::Range;

pub(super) struct Cursor<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Cursor<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Cursor<'a> {
        Cursor { bytes, at: 0 }
    }

    pub(super) fn position(&self) -> usize {
        self.at
    }

    pub(super) fn remaining(&self) -> usize {
        self.bytes.len() - self.at
    }

    /// The next `len` bytes.
    pub(super) fn take(&mut self, len: u64, what: &'static str) -> Result<&'a [u8], GgufError> {
        let truncated = GgufError::Truncated { what, at: self.at, len: self.bytes.len() };
        let Ok(len) = usize::try_from(len) else { return Err(truncated) };
        let taken = self.bytes[self.at..].get(..len).ok_or(truncated)?;
        self.at += len;
        Ok(taken)
    }

    pub(super) fn array<const N: usize>(&mut self, what: &'static str) -> Result<[u8; N], GgufError> {
        let mut array = [0; N];
        array.copy_from_slice(self.take(N as u64, what)?);
        Ok(array)
    }

    pub(super) fn u32(&mut self, what: &'static str) -> Result<u32, GgufError> {
        Ok(u32::from_le_bytes(self.array(what)?))
    }

    pub(super) fn u64(&mut self, what: &'static str) -> Result<u64, GgufError> {
        Ok(u64::from_le_bytes(self.array(what)?))
    }

    /// A count of things that take at least `least_bytes` each, so that the rest of the file bounds it.
    pub(super) fn count(&mut self, least_bytes: usize, what: &'static str) -> Result<u64, GgufError> {
        let claimed = self.u64(what)?;
        let limit = (self.remaining() / least_bytes) as u64;
        if claimed > limit { Err(GgufError::TooMany { what, claimed, limit }) } else { Ok(claimed) }
    }

    /// A length-prefixed UTF-8 string.
    pub(super) fn string(&mut self, what: &'static str) -> Result<&'a str, GgufError> {
        let len = self.u64(what)?;
        let at = self.at;
        let bytes = self.take(len, what)?;
        std::str::from_utf8(bytes).map_err(|_| GgufError::Utf8 { what, at })
    }

    /// A length-prefixed UTF-8 string, as the range of its bytes.
    pub(super) fn string_range(&mut self, what: &'static str) -> Result<Range<usize>, GgufError> {
        let text = self.string(what)?;
        Ok(self.at - text.len()..self.at)
    }
}
