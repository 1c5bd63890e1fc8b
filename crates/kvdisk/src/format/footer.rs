//! The end of a completed segment: what its records are, so that opening reads one piece instead of every record.
//!
//! ```text
//! [line of slot 0][line of slot 1] ... [zeros][trailer: magic, count, checksum of lines, nonce]
//! ```

use super::{MAX_SLOTS, PAGE, Put, Take, checksum};
use crate::Key;

const MAGIC: &[u8; 8] = b"RPWYKVFT";
const LINE: usize = 48;
/// Bytes of the trailer, which ends the file.
pub(crate) const TRAILER: usize = 32;

/// A slot as the footer has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FooterLine {
    pub(crate) key: Key,
    pub(crate) used: u64,
    pub(crate) used_at: u32,
    /// Whether the slot's block may be used.
    pub(crate) is_live: bool,
}

/// Bytes of the footer of a segment with so many slots.
pub(crate) fn footer_bytes(slots: u32) -> usize {
    (slots as usize * LINE + TRAILER).next_multiple_of(PAGE)
}

pub(crate) fn encode_footer(nonce: u64, lines: &[FooterLine]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(footer_bytes(lines.len() as u32));
    for line in lines {
        bytes.put(&line.key);
        bytes.put_u64(line.used);
        bytes.put_u32(line.used_at);
        bytes.put_u32(u32::from(line.is_live));
    }
    let sum = checksum(&bytes);
    bytes.resize(footer_bytes(lines.len() as u32) - TRAILER, 0);
    bytes.put(MAGIC);
    // Count and nonce are part of what is checked.
    bytes.put_u64(lines.len() as u64);
    bytes.put_u64(sum ^ nonce ^ lines.len() as u64);
    bytes.put_u64(nonce);
    bytes
}

/// What a trailer says: how many slots, and the checksum of their lines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Trailer {
    pub(crate) slots: u32,
    sum: u64,
}

/// The last bytes of a file, if they are the trailer of that segment.
pub(crate) fn decode_trailer(mut bytes: &[u8], nonce: u64) -> Option<Trailer> {
    let is_ours = bytes.take(MAGIC.len())? == MAGIC;
    let slots = bytes.take_u64()?;
    let sum = bytes.take_u64()? ^ nonce ^ slots;
    let same_segment = bytes.take_u64()? == nonce;
    let slots = u32::try_from(slots).ok().filter(|&slots| slots <= MAX_SLOTS)?;
    (is_ours && same_segment).then_some(Trailer { slots, sum })
}

/// The lines of a footer, if they are intact.
pub(crate) fn decode_lines(footer: &[u8], trailer: Trailer) -> Option<Vec<FooterLine>> {
    let mut lines = footer.get(..trailer.slots as usize * LINE)?;
    if checksum(lines) != trailer.sum {
        return None;
    }
    (0..trailer.slots).map(|_| decode_line(&mut lines)).collect()
}

fn decode_line(bytes: &mut &[u8]) -> Option<FooterLine> {
    Some(FooterLine {
        key: bytes.take_array()?,
        used: bytes.take_u64()?,
        used_at: bytes.take_u32()?,
        is_live: bytes.take_u32()? != 0,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_footer_comes_back_and_any_change_is_noticed() {
        let lines: Vec<_> = (0..100_u8)
            .map(|n| FooterLine { key: [n; 32], used: u64::from(n), used_at: 7, is_live: n % 3 > 0 })
            .collect();
        let footer = encode_footer(5, &lines);
        assert_eq!(footer.len() % PAGE, 0);
        let read = |footer: &[u8]| {
            let trailer = decode_trailer(&footer[footer.len() - TRAILER..], 5)?;
            decode_lines(footer, trailer)
        };
        assert_eq!(read(&footer), Some(lines.clone()));
        for place in (0..lines.len() * LINE).chain(footer.len() - TRAILER..footer.len()) {
            let mut changed = footer.clone();
            changed[place] ^= 0x10;
            assert_eq!(read(&changed), None, "byte {place}");
        }
    }
}
