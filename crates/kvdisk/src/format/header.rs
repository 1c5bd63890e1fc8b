//! The first page of a segment.

use super::{MAX_BLOCK_BYTES, MAX_LABEL, PAGE, Put, Take, VERSION, checksum, cut};
use crate::shelf::ShelfSpec;

const MAGIC: &[u8; 8] = b"RPWYKVSG";
/// The checksum stands at the end of the page.
const CHECKED: usize = PAGE - 8;

/// Which blocks a segment holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SegmentHeader {
    pub(crate) id: u32,
    /// Different for every segment ever made.
    pub(crate) nonce: u64,
    /// Seconds since 1970; for people.
    pub(crate) created: u32,
    pub(crate) spec: ShelfSpec,
}

/// Why a page is not a header of ours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BadHeader {
    Damaged,
    OtherVersion(u32),
}

impl SegmentHeader {
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut page = Vec::with_capacity(PAGE);
        page.put(MAGIC);
        page.put_u32(VERSION);
        page.put_u32(self.id);
        page.put_u64(self.nonce);
        page.put_u32(self.created);
        page.put(&self.spec.identity);
        page.put_u64(self.spec.block_bytes as u64);
        page.put_u64(self.spec.block_tokens as u64);
        page.put_text(cut(&self.spec.label, MAX_LABEL));
        page.resize(CHECKED, 0);
        page.put_u64(checksum(&page));
        page
    }

    pub(crate) fn decode(page: &[u8]) -> Result<Self, BadHeader> {
        let (checked, mut sum) = page.split_at_checked(CHECKED).ok_or(BadHeader::Damaged)?;
        let mut rest = checked;
        if rest.take(MAGIC.len()) != Some(MAGIC) || sum.take_u64() != Some(checksum(checked)) {
            return Err(BadHeader::Damaged);
        }
        match rest.take_u32() {
            Some(VERSION) => Self::decode_fields(rest).ok_or(BadHeader::Damaged),
            version => Err(version.map_or(BadHeader::Damaged, BadHeader::OtherVersion)),
        }
    }

    fn decode_fields(mut rest: &[u8]) -> Option<Self> {
        let id = rest.take_u32()?;
        let nonce = rest.take_u64()?;
        let created = rest.take_u32()?;
        let identity = rest.take_array()?;
        let block_bytes = usize::try_from(rest.take_u64()?).ok()?;
        let block_tokens = usize::try_from(rest.take_u64()?).ok()?;
        let label = rest.take_text(MAX_LABEL)?;
        let spec = ShelfSpec { identity, label, block_bytes, block_tokens };
        (1..=MAX_BLOCK_BYTES).contains(&block_bytes).then_some(Self { id, nonce, created, spec })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header() -> SegmentHeader {
        let spec = ShelfSpec {
            identity: [7; 32],
            label: "model, 16 bits".into(),
            block_bytes: 10_000,
            block_tokens: 32,
        };
        SegmentHeader { id: 3, nonce: 99, created: 1_700_000_000, spec }
    }

    #[test]
    fn a_header_comes_back_as_it_was() {
        assert_eq!(SegmentHeader::decode(&header().encode()), Ok(header()));
    }

    #[test]
    fn any_flipped_bit_is_noticed() {
        let page = header().encode();
        for bit in 0..page.len() * 8 {
            let mut flipped = page.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(SegmentHeader::decode(&flipped), Err(BadHeader::Damaged), "bit {bit}");
        }
    }

    #[test]
    fn another_version_is_told_apart_from_damage() {
        let mut page = header().encode();
        page[8] = 2;
        let sum = checksum(&page[..CHECKED]);
        page[CHECKED..].copy_from_slice(&sum.to_le_bytes());
        assert_eq!(SegmentHeader::decode(&page), Err(BadHeader::OtherVersion(2)));
    }

    #[test]
    fn a_long_label_is_cut_at_a_character() {
        let mut long = header();
        long.spec.label = "ü".repeat(300);
        let decoded = SegmentHeader::decode(&long.encode()).unwrap();
        assert_eq!(decoded.spec.label, "ü".repeat(128));
    }
}
