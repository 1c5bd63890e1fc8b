//! The area stays within its size, and what was used longest ago goes first.

#[allow(dead_code, reason = "each test file uses a part")]
mod support;

use std::time::{Duration, SystemTime};

use ropeway_kvdisk::{Disk, Options, Shelf, ShelfSpec, Stored};
use support::{LONG, fetch_all, folder_bytes, held, key, open, options, spec, store, store_all};

const SIZE: u64 = 4 << 20;

fn in_an_hour() -> SystemTime {
    SystemTime::now() + Duration::from_secs(3600)
}

/// Stores blocks, looking at the size of all files after every few.
fn store_and_watch(disk: &Disk, shelf: &Shelf, dir: &std::path::Path, numbers: std::ops::Range<u64>) {
    for number in numbers {
        assert_eq!(store(shelf, number), Stored::Queued);
        if number % 5 > 0 {
            continue;
        }
        assert!(disk.flush(LONG));
        let bytes = folder_bytes(dir);
        assert!(bytes <= SIZE, "{bytes} bytes after block {number}");
        assert!(disk.status().file_bytes <= SIZE);
    }
    assert!(disk.flush(LONG));
}

#[test]
fn the_size_is_never_exceeded_and_old_blocks_make_room() {
    let dir = tempfile::tempdir().unwrap();
    let disk = Disk::open(options(dir.path(), SIZE)).unwrap();
    let shelf = disk.shelf(spec(1));
    store_and_watch(&disk, &shelf, dir.path(), 0..1000);
    let status = disk.status();
    assert!(status.counters.reclaimed_blocks > 0);
    assert_eq!(status.stock.blocks + status.counters.reclaimed_blocks, 1000);
    // Without any other use, exactly the last ones written are there.
    let first = 1000 - status.stock.blocks;
    assert_eq!(held(&shelf, 0..1000), (first..1000).collect::<Vec<_>>());
    assert_eq!(fetch_all(&shelf, first..1000), status.stock.blocks as usize);
    // Most of the size is used.
    assert!(status.stock.bytes > SIZE / 2, "{status:?}");
    disk.close(LONG);
    assert!(folder_bytes(dir.path()) <= SIZE);
}

#[test]
fn blocks_in_use_stay_while_others_come_and_go() {
    let dir = tempfile::tempdir().unwrap();
    let disk = Disk::open(options(dir.path(), SIZE)).unwrap();
    let shelf = disk.shelf(spec(1));
    // Few in each segment: they are no reason to keep a segment.
    for number in 0..20 {
        store_all(&disk, &shelf, (number * 100 + 1_000..number * 100 + 1_007).chain([number]));
    }
    for round in 100..130 {
        store_and_watch(&disk, &shelf, dir.path(), round * 100..round * 100 + 40);
        assert_eq!(fetch_all(&shelf, 0..20), 20, "round {round}");
    }
    let counters = disk.status().counters;
    assert!(counters.carried_blocks >= 20, "{counters:?}");
}

#[test]
fn pinned_blocks_stay_until_they_are_unpinned() {
    let dir = tempfile::tempdir().unwrap();
    let disk = Disk::open(options(dir.path(), SIZE)).unwrap();
    let shelf = disk.shelf(spec(1));
    store_all(&disk, &shelf, 0..50);
    let keys: Vec<_> = (0..50).map(key).collect();
    assert_eq!(shelf.pin("agent", &keys, in_an_hour()), 50);
    store_and_watch(&disk, &shelf, dir.path(), 1000..2000);
    assert_eq!(fetch_all(&shelf, 0..50), 50);
    shelf.unpin("agent");
    // The fetch was a use: only blocks written after it make them the oldest.
    store_and_watch(&disk, &shelf, dir.path(), 3000..4000);
    assert_eq!(held(&shelf, 0..50), [] as [u64; 0]);
}

#[test]
fn pins_whose_time_is_over_keep_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let disk = Disk::open(options(dir.path(), SIZE)).unwrap();
    let shelf = disk.shelf(spec(1));
    store_all(&disk, &shelf, 0..50);
    let keys: Vec<_> = (0..50).map(key).collect();
    shelf.pin("agent", &keys, SystemTime::now() - Duration::from_secs(1));
    store_and_watch(&disk, &shelf, dir.path(), 1000..2000);
    assert_eq!(held(&shelf, 0..50), [] as [u64; 0]);
}

#[test]
fn pins_survive_a_restart() {
    let dir = tempfile::tempdir().unwrap();
    let disk = Disk::open(options(dir.path(), SIZE)).unwrap();
    let shelf = disk.shelf(spec(1));
    store_all(&disk, &shelf, 0..50);
    let keys: Vec<_> = (0..50).map(key).collect();
    shelf.pin("agent", &keys, in_an_hour());
    disk.close(LONG);
    drop((disk, shelf));
    let disk = Disk::open(options(dir.path(), SIZE)).unwrap();
    assert!(disk.status().pinned_bytes > 0);
    // Another model fills the area; the pinned one is not even asked for.
    store_and_watch(&disk, &disk.shelf(spec(2)), dir.path(), 1000..2000);
    assert_eq!(fetch_all(&disk.shelf(spec(1)), 0..50), 50);
}

