//! A shelf: the blocks of one model in one format.

use std::fmt;
use std::sync::Arc;
use std::time::SystemTime;

use crate::Key;
use crate::disk::{Disk, Running};
use crate::fetch::{Fetch, Wake};
use crate::format::{MAX_BLOCK_BYTES, RECORD_HEADER, stride};
use crate::geometry::Geometry;
use crate::index::{Pin, ShelfId};
use crate::shared::{Queued, Staged, State, wall_seconds};
use crate::status::Stock;

/// What the blocks of a shelf have in common.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ShelfSpec {
    /// Digest of everything that makes one model's blocks useless to another: weights, format, rope and the like.
    pub identity: [u8; 32],
    /// For people: model name and format. Cut to 256 bytes on disk.
    pub label: String,
    /// Bytes of a block.
    pub block_bytes: usize,
    /// Tokens of a block.
    pub block_tokens: usize,
}

/// What became of a block that was to be stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stored {
    /// It will be written; it can be fetched from now on.
    Queued,
    /// It is on disk or about to be; it counts as used just now.
    Known,
    /// Too many bytes wait to be written: try again later.
    Full,
    /// Nothing is written now, or nothing of this size ever: see [`Status`](crate::Status) and [`Shelf::too_large`] for
    /// the reason.
    Stopped,
}

/// The blocks of one model in one format. Cheap to clone.
#[derive(Clone)]
pub struct Shelf {
    running: Arc<Running>,
    spec: Arc<ShelfSpec>,
    id: ShelfId,
    /// The area is large enough for its blocks.
    has_room: bool,
}

impl Shelf {
    /// # Panics
    /// When blocks are empty or larger than 1 GiB.
    pub(crate) fn new(running: Arc<Running>, spec: ShelfSpec) -> Self {
        assert!((1..=MAX_BLOCK_BYTES).contains(&spec.block_bytes), "blocks of {} bytes", spec.block_bytes);
        let size = running.shared.options.size;
        let geometry = Geometry::new(size, spec.block_bytes);
        let mut state = running.shared.lock();
        let id = state.index.shelf(&spec);
        state.index.shelves.set_label(id, &spec.label);
        state.index.reserve(size / stride(spec.block_bytes) as u64);
        drop(state);
        let shelf = Self { running, spec: Arc::new(spec), id, has_room: geometry.smallest_area() <= size };
        if let Some(why) = shelf.too_large() {
            tracing::warn!(target: "kvdisk", model = shelf.spec.label, why, "blocks can't be stored");
        }
        shelf
    }

    /// Set when the area is too small for blocks of this size, so that none is ever stored: why.
    pub fn too_large(&self) -> Option<String> {
        let (size, bytes) = (self.running.shared.options.size, self.spec.block_bytes);
        let needed = Geometry::new(size, bytes).smallest_area();
        let why =
            || format!("an area of {size} bytes is too small for blocks of {bytes}; allow at least {needed}");
        (!self.has_room).then(why)
    }

    /// What the blocks have in common.
    pub fn spec(&self) -> &ShelfSpec {
        &self.spec
    }

    /// The area it is part of.
    pub fn disk(&self) -> Disk {
        Disk::of(Arc::clone(&self.running))
    }

    /// What of this shelf is on disk.
    pub fn stock(&self) -> Stock {
        self.running.shared.lock().index.shelves.stock(self.id)
    }

    /// Whether a block is on disk or waiting to be written. Looks in memory only.
    pub fn holds(&self, key: &Key) -> bool {
        self.running.shared.lock().holds(self.id, key)
    }

    /// How many of the keys in a row, from the first on, could be fetched. Looks in memory only.
    pub fn leading(&self, keys: &mut dyn Iterator<Item = Key>) -> usize {
        keys.take_while(|key| self.holds(key)).count()
    }

    /// Queues a block to be written. `fill` writes its bytes (all `block_bytes` of them) into staging memory; it is only
    /// called when there is room for it.
    pub fn store(&self, key: Key, fill: impl FnOnce(&mut [u8])) -> Stored {
        match self.reserve(&key) {
            Ok(mut reserved) => {
                fill(reserved.block());
                reserved.commit(key)
            }
            Err(stored) => stored,
        }
    }

