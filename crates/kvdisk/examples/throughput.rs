//! Writes blocks, drops what the page cache has of them, reads them back, and prints MB/s of both.
//!
//! ```text
//! cargo run --release -p ropeway-kvdisk --example throughput -- FOLDER [GIB] [BLOCK_BYTES]
//! ```

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc;
use std::time::{Duration, Instant};

use ropeway_kvdisk::{Disk, FetchPoll, Key, Options, Shelf, ShelfSpec, Stored};

const LONG: Duration = Duration::from_secs(600);

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let dir = PathBuf::from(arguments.next().ok_or("name a folder that may be filled")?);
    let gib: f64 = arguments.next().map_or(Ok(2.0), |text| text.parse())?;
    let block_bytes: usize = arguments.next().map_or(Ok(737_280), |text| text.parse())?;
    let bytes = (gib * f64::from(1 << 30)) as u64;
    let blocks = bytes / block_bytes as u64;
    let spec = ShelfSpec { identity: [1; 32], label: "throughput".into(), block_bytes, block_tokens: 32 };
    let options = || Options { floor: 0, ..Options::new(&dir, bytes + bytes / 8) };

    let disk = Disk::open(options())?;
    write(&disk, &disk.shelf(spec.clone()), blocks);
    disk.close(LONG);

    drop_page_cache(&dir)?;
    let started = Instant::now();
    let disk = Disk::open(options())?;
    println!("open    {:8.1} ms, {} blocks found", milliseconds(started), disk.status().stock.blocks);
    let shelf = disk.shelf(spec);
    look_up(&shelf, blocks);
    for length in [blocks, 32, 64, 128, 512] {
        drop_page_cache(&dir)?;
        read(&shelf, length.min(blocks), block_bytes);
    }
    println!("{:?}", disk.status().counters);
    Ok(())
}

fn key(number: u64) -> Key {
    let mut key = [7; 32];
    key[..8].copy_from_slice(&number.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_le_bytes());
    key
}

fn milliseconds(since: Instant) -> f64 {
    since.elapsed().as_secs_f64() * 1e3
}

fn megabytes_a_second(bytes: u64, since: Instant) -> f64 {
    bytes as f64 / 1e6 / since.elapsed().as_secs_f64()
}

fn write(disk: &Disk, shelf: &Shelf, blocks: u64) {
    let pattern: Vec<u8> = (0..shelf.spec().block_bytes).map(|n| (n * 131 % 251) as u8).collect();
    let started = Instant::now();
    let mut slowest = Duration::ZERO;
    for number in 0..blocks {
        loop {
            let began = Instant::now();
            let stored = shelf.store(key(number), |block| block.copy_from_slice(&pattern));
            slowest = slowest.max(began.elapsed());
            match stored {
                Stored::Full => std::thread::sleep(Duration::from_millis(1)),
                Stored::Stopped => panic!("{:?}", disk.status()),
                Stored::Queued | Stored::Known => break,
            }
        }
    }
    disk.flush(LONG);
    let bytes = blocks * shelf.spec().block_bytes as u64;
    println!(
        "write   {:8.0} MB/s, the slowest store took {:.2} ms",
        megabytes_a_second(bytes, started),
        slowest.as_secs_f64() * 1e3
    );
}

fn look_up(shelf: &Shelf, blocks: u64) {
    let keys: Vec<_> = (0..blocks).map(key).collect();
    let started = Instant::now();
    let found = shelf.leading(&mut keys.iter().copied());
    println!("leading {:8.0} ns a key ({found} found)", milliseconds(started) * 1e6 / blocks as f64);
}

fn read(shelf: &Shelf, blocks: u64, block_bytes: usize) {
    let (arrived, arrival) = mpsc::channel();
    let started = Instant::now();
    let wake = Arc::new(move || arrived.send(()).unwrap_or(()));
    let mut fetch = shelf.fetch((0..blocks).map(key).collect(), wake);
    let mut copy = vec![0; block_bytes];
    let mut first = None;
    let mut count = 0;
    loop {
        match fetch.poll() {
            FetchPoll::Ready(block) => {
                first.get_or_insert_with(|| milliseconds(started));
                copy.copy_from_slice(&block);
                count += 1;
            }
            FetchPoll::Pending => arrival.recv().unwrap_or(()),
            FetchPoll::Done => break,
            FetchPoll::Failed => panic!("block {count} failed"),
        }
    }
    println!(
        "read    {:8.0} MB/s, {blocks} blocks in {:.1} ms, the first after {:.1} ms",
        megabytes_a_second(blocks * block_bytes as u64, started),
        milliseconds(started),
        first.unwrap_or_default()
    );
}

/// Gives up what the page cache has of a folder's files.
fn drop_page_cache(dir: &Path) -> std::io::Result<()> {
    for entry in std::fs::read_dir(dir)? {
        let file = std::fs::File::open(entry?.path())?;
        file.sync_all()?;
        #[cfg(target_os = "linux")]
        rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed)?;
    }
    Ok(())
}