#[test]
fn pins_take_no_more_than_their_share() {
    let dir = tempfile::tempdir().unwrap();
    let disk = Disk::open(Options { pinned_percent: 25, ..options(dir.path(), SIZE) }).unwrap();
    let shelf = disk.shelf(spec(1));
    let keys: Vec<_> = (0..1000).map(key).collect();
    let pinned = shelf.pin("greedy", &keys, in_an_hour());
    assert!(pinned > 50 && pinned as u64 * 10_000 < SIZE / 4, "{pinned}");
    for number in 0..1000 {
        store_all(&disk, &shelf, [number]);
    }
    store_and_watch(&disk, &shelf, dir.path(), 5000..6000);
    assert_eq!(fetch_all(&shelf, 0..pinned as u64), pinned);
}

#[test]
fn last_uses_survive_a_restart_and_a_crash_loses_only_them() {
    for is_orderly in [true, false] {
        let dir = tempfile::tempdir().unwrap();
        let disk = Disk::open(options(dir.path(), SIZE)).unwrap();
        let shelf = disk.shelf(spec(1));
        store_all(&disk, &shelf, 0..200);
        shelf.touch(&(0..50).map(key).collect::<Vec<_>>());
        if is_orderly {
            disk.close(LONG);
        }
        drop((disk, shelf));
        let disk = Disk::open(options(dir.path(), SIZE)).unwrap();
        let shelf = disk.shelf(spec(1));
        assert_eq!(disk.status().stock.blocks, 200);
        let mut next = 1000;
        while held(&shelf, 50..200).len() == 150 && held(&shelf, 0..50).len() == 50 {
            store_all(&disk, &shelf, [next]);
            next += 1;
        }
        let touched_went_first = held(&shelf, 0..50).len() < 50;
        assert_eq!(touched_went_first, !is_orderly);
    }
}

#[test]
fn a_smaller_size_is_kept_from_the_start() {
    let dir = tempfile::tempdir().unwrap();
    let disk = open(dir.path());
    let shelf = disk.shelf(spec(1));
    store_all(&disk, &shelf, 0..1000);
    disk.close(LONG);
    drop((disk, shelf));
    assert!(folder_bytes(dir.path()) > SIZE);
    let disk = Disk::open(options(dir.path(), SIZE)).unwrap();
    assert!(folder_bytes(dir.path()) <= SIZE);
    let shelf = disk.shelf(spec(1));
    let left = held(&shelf, 0..1000);
    assert!(!left.is_empty() && left.ends_with(&[999]));
    assert_eq!(fetch_all(&shelf, left.clone()), left.len());
}

#[test]
fn several_models_share_the_size() {
    let dir = tempfile::tempdir().unwrap();
    let disk = Disk::open(options(dir.path(), SIZE)).unwrap();
    let shelves: Vec<_> = (0..7)
        .map(|model| {
            let block_bytes = 3000 + 5000 * usize::from(model);
            disk.shelf(ShelfSpec { block_bytes, ..spec(model) })
        })
        .collect();
    for number in 0..300 {
        let shelf = &shelves[number as usize * 5 % 7];
        assert_eq!(shelf.store(key(number), |block| block.fill(number as u8)), Stored::Queued);
        assert!(disk.flush(LONG));
        assert!(folder_bytes(dir.path()) <= SIZE);
    }
    let counters = disk.status().counters;
    assert_eq!((counters.dropped_blocks, counters.write_failures), (0, 0), "{counters:?}");
}

#[test]
fn an_area_too_small_for_a_models_blocks_says_so() {
    let dir = tempfile::tempdir().unwrap();
    let disk = Disk::open(options(dir.path(), 1 << 20)).unwrap();
    let shelf = disk.shelf(ShelfSpec { block_bytes: 400_000, ..spec(1) });
    assert_eq!(shelf.store(key(1), |_| {}), Stored::Stopped);
    let why = shelf.too_large().unwrap();
    assert!(why.contains("allow at least"), "{why}");
    // Others go on.
    let small = disk.shelf(spec(2));
    assert_eq!(small.too_large(), None);
    store_all(&disk, &small, 0..100);
    assert!(!held(&small, 0..100).is_empty());
    assert!(folder_bytes(dir.path()) <= 1 << 20);
}

#[test]
fn a_full_disk_stops_writing_with_a_reason_and_reading_goes_on() {
    let dir = tempfile::tempdir().unwrap();
    let disk = open(dir.path());
    store_all(&disk, &disk.shelf(spec(1)), 0..20);
    disk.close(LONG);
    let disk = Disk::open(Options { floor: u64::MAX, ..options(dir.path(), SIZE) }).unwrap();
    let shelf = disk.shelf(spec(1));
    assert_eq!(store(&shelf, 100), Stored::Queued);
    // Whether the block was given up before or after the flush began is a matter of luck.
    disk.flush(LONG);
    let status = disk.status();
    assert!(status.stopped.unwrap().contains("must stay free"));
    assert_eq!((status.counters.dropped_blocks, status.queued_bytes), (1, 0));
    assert_eq!(store(&shelf, 101), Stored::Stopped);
    assert!(!shelf.holds(&key(100)));
    assert_eq!(fetch_all(&shelf, 0..20), 20);
}
