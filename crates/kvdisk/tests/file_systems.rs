//! A file system that is really full, and one that is really read-only: small ones, mounted in a namespace of their own.

#[allow(dead_code, reason = "each test file uses a part")]
mod support;

use std::path::Path;
use std::process::Command;

use ropeway_kvdisk::Stored;
use support::{LONG, fetch_all, held, key, open, segments, spec, store, store_all};

/// What a process inside the namespace does, and where.
const STAGE: &str = "ROPEWAY_KVDISK_STAGE";
const FOLDER: &str = "ROPEWAY_KVDISK_FOLDER";

/// Not a test by itself: what runs inside the namespace.
#[test]
fn child() {
    let (Ok(stage), Ok(dir)) = (std::env::var(STAGE), std::env::var(FOLDER)) else { return };
    match stage.as_str() {
        "fill" => fill(Path::new(&dir), "must stay free"),
        "exceed" => fill(Path::new(&dir), "File too large"),
        "store" => {
            let disk = open(Path::new(&dir));
            store_all(&disk, &disk.shelf(spec(1)), 0..20);
            disk.close(LONG);
        }
        "read" => read(Path::new(&dir)),
        other => panic!("{other}"),
    }
    println!("{stage} is done");
}

/// Stores until writing stops for that reason: nothing of what was written before is lost.
fn fill(dir: &Path, reason: &str) {
    let disk = open(dir);
    let shelf = disk.shelf(spec(1));
    let is_written = |number: &u64| {
        store(&shelf, *number);
        disk.flush(LONG);
        shelf.holds(&key(*number))
    };
    let stored = (0..1000).take_while(is_written).count();
    assert!((50..200).contains(&stored), "{stored}");
    let status = disk.status();
    let why = status.stopped.unwrap();
    assert!(why.contains(reason), "{why}");
    assert_eq!((status.counters.dropped_blocks, status.queued_bytes), (1, 0));
    assert_eq!(store(&shelf, 5000), Stored::Stopped);
    // What was written before is there, and stays there.
    assert_eq!(fetch_all(&shelf, 0..stored as u64), stored);
    disk.close(LONG);
    drop((disk, shelf));
    let disk = open(dir);
    let shelf = disk.shelf(spec(1));
    assert_eq!(fetch_all(&shelf, 0..stored as u64), stored);
    // With room again, writing goes on.
    std::fs::remove_file(&segments(dir)[0]).unwrap();
    assert!(disk.refresh(LONG));
    let next = (0..1000).find(|&number| !shelf.holds(&key(number))).unwrap();
    store_all(&disk, &shelf, [next]);
    assert_eq!(held(&shelf, [next]), [next]);
}

fn read(dir: &Path) {
    let disk = open(dir);
    let why = disk.status().read_only.unwrap();
    assert!(why.contains("Read-only file system"), "{why}");
    let shelf = disk.shelf(spec(1));
    assert_eq!(fetch_all(&shelf, 0..20), 20);
    assert_eq!(store(&shelf, 20), Stored::Stopped);
    disk.close(LONG);
}

/// Lets a shell's script say `stage X`.
fn stage_function() -> String {
    let program = std::env::current_exe().unwrap();
    format!("stage() {{ {STAGE}=$1 {} child --exact --nocapture || exit 1; }}; ", program.display())
}

/// Mounts a file system of 2 MiB for the script, in which `stage X` runs the child; its output. `None`: can't be done here.
fn with_small_file_system(script: &str) -> Option<String> {
    let dir = tempfile::tempdir().unwrap();
    let can_mount =
        Command::new("unshare").args(["-rm", "mount", "-t", "tmpfs", "none"]).arg(dir.path()).output();
    if !can_mount.is_ok_and(|output| output.status.success()) {
        println!("skipped: no namespace with a file system of its own can be made here");
        return None;
    }
    let begin = stage_function() + &format!("mount -t tmpfs -o size=2m none ${FOLDER} || exit 1");
    let output = Command::new("unshare")
        .args(["-rm", "sh", "-c", &format!("{begin}; {script}")])
        .env(FOLDER, dir.path())
        .output()
        .unwrap();
    let text =
        String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{text}");
    Some(text)
}

#[test]
fn a_full_file_system_stops_writing_and_loses_nothing() {
    let Some(output) = with_small_file_system("stage fill") else { return };
    assert!(output.contains("fill is done"), "{output}");
}

#[test]
fn a_write_that_the_system_refuses_in_the_middle_loses_nothing() {
    let dir = tempfile::tempdir().unwrap();
    // Files may have 2000 blocks of 512 bytes; writing more is an error instead of a signal.
    let script = format!("trap '' XFSZ; ulimit -f 2000; {}", stage_function() + "stage exceed");
    let output = Command::new("sh").args(["-c", &script]).env(FOLDER, dir.path()).output().unwrap();
    let text =
        String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && text.contains("exceed is done"), "{text}");
}

#[test]
fn a_read_only_file_system_is_read() {
    let script = format!("stage store; mount -o remount,ro ${FOLDER} || exit 1; stage read");
    let Some(output) = with_small_file_system(&script) else { return };
    assert!(output.contains("store is done") && output.contains("read is done"), "{output}");
}
