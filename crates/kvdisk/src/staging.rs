//! Memory on its way to or from the disk: page-aligned, used again.

use crate::format::PAGE;

/// Capacities are multiples of this, so that buffers of similar lengths can take each other's place.
const GRAIN: usize = 256 << 10;

/// Bytes at a page boundary, as direct reads and writes need them.
#[derive(Debug)]
pub(crate) struct Buffer {
    memory: Vec<u8>,
    start: usize,
    len: usize,
}

impl Buffer {
    /// A buffer that is nobody's yet.
    pub(crate) fn new(len: usize) -> Self {
        // Zeroed memory costs nothing before it is touched.
        let memory = vec![0; len.next_multiple_of(GRAIN) + PAGE];
        let start = memory.as_ptr().align_offset(PAGE);
        debug_assert!(start < PAGE);
        Self { memory, start, len }
    }

    fn capacity(&self) -> usize {
        self.memory.len() - PAGE
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        &self.memory[self.start..self.start + self.len]
    }

    pub(crate) fn bytes_mut(&mut self) -> &mut [u8] {
        &mut self.memory[self.start..self.start + self.len]
    }
}

/// Buffers that are not used now.
#[derive(Debug, Default)]
pub(crate) struct FreeList {
    buffers: Vec<Buffer>,
    bytes: usize,
    /// Bytes kept at most.
    limit: usize,
}

impl FreeList {
    pub(crate) fn new(limit: u64) -> Self {
        Self { limit: usize::try_from(limit).unwrap_or(usize::MAX), ..Self::default() }
    }

    /// A buffer of that length, if one is kept; what is in it is arbitrary.
    pub(crate) fn take(&mut self, len: usize) -> Option<Buffer> {
        let fits = |buffer: &Buffer| (len..=2 * len.max(GRAIN)).contains(&buffer.capacity());
        let index = self.buffers.iter().rposition(fits)?;
        let mut buffer = self.buffers.swap_remove(index);
        self.bytes -= buffer.capacity();
        buffer.len = len;
        Some(buffer)
    }

    /// Keeps a buffer for the next one who needs it, unless enough are kept: then it is handed back to be dropped (by
    /// a caller without locks).
    pub(crate) fn put(&mut self, buffer: Buffer) -> Option<Buffer> {
        if self.bytes + buffer.capacity() > self.limit {
            return Some(buffer);
        }
        self.bytes += buffer.capacity();
        self.buffers.push(buffer);
        None
    }

    /// Everything that is kept, to be dropped.
    pub(crate) fn empty(&mut self) -> Vec<Buffer> {
        self.bytes = 0;
        std::mem::take(&mut self.buffers)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffers_are_aligned_and_come_back() {
        let mut list = FreeList::new(1 << 20);
        assert!(list.take(700_000).is_none());
        let buffer = Buffer::new(700_000);
        assert_eq!(buffer.bytes().as_ptr() as usize % PAGE, 0);
        assert_eq!(buffer.bytes().len(), 700_000);
        let address = buffer.bytes().as_ptr();
        assert!(list.put(buffer).is_none());
        let again = list.take(690_000).unwrap();
        assert_eq!((again.bytes().as_ptr(), again.bytes().len()), (address, 690_000));
    }

    #[test]
    fn no_more_is_kept_than_allowed() {
        let mut list = FreeList::new(1 << 20);
        let buffers: Vec<_> = (0..8).map(|_| Buffer::new(256 << 10)).collect();
        let dropped = buffers.into_iter().filter_map(|buffer| list.put(buffer)).count();
        assert_eq!(dropped, 4);
        assert_eq!(list.empty().len(), 4);
    }
}
