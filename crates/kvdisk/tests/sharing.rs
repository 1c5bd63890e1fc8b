//! Folders that others use, delete or protect.

#[allow(dead_code, reason = "each test file uses a part")]
mod support;

use std::fs;

use ropeway_kvdisk::inspect::{Selection, clear, survey};
use ropeway_kvdisk::{Disk, Stored};
use support::{LONG, fetch_all, folder_bytes, held, open, options, segments, spec, store, store_all};

#[test]
fn a_second_process_reads_what_the_first_writes_and_says_so() {
    let dir = tempfile::tempdir().unwrap();
    let first = open(dir.path());
    let shelf = first.shelf(spec(1));
    store_all(&first, &shelf, 0..20);
    let second = open(dir.path());
    assert!(second.status().read_only.unwrap().contains("another process"));
    let reading = second.shelf(spec(1));
    assert_eq!(fetch_all(&reading, 0..20), 20);
    assert_eq!(store(&reading, 99), Stored::Stopped);
    // It learns what is added to the same segment, and to later ones.
    store_all(&first, &shelf, 20..600);
    assert!(segments(dir.path()).len() > 2);
    assert!(second.refresh(LONG));
    assert_eq!(fetch_all(&reading, 0..600), 600);
}

#[test]
fn a_second_process_takes_over_when_the_first_ends() {
    let dir = tempfile::tempdir().unwrap();
    let first = open(dir.path());
    store_all(&first, &first.shelf(spec(1)), 0..20);
    let second = open(dir.path());
    let shelf = second.shelf(spec(1));
    assert_eq!(store(&shelf, 20), Stored::Stopped);
    first.close(LONG);
    assert!(second.refresh(LONG));
    assert_eq!(second.status().read_only, None);
    store_all(&second, &shelf, 20..40);
    assert_eq!(fetch_all(&shelf, 0..40), 40);
}

#[test]
fn segments_that_someone_deletes_are_forgotten() {
    let dir = tempfile::tempdir().unwrap();
    let disk = open(dir.path());
    let shelf = disk.shelf(spec(1));
    store_all(&disk, &shelf, 0..600);
    let blocks = disk.status().stock.blocks;
    fs::remove_file(&segments(dir.path())[0]).unwrap();
    assert!(disk.refresh(LONG));
    let left = held(&shelf, 0..600);
    assert!((left.len() as u64) < blocks && !left.is_empty());
    assert_eq!(fetch_all(&shelf, left.clone()), left.len());
    // They can be stored again.
    store_all(&disk, &shelf, 0..600);
    assert_eq!(fetch_all(&shelf, 0..600), 600);
}

#[test]
fn a_fetch_from_a_deleted_segment_fails_and_forgets_it() {
    let dir = tempfile::tempdir().unwrap();
    let disk = open(dir.path());
    let shelf = disk.shelf(spec(1));
    store_all(&disk, &shelf, 0..20);
    for segment in segments(dir.path()) {
        fs::remove_file(segment).unwrap();
    }
    assert_eq!(fetch_all(&shelf, 0..20), 0);
    assert_eq!(held(&shelf, 0..20), [] as [u64; 0]);
    assert_eq!(disk.status().counters.damaged_blocks, 0);
}

#[test]
fn clearing_under_a_running_server_frees_the_space_and_it_goes_on() {
    let dir = tempfile::tempdir().unwrap();
    let disk = open(dir.path());
    let (one, other) = (disk.shelf(spec(1)), disk.shelf(spec(2)));
    store_all(&disk, &one, 0..50);
    store_all(&disk, &other, 0..50);
    assert!(survey(dir.path()).unwrap().is_in_use);
    assert_eq!(clear(dir.path(), &Selection::Label("model 1".into())).unwrap().blocks, 50);
    assert!(disk.refresh(LONG));
    assert_eq!(held(&one, 0..50), [] as [u64; 0]);
    assert_eq!(fetch_all(&other, 0..50), 50);
    clear(dir.path(), &Selection::All).unwrap();
    assert!(disk.refresh(LONG));
    assert_eq!((disk.status().stock.blocks, disk.status().segments), (0, 0));
    store_all(&disk, &one, 0..50);
    assert_eq!(fetch_all(&one, 0..50), 50);
    disk.close(LONG);
    assert_eq!(open(dir.path()).status().stock.blocks, 50);
}

#[test]
fn a_folder_that_is_deleted_is_made_again() {
    let dir = tempfile::tempdir().unwrap();
    let area = dir.path().join("area");
    let disk = open(&area);
    let shelf = disk.shelf(spec(1));
    store_all(&disk, &shelf, 0..20);
    fs::remove_dir_all(&area).unwrap();
    assert!(disk.refresh(LONG));
    assert_eq!(held(&shelf, 0..20), [] as [u64; 0]);
    store_all(&disk, &shelf, 0..20);
    assert_eq!(fetch_all(&shelf, 0..20), 20);
    // And it is locked again.
    assert!(open(&area).status().read_only.is_some());
}

#[test]
fn a_write_that_fails_stops_writing_with_a_reason_and_reading_goes_on() {
    let dir = tempfile::tempdir().unwrap();
    let area = dir.path().join("area");
    let disk = open(&area);
    let (one, other) = (disk.shelf(spec(1)), disk.shelf(spec(2)));
    store_all(&disk, &one, 0..20);
    assert_eq!(fetch_all(&one, 0..20), 20);
    // Open files stay usable; no new one can be created in a folder that has moved.
    fs::rename(&area, dir.path().join("away")).unwrap();
    assert_eq!(store(&other, 1), Stored::Queued);
    // Whether the block was given up before or after the flush began is a matter of luck.
    disk.flush(LONG);
    let status = disk.status();
    assert!(status.stopped.as_ref().is_some_and(|why| why.contains("can't write to")), "{status:?}");
    assert_eq!((status.counters.write_failures, status.counters.dropped_blocks), (1, 1));
    assert_eq!(store(&other, 2), Stored::Stopped);
    assert_eq!(fetch_all(&one, 0..20), 20);
}

#[test]
fn a_folder_whose_lock_cannot_be_opened_is_read() {
    let dir = tempfile::tempdir().unwrap();
    let disk = open(dir.path());
    store_all(&disk, &disk.shelf(spec(1)), 0..20);
    disk.close(LONG);
    drop(disk);
    // Works for root too, who may write anywhere: a folder in place of the lock.
    fs::remove_file(dir.path().join("lock")).unwrap();
    fs::create_dir(dir.path().join("lock")).unwrap();
    let before = folder_bytes(dir.path());
    let disk = open(dir.path());
    assert!(disk.status().read_only.unwrap().contains("can't be written to"));
    let shelf = disk.shelf(spec(1));
    assert_eq!(fetch_all(&shelf, 0..20), 20);
    assert_eq!(store(&shelf, 20), Stored::Stopped);
    assert!(disk.flush(LONG));
    disk.close(LONG);
    assert_eq!(folder_bytes(dir.path()), before);
}

#[test]
fn a_folder_that_cannot_be_made_is_an_error() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("file");
    fs::write(&file, "").unwrap();
    let error = Disk::open(options(&file.join("area"), 1 << 20)).err().unwrap().to_string();
    assert!(error.contains("choose another folder"), "{error}");
}
