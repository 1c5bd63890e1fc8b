//! Files whose checksums are right and whose contents are not: what an attacker, or another version, could leave.

use std::fs;

use proptest::collection::vec;
use proptest::prelude::*;

use super::*;
use crate::format::{FooterLine, PAGE, Put, SegmentHeader, encode_footer, record_offset, stride};
use crate::shelf::ShelfSpec;

fn header(id: u32, block_bytes: usize, block_tokens: usize) -> SegmentHeader {
    let spec = ShelfSpec { identity: [3; 32], label: "x".into(), block_bytes, block_tokens };
    SegmentHeader { id, nonce: 11, created: 0, spec }
}

fn lines() -> impl Strategy<Value = Vec<FooterLine>> {
    let line = (any::<u8>(), any::<u64>(), any::<u32>(), any::<bool>());
    vec(
        line.prop_map(|(n, used, used_at, is_live)| FooterLine { key: [n % 16; 32], used, used_at, is_live }),
        0..40,
    )
}

/// A snapshot with the right beginning and checksum.
fn snapshot_of(now: u64, rest: &[u8]) -> Vec<u8> {
    let mut bytes = b"RPWYKVIX".to_vec();
    bytes.put_u32(crate::format::VERSION);
    bytes.put_u64(now);
    bytes.put(rest);
    let sum = crate::format::checksum(&bytes);
    bytes.put_u64(sum);
    bytes
}

/// Small numbers lead further into the parser than large ones.
fn words() -> impl Strategy<Value = Vec<u8>> {
    let word = prop_oneof![4 => 0..4_u32, 1 => any::<u32>(), 1 => Just(11)];
    vec(word, 0..60).prop_map(|words| words.into_iter().flat_map(u32::to_le_bytes).collect())
}

/// What must hold for any index.
fn check(index: &Index) {
    let live: u64 = index.segments().map(|(_, segment)| u64::from(segment.live())).sum();
    assert_eq!(live, index.blocks());
    assert_eq!(live, index.shelves.total().blocks);
    for (id, segment) in index.segments() {
        for (slot, block) in (0_u32..).zip(segment.slots()).filter(|(_, slot)| slot.is_live) {
            let place = index.find(segment.shelf, &block.key);
            assert_eq!(place, Some(crate::index::Place { segment: id, slot }));
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn nothing_that_a_file_claims_makes_loading_panic(
        block_bytes in prop_oneof![1..10_000_usize, any::<usize>()],
        block_tokens: usize,
        lines in lines(),
        missing in 0..3 * PAGE,
        now: u64,
        rest in words(),
    ) {
        let dir = tempfile::tempdir().unwrap();
        let folder = Folder::new(dir.path());
        let header = header(1, block_bytes, block_tokens);
        let mut file = header.encode();
        if block_bytes < 10_000 {
            file.resize(record_offset(lines.len() as u32, stride(block_bytes)) as usize, 0);
        }
        file.put(&encode_footer(header.nonce, &lines));
        file.truncate(file.len() - missing.min(file.len()) * usize::from(missing > PAGE));
        fs::write(folder.segment(SegmentId(1)), file).unwrap();
        fs::write(folder.index(), snapshot_of(now, &rest)).unwrap();
        let mut index = Index::default();
        index.pins.allowed = 1 << 20;
        load(&folder, &mut index).unwrap();
        check(&index);
        // Whatever time the files claim, the next use is the latest.
        let next = index.ticks(1);
        for (_, segment) in index.segments() {
            prop_assert!(segment.slots().iter().all(|slot| !slot.is_live || slot.used < next));
        }
    }
}
