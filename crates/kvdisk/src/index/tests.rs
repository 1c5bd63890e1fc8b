use std::time::{Duration, SystemTime};

use super::*;
use crate::shelf::ShelfSpec;

fn key(n: u8) -> Key {
    [n; 32]
}

fn index() -> (Index, ShelfId) {
    let mut index = Index::default();
    index.pins.allowed = u64::MAX;
    let spec = ShelfSpec { identity: [1; 32], label: "test".into(), block_bytes: 1000, block_tokens: 4 };
    let shelf = index.shelf(&spec);
    (index, shelf)
}

fn add(index: &mut Index, shelf: ShelfId, id: u32, keys: &[u8]) {
    index.add_segment(SegmentId(id), Segment::new(shelf, u64::from(id), keys.len()));
    for &n in keys {
        let used = index.tick();
        index.append(SegmentId(id), &FooterLine { key: key(n), used, used_at: 0, is_live: true });
    }
}

fn touch(index: &mut Index, shelf: ShelfId, n: u8) {
    let place = index.find(shelf, &key(n)).unwrap();
    index.touch(place, 0);
}

fn pin(index: &mut Index, shelf: ShelfId, name: &str, keys: &[u8]) -> usize {
    let until = SystemTime::now() + Duration::from_secs(60);
    index.pin(shelf, name, Pin { keys: keys.iter().copied().map(key).collect(), until })
}

#[test]
fn the_segment_unused_for_longest_goes_first() {
    let (mut index, shelf) = index();
    add(&mut index, shelf, 1, &[1, 2]);
    add(&mut index, shelf, 2, &[3, 4]);
    assert_eq!(index.victim(), Some(SegmentId(1)));
    touch(&mut index, shelf, 1);
    touch(&mut index, shelf, 2);
    assert_eq!(index.victim(), Some(SegmentId(2)));
}

#[test]
fn one_used_block_is_carried_over_and_does_not_keep_its_segment() {
    let (mut index, shelf) = index();
    add(&mut index, shelf, 1, &[1, 2, 3, 4, 5, 6, 7, 8]);
    add(&mut index, shelf, 2, &[11, 12, 13, 14, 15, 16, 17, 18]);
    touch(&mut index, shelf, 3);
    assert_eq!(index.victim(), Some(SegmentId(1)));
    assert_eq!(index.survivors(SegmentId(1)), [2]);
}

#[test]
fn at_most_half_of_a_segment_gets_a_second_chance_the_latest_first() {
    let (mut index, shelf) = index();
    add(&mut index, shelf, 1, &[1, 2, 3, 4]);
    add(&mut index, shelf, 2, &[11, 12, 13, 14]);
    for n in [3, 2, 1] {
        touch(&mut index, shelf, n);
    }
    assert_eq!(index.survivors(SegmentId(1)), [0, 1]);
}

#[test]
fn pinned_blocks_survive_and_segments_full_of_them_are_left_alone() {
    let (mut index, shelf) = index();
    add(&mut index, shelf, 1, &[1, 2, 3, 4]);
    add(&mut index, shelf, 2, &[11, 12, 13, 14]);
    assert_eq!(pin(&mut index, shelf, "agent", &[1, 2, 3, 4]), 4);
    assert_eq!(index.victim(), Some(SegmentId(2)));
    assert_eq!(pin(&mut index, shelf, "agent", &[1]), 1);
    assert_eq!(index.victim(), Some(SegmentId(1)));
    assert_eq!(index.survivors(SegmentId(1)), [0]);
}

#[test]
fn a_block_pinned_by_two_stays_pinned_until_both_let_go() {
    let (mut index, shelf) = index();
    add(&mut index, shelf, 1, &[1, 2]);
    pin(&mut index, shelf, "a", &[1, 2]);
    pin(&mut index, shelf, "b", &[1]);
    index.unpin(shelf, "a");
    assert_eq!(index.segment(SegmentId(1)).unwrap().pinned(), 1);
    index.unpin(shelf, "b");
    assert_eq!(index.segment(SegmentId(1)).unwrap().pinned(), 0);
    assert_eq!(index.pins.bytes(), 0);
}

#[test]
fn no_more_is_pinned_than_allowed_and_the_beginning_counts() {
    let (mut index, shelf) = index();
    index.pins.allowed = 2 * index.shelves.stride(shelf) as u64;
    assert_eq!(pin(&mut index, shelf, "a", &[1, 2, 3]), 2);
    assert_eq!(pin(&mut index, shelf, "b", &[1, 9]), 1);
    // Under the same name, what was pinned makes room for what is to be.
    index.unpin(shelf, "b");
    assert_eq!(pin(&mut index, shelf, "a", &[7, 8]), 2);
}

#[test]
fn a_block_pinned_before_it_is_stored_is_pinned_when_it_is() {
    let (mut index, shelf) = index();
    pin(&mut index, shelf, "agent", &[5]);
    add(&mut index, shelf, 1, &[4, 5]);
    assert_eq!(index.segment(SegmentId(1)).unwrap().pinned(), 1);
}

#[test]
fn a_block_that_is_stored_again_is_at_its_new_place_only() {
    let (mut index, shelf) = index();
    add(&mut index, shelf, 1, &[1, 2]);
    add(&mut index, shelf, 2, &[2]);
    assert_eq!(index.find(shelf, &key(2)), Some(Place { segment: SegmentId(2), slot: 0 }));
    assert_eq!((index.blocks(), index.segment(SegmentId(1)).unwrap().live()), (2, 1));
    index.remove_segment(SegmentId(1));
    assert_eq!(index.find(shelf, &key(1)), None);
    assert_eq!((index.blocks(), index.shelves.total().blocks), (1, 1));
}

#[test]
fn a_block_that_is_carried_over_keeps_its_last_use() {
    let (mut index, shelf) = index();
    add(&mut index, shelf, 1, &[1]);
    touch(&mut index, shelf, 1);
    let used = index.now();
    // Meanwhile it is used again: what was read before says less.
    index.add_segment(SegmentId(2), Segment::new(shelf, 2, 1));
    index.append(SegmentId(2), &FooterLine { key: key(1), used: used - 1, used_at: 0, is_live: true });
    assert_eq!(index.segment(SegmentId(2)).unwrap().slot(0).used, used);
}

#[test]
fn equal_keys_of_two_shelves_are_two_blocks() {
    let (mut index, shelf) = index();
    let other = ShelfSpec { identity: [2; 32], label: "test".into(), block_bytes: 1000, block_tokens: 4 };
    let other = index.shelf(&other);
    add(&mut index, shelf, 1, &[1]);
    assert_eq!(index.find(other, &key(1)), None);
}

#[test]
fn a_time_from_a_hostile_file_does_not_stop_the_clock() {
    let (mut index, shelf) = index();
    add(&mut index, shelf, 1, &[1]);
    index.append(SegmentId(1), &FooterLine { key: key(2), used: u64::MAX, used_at: 0, is_live: true });
    assert!(index.now() < LAST_TIME);
    assert_eq!(index.find(shelf, &key(2)), Some(Place { segment: SegmentId(1), slot: 1 }));
}
