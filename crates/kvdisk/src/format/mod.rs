//! What is in a segment file.
//!
//! ```text
//! page 0                      segment header: shelf, block size, id, nonce; checksum
//! 4096 + slot * stride        record: 128 bytes of header (key, slot, nonce, checksums), block, zeros up to a whole page
//! end of a completed segment  footer: a line per slot, then count and checksum in the last 32 bytes of the last page
//! ```
//!
//! All offsets and lengths are whole pages, so that records can be read and written past the page cache. Integers are
//! little-endian. Every part has a checksum (XXH3, 64 bits: it runs at memory speed without special instructions, and
//! guards against accidents, not against an attacker, who could write a correct one under any function without a key).
//! A record carries the nonce of its segment: one that was left by another file at the same place is not taken.

mod cursor;
mod footer;
mod header;
mod record;

pub(crate) use cursor::{Put, Take};
pub(crate) use footer::{FooterLine, TRAILER, decode_lines, decode_trailer, encode_footer, footer_bytes};
pub(crate) use header::{BadHeader, SegmentHeader};
pub(crate) use record::{RECORD_HEADER, RecordHeader};

/// Files of another version are left alone, and reclaimed when room is needed.
pub(crate) const VERSION: u32 = 1;
/// Alignment of everything in a segment: what direct reads ask for at most.
pub(crate) const PAGE: usize = 4096;
/// Records of a segment at most: bounds the footer, and the time that the index is locked for one segment.
pub(crate) const MAX_SLOTS: u32 = 4096;
/// Bytes of a block at most: far above any model's, far below what would overflow.
pub(crate) const MAX_BLOCK_BYTES: usize = 1 << 30;
/// Bytes of a label at most.
pub(crate) const MAX_LABEL: usize = 256;

/// A checksum of these bytes.
pub(crate) fn checksum(bytes: &[u8]) -> u64 {
    xxhash_rust::xxh3::xxh3_64(bytes)
}

/// Bytes from one record to the next.
pub(crate) fn stride(block_bytes: usize) -> usize {
    (RECORD_HEADER + block_bytes).next_multiple_of(PAGE)
}

/// Where a record begins.
pub(crate) fn record_offset(slot: u32, stride: usize) -> u64 {
    PAGE as u64 + u64::from(slot) * stride as u64
}

/// Cuts a text to so many bytes, at a character.
pub(crate) fn cut(text: &str, bytes: usize) -> &str {
    let mut end = bytes.min(text.len());
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    &text[..end]
}
