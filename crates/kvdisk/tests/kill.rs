//! A process that is killed at any moment leaves whole blocks, and all that it had flushed.

#[allow(dead_code, reason = "each test file uses a part")]
mod support;

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};

use ropeway_kvdisk::Disk;
use ropeway_kvdisk::inspect::{Damage, verify};
use support::{LONG, fetch_all, folder_bytes, held, options, spec, store};

const FOLDER: &str = "ROPEWAY_KVDISK_KILLED";
const SIZE: u64 = 16 << 20;

/// Not a test by itself: what the process does that is killed.
#[test]
fn child() {
    let Ok(dir) = std::env::var(FOLDER) else { return };
    let (dir, first) = dir.split_once('|').unwrap();
    let disk = Disk::open(options(Path::new(dir), SIZE)).unwrap();
    let shelf = disk.shelf(spec(1));
    let first: u64 = first.parse().unwrap();
    for number in first.. {
        store(&shelf, number);
        if number % 7 == 0 {
            assert!(disk.flush(LONG));
            println!("flushed {number}");
        }
    }
}

/// Runs the child until it has flushed so often, and kills it; the last block that it had flushed.
fn run_and_kill(dir: &Path, first: u64, flushes: usize) -> u64 {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["child", "--exact", "--nocapture"])
        .env(FOLDER, format!("{}|{first}", dir.display()))
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let flushed = |line: String| line.rsplit_once("flushed ").and_then(|(_, number)| number.parse().ok());
    let last: u64 = lines.map_while(Result::ok).filter_map(flushed).nth(flushes).unwrap();
    child.kill().unwrap();
    child.wait().unwrap();
    last
}

#[test]
fn what_was_flushed_survives_a_kill_and_nothing_is_half_written() {
    let dir = tempfile::tempdir().unwrap();
    let mut first = 0;
    for flushes in [0, 3, 1, 11, 5, 7] {
        let last = run_and_kill(dir.path(), first, flushes);
        let disk = Disk::open(options(dir.path(), SIZE)).unwrap();
        assert_eq!(disk.status().read_only, None, "the lock ends with the process");
        let shelf = disk.shelf(spec(1));
        assert_eq!(fetch_all(&shelf, first..=last) as u64, last + 1 - first);
        let all = held(&shelf, 0..last + 1000);
        assert_eq!(fetch_all(&shelf, all.clone()), all.len());
        assert!(folder_bytes(dir.path()) <= SIZE);
        drop((disk, shelf));
        assert_eq!(verify(dir.path(), Damage::Keep, &mut |_| {}).unwrap().damaged, []);
        first = last + 1000;
    }
}
