//! Blocks come back as they were stored, by any way.

#[allow(dead_code, reason = "each test file uses a part")]
mod support;

use ropeway_kvdisk::{Disk, FetchPoll, Stored};
use support::{Bell, LONG, fetch_all, held, key, next, open, options, spec, store, store_all};

#[test]
fn blocks_come_back_from_disk() {
    let dir = tempfile::tempdir().unwrap();
    let disk = open(dir.path());
    let shelf = disk.shelf(spec(1));
    store_all(&disk, &shelf, 0..50);
    assert_eq!(fetch_all(&shelf, 0..50), 50);
    assert_eq!(fetch_all(&shelf, (0..50).rev()), 50);
    assert_eq!(disk.status().counters.read_blocks, 100);
    assert_eq!(disk.status().counters.read_from_queue, 0);
}

#[test]
fn blocks_come_back_after_a_close() {
    let dir = tempfile::tempdir().unwrap();
    let disk = open(dir.path());
    let shelf = disk.shelf(spec(1));
    for number in 0..50 {
        assert_eq!(store(&shelf, number), Stored::Queued);
    }
    disk.close(LONG);
    let disk = open(dir.path());
    assert_eq!(disk.status().stock.blocks, 50);
    assert_eq!(disk.status().stock.tokens, 50 * 32);
    assert_eq!(fetch_all(&disk.shelf(spec(1)), 0..50), 50);
}

#[test]
fn blocks_that_were_flushed_come_back_after_a_crash() {
    let dir = tempfile::tempdir().unwrap();
    let disk = open(dir.path());
    let shelf = disk.shelf(spec(1));
    store_all(&disk, &shelf, 0..50);
    drop((disk, shelf));
    let disk = open(dir.path());
    assert_eq!(fetch_all(&disk.shelf(spec(1)), 0..50), 50);
}

#[test]
fn a_block_can_be_fetched_before_it_is_written() {
    let dir = tempfile::tempdir().unwrap();
    // A second for each byte: after the first block, nothing is written during the test.
    let disk = Disk::open(ropeway_kvdisk::Options { write_speed: Some(1), ..options(dir.path(), 64 << 20) })
        .unwrap();
    let shelf = disk.shelf(spec(1));
    for number in 0..20 {
        assert_eq!(store(&shelf, number), Stored::Queued);
    }
    assert_eq!(fetch_all(&shelf, 0..20), 20);
    assert!(disk.status().counters.read_from_queue >= 19);
    // A flush does not keep to the speed.
    assert!(disk.flush(LONG));
    assert_eq!(disk.status().counters.written_blocks, 20);
}

#[test]
fn a_known_block_is_not_stored_again() {
    let dir = tempfile::tempdir().unwrap();
    let disk = open(dir.path());
    let shelf = disk.shelf(spec(1));
    assert_eq!(store(&shelf, 1), Stored::Queued);
    assert_eq!(shelf.store(key(1), |_| panic!("not to be filled")), Stored::Known);
    assert!(disk.flush(LONG));
    assert_eq!(shelf.store(key(1), |_| panic!("not to be filled")), Stored::Known);
}

#[test]
fn a_full_queue_takes_nothing_and_asks_for_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let slow =
        ropeway_kvdisk::Options { write_speed: Some(1), queue: 50_000, ..options(dir.path(), 64 << 20) };
    let disk = Disk::open(slow).unwrap();
    let shelf = disk.shelf(spec(1));
    let queued = (0..20).take_while(|&number| store(&shelf, number) == Stored::Queued).count();
    assert!((4..20).contains(&queued), "{queued}");
    assert_eq!(shelf.store(key(99), |_| panic!("not to be filled")), Stored::Full);
    assert!(disk.status().queued_bytes <= 50_000);
    assert!(!shelf.holds(&key(99)));
}

#[test]
fn a_flush_ends_while_others_go_on_storing() {
    let dir = tempfile::tempdir().unwrap();
    let disk = open(dir.path());
    let shelf = disk.shelf(spec(1));
    let is_over = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for number in (0..).take_while(|_| !is_over.load(std::sync::atomic::Ordering::Relaxed)) {
                store(&shelf, number % 1000);
                shelf.forget(&key((number + 500) % 1000));
            }
        });
        for _ in 0..5 {
            assert!(disk.flush(LONG));
        }
        is_over.store(true, std::sync::atomic::Ordering::Relaxed);
    });
}

#[test]
fn a_fill_that_panics_leaves_nothing_behind() {
    let dir = tempfile::tempdir().unwrap();
    let disk = open(dir.path());
    let shelf = disk.shelf(spec(1));
    let panics =
        std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| shelf.store(key(1), |_| panic!("as told"))));
    assert!(panics.is_err());
    assert!(!shelf.holds(&key(1)));
    assert_eq!(disk.status().queued_bytes, 0);
    store_all(&disk, &shelf, [1]);
    assert_eq!(fetch_all(&shelf, [1]), 1);
}

