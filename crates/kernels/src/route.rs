//! From a row of projections to attention: norms and rotary embedding on queries and keys, then queries into
//! their quantised form and keys and values into their KV blocks.

#![allow(unsafe_code, reason = "rows write disjoint queries and disjoint slots of KV blocks")]

use crate::attention::Queries;
use crate::compute::Compute;
use crate::elementwise::{Norm, rms_norm_in_place};
use crate::isa::{Isa, Level};
use crate::kv::{self, BLOCK, KvFormat, KvLayout, quantise_query};
use crate::memory::SharedMut;
use crate::vectorise::vectorised;

/// Which values of a head turn together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pairing {
    /// Value `i` with value `i + pairs`.
    Half,
    /// Value `2i` with value `2i + 1`.
    Interleaved,
}

/// A rotary embedding's angles for the rows of a batch.
#[derive(Clone, Copy, Debug)]
pub struct Rotation<'a> {
    /// `[row][cos of each pair | sin of each pair]`.
    pub angles: &'a [f32],
    /// Pairs that turn; the rest of a head stays.
    pub pairs: usize,
    /// Which values form a pair.
    pub pairing: Pairing,
}

/// A norm on queries or keys: of each head by itself where the weight is one head long, else of all heads.
#[derive(Clone, Copy, Debug)]
pub struct HeadNorms<'a> {
    /// Weight for queries.
    pub query: &'a [f32],
    /// Weight for keys.
    pub key: &'a [f32],
    /// Its constants.
    pub norm: Norm,
}

/// Where a row's keys and values go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KvSlot {
    /// Block in the pool.
    pub block: u32,
    /// Token in the block.
    pub slot: u32,
}

/// Slots of which no two are the same: the proof that rows can be stored by several threads at once.
#[derive(Clone, Copy, Debug)]
pub struct DistinctSlots<'a>(&'a [KvSlot]);

impl<'a> DistinctSlots<'a> {
    /// Checks that no slot occurs twice; `scratch` is overwritten, and keeps its memory for the next check.
    ///
    /// # Panics
    /// If two rows would write to the same slot: a bug of whoever assigned the blocks.
    pub fn new(slots: &'a [KvSlot], scratch: &mut Vec<u64>) -> Self {
        scratch.clear();
        scratch.extend(slots.iter().map(|slot| u64::from(slot.block) << 32 | u64::from(slot.slot)));
        scratch.sort_unstable();
        let distinct = scratch.windows(2).all(|pair| pair[0] != pair[1]);
        assert!(distinct, "two rows of a step write to the same KV slot");
        Self(slots)
    }

    /// The slots.
    pub fn as_slice(&self) -> &'a [KvSlot] {
        self.0
    }
}

/// What to route.
pub struct Route<'a> {
    /// `[row][queries | keys | values]`.
    pub projections: &'a mut [f32],
    /// Query heads.
    pub heads: usize,
    /// Norms before the rotation, if there.
    pub norms: Option<HeadNorms<'a>>,
    /// The rotation, if there.
    pub rotation: Option<Rotation<'a>>,
    /// One per row.
    pub slots: DistinctSlots<'a>,
    /// Shape of the blocks.
    pub layout: KvLayout,
}

/// Routes all rows.
pub fn route(compute: &mut Compute, what: Route<'_>, queries: &mut Queries, kv: &mut [u8]) {
    let isa = compute.isa();
    let Route { projections, heads, norms, rotation, slots, layout } = what;
    let slots = slots.as_slice();
    let rows = slots.len();
    let width = (heads + 2 * layout.kv_heads) * layout.head_dim;
    let row_data = SharedMut::of(&mut projections[..rows * width]);
    let frame = Frame {
        isa,
        heads,
        norms,
        rotation,
        layout,
        quants: queries.quants.shared(),
        scales: queries.scales.shared(),
        floats: queries.floats.shared(),
        blocks: SharedMut::of(kv),
    };
    compute.for_each(rows, GRAIN, &|rows, _| {
        vectorised(isa, || {
            for row in rows {
                // SAFETY: each row is visited once, and no other row has its slot.
                unsafe { frame.route_row(row, row_data.slice(row * width, width), slots[row]) };
            }
        });
    });
}

/// Turns the first `heads` heads of every row by that row's angles, in place.
pub fn rotate_heads(compute: &mut Compute, data: &mut [f32], shape: HeadRows, rotation: Rotation<'_>) {
    let pairs = rotation.pairs;
    compute.for_each_row(data, shape.stride, &|row, values| {
        let (cos, sin) = rotation.angles[row * 2 * pairs..(row + 1) * 2 * pairs].split_at(pairs);
        for head in values[..shape.heads * shape.dim].chunks_exact_mut(shape.dim) {
            rotate(head, cos, sin, rotation.pairing);
        }
    });
}

/// How heads lie in a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HeadRows {
    /// Values from one row to the next.
    pub stride: usize,
    /// Heads at the front of a row.
    pub heads: usize,
    /// Values of a head.
    pub dim: usize,
}

/// Rows handed to a worker at once: a few microseconds of work.
const GRAIN: usize = 4;

