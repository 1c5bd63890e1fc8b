//! Many threads at once, in an area that is too small for all of it.

#[allow(dead_code, reason = "each test file uses a part")]
mod support;

use std::ops::Range;
use std::time::{Duration, SystemTime};

use ropeway_kvdisk::inspect::{Damage, survey, verify};
use ropeway_kvdisk::{Disk, Options, Shelf, Stored};
use support::{LONG, fetch_all, folder_bytes, key, options, spec, store};

const SIZE: u64 = 2 << 20;

/// Stores blocks, waiting for room in the queue.
fn store_waiting(disk: &Disk, shelf: &Shelf, numbers: Range<u64>) {
    for number in numbers {
        loop {
            match store(shelf, number) {
                Stored::Full => assert!(disk.flush(LONG)),
                Stored::Stopped => panic!("{:?}", disk.status()),
                Stored::Queued | Stored::Known => break,
            }
        }
    }
}

#[test]
fn bytes_are_right_whoever_stores_fetches_forgets_and_pins_meanwhile() {
    let dir = tempfile::tempdir().unwrap();
    let disk =
        Disk::open(Options { queue: 200_000, read_ahead: 100_000, ..options(dir.path(), SIZE) }).unwrap();
    let shelves = [disk.shelf(spec(1)), disk.shelf(spec(2))];
    std::thread::scope(|scope| {
        for thread in 0..4_u64 {
            let (disk, shelves) = (&disk, &shelves);
            scope.spawn(move || {
                for round in 0..60 {
                    let shelf = &shelves[((thread + round) % 2) as usize];
                    let first = (thread * 7919 + round * 104_729) % 400;
                    store_waiting(disk, shelf, first..first + 6);
                    fetch_all(shelf, first..first + 12);
                    match round % 10 {
                        3 => shelf.forget(&key(first + 1)),
                        5 => {
                            let keys: Vec<_> = (first..first + 6).map(key).collect();
                            shelf.pin(
                                &format!("{thread}"),
                                &keys,
                                SystemTime::now() + Duration::from_secs(60),
                            );
                        }
                        7 => assert!(disk.refresh(LONG)),
                        _ => {}
                    }
                    assert!(disk.status().file_bytes <= SIZE);
                }
            });
        }
    });
    assert!(disk.flush(LONG));
    let counters = disk.status().counters;
    assert_eq!(
        (counters.damaged_blocks, counters.write_failures, counters.dropped_blocks),
        (0, 0, 0),
        "{counters:?}"
    );
    assert!(counters.reclaimed_blocks > 0 && counters.carried_blocks > 0, "{counters:?}");
    assert!(folder_bytes(dir.path()) <= SIZE);
    // The index, saved and read again, says what the running one says; so do the files alone.
    let stock = disk.status().stock;
    disk.close(LONG);
    drop((disk, shelves));
    assert_eq!(Disk::open(options(dir.path(), SIZE)).unwrap().status().stock, stock);
    let verified = verify(dir.path(), Damage::Keep, &mut |_| {}).unwrap();
    assert_eq!((verified.intact_blocks, verified.damaged.len()), (stock.blocks, 0));
    let with_index = survey(dir.path()).unwrap();
    std::fs::remove_file(dir.path().join("index")).unwrap();
    let without_index = survey(dir.path()).unwrap();
    assert!(with_index.has_index && !without_index.has_index);
    let stocks = |report: &ropeway_kvdisk::inspect::Report| {
        report.shelves.iter().map(|shelf| shelf.stock).collect::<Vec<_>>()
    };
    assert_eq!(stocks(&with_index), stocks(&without_index));
}
