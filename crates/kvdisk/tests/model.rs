//! Random operations, crashes and damage against a model: what comes back is what was stored, or nothing.

#[allow(dead_code, reason = "each test file uses a part")]
mod support;

use std::collections::BTreeSet;
use std::fs::{self, OpenOptions};
use std::io::{Read, Seek, SeekFrom, Write};
use std::path::Path;
use std::time::{Duration, SystemTime};

use proptest::collection::vec;
use proptest::prelude::*;
use ropeway_kvdisk::{Disk, Shelf, Stored};
use support::{LONG, fetch_all, folder_bytes, held, key, options, segments, spec, store};

/// Blocks that there are at all; few, so that operations meet.
const NUMBERS: u64 = 60;

#[derive(Clone, Debug)]
enum Operation {
    Store(u64, u64),
    Fetch(u64, u64),
    Forget(u64),
    Touch(u64, u64),
    Pin(u64, u64),
    Unpin,
    Flush,
    Refresh,
    Reopen,
    Crash,
    Damage(Damage, prop::sample::Index),
}

#[derive(Clone, Debug)]
enum Damage {
    Flip(prop::sample::Index, u8),
    Cut(prop::sample::Index),
    Extend(Vec<u8>),
    Delete,
    /// The file takes the place of another.
    Swap(prop::sample::Index),
    DeleteIndex,
    FlipIndex(prop::sample::Index),
}

fn run() -> impl Strategy<Value = (u64, u64)> {
    (0..NUMBERS, 1..20_u64)
}

fn operation() -> impl Strategy<Value = Operation> {
    let damage = prop_oneof![
        6 => (any::<prop::sample::Index>(), 0..8_u8).prop_map(|(at, bit)| Damage::Flip(at, bit)),
        3 => any::<prop::sample::Index>().prop_map(Damage::Cut),
        1 => vec(any::<u8>(), 1..5000).prop_map(Damage::Extend),
        2 => Just(Damage::Delete),
        1 => any::<prop::sample::Index>().prop_map(Damage::Swap),
        1 => Just(Damage::DeleteIndex),
        1 => any::<prop::sample::Index>().prop_map(Damage::FlipIndex),
    ];
    prop_oneof![
        10 => run().prop_map(|(first, count)| Operation::Store(first, count)),
        8 => run().prop_map(|(first, count)| Operation::Fetch(first, count)),
        2 => (0..NUMBERS).prop_map(Operation::Forget),
        2 => run().prop_map(|(first, count)| Operation::Touch(first, count)),
        2 => run().prop_map(|(first, count)| Operation::Pin(first, count)),
        1 => Just(Operation::Unpin),
        4 => Just(Operation::Flush),
        2 => Just(Operation::Refresh),
        2 => Just(Operation::Reopen),
        3 => Just(Operation::Crash),
        5 => (damage, any::<prop::sample::Index>()).prop_map(|(damage, file)| Operation::Damage(damage, file)),
    ]
}

/// An area, and what must be in it.
struct Run<'a> {
    dir: &'a Path,
    size: u64,
    /// Nothing is reclaimed at this size.
    is_roomy: bool,
    disk: Disk,
    shelf: Shelf,
    /// Stored, and neither forgotten nor damaged since.
    expected: BTreeSet<u64>,
    /// Those of them that a crash does not lose.
    flushed: BTreeSet<u64>,
    /// The segment that is written to is damaged, for all that is known: nothing is expected until another is begun.
    is_damaged: bool,
}

impl<'a> Run<'a> {
    fn new(dir: &'a Path, size: u64, is_roomy: bool) -> Self {
        let disk = Disk::open(options(dir, size)).unwrap();
        let shelf = disk.shelf(spec(1));
        Self {
            dir,
            size,
            is_roomy,
            disk,
            shelf,
            expected: BTreeSet::new(),
            flushed: BTreeSet::new(),
            is_damaged: false,
        }
    }

    fn open(&mut self) {
        self.disk = Disk::open(options(self.dir, self.size)).unwrap();
        self.shelf = self.disk.shelf(spec(1));
        self.is_damaged = false;
        assert_eq!(self.disk.status().read_only, None);
    }

    /// Ends the threads without writing anything, as far as a process can do that to itself.
    fn crash(&mut self) {
        let elsewhere = tempfile::tempdir().unwrap();
        self.disk = Disk::open(options(elsewhere.path(), self.size)).unwrap();
        self.shelf = self.disk.shelf(spec(1));
    }

    fn flush(&mut self) {
        assert!(self.disk.flush(LONG), "{:?}", self.disk.status());
        self.flushed = self.expected.clone();
        assert!(folder_bytes(self.dir) <= self.size, "{:?}", self.disk.status());
    }

