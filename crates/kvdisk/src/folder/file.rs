//! Segment files, read and written past the page cache where the system can.
//!
//! Direct access has two reasons. Keys and values in the page cache would push out the mapped weights of models, and are
//! not read again from there: the block pool has them. And it is faster: on the reference machine (EPYC, virtual disk)
//! `dd` reads 2.3 GB/s directly and 0.45 GB/s through the cache, in pieces of 8 MiB; writes need no copy.
//! Where a file system refuses, the file is read and written as usual and what was cached is given up afterwards.

use std::fs::{File, OpenOptions};
use std::io::{self, IoSlice};
use std::path::Path;

/// An open segment.
#[derive(Debug)]
pub(crate) struct SegmentFile {
    file: File,
}

impl SegmentFile {
    pub(crate) fn open(path: &Path) -> io::Result<Self> {
        open_direct(OpenOptions::new().read(true), path)
    }

    pub(crate) fn create(path: &Path) -> io::Result<Self> {
        open_direct(OpenOptions::new().write(true).create_new(true), path)
    }

    /// Reads as much as there is from `offset`, at most what fits. An error after some bytes counts as their end.
    /// `into` must be aligned as [`Buffer`](crate::staging::Buffer) is.
    pub(crate) fn read_at(&self, into: &mut [u8], offset: u64) -> io::Result<usize> {
        let mut done = 0;
        while done < into.len() {
            match self.read_some(&mut into[done..], offset + done as u64) {
                Ok(0) => break,
                Ok(read) => done += read,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if done == 0 => return Err(error),
                Err(_) => break,
            }
        }
        self.give_up_cache(offset, into.len() as u64);
        Ok(done)
    }

    fn read_some(&self, into: &mut [u8], offset: u64) -> io::Result<usize> {
        read_once(&self.file, into, offset).or_else(|error| {
            self.stop_direct(error)?;
            read_once(&self.file, into, offset)
        })
    }