    fn reserve(&self, key: &Key) -> Result<Reserved<'_>, Stored> {
        let stride = stride(self.spec.block_bytes);
        let mut state = self.running.shared.lock();
        if self.touch_known(&mut state, key) {
            return Err(Stored::Known);
        }
        if !state.is_writing() || !self.has_room {
            state.counters.refused_stopped += 1;
            return Err(Stored::Stopped);
        }
        // A queue that is smaller than a block still takes one.
        if state.queued_bytes > 0 && state.queued_bytes + stride as u64 > self.running.shared.options.queue {
            state.counters.refused_full += 1;
            return Err(Stored::Full);
        }
        state.queued_bytes += stride as u64;
        drop(state);
        let staged = Some(self.running.shared.staging.take(stride));
        Ok(Reserved { shelf: self, staged })
    }

    /// Whether a block is known; then it is used now.
    fn touch_known(&self, state: &mut State, key: &Key) -> bool {
        match state.index.find(self.id, key) {
            Some(place) => {
                state.index.touch(place, wall_seconds());
                true
            }
            None => state.waiting.contains_key(&(self.id, *key)),
        }
    }

    /// Reads blocks in the background, in order. `wake` is called whenever [`Fetch::poll`] may have something new, by a
    /// thread of this crate: it must be quick. Dropping the fetch cancels it.
    pub fn fetch(&self, keys: Vec<Key>, wake: Wake) -> Fetch {
        Fetch::start(&self.running.shared, self.id, keys, wake)
    }

    /// The blocks count as used just now.
    pub fn touch(&self, keys: &[Key]) {
        for key in keys {
            self.touch_known(&mut self.running.shared.lock(), key);
        }
    }

    /// Makes a block unknown: it was found wrong, or must not be used again.
    pub fn forget(&self, key: &Key) {
        let mut state = self.running.shared.lock();
        if let Some(place) = state.index.find(self.id, key) {
            state.index.forget(place);
        }
        let waiting = state.waiting.remove(&(self.id, *key));
        drop(state);
        drop(waiting);
    }

    /// Keeps blocks from being reclaimed until then, replacing what was pinned under this name. Blocks may be pinned
    /// before they are stored. Pins survive a restart. Returns how many of the keys, from the first on, are within what
    /// may be pinned.
    pub fn pin(&self, name: &str, keys: &[Key], until: SystemTime) -> usize {
        let pin = Pin { keys: keys.to_vec(), until };
        self.running.shared.lock().index.pin(self.id, name, pin)
    }

    /// Undoes [`Shelf::pin`].
    pub fn unpin(&self, name: &str) {
        self.running.shared.lock().index.unpin(self.id, name);
    }
}

impl fmt::Debug for Shelf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shelf").field("spec", &self.spec).finish_non_exhaustive()
    }
}

/// Room in the queue, and the memory to fill. Given back when `fill` panics.
struct Reserved<'a> {
    shelf: &'a Shelf,
    staged: Option<Staged>,
}

impl Reserved<'_> {
    fn block(&mut self) -> &mut [u8] {
        let bytes = self.shelf.spec.block_bytes;
        self.staged.as_mut().map_or(&mut [], |staged| &mut staged.bytes_mut()[RECORD_HEADER..][..bytes])
    }

    fn commit(mut self, key: Key) -> Stored {
        let shared = &self.shelf.running.shared;
        let mut state = shared.lock();
        // Meanwhile another thread may have stored the same block, or writing may have stopped.
        let is_known = self.shelf.touch_known(&mut state, &key);
        if is_known || !state.is_writing() {
            // Dropping `self` takes the lock.
            drop(state);
            return if is_known { Stored::Known } else { Stored::Stopped };
        }
        let Some(staged) = self.staged.take().map(Arc::new) else { return Stored::Stopped };
        state.waiting.insert((self.shelf.id, key), Arc::clone(&staged));
        state.flushes.entered += 1;
        state.queue.push_back(Queued { shelf: self.shelf.id, key, staged });
        drop(state);
        shared.writer_wake.notify_one();
        Stored::Queued
    }
}

impl Drop for Reserved<'_> {
    fn drop(&mut self) {
        if let Some(staged) = self.staged.take() {
            self.shelf.running.shared.lock().queued_bytes -= staged.len() as u64;
        }
    }
}
