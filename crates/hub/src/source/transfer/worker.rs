//! One connection's work: pieces, one after the other, each tried again when its connection breaks.

use std::fs::File;
use std::io::{Seek, SeekFrom, Write};

use super::{Shared, Trouble};
use crate::error::SourceError;
use crate::source::http::{Ask, Bytes};
use crate::source::retry::Attempts;

/// How much is read at once: large enough that system calls do not count.
const CHUNK: usize = 256 * 1024;

/// An attempt that brought so much was no failure of the server's: the next one has all its tries again.
const WORTH_IT: u64 = 1 << 20;

/// Tells that a worker has ended, however it ended: nobody waits for one that panicked.
struct Leaving<'a>(&'a Shared<'a>);

impl Drop for Leaving<'_> {
    fn drop(&mut self) {
        self.0.state().running -= 1;
        self.0.changed.notify_all();
    }
}

impl Shared<'_> {
    /// Takes pieces until there are none, or somebody failed.
    pub(super) fn work(&self) {
        let _leaving = Leaving(self);
        while let Some(piece) = self.take() {
            if let Err(trouble) = self.bring(piece) {
                self.fail(trouble);
            }
        }
    }

    fn take(&self) -> Option<usize> {
        let mut state = self.state();
        let (next, count) = (state.next, state.pieces.count());
        let piece = (next..count).find(|i| !state.pieces.missing(*i).is_empty());
        state.next = piece.map_or(count, |piece| piece + 1);
        piece.filter(|_| state.trouble.is_none())
    }

    fn bring(&self, piece: usize) -> Result<(), Trouble> {
        let mut attempts = Attempts::new();
        loop {
            let before = self.state().pieces.missing(piece).start;
            let error = match self.attempt(piece) {
                Err(Trouble::Failed(error)) => error,
                done => return done,
            };
            if self.state().pieces.missing(piece).start >= before + WORTH_IT {
                attempts = Attempts::new();
            }
            attempts.wait_after(error, self.transfer.client.cancel()).map_err(Trouble::Failed)?;
        }
    }

    /// Asks for what is missing of a piece and writes what comes, up to the piece's end.
    fn attempt(&self, piece: usize) -> Result<(), Trouble> {
        let mut arriving = match self.ask(piece) {
            Err(SourceError::NoSuchRange) => return Err(Trouble::NoRanges),
            arriving => arriving.map_err(Trouble::Failed)?,
        };
        self.check_start(piece, arriving.start)?;
        self.write(piece, &mut arriving).map_err(Trouble::Failed)
    }

    /// Whether the bytes that come are the ones that are missing. Where the whole file comes instead, the only piece begins anew.
    fn check_start(&self, piece: usize, start: Option<u64>) -> Result<(), Trouble> {
        let mut state = self.state();
        let missing = state.pieces.missing(piece).start;
        match start {
            Some(start) if start == missing => Ok(()),
            Some(start) => {
                let detail = format!("it sent the bytes from {start} on instead of those from {missing} on");
                Err(Trouble::Failed(SourceError::BadAnswer { detail }))
            }
            None if missing == 0 => Ok(()),
            None if state.pieces.count() == 1 => {
                state.pieces.restart(piece);
                Ok(())
            }
            None => Err(Trouble::NoRanges),
        }
    }

    fn ask(&self, piece: usize) -> Result<Bytes<'_>, SourceError> {
        let transfer = self.transfer;
        let (missing, is_last) = {
            let pieces = &self.state().pieces;
            (pieces.missing(piece), piece + 1 == pieces.count())
        };
        let end = if is_last { String::new() } else { (missing.end - 1).to_string() };
        let range = format!("bytes={}-{end}", missing.start);
        transfer.client.bytes(Ask {
            url: transfer.url,
            what: transfer.name,
            range: Some(&range),
            accept: None,
        })
    }

    fn write(&self, piece: usize, arriving: &mut Bytes<'_>) -> Result<(), SourceError> {
        let missing = self.state().pieces.missing(piece);
        let mut file = self.journal.open()?;
        file.seek(SeekFrom::Start(missing.start)).map_err(SourceError::io("write", self.journal.part()))?;
        let mut buffer = vec![0; CHUNK];
        let mut left = missing.end - missing.start;
        while left > 0 && self.state().trouble.is_none() {
            let most = left.min(CHUNK as u64) as usize;
            let read = arriving.body.read(&mut buffer[..most])?;
            if read == 0 {
                let detail = format!("the connection ended {left} bytes too early");
                return Err(SourceError::Network { detail });
            }
            self.put(&mut file, &buffer[..read], piece)?;
            left -= read as u64;
        }
        Ok(())
    }

    fn put(&self, file: &mut File, bytes: &[u8], piece: usize) -> Result<(), SourceError> {
        file.write_all(bytes).map_err(SourceError::io("write", self.journal.part()))?;
        self.state().pieces.add(piece, bytes.len() as u64);
        self.changed.notify_all();
        Ok(())
    }
}
