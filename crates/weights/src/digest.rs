//! A digest of files that is quick to compute: pieces are hashed side by side, then their hashes.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use sha2::{Digest, Sha256};

/// Bytes of a piece.
const PIECE: u64 = 16 << 20;

/// A digest of the files' contents and their order, computed by so many threads.
pub fn digest<'a>(files: impl Iterator<Item = &'a Path>, threads: usize) -> io::Result<[u8; 32]> {
    let mut whole = Sha256::new();
    for path in files {
        let length = path.metadata()?.len();
        whole.update(length.to_le_bytes());
        for piece in pieces(path, length.div_ceil(PIECE) as usize, threads)? {
            whole.update(piece);
        }
    }
    Ok(whole.finalize().into())
}

fn pieces(path: &Path, count: usize, threads: usize) -> io::Result<Vec<[u8; 32]>> {
    let (next, done) = (AtomicUsize::new(0), Mutex::new(Ok(vec![[0; 32]; count])));
    let work = || {
        let hash_rest = || -> io::Result<()> {
            let mut file = File::open(path)?;
            let mut buffer = Vec::new();
            loop {
                let index = next.fetch_add(1, Ordering::Relaxed);
                if index >= count {
                    return Ok(());
                }
                let hash = piece(&mut file, index, &mut buffer)?;
                if let Ok(Ok(hashes)) = done.lock().as_deref_mut() {
                    hashes[index] = hash;
                }
            }
        };
        if let (Err(error), Ok(mut done)) = (hash_rest(), done.lock()) {
            *done = Err(error);
        }
    };
    std::thread::scope(|scope| {
        for _ in 1..threads.min(count) {
            scope.spawn(work);
        }
        work();
    });
    done.into_inner().unwrap_or_else(|_| Err(io::Error::other("a thread that read the file failed")))
}

fn piece(file: &mut File, index: usize, buffer: &mut Vec<u8>) -> io::Result<[u8; 32]> {
    file.seek(SeekFrom::Start(index as u64 * PIECE))?;
    buffer.clear();
    file.take(PIECE).read_to_end(buffer)?;
    Ok(Sha256::digest(&buffer).into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_changed_byte_and_order_changes_it_and_threads_do_not() {
        let folder = tempfile::tempdir().unwrap();
        let (long, short) = (folder.path().join("long"), folder.path().join("short"));
        let mut bytes = vec![7; PIECE as usize + 5];
        std::fs::write(&long, &bytes).unwrap();
        std::fs::write(&short, b"short").unwrap();
        let of = |files: &[&Path], threads| digest(files.iter().copied(), threads).unwrap();
        let first = of(&[&long, &short], 1);
        assert_eq!(first, of(&[&long, &short], 3));
        assert_ne!(first, of(&[&short, &long], 1));
        bytes[PIECE as usize + 4] = 8;
        std::fs::write(&long, &bytes).unwrap();
        assert_ne!(first, of(&[&long, &short], 1));
        assert!(digest([folder.path().join("missing").as_path()].into_iter(), 2).is_err());
    }
}
