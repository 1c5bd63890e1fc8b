//! Queued blocks into segments.

use std::io;
use std::sync::Arc;
use std::time::Instant;

use super::active::{NewRecord, Source};
use super::{RETRY, Writer};
use crate::format::FooterLine;
use crate::index::ShelfId;
use crate::shared::{Queued, State, wall_seconds};

/// The first blocks of the queue, all of one shelf, of at most so many bytes but at least one. Those that were forgotten
/// meanwhile are left out.
pub(super) fn take(state: &mut State, limit: u64) -> Vec<Queued> {
    let mut batch: Vec<Queued> = Vec::new();
    let mut bytes = 0;
    while let Some(next) = state.queue.front() {
        if !state.is_wanted(next) {
            state.queued_bytes -= next.staged.len() as u64;
            state.flushes.left += 1;
            state.queue.pop_front();
            continue;
        }
        let is_same = batch.first().is_none_or(|first| first.shelf == next.shelf);
        bytes += next.staged.len() as u64;
        if !batch.is_empty() && (!is_same || bytes > limit) {
            break;
        }
        batch.extend(state.queue.pop_front());
    }
    batch
}

impl Writer {
    /// Writes a batch, or stops.
    pub(super) fn write(&mut self, batch: &[Queued]) {
        let Some(shelf) = batch.first().map(|queued| queued.shelf) else { return };
        let started = Instant::now();
        let mut rest = batch;
        while !rest.is_empty() {
            match self.write_some(shelf, rest) {
                Ok(written) => rest = &rest[written..],
                Err(why) => {
                    self.give_up(rest);
                    self.stop_because(&why);
                    return;
                }
            }
        }
        self.retry = RETRY;
        let bytes: u64 = batch.iter().map(|queued| queued.staged.len() as u64).sum();
        self.pace.wrote(bytes, started);
        self.shared.lock().counters.write_time += started.elapsed();
    }

    /// Writes as many blocks as the active segment has room for; says how many.
    fn write_some(&mut self, shelf: ShelfId, batch: &[Queued]) -> Result<usize, WhyNot> {
        let slots = Some(self.room(shelf)).filter(|&room| room > 0);
        let slots = slots.unwrap_or_else(|| self.geometry(shelf).slots as usize);
        let batch = &batch[..batch.len().min(slots)];
        self.keep_floor(batch)?;
        self.make_room(shelf, batch.len() as u64)?;
        self.activate(shelf)?;
        // What was carried over may have taken slots.
        let batch = &batch[..batch.len().min(self.room(shelf))];
        let first = self.shared.lock().index.ticks(batch.len() as u64);
        let used_at = wall_seconds();
        let records = (first..).zip(batch).map(|(used, queued)| {
            let source = Source::Queue(Arc::clone(&queued.staged));
            NewRecord { key: queued.key, used, used_at, source }
        });
        let (id, records) = self.append(shelf, records.collect())?;
        let mut state = self.shared.lock();
        for (queued, record) in batch.iter().zip(&records) {
            let is_live = state.leave_queue(queued);
            let line = FooterLine { key: record.key, used: record.used, used_at, is_live };
            state.index.append(id, &line);
        }
        let bytes = batch.len() * state.index.shelves.spec(shelf).block_bytes;
        state.counters.written_blocks += batch.len() as u64;
        state.counters.written_bytes += bytes as u64;
        Ok(batch.len())
    }

    /// Blocks that won't be written.
    fn give_up(&mut self, batch: &[Queued]) {
        let mut state = self.shared.lock();
        for queued in batch {
            state.leave_queue(queued);
        }
        state.counters.dropped_blocks += batch.len() as u64;
    }

    /// Writing must leave so many bytes of the file system free.
    fn keep_floor(&self, batch: &[Queued]) -> Result<(), WhyNot> {
        let needed: u64 = batch.iter().map(|queued| queued.staged.len() as u64).sum();
        match self.shared.folder.free_bytes() {
            Some(free) if free < self.shared.options.floor.saturating_add(needed) => {
                Err(WhyNot::Floor { free })
            }
            _ => Ok(()),
        }
    }

    fn stop_because(&mut self, why: &WhyNot) {
        let dir = self.shared.folder.dir().display().to_string();
        match why {
            WhyNot::System(error) => self.stop_after(error),
            WhyNot::Floor { free } => {
                let floor = self.shared.options.floor;
                let text = format!(
                    "{dir}: {free} bytes are free and {floor} must stay free; make room on this disk"
                );
                self.stop(text, RETRY);
            }
            WhyNot::Room => self.stop(format!("{dir}: nothing can be reclaimed; allow more bytes"), RETRY),
        }
    }
}

/// Why a batch is not written.
#[derive(Debug)]
pub(super) enum WhyNot {
    System(io::Error),
    Floor {
        free: u64,
    },
    /// Nothing is left to reclaim.
    Room,
}

impl From<io::Error> for WhyNot {
    fn from(error: io::Error) -> Self {
        Self::System(error)
    }
}
