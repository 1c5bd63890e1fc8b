//! What people see of a folder.

#[allow(dead_code, reason = "each test file uses a part")]
mod support;

use std::fs::{self, OpenOptions};
use std::io::{Seek, SeekFrom, Write};
use std::time::{Duration, SystemTime};

use ropeway_kvdisk::inspect::{Damage, Selection, clear, survey, verify};
use support::{BLOCK, LONG, fetch_all, folder_bytes, held, key, open, segments, spec, store_all};

#[test]
fn a_survey_counts_what_is_there() {
    let dir = tempfile::tempdir().unwrap();
    let disk = open(dir.path());
    let (one, other) = (disk.shelf(spec(1)), disk.shelf(spec(2)));
    store_all(&disk, &one, 0..30);
    store_all(&disk, &other, 0..200);
    one.pin("agent", &[key(1), key(2)], SystemTime::now() + Duration::from_secs(60));
    let running = survey(dir.path()).unwrap();
    assert!(running.is_in_use);
    disk.close(LONG);
    fs::write(dir.path().join("notes.txt"), "mine").unwrap();
    fs::write(dir.path().join("00000001.kv"), "not a segment").unwrap();
    let report = survey(dir.path()).unwrap();
    assert!(!report.is_in_use && report.has_index);
    assert_eq!(report.foreign, ["notes.txt"]);
    assert_eq!(report.ignored[0].name, "00000001.kv");
    assert_eq!(report.file_bytes, folder_bytes(dir.path()) - 4);
    let [first, second] = report.shelves.as_slice() else { panic!("{report:?}") };
    assert_eq!((first.spec.label.as_str(), first.stock.blocks, first.pinned_blocks), ("model 1", 30, 2));
    assert_eq!((second.stock.blocks, second.stock.tokens), (200, 200 * 32));
    assert_eq!(second.stock.bytes, 200 * BLOCK as u64);
    assert_eq!(second.short_identity(), "020202020202");
    let age = SystemTime::now().duration_since(second.oldest_use.unwrap()).unwrap();
    assert!(age < Duration::from_secs(3600) && second.oldest_use <= second.newest_use);
}

#[test]
fn copied_and_renamed_segments_are_ignored() {
    let dir = tempfile::tempdir().unwrap();
    let disk = open(dir.path());
    store_all(&disk, &disk.shelf(spec(1)), 0..30);
    disk.close(LONG);
    fs::copy(&segments(dir.path())[0], dir.path().join("00000001.kv")).unwrap();
    let report = survey(dir.path()).unwrap();
    assert_eq!((report.shelves[0].stock.blocks, report.shelves[0].segments), (30, 1));
    assert!(report.ignored[0].why.contains("renamed"), "{report:?}");
}

#[test]
fn a_folder_that_is_not_there_is_empty() {
    let dir = tempfile::tempdir().unwrap();
    let missing = dir.path().join("missing");
    assert_eq!(survey(&missing).unwrap().shelves, []);
    assert_eq!(verify(&missing, Damage::Keep, &mut |_| {}).unwrap().intact_blocks, 0);
    assert_eq!(clear(&missing, &Selection::All).unwrap().segments, 0);
    assert!(!missing.exists());
}

/// Damages the block at a slot of the first segment.
fn damage(dir: &std::path::Path, slot: u64) {
    let path = &segments(dir)[0];
    let mut file = OpenOptions::new().write(true).open(path).unwrap();
    file.seek(SeekFrom::Start(4096 + slot * 12_288 + 5000)).unwrap();
    file.write_all(b"damage").unwrap();
}

#[test]
fn verify_finds_damaged_blocks_and_removes_them_when_told() {
    let dir = tempfile::tempdir().unwrap();
    let disk = open(dir.path());
    store_all(&disk, &disk.shelf(spec(1)), 0..30);
    disk.close(LONG);
    damage(dir.path(), 7);
    let mut last = None;
    let verified = verify(dir.path(), Damage::Keep, &mut |progress| last = Some(progress)).unwrap();
    assert_eq!((verified.intact_blocks, verified.damaged.len()), (29, 1));
    assert_eq!((verified.damaged[0].slot, verified.damaged[0].label.as_str()), (7, "model 1"));
    let last = last.unwrap();
    assert_eq!((last.done, last.total), (30 * BLOCK as u64, 30 * BLOCK as u64));

    assert_eq!(verify(dir.path(), Damage::Remove, &mut |_| {}).unwrap().damaged.len(), 1);
    let verified = verify(dir.path(), Damage::Keep, &mut |_| {}).unwrap();
    assert_eq!((verified.intact_blocks, verified.damaged.len()), (29, 0));
    let disk = open(dir.path());
    let shelf = disk.shelf(spec(1));
    assert_eq!(held(&shelf, 0..30).len(), 29);
    assert_eq!(fetch_all(&shelf, 8..30), 22);
}

#[test]
fn verify_and_remove_under_a_running_server_harm_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let disk = open(dir.path());
    let shelf = disk.shelf(spec(1));
    store_all(&disk, &shelf, 0..300);
    damage(dir.path(), 7);
    assert_eq!(verify(dir.path(), Damage::Remove, &mut |_| {}).unwrap().damaged.len(), 1);
    assert!(disk.refresh(LONG));
    assert_eq!(fetch_all(&shelf, 0..300), 7);
    assert_eq!(fetch_all(&shelf, 8..300), 292);
    store_all(&disk, &shelf, 0..400);
    assert_eq!(fetch_all(&shelf, 0..400), 400);
    disk.close(LONG);
    assert_eq!(verify(dir.path(), Damage::Keep, &mut |_| {}).unwrap().damaged, []);
}

#[test]
fn clear_deletes_what_is_meant_and_no_foreign_file() {
    let dir = tempfile::tempdir().unwrap();
    let disk = open(dir.path());
    store_all(&disk, &disk.shelf(spec(1)), 0..10);
    store_all(&disk, &disk.shelf(spec(2)), 0..20);
    disk.close(LONG);
    fs::write(dir.path().join("notes.txt"), "mine").unwrap();
    assert_eq!(clear(dir.path(), &Selection::Identity("0202".into())).unwrap().blocks, 20);
    assert_eq!(clear(dir.path(), &Selection::Label("other".into())).unwrap().segments, 0);
    assert_eq!(clear(dir.path(), &Selection::All).unwrap().blocks, 10);
    assert_eq!(survey(dir.path()).unwrap().shelves, []);
    assert!(dir.path().join("notes.txt").exists());
}