    /// Writes all parts, one after the other; each is aligned, and whole pages long.
    pub(crate) fn write_at(&self, parts: &[&[u8]], offset: u64) -> io::Result<()> {
        let mut slices: Vec<_> = parts.iter().map(|part| IoSlice::new(part)).collect();
        let mut rest = slices.as_mut_slice();
        let mut at = offset;
        while !rest.is_empty() {
            match self.write_some(rest, at) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(written) => {
                    IoSlice::advance_slices(&mut rest, written);
                    at += written as u64;
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    fn write_some(&self, parts: &[IoSlice<'_>], offset: u64) -> io::Result<usize> {
        write_once(&self.file, parts, offset).or_else(|error| {
            self.stop_direct(error)?;
            write_once(&self.file, parts, offset)
        })
    }

    /// Makes what was written survive a loss of power.
    pub(crate) fn sync(&self) -> io::Result<()> {
        self.file.sync_data()?;
        self.give_up_cache(0, 0);
        Ok(())
    }

    pub(crate) fn truncate(&self, bytes: u64) -> io::Result<()> {
        self.file.set_len(bytes)
    }
}

#[cfg(target_os = "linux")]
mod system {
    use super::{File, IoSlice, OpenOptions, Path, SegmentFile, io};
    use rustix::fs::{Advice, OFlags, fadvise, fcntl_getfl, fcntl_setfl};
    use rustix::io::Errno;
    use std::num::NonZeroU64;
    use std::os::unix::fs::OpenOptionsExt;

    pub(super) fn open_direct(options: &mut OpenOptions, path: &Path) -> io::Result<SegmentFile> {
        let usual = options.clone();
        let direct = options.custom_flags(OFlags::DIRECT.bits().cast_signed()).open(path);
        let file = match direct {
            Err(error) if Errno::from_io_error(&error) == Some(Errno::INVAL) => usual.open(path)?,
            other => other?,
        };
        Ok(SegmentFile { file })
    }

    pub(super) fn read_once(file: &File, into: &mut [u8], offset: u64) -> io::Result<usize> {
        Ok(rustix::io::pread(file, into, offset)?)
    }

    pub(super) fn write_once(file: &File, parts: &[IoSlice<'_>], offset: u64) -> io::Result<usize> {
        Ok(rustix::io::pwritev(file, parts, offset)?)
    }

    impl SegmentFile {
        fn is_direct(&self) -> bool {
            fcntl_getfl(&self.file).is_ok_and(|flags| flags.contains(OFlags::DIRECT))
        }

        /// Some file systems refuse direct access only when it is used: go on without. Other errors are handed back.
        pub(super) fn stop_direct(&self, error: io::Error) -> io::Result<()> {
            if Errno::from_io_error(&error) != Some(Errno::INVAL) || !self.is_direct() {
                return Err(error);
            }
            let flags = fcntl_getfl(&self.file)?;
            Ok(fcntl_setfl(&self.file, flags.difference(OFlags::DIRECT))?)
        }

        /// Gives up what the page cache has of a range; a length of 0 is the whole file.
        pub(super) fn give_up_cache(&self, offset: u64, bytes: u64) {
            if !self.is_direct() {
                let _ = fadvise(&self.file, offset, NonZeroU64::new(bytes), Advice::DontNeed);
            }
        }
    }
}

#[cfg(not(target_os = "linux"))]
mod system {
    use super::{File, IoSlice, OpenOptions, Path, SegmentFile, io};

    pub(super) fn open_direct(options: &mut OpenOptions, path: &Path) -> io::Result<SegmentFile> {
        Ok(SegmentFile { file: options.open(path)? })
    }

    #[cfg(unix)]
    pub(super) fn read_once(file: &File, into: &mut [u8], offset: u64) -> io::Result<usize> {
        std::os::unix::fs::FileExt::read_at(file, into, offset)
    }

    #[cfg(unix)]
    pub(super) fn write_once(file: &File, parts: &[IoSlice<'_>], offset: u64) -> io::Result<usize> {
        std::os::unix::fs::FileExt::write_at(file, &parts[0], offset)
    }

    #[cfg(windows)]
    pub(super) fn read_once(file: &File, into: &mut [u8], offset: u64) -> io::Result<usize> {
        std::os::windows::fs::FileExt::seek_read(file, into, offset)
    }

    #[cfg(windows)]
    pub(super) fn write_once(file: &File, parts: &[IoSlice<'_>], offset: u64) -> io::Result<usize> {
        std::os::windows::fs::FileExt::seek_write(file, &parts[0], offset)
    }

    impl SegmentFile {
        pub(super) fn stop_direct(&self, error: io::Error) -> io::Result<()> {
            let _ = self;
            Err(error)
        }

        pub(super) fn give_up_cache(&self, _offset: u64, _bytes: u64) {
            let _ = self;
        }
    }
}

use system::{open_direct, read_once, write_once};

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::PAGE;
    use crate::staging::Buffer;

    #[test]
    fn a_file_whose_direct_access_is_refused_is_read_and_written_as_usual() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("file");
        let mut page = Buffer::new(2 * PAGE);
        page.bytes_mut().iter_mut().zip(0_u32..).for_each(|(byte, n)| *byte = (n % 251) as u8);
        // The system refuses lengths and places that are no whole sectors as file systems refuse direct access.
        let file = SegmentFile::create(&path).unwrap();
        file.write_at(&[&page.bytes()[..PAGE]], 0).unwrap();
        file.write_at(&[&page.bytes()[PAGE..PAGE + 100], &page.bytes()[PAGE + 100..]], PAGE as u64).unwrap();
        file.sync().unwrap();
        let file = SegmentFile::open(&path).unwrap();
        let mut read = Buffer::new(2 * PAGE);
        assert_eq!(file.read_at(&mut read.bytes_mut()[1..], 1).unwrap(), 2 * PAGE - 1);
        assert!(read.bytes()[1..] == page.bytes()[1..]);
    }

    #[test]
    fn reading_beyond_the_end_gives_what_is_there() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("file");
        std::fs::write(&path, vec![7; PAGE + 10]).unwrap();
        let file = SegmentFile::open(&path).unwrap();
        let mut read = Buffer::new(4 * PAGE);
        assert_eq!(file.read_at(read.bytes_mut(), 0).unwrap(), PAGE + 10);
        assert_eq!(file.read_at(read.bytes_mut(), 8 * PAGE as u64).unwrap(), 0);
    }
}
