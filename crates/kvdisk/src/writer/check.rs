//! What is done now and then: the folder is looked at, because others may change it, and what was written is synced.

use std::io;
use std::time::{Instant, SystemTime};

use super::{BATCH, CHECK, SAVE, Writer, next_id};
use crate::folder::scan::read_segment;
use crate::folder::{FolderLock, SegmentId};
use crate::format::PAGE;
use crate::load;
use crate::shared::{Shared, Stop};

/// Deletes the segments unused for longest until the area has the size that is allowed.
pub(crate) fn shrink(shared: &Shared) {
    loop {
        let mut state = shared.lock();
        if state.file_bytes(0) <= shared.options.size {
            return;
        }
        let unreadable = state.index.unreadable.keys().next().copied();
        let Some(id) = unreadable.or_else(|| state.index.victim()) else { return };
        let bytes = state.index.segment(id).map(|segment| segment.bytes);
        let bytes = bytes.or_else(|| state.index.unreadable.remove(&id)).unwrap_or(0);
        let forgotten = state.index.remove_segment(id);
        state.counters.reclaimed_blocks += forgotten;
        drop(state);
        if let Err(error) = shared.folder.remove(id) {
            shared.lock().index.unreadable.insert(id, bytes);
            tracing::warn!(target: "kvdisk", file = id.file_name(), %error, "a segment can't be deleted");
            return;
        }
    }
}

/// Reads a segment that was not known.
fn learn(shared: &Shared, id: SegmentId, bytes: u64) {
    let found = read_segment(&shared.folder, id);
    let mut state = shared.lock();
    match found {
        Ok(found) => load::add(&mut state.index, id, &found),
        Err(error) => {
            let is_new = state.index.unreadable.insert(id, bytes) != Some(bytes);
            drop(state);
            if is_new {
                tracing::warn!(target: "kvdisk", file = id.file_name(), %error, "a segment is ignored");
            }
        }
    }
}

impl Writer {
    pub(super) fn check(&mut self) {
        let now = Instant::now();
        self.next_check = now + CHECK;
        self.sync();
        self.refresh();
        self.go_on(now);
        self.expire_pins();
        if now >= self.next_save {
            self.next_save = now + SAVE;
            self.save_changes();
            self.trim();
        }
    }

    fn save_changes(&mut self) {
        let has_changed = self.shared.lock().index.now() != self.saved;
        if has_changed && self.lock.is_some() {
            self.save();
        }
    }

    /// Tries to write again when it is time.
    fn go_on(&self, now: Instant) {
        let is_due = |stop: &Stop| now >= stop.retry_at;
        let floor = self.shared.options.floor.saturating_add(BATCH);
        let is_full = self.shared.folder.free_bytes().is_some_and(|free| free < floor);
        let mut state = self.shared.lock();
        if state.stop.as_ref().is_some_and(is_due) && !is_full {
            state.stop = None;
            drop(state);
            tracing::info!(target: "kvdisk", "blocks are written again");
        }
    }

    pub(super) fn expire_pins(&self) {
        let mut state = self.shared.lock();
        for (shelf, name) in state.index.pins.expired(SystemTime::now()) {
            state.index.unpin(shelf, &name);
        }
    }

    /// Staging memory is given back when nobody uses it.
    fn trim(&self) {
        if self.shared.lock().queued_bytes == 0 {
            self.shared.staging.trim();
        }
        self.shared.readers.trim();
    }

    /// Looks at the folder: segments may have been deleted, cut or added by others.
    pub(super) fn refresh(&mut self) {
        self.hold_lock();
        let listed = match self.shared.folder.segments() {
            Ok(listed) => listed,
            Err(error) if error.kind() == io::ErrorKind::NotFound => Vec::new(),
            Err(error) => {
                tracing::warn!(target: "kvdisk", %error, "the folder can't be listed");
                return;
            }
        };
        self.forget_missing(&listed);
        for (id, bytes) in listed {
            self.compare(id, bytes);
        }
        let shared = &self.shared;
        shared.handles.keep(|id| shared.lock().index.segment(id).is_some());
    }