#[test]
fn a_forgotten_block_is_gone_also_after_a_close() {
    let dir = tempfile::tempdir().unwrap();
    let disk = open(dir.path());
    let shelf = disk.shelf(spec(1));
    store_all(&disk, &shelf, 0..10);
    shelf.forget(&key(4));
    assert_eq!(fetch_all(&shelf, 0..10), 4);
    disk.close(LONG);
    let disk = open(dir.path());
    let shelf = disk.shelf(spec(1));
    assert_eq!(held(&shelf, 0..10), [0, 1, 2, 3, 5, 6, 7, 8, 9]);
    store_all(&disk, &shelf, [4]);
    assert_eq!(fetch_all(&shelf, 0..10), 10);
}

#[test]
fn leading_counts_up_to_the_first_gap() {
    let dir = tempfile::tempdir().unwrap();
    let disk = open(dir.path());
    let shelf = disk.shelf(spec(1));
    store_all(&disk, &shelf, [0, 1, 2, 4]);
    assert_eq!(shelf.leading(&mut (0..10).map(key)), 3);
    assert_eq!(shelf.leading(&mut (4..10).map(key)), 1);
    assert_eq!(shelf.leading(&mut (5..10).map(key)), 0);
}

#[test]
fn models_do_not_see_each_others_blocks() {
    let dir = tempfile::tempdir().unwrap();
    let disk = open(dir.path());
    let (one, other) = (disk.shelf(spec(1)), disk.shelf(spec(2)));
    store_all(&disk, &one, 0..5);
    assert!(!other.holds(&key(0)));
    assert_eq!(fetch_all(&other, 0..5), 0);
    // The same model with blocks of another size is another shelf.
    let wide = disk.shelf(ropeway_kvdisk::ShelfSpec { block_bytes: 20_000, ..spec(1) });
    assert!(!wide.holds(&key(0)));
    assert_eq!((one.stock().blocks, other.stock().blocks), (5, 0));
}

#[test]
fn a_fetch_waits_for_memory_and_goes_on_when_blocks_are_dropped() {
    let dir = tempfile::tempdir().unwrap();
    let narrow = ropeway_kvdisk::Options { read_ahead: 50_000, ..options(dir.path(), 64 << 20) };
    let disk = Disk::open(narrow).unwrap();
    let shelf = disk.shelf(spec(1));
    store_all(&disk, &shelf, 0..40);
    // Holds all that may be read ahead.
    let bell = Bell::default();
    let mut hoarder = shelf.fetch((0..40).map(key).collect(), bell.wake());
    let mut hoard = vec![next(&mut hoarder, &bell), next(&mut hoarder, &bell)];
    // Another one still gets its blocks.
    assert_eq!(fetch_all(&shelf, 10..40), 30);
    hoard.clear();
    let mut rest = 0;
    while let FetchPoll::Ready(_) = next(&mut hoarder, &bell) {
        rest += 1;
    }
    assert_eq!(rest, 38);
}

#[test]
fn many_fetches_at_once_get_their_blocks() {
    let dir = tempfile::tempdir().unwrap();
    let disk = open(dir.path());
    let shelf = disk.shelf(spec(1));
    store_all(&disk, &shelf, 0..100);
    std::thread::scope(|scope| {
        for start in 0..8 {
            let shelf = shelf.clone();
            scope.spawn(move || assert_eq!(fetch_all(&shelf, start..start + 90), 90));
        }
    });
}

#[test]
fn a_dropped_fetch_leaves_the_others_alone() {
    let dir = tempfile::tempdir().unwrap();
    let disk = open(dir.path());
    let shelf = disk.shelf(spec(1));
    store_all(&disk, &shelf, 0..100);
    for _ in 0..20 {
        drop(shelf.fetch((0..100).map(key).collect(), Bell::default().wake()));
    }
    assert_eq!(fetch_all(&shelf, 0..100), 100);
}

#[test]
fn nothing_is_stored_or_fetched_after_a_close() {
    let dir = tempfile::tempdir().unwrap();
    let disk = open(dir.path());
    let shelf = disk.shelf(spec(1));
    store_all(&disk, &shelf, 0..3);
    disk.close(LONG);
    assert_eq!(store(&shelf, 9), Stored::Stopped);
    assert_eq!(fetch_all(&shelf, 0..3), 0);
    // The folder is free although handles are left.
    assert_eq!(open(dir.path()).status().read_only, None);
}

#[test]
fn a_wake_that_owns_the_disk_does_not_keep_it_from_ending() {
    let dir = tempfile::tempdir().unwrap();
    let disk = open(dir.path());
    let shelf = disk.shelf(spec(1));
    store_all(&disk, &shelf, 0..3);
    let owned = shelf.clone();
    let fetch = shelf
        .fetch((0..3).map(key).collect(), std::sync::Arc::new(move || assert_eq!(owned.stock().blocks, 3)));
    drop((disk, shelf));
    drop(fetch);
    // Whichever thread drops the last of it, the folder becomes free.
    while open(dir.path()).status().read_only.is_some() {
        std::thread::yield_now();
    }
}
