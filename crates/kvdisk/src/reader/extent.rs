//! One read: records beside each other, checked.

use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use crate::Key;
use crate::fetch::{Arrival, FetchedBlock, Transfer};
use crate::folder::SegmentId;
use crate::format::{RECORD_HEADER, RecordHeader, checksum, record_offset, stride};
use crate::index::{Place, ShelfId};
use crate::shared::Shared;
use crate::staging::Buffer;

/// Records beside each other.
pub(crate) struct Records {
    pub(crate) segment: SegmentId,
    pub(crate) nonce: u64,
    pub(crate) first: u32,
    /// The keys that they must have.
    pub(crate) keys: Vec<Key>,
    pub(crate) block_bytes: usize,
}

impl Records {
    fn stride(&self) -> usize {
        stride(self.block_bytes)
    }

    pub(crate) fn bytes(&self) -> usize {
        self.keys.len() * self.stride()
    }

    fn place(&self, at: usize) -> Place {
        Place { segment: self.segment, slot: self.first + at as u32 }
    }

    /// Reads them; says how many, from the first on, are what they should be, and what the system says of the others.
    fn read_intact(&self, shared: &Shared, shelf: ShelfId, memory: &mut [u8]) -> (usize, Option<io::Error>) {
        let read = self.read(shared, self.place(0), memory);
        let whole = read.as_ref().map_or(0, |bytes| bytes / self.stride());
        let is_intact = |(at, record): &mut (usize, &mut [u8])| {
            (*at < whole && self.is_intact(record, self.place(*at), self.nonce, *at))
                || self.read_moved(shared, shelf, record, *at)
        };
        let intact = memory
            .chunks_mut(self.stride())
            .enumerate()
            .map_while(|mut each| is_intact(&mut each).then_some(()));
        (intact.count(), read.err())
    }

    fn read(&self, shared: &Shared, place: Place, into: &mut [u8]) -> io::Result<usize> {
        let file = shared.handles.open(&shared.folder, place.segment)?;
        file.read_at(into, record_offset(place.slot, self.stride()))
    }

    /// Reads a block that was carried over to another segment since the read was planned.
    fn read_moved(&self, shared: &Shared, shelf: ShelfId, record: &mut [u8], at: usize) -> bool {
        let state = shared.lock();
        let Some(place) = state.index.find(shelf, &self.keys[at]) else { return false };
        let Some(nonce) = state.index.segment(place.segment).map(|segment| segment.nonce) else {
            return false;
        };
        drop(state);
        place != self.place(at)
            && self.read(shared, place, record).is_ok_and(|bytes| bytes == self.stride())
            && self.is_intact(record, place, nonce, at)
    }

    fn is_intact(&self, record: &[u8], place: Place, nonce: u64, at: usize) -> bool {
        is_record(record, nonce, place.slot, self.block_bytes, &self.keys[at])
    }
}

/// Whether a record is the one of that slot, has that key, and its block is what was written.
pub(crate) fn is_record(record: &[u8], nonce: u64, slot: u32, block_bytes: usize, key: &Key) -> bool {
    let Some(header) = RecordHeader::decode(record) else { return false };
    header.is_at(nonce, slot)
        && header.key == *key
        && record[RECORD_HEADER..].get(..block_bytes).is_some_and(|block| checksum(block) == header.sum)
}

/// Staging memory with blocks that were read; it goes back to the readers when the last block is dropped.
pub(crate) struct Extent {
    memory: Option<Buffer>,
    transfer: Arc<Transfer>,
    shared: Arc<Shared>,
}

impl Extent {
    pub(crate) fn bytes(&self) -> &[u8] {
        self.memory.as_ref().map_or(&[], Buffer::bytes)
    }

    /// Reads records for a fetch: blocks up to the first that is not as it should be, then a failure.
    pub(crate) fn read(
        shared: &Arc<Shared>,
        transfer: &Arc<Transfer>,
        records: &Records,
        mut memory: Buffer,
    ) -> Vec<Arrival> {
        let started = Instant::now();
        let (intact, failure) = records.read_intact(shared, transfer.shelf, memory.bytes_mut());
        let (transfer, home) = (Arc::clone(transfer), Arc::clone(shared));
        let extent = Arc::new(Self { memory: Some(memory), transfer, shared: home });
        let mut arrivals: Vec<_> = (0..intact)
            .map(|at| FetchedBlock::read(Arc::clone(&extent), at * records.stride(), records.block_bytes))
            .map(Arrival::Ready)
            .collect();
        if intact < records.keys.len() {
            note_failure(shared, records.place(intact), failure);
            arrivals.extend((intact..records.keys.len()).map(|_| Arrival::Failed));
        }
        let counters = &mut shared.lock().counters;
        counters.read_blocks += intact as u64;
        counters.read_bytes += (intact * records.block_bytes) as u64;
        counters.read_time += started.elapsed();
        arrivals
    }
}

impl Drop for Extent {
    fn drop(&mut self) {
        let Some(memory) = self.memory.take() else { return };
        self.transfer.held.fetch_sub(memory.bytes().len() as u64, Ordering::Relaxed);
        self.shared.readers.take_back(memory);
    }
}

/// A block can't be read or is damaged: it is forgotten. If the file is gone, all its blocks are.
fn note_failure(shared: &Shared, place: Place, error: Option<io::Error>) {
    let file = place.segment.file_name();
    let mut state = shared.lock();
    state.counters.read_failures += 1;
    // It may have been reclaimed or forgotten since the read was planned: then nothing is wrong.
    if !state.index.is_live(place) {
        return;
    }
    if error.as_ref().is_some_and(|error| error.kind() == io::ErrorKind::NotFound) {
        let blocks = state.index.forget_from(place.segment, 0);
        drop(state);
        tracing::info!(target: "kvdisk", file, blocks, "a segment is gone: its blocks are forgotten");
        return;
    }
    state.index.forget(place);
    state.counters.damaged_blocks += u64::from(error.is_none());
    drop(state);
    if let Some(error) = error {
        tracing::warn!(target: "kvdisk", file, slot = place.slot, %error, "a block can't be read");
    } else {
        tracing::warn!(target: "kvdisk", file, slot = place.slot, "a block is damaged and forgotten");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_whole_record_of_that_key_at_that_place_is_taken() {
        const BLOCK: usize = 1000;
        let mut record = vec![7; stride(BLOCK)];
        let sum = checksum(&record[RECORD_HEADER..][..BLOCK]);
        RecordHeader { key: [1; 32], nonce: 5, slot: 3, used: 0, used_at: 0, sum }.encode(&mut record);
        assert!(is_record(&record, 5, 3, BLOCK, &[1; 32]));
        assert!(!is_record(&record, 6, 3, BLOCK, &[1; 32]), "of another segment");
        assert!(!is_record(&record, 5, 4, BLOCK, &[1; 32]), "of another slot");
        assert!(!is_record(&record, 5, 3, BLOCK, &[2; 32]), "of another block");
        assert!(!is_record(&record, 5, 3, BLOCK - 1, &[1; 32]), "of another size");
        assert!(!is_record(&record[..RECORD_HEADER + BLOCK - 1], 5, 3, BLOCK, &[1; 32]), "cut");
        assert!(!is_record(&record[..10], 5, 3, BLOCK, &[1; 32]), "cut in its header");
        record[RECORD_HEADER + BLOCK - 1] ^= 1;
        assert!(!is_record(&record, 5, 3, BLOCK, &[1; 32]), "damaged");
    }
}