    /// Takes the lock if it is free: another process may have ended, the folder may have been made anew.
    fn hold_lock(&mut self) {
        let path = self.shared.folder.lock();
        if self.lock.as_ref().is_some_and(|lock| lock.is_at(&path)) {
            return;
        }
        drop(self.lock.take());
        self.abandon_all();
        let taken = FolderLock::take_in(&self.shared.folder);
        let mut state = self.shared.lock();
        let before = state.read_only.take();
        match taken {
            Ok(lock) => {
                self.lock = Some(lock);
                self.next_id = self.next_id.max(next_id(&state));
                drop(state);
                shrink(&self.shared);
                tracing::info!(target: "kvdisk", "this process writes to the folder from now on");
            }
            Err(why) => {
                let why = why.to_string();
                let is_new = before.as_ref() != Some(&why);
                state.read_only = Some(why.clone());
                let dropped = state.drop_queue();
                drop(state);
                drop(dropped);
                if is_new {
                    tracing::warn!(target: "kvdisk", why, "the folder is only read");
                }
            }
        }
    }

    fn forget_missing(&mut self, listed: &[(SegmentId, u64)]) {
        let is_missing = |id: &SegmentId| listed.binary_search_by_key(id, |(id, _)| *id).is_err();
        let mut state = self.shared.lock();
        state.index.unreadable.retain(|id, _| !is_missing(id));
        let missing: Vec<_> = state.index.segments().map(|(id, _)| id).filter(is_missing).collect();
        let blocks: u64 = missing.iter().map(|&id| state.index.remove_segment(id)).sum();
        drop(state);
        self.active.retain(|_, active| !missing.contains(&active.id));
        if !missing.is_empty() {
            let segments = missing.len();
            tracing::info!(target: "kvdisk", segments, blocks, "segments are gone: their blocks are forgotten");
        }
    }

    /// Compares a segment with what is known of it.
    fn compare(&mut self, id: SegmentId, bytes: u64) {
        let state = self.shared.lock();
        let Some(segment) = state.index.segment(id) else {
            let is_news = state.index.unreadable.get(&id) != Some(&bytes);
            drop(state);
            if is_news {
                learn(&self.shared, id, bytes);
            }
            return;
        };
        let (known, is_active) = (segment.bytes, segment.is_active);
        drop(state);
        if bytes < known {
            self.forget_cut(id, bytes);
        } else if bytes > known && !is_active {
            self.learn_more(id, bytes);
        }
    }

    /// A segment was cut: what is beyond its end is forgotten, and nothing is added to it.
    fn forget_cut(&mut self, id: SegmentId, bytes: u64) {
        let mut state = self.shared.lock();
        let Some(segment) = state.index.segment_mut(id) else { return };
        segment.bytes = bytes;
        segment.abandon();
        let shelf = segment.shelf;
        let whole = bytes.saturating_sub(PAGE as u64) / state.index.shelves.stride(shelf) as u64;
        let blocks = state.index.forget_from(id, u32::try_from(whole).unwrap_or(u32::MAX));
        drop(state);
        self.active.retain(|_, active| active.id != id);
        if blocks > 0 {
            tracing::warn!(target: "kvdisk", file = id.file_name(), blocks, "a segment was cut: blocks are forgotten");
        }
    }

    /// Another process adds to this segment.
    fn learn_more(&self, id: SegmentId, bytes: u64) {
        let found = read_segment(&self.shared.folder, id);
        let mut state = self.shared.lock();
        let Some(segment) = state.index.segment_mut(id) else { return };
        segment.bytes = bytes;
        let Ok(found) = found else { return };
        if segment.nonce != found.header.nonce {
            state.index.remove_segment(id);
            load::add(&mut state.index, id, &found);
            return;
        }
        segment.is_complete = found.is_complete;
        let known = segment.slots().len();
        found.slots.iter().skip(known).for_each(|line| state.index.append(id, line));
    }
}