    fn perform(&mut self, operation: &Operation) {
        match operation {
            Operation::Store(first, count) => self.store(*first..*first + count),
            Operation::Fetch(first, count) => self.fetch(*first..*first + count),
            Operation::Forget(number) => {
                self.shelf.forget(&key(*number));
                self.expected.remove(number);
                self.flushed.remove(number);
                assert!(!self.shelf.holds(&key(*number)));
            }
            Operation::Touch(first, count) => {
                self.shelf.touch(&(*first..*first + count).map(key).collect::<Vec<_>>());
            }
            Operation::Pin(first, count) => {
                let keys: Vec<_> = (*first..*first + count).map(key).collect();
                self.shelf.pin("pin", &keys, SystemTime::now() + Duration::from_secs(3600));
            }
            Operation::Unpin => self.shelf.unpin("pin"),
            Operation::Flush => self.flush(),
            Operation::Refresh => assert!(self.disk.refresh(LONG)),
            Operation::Reopen => {
                self.disk.close(LONG);
                self.open();
                self.flushed = self.expected.clone();
            }
            Operation::Crash => {
                self.crash();
                self.open();
                self.expected = self.flushed.clone();
            }
            Operation::Damage(damage, file) => {
                self.flush();
                damage.perform(self.dir, *file);
                self.is_damaged = true;
                self.expected.clear();
                self.flushed.clear();
            }
        }
    }

    fn store(&mut self, numbers: std::ops::Range<u64>) {
        for number in numbers {
            match store(&self.shelf, number) {
                // Known may mean known by a damaged record: then nothing can be expected.
                Stored::Known => {}
                Stored::Queued if self.is_damaged => {}
                Stored::Queued => _ = self.expected.insert(number),
                other => panic!("{other:?}: {:?}", self.disk.status()),
            }
        }
    }

    fn fetch(&mut self, numbers: std::ops::Range<u64>) {
        let count = numbers.end - numbers.start;
        let came = fetch_all(&self.shelf, numbers.clone()) as u64;
        if came < count {
            let failed = numbers.start + came;
            assert!(!self.is_roomy || !self.expected.contains(&failed), "block {failed} is lost");
        }
    }

    fn check(&self) {
        assert!(self.disk.status().file_bytes <= self.size, "{:?}", self.disk.status());
        if self.is_roomy {
            let missing: Vec<_> =
                self.expected.iter().filter(|&&number| !self.shelf.holds(&key(number))).collect();
            assert!(missing.is_empty(), "{missing:?} are lost");
        }
    }
}

impl Damage {
    fn perform(&self, dir: &Path, file: prop::sample::Index) {
        let files = segments(dir);
        let index = dir.join("index");
        let chosen = || file.get(files.as_slice()).as_path();
        match self {
            Self::DeleteIndex => _ = fs::remove_file(index),
            Self::FlipIndex(at) if index.exists() => flip(&index, *at, 3),
            _ if files.is_empty() => {}
            Self::Flip(at, bit) => flip(chosen(), *at, *bit),
            Self::Cut(at) => {
                let file = OpenOptions::new().write(true).open(chosen()).unwrap();
                let bytes = file.metadata().unwrap().len();
                file.set_len(at.index(bytes as usize + 1) as u64).unwrap();
            }
            Self::Extend(bytes) => {
                OpenOptions::new().append(true).open(chosen()).unwrap().write_all(bytes).unwrap();
            }
            Self::Delete => fs::remove_file(chosen()).unwrap(),
            Self::Swap(other) => fs::rename(chosen(), other.get(files.as_slice())).unwrap(),
            Self::FlipIndex(_) => {}
        }
    }
}

fn flip(path: &Path, at: prop::sample::Index, bit: u8) {
    let mut file = OpenOptions::new().read(true).write(true).open(path).unwrap();
    let bytes = file.metadata().unwrap().len();
    if bytes == 0 {
        return;
    }
    let at = at.index(bytes as usize) as u64;
    let mut byte = [0];
    file.seek(SeekFrom::Start(at)).unwrap();
    file.read_exact(&mut byte).unwrap();
    file.seek(SeekFrom::Start(at)).unwrap();
    file.write_all(&[byte[0] ^ (1 << bit)]).unwrap();
}

fn perform_all(size: u64, is_roomy: bool, operations: &[Operation]) {
    let dir = tempfile::tempdir().unwrap();
    let mut run = Run::new(dir.path(), size, is_roomy);
    for operation in operations {
        run.perform(operation);
        run.check();
    }
    // Everything that is said to be there is there, or fails; fetched one by one, nothing hides behind a failure.
    run.flush();
    for number in held(&run.shelf, 0..2 * NUMBERS) {
        let came = fetch_all(&run.shelf, [number]);
        assert!(came == 1 || !is_roomy || !run.expected.contains(&number), "block {number} is lost");
        assert_eq!(came == 1, run.shelf.holds(&key(number)), "a block that can't be read is forgotten");
    }
    run.check();
}

/// Cases cost files and syncs: an eighth of the usual number. `PROPTEST_CASES` asks for more.
fn config() -> ProptestConfig {
    let usual = ProptestConfig::default();
    ProptestConfig { cases: usual.cases / 8, failure_persistence: None, ..usual }
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn with_room_nothing_is_lost_but_what_was_damaged(operations in vec(operation(), 1..40)) {
        perform_all(16 << 20, true, &operations);
    }

    #[test]
    fn without_room_the_size_is_kept_and_bytes_are_right(operations in vec(operation(), 1..40)) {
        perform_all(700_000, false, &operations);
    }
}
