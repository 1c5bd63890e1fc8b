//! What the tests of this crate share.

use std::path::Path;
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use ropeway_kvdisk::{Disk, Fetch, FetchPoll, Key, Options, Shelf, ShelfSpec, Stored, Wake};

/// Long enough for any test on any machine; nothing waits that long unless it fails.
pub const LONG: Duration = Duration::from_secs(60);
pub const BLOCK: usize = 10_000;

pub fn options(dir: &Path, size: u64) -> Options {
    Options { floor: 0, ..Options::new(dir, size) }
}

pub fn open(dir: &Path) -> Disk {
    Disk::open(options(dir, 64 << 20)).unwrap()
}

pub fn spec(model: u8) -> ShelfSpec {
    ShelfSpec { identity: [model; 32], label: format!("model {model}"), block_bytes: BLOCK, block_tokens: 32 }
}

/// A key that looks like a digest.
pub fn key(number: u64) -> Key {
    let mut key = [0; 32];
    for (n, part) in (0_u64..).zip(key.chunks_mut(8)) {
        part.copy_from_slice(&(number ^ (n << 32)).wrapping_mul(0x9e37_79b9_7f4a_7c15).to_le_bytes());
    }
    key
}

/// The bytes of the block under a key: nothing else is ever stored under it.
pub fn fill(number: u64, block: &mut [u8]) {
    for (n, part) in (0_u64..).zip(block.chunks_mut(8)) {
        let word = (number.wrapping_mul(31) ^ n).wrapping_mul(0xd6e8_feb8_6659_fd93).to_le_bytes();
        part.copy_from_slice(&word[..part.len()]);
    }
}

pub fn block(number: u64) -> Vec<u8> {
    let mut block = vec![0; BLOCK];
    fill(number, &mut block);
    block
}

pub fn store(shelf: &Shelf, number: u64) -> Stored {
    shelf.store(key(number), |block| fill(number, block))
}

/// Stores blocks and waits until they are on disk.
pub fn store_all(disk: &Disk, shelf: &Shelf, numbers: impl IntoIterator<Item = u64>) {
    for number in numbers {
        while store(shelf, number) == Stored::Full {
            assert!(disk.flush(LONG));
        }
    }
    assert!(disk.flush(LONG));
}

/// Wakes whoever waits for a fetch.
#[derive(Clone, Default)]
pub struct Bell {
    rung: Arc<(Mutex<bool>, Condvar)>,
}

impl Bell {
    pub fn wake(&self) -> Wake {
        let rung = Arc::clone(&self.rung);
        Arc::new(move || {
            *rung.0.lock().unwrap() = true;
            rung.1.notify_all();
        })
    }

    pub fn wait(&self) {
        let guard = self.rung.0.lock().unwrap();
        let (mut guard, waited) = self.rung.1.wait_timeout_while(guard, LONG, |rung| !*rung).unwrap();
        assert!(!waited.timed_out(), "nothing arrived");
        *guard = false;
    }
}

/// The next thing that is not `Pending`.
pub fn next(fetch: &mut Fetch, bell: &Bell) -> FetchPoll {
    loop {
        match fetch.poll() {
            FetchPoll::Pending => bell.wait(),
            other => return other,
        }
    }
}

/// Fetches blocks and checks their bytes; how many came before the end or a failure.
pub fn fetch_all(shelf: &Shelf, numbers: impl IntoIterator<Item = u64>) -> usize {
    let numbers: Vec<_> = numbers.into_iter().collect();
    let bell = Bell::default();
    let mut fetch = shelf.fetch(numbers.iter().copied().map(key).collect(), bell.wake());
    let mut came = 0;
    loop {
        match next(&mut fetch, &bell) {
            FetchPoll::Ready(bytes) => {
                assert!(*bytes == *block(numbers[came]), "block {} has other bytes", numbers[came]);
                came += 1;
            }
            FetchPoll::Failed | FetchPoll::Done => return came,
            FetchPoll::Pending => unreachable!("next() waits"),
        }
    }
}

pub fn held(shelf: &Shelf, numbers: impl IntoIterator<Item = u64>) -> Vec<u64> {
    numbers.into_iter().filter(|&number| shelf.holds(&key(number))).collect()
}

/// Bytes of all files in a folder.
pub fn folder_bytes(dir: &Path) -> u64 {
    std::fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().metadata().unwrap().len()).sum()
}

/// The segment files of a folder, in the order they were begun.
pub fn segments(dir: &Path) -> Vec<std::path::PathBuf> {
    let mut files: Vec<_> = std::fs::read_dir(dir)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|ending| ending == "kv"))
        .collect();
    files.sort();
    files
}
