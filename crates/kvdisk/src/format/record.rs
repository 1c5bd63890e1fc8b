//! The header before each block.

use super::{Put, Take, checksum};
use crate::Key;

const MAGIC: &[u8; 8] = b"RPWYKVBL";
/// Bytes before the block, which is thereby aligned to cache lines.
pub(crate) const RECORD_HEADER: usize = 128;
/// The header's own checksum stands at its end.
const CHECKED: usize = RECORD_HEADER - 8;

/// Says which block follows. Its checksum covers the block's, so that neither can be exchanged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RecordHeader {
    pub(crate) key: Key,
    /// The segment's nonce.
    pub(crate) nonce: u64,
    pub(crate) slot: u32,
    /// When it was written, or last used before it was carried over: logical time.
    pub(crate) used: u64,
    /// The same in seconds since 1970; for people.
    pub(crate) used_at: u32,
    /// Checksum of the block.
    pub(crate) sum: u64,
}

impl RecordHeader {
    /// Writes the header into the first bytes of a record.
    pub(crate) fn encode(&self, record: &mut [u8]) {
        let mut bytes = Vec::with_capacity(RECORD_HEADER);
        bytes.put(MAGIC);
        bytes.put(&self.key);
        bytes.put_u64(self.nonce);
        bytes.put_u32(self.slot);
        bytes.put_u64(self.used);
        bytes.put_u32(self.used_at);
        bytes.put_u64(self.sum);
        bytes.resize(CHECKED, 0);
        bytes.put_u64(checksum(&bytes));
        record[..RECORD_HEADER].copy_from_slice(&bytes);
    }

    /// The header of a record, if it is one and intact.
    pub(crate) fn decode(record: &[u8]) -> Option<Self> {
        let (checked, mut sum) = record.get(..RECORD_HEADER)?.split_at(CHECKED);
        let mut rest = checked;
        if rest.take(MAGIC.len())? != MAGIC || sum.take_u64()? != checksum(checked) {
            return None;
        }
        Some(Self {
            key: rest.take_array()?,
            nonce: rest.take_u64()?,
            slot: rest.take_u32()?,
            used: rest.take_u64()?,
            used_at: rest.take_u32()?,
            sum: rest.take_u64()?,
        })
    }

    /// Whether this is the header of that slot of that segment.
    pub(crate) fn is_at(&self, nonce: u64, slot: u32) -> bool {
        self.nonce == nonce && self.slot == slot
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEADER: RecordHeader =
        RecordHeader { key: [9; 32], nonce: 77, slot: 5, used: 1234, used_at: 1_700_000_000, sum: 42 };

    #[test]
    fn any_flipped_bit_is_noticed() {
        let mut record = vec![0; RECORD_HEADER];
        HEADER.encode(&mut record);
        assert_eq!(RecordHeader::decode(&record), Some(HEADER));
        for bit in 0..record.len() * 8 {
            record[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(RecordHeader::decode(&record), None, "bit {bit}");
            record[bit / 8] ^= 1 << (bit % 8);
        }
    }
}
