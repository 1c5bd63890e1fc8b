//! From rows of floats to the activations a product reads: an optional norm, then quantised or interleaved.

#![allow(unsafe_code, reason = "tiles are filled by several threads at once")]

use crate::activations::{Activations, Record, TILE};
use crate::compute::Compute;
use crate::elementwise::{Norm, rms_norm};
use crate::memory::SharedMut;
use crate::packed::GROUP;
use crate::vectorise::vectorised;

/// Which rows of the source are taken.
#[derive(Clone, Copy, Debug)]
pub enum Rows<'a> {
    /// The first so many.
    First(usize),
    /// These, in this order.
    Picked(&'a [u32]),
}

impl Rows<'_> {
    /// How many.
    pub fn len(&self) -> usize {
        match self {
            Self::First(count) => *count,
            Self::Picked(rows) => rows.len(),
        }
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    #[inline(always)]
    fn source(&self, row: usize) -> usize {
        match self {
            Self::First(_) => row,
            Self::Picked(rows) => rows[row] as usize,
        }
    }
}

/// A norm on the way.
#[derive(Clone, Copy, Debug)]
pub struct NormBy<'a> {
    /// One weight per column.
    pub weight: &'a [f32],
    /// Its constants.
    pub norm: Norm,
}

/// What to prepare.
#[derive(Clone, Copy, Debug)]
pub struct Prepare<'a> {
    /// Rows of floats, `stride` apart.
    pub source: &'a [f32],
    /// Values from one row to the next.
    pub stride: usize,
    /// Columns taken.
    pub cols: usize,
    /// Rows taken.
    pub rows: Rows<'a>,
    /// Applied first, if there.
    pub norm: Option<NormBy<'a>>,
}

/// Fills `target` in every form it has room for.
pub fn prepare(compute: &mut Compute, what: &Prepare<'_>, target: &mut Activations) {
    let (max_rows, max_cols) = target.capacity();
    assert!(what.rows.len() <= max_rows && what.cols <= max_cols, "activations too small");
    let isa = compute.isa();
    let tiles = what.rows.len().div_ceil(TILE);
    let shared = Shared { records: target.records.shared(), floats: target.floats.shared() };
    let padded = what.cols.next_multiple_of(GROUP);
    compute.reserve_scratch(padded * 4);
    compute.for_each(tiles, 1, &|tiles, scratch| {
        for tile in tiles {
            // SAFETY: `Buffer` scratch is 64-byte aligned and zero or plain floats; reserved above.
            let row = unsafe { std::slice::from_raw_parts_mut(scratch.as_mut_ptr().cast::<f32>(), padded) };
            row[what.cols..].fill(0.0);
            vectorised(isa, || fill_tile(what, tile, row, shared));
        }
    });
}

#[derive(Clone, Copy)]
struct Shared {
    records: SharedMut<Record>,
    floats: SharedMut<f32>,
}

#[inline(always)]
fn fill_tile(what: &Prepare<'_>, tile: usize, row: &mut [f32], target: Shared) {
    let first = tile * TILE;
    for slot in 0..TILE.min(what.rows.len() - first) {
        let at = what.rows.source(first + slot) * what.stride;
        let source = &what.source[at..at + what.cols];
        match what.norm {
            Some(by) => rms_norm(source, by.weight, by.norm, &mut row[..what.cols]),
            None => row[..what.cols].copy_from_slice(source),
        }
        put_row(row, what.cols, (tile, slot), target);
    }
}

#[inline(always)]
fn put_row(row: &[f32], cols: usize, (tile, slot): (usize, usize), target: Shared) {
    if !target.records.is_empty() {
        let groups = row.len() / GROUP;
        // SAFETY: each tile is visited by one thread.
        let records = unsafe { target.records.slice(tile * groups, groups) };
        for (record, group) in records.iter_mut().zip(row.as_chunks::<GROUP>().0) {
            record.put(slot, group);
        }
    }
    if !target.floats.is_empty() {
        // SAFETY: each tile is visited by one thread.
        let floats = unsafe { target.floats.slice(tile * cols * TILE, cols * TILE) };
        for (six, value) in floats.chunks_exact_mut(TILE).zip(row) {
            six[slot] = *value;
        }
    }
}