#[derive(Clone, Copy)]
struct Frame<'a> {
    isa: Isa,
    heads: usize,
    norms: Option<HeadNorms<'a>>,
    rotation: Option<Rotation<'a>>,
    layout: KvLayout,
    quants: SharedMut<'a, i16>,
    scales: SharedMut<'a, f32>,
    floats: SharedMut<'a, f32>,
    blocks: SharedMut<'a, u8>,
}

impl Frame<'_> {
    /// # Safety
    /// No other thread may work on the same row or the same slot meanwhile.
    #[inline(always)]
    unsafe fn route_row(&self, row: usize, values: &mut [f32], slot: KvSlot) {
        let dim = self.layout.head_dim;
        let (q, rest) = values.split_at_mut(self.heads * dim);
        let (k, v) = rest.split_at_mut(self.layout.kv_heads * dim);
        if let Some(norms) = self.norms {
            normalise(q, norms.query, norms.norm, dim);
            normalise(k, norms.key, norms.norm, dim);
        }
        if let Some(rotation) = self.rotation {
            let angles = &rotation.angles[row * 2 * rotation.pairs..(row + 1) * 2 * rotation.pairs];
            let (cos, sin) = angles.split_at(rotation.pairs);
            for head in q.chunks_exact_mut(dim).chain(k.chunks_exact_mut(dim)) {
                rotate(head, cos, sin, rotation.pairing);
            }
        }
        // SAFETY: passed on from this function's contract.
        unsafe {
            self.put_queries(row, q);
            self.put_keys_and_values(k, v, slot);
        }
    }

    /// # Safety
    /// No other thread may work on the same row meanwhile.
    #[inline(always)]
    unsafe fn put_queries(&self, row: usize, q: &[f32]) {
        let dim = self.layout.head_dim;
        let first = row * self.heads;
        if self.layout.format == KvFormat::F32 {
            // SAFETY: this thread alone works on the row.
            unsafe { self.floats.slice(first * dim, q.len()) }.copy_from_slice(q);
            return;
        }
        // SAFETY: this thread alone works on the row.
        let (quants, scales) =
            unsafe { (self.quants.slice(first * dim, q.len()), self.scales.slice(first, self.heads)) };
        for ((head, out), scale) in q.chunks_exact(dim).zip(quants.chunks_exact_mut(dim)).zip(scales) {
            *scale = quantise_query(head, out);
        }
    }

    /// [`KvLayout::store`], by vectors where they fit.
    #[inline(always)]
    unsafe fn store(&self, region: *mut u8, slot: usize, key: &[f32], value: &[f32]) {
        #[cfg(target_arch = "x86_64")]
        if self.isa.level() == Level::Avx512Vnni
            && self.layout.format == KvFormat::S16
            && self.layout.head_dim.is_multiple_of(16)
        {
            // SAFETY: the level proves the instruction set; the rest is passed on.
            return unsafe { kv::avx512::store(self.layout, region, slot, key, value) };
        }
        // SAFETY: passed on from this function's contract.
        unsafe { self.layout.store(region, slot, key, value) }
    }

    /// # Safety
    /// No other thread may work on the same slot meanwhile.
    #[inline(always)]
    unsafe fn put_keys_and_values(&self, k: &[f32], v: &[f32], slot: KvSlot) {
        let (dim, region) = (self.layout.head_dim, self.layout.region_bytes());
        let block = slot.block as usize * self.layout.block_bytes();
        assert!(block + self.layout.block_bytes() <= self.blocks.len() && (slot.slot as usize) < BLOCK);
        for (head, (key, value)) in k.chunks_exact(dim).zip(v.chunks_exact(dim)).enumerate() {
            // SAFETY: in bounds by the assertion; this thread alone works on the slot, and other slots of the block are
            // other bytes.
            unsafe { self.store(self.blocks.at(block + head * region), slot.slot as usize, key, value) };
        }
    }
}

#[inline(always)]
fn normalise(values: &mut [f32], weight: &[f32], norm: Norm, dim: usize) {
    let span = if weight.len() == dim { dim } else { values.len() };
    for part in values.chunks_exact_mut(span) {
        rms_norm_in_place(part, weight, norm);
    }
}

#[inline(always)]
fn rotate(head: &mut [f32], cos: &[f32], sin: &[f32], pairing: Pairing) {
    let pairs = cos.len();
    match pairing {
        Pairing::Half => {
            let (a, rest) = head.split_at_mut(pairs);
            let b = &mut rest[..pairs];
            for i in 0..pairs {
                (a[i], b[i]) = (a[i] * cos[i] - b[i] * sin[i], b[i] * cos[i] + a[i] * sin[i]);
            }
        }
        Pairing::Interleaved => {
            for (pair, (cos, sin)) in head.as_chunks_mut::<2>().0.iter_mut().zip(cos.iter().zip(sin)) {
                *pair = [pair[0] * cos - pair[1] * sin, pair[1] * cos + pair[0] * sin];
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[should_panic(expected = "the same KV slot")]
    fn a_slot_that_two_rows_would_write_to_is_refused() {
        let slot = |block, slot| KvSlot { block, slot };
        DistinctSlots::new(&[slot(1, 2), slot(2, 1), slot(1, 2)], &mut Vec::new());
    }
}
