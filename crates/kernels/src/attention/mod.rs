//! Causal attention of ragged chunks over paged keys and values, without ever forming the score matrix.
//!
//! Work is cut into items of one KV head and a tile of query positions. A query row walks the keys in tiles of 64 at
//! fixed positions, keeping a running maximum, sum and weighted value; rows never look at each other, so a
//! row's bits are the same alone, batched, chunked or resumed. Integer formats compute both products in
//! integers: scores `q . k` exactly, and `p . v` with the probabilities of a tile rounded to 13 bits.

#![allow(unsafe_code, reason = "reads KV blocks through their addresses; items write disjoint outputs")]

#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx512;
mod flash;
mod float;
mod plain;
mod product;
pub mod reference;
pub mod whole;

use std::ops::Range;

use crate::compute::Compute;
use crate::isa::{Isa, Level};
use crate::kv::{BLOCK, KvFormat, KvLayout};
use crate::memory::{Buffer, SharedMut};

/// Keys of a tile: two blocks.
pub(crate) const KEYS: usize = 2 * BLOCK;
/// Positions before a row's window that its first tile may touch; they count for nothing.
pub const SLACK: usize = KEYS - 1;
/// Query rows a kernel handles together.
pub(crate) const ROWS: usize = 6;
/// Query rows of an item, about: enough to read a key tile from L1 many times.
const ITEM_ROWS: usize = 48;
/// What reading keys and values costs an item, in rows computed with them. Measured at 20,000 positions on 16 threads, which
/// read them from memory: an item of 48 rows took 1.9 times as long as one of 16.
const READING: usize = 20;

/// What is the same for every row of a layer.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AttentionParams {
    /// Query heads; a multiple of the layout's KV heads.
    pub heads: usize,
    /// Factor of `q . k`.
    pub scale: f32,
    /// `cap * tanh(score / cap)`, if there.
    pub softcap: Option<f32>,
    /// Only the latest so many keys are seen, the query's own included.
    pub window: Option<usize>,
}

/// Consecutive positions of one sequence.
#[derive(Clone, Debug)]
pub struct Span {
    /// Row of its first token in queries and output.
    pub first_row: usize,
    /// Position of its first token.
    pub start: usize,
    /// How many tokens.
    pub len: usize,
    /// Its block table from position 0 on, as a range of [`Attention::tables`].
    pub table: Range<usize>,
}

/// Queries on their way into attention.
#[derive(Debug)]
pub struct Queries {
    /// `[row][head][dim]`, for integer formats.
    pub(crate) quants: Buffer<i16>,
    /// `[row][head]`.
    pub(crate) scales: Buffer<f32>,
    /// `[row][head][dim]`, for the float format.
    pub(crate) floats: Buffer<f32>,
}

impl Queries {
    /// Room for `rows` tokens of `heads` queries.
    pub fn with_capacity(rows: usize, heads: usize, layout: KvLayout) -> Self {
        let values = rows * heads * layout.head_dim;
        let float = layout.format == KvFormat::F32;
        Self {
            quants: Buffer::zeroed(if float { 0 } else { values }),
            scales: Buffer::zeroed(if float { 0 } else { rows * heads }),
            floats: Buffer::zeroed(if float { values } else { 0 }),
        }
    }
}

/// Everything one layer's attention reads.
#[derive(Clone, Copy)]
pub struct Attention<'a> {
    /// Shape of the blocks.
    pub layout: KvLayout,
    /// Constants of the layer.
    pub params: AttentionParams,
    /// The layer's blocks.
    pub kv: &'a [u8],
    /// Block tables of all chunks.
    pub tables: &'a [u32],
    /// The chunks.
    pub spans: &'a [Span],
    /// Their queries.
    pub queries: &'a Queries,
}

/// One item: a KV head and a tile of a span's positions.
#[derive(Clone, Copy)]
pub(crate) struct Item<'a> {
    pub attention: &'a Attention<'a>,
    pub span: &'a Span,
    pub kv_head: usize,
    /// Query heads of this item, relative to the KV head's first.
    pub head_first: usize,
    pub head_count: usize,
    /// Positions of this item, relative to the span's start.
    pub first: usize,
    pub count: usize,
    pub out: SharedMut<'a, f32>,
}

impl Item<'_> {
    /// Query heads that share a KV head.
    pub(crate) fn group(&self) -> usize {
        self.attention.params.heads / self.attention.layout.kv_heads
    }

    pub(crate) fn rows(&self) -> usize {
        self.count * self.head_count
    }

    /// Position of an item row.
    pub(crate) fn position(&self, row: usize) -> usize {
        self.span.start + self.first + row / self.head_count
    }

    /// Index of an item row among all (token, head) pairs.
    pub(crate) fn query_index(&self, row: usize) -> usize {
        let token = self.span.first_row + self.first + row / self.head_count;
        token * self.attention.params.heads
            + self.kv_head * self.group()
            + self.head_first
            + row % self.head_count
    }

    /// First key position that the earliest row of the item sees.
    pub(crate) fn first_key(&self) -> usize {
        self.window_start(self.span.start + self.first)
    }

    /// First key position a query at `position` sees.
    pub(crate) fn window_start(&self, position: usize) -> usize {
        self.attention.params.window.map_or(0, |window| (position + 1).saturating_sub(window))
    }

    /// One past the last key position that the latest row sees.
    pub(crate) fn end_key(&self) -> usize {
        self.span.start + self.first + self.count
    }

    /// The region of this head in the block that holds key position `block * 32`; the last known block where
    /// the table ends (those keys are masked).
    pub(crate) fn region(&self, block: usize) -> *const u8 {
        let layout = self.attention.layout;
        let table = &self.attention.tables[self.span.table.clone()];
        let id = table[block.min(table.len() - 1)] as usize;
        let at = id * layout.block_bytes() + self.kv_head * layout.region_bytes();
        self.attention.kv[at..at + layout.region_bytes()].as_ptr()
    }

    /// Where an item row's result goes.
    ///
    /// # Safety
    /// Nothing else may refer to the same row's result during the returned borrow.
    #[allow(clippy::mut_from_ref, reason = "disjoint parts are handed out by contract")]
    pub(crate) unsafe fn output(&self, row: usize) -> &mut [f32] {
        let dim = self.attention.layout.head_dim;
        // SAFETY: passed on from this function's contract.
        unsafe { self.out.slice(self.query_index(row) * dim, dim) }
    }
}

/// Worker scratch that attention of this shape needs.
pub fn scratch_bytes(layout: KvLayout, heads: usize) -> usize {
    let group = heads / layout.kv_heads;
    let rows = (ITEM_ROWS + group).next_multiple_of(ROWS);
    rows * (layout.padded_dim() * 4 + layout.head_dim.next_multiple_of(2) * 2 + 32) + 4096
}

/// Computes `out[row][head][dim]` for all rows of all spans.
///
/// # Panics
/// If two spans share a row, or do not follow each other.
pub fn attend(compute: &mut Compute, attention: &Attention<'_>, out: &mut [f32]) {
    let apart = attention.spans.windows(2).all(|pair| pair[0].first_row + pair[0].len <= pair[1].first_row);
    assert!(apart, "spans share rows");
    let isa = compute.isa();
    let plan = Plan::new(attention, compute.threads());
    let out = SharedMut::of(out);
    compute.for_each(plan.items, 1, &|items, scratch| {
        for index in items {
            // SAFETY: spans were found not to overlap, so items cover disjoint (row, head) pairs.
            unsafe { run_item(isa, &plan.item(attention, index, out), scratch) };
        }
    });
}

/// # Safety
/// No other thread may work on the item's rows and heads meanwhile.
unsafe fn run_item(isa: Isa, item: &Item<'_>, scratch: &mut [u8]) {
    let format = item.attention.layout.format;
    // SAFETY: the level proves the instruction set; the rest is passed on from this function's contract.
    unsafe {
        if format == KvFormat::F32 {
            return float::attend(isa, item);
        }
        match isa.level() {
            #[cfg(target_arch = "x86_64")]
            Level::Avx2 => avx2::attend(item, scratch),
            #[cfg(target_arch = "x86_64")]
            Level::Avx512Vnni => avx512::attend(item, scratch),
            _ => plain::attend(item, scratch),
        }
    }
}

/// How a batch's attention is cut into items; later positions, which see more keys, come first.
struct Plan {
    items: usize,
    /// Positions of an item.
    tile: usize,
    /// Query heads of an item.
    heads: usize,
}

impl Plan {
    fn new(attention: &Attention<'_>, threads: usize) -> Self {
        let group = attention.params.heads / attention.layout.kv_heads;
        let tile = (ITEM_ROWS / group).max(1);
        let tiles: usize = attention.spans.iter().map(|span| span.len.div_ceil(tile)).sum();
        let longest = attention.spans.iter().map(|span| span.len).max().unwrap_or(0).min(tile);
        let count = |heads: usize| tiles * attention.layout.kv_heads * group.div_ceil(heads);
        // Time until the last worker is done, in rows.
        let time = |heads: usize| {
            let rows = (longest * heads).next_multiple_of(ROWS);
            count(heads).div_ceil(threads) * (rows + READING)
        };
        // With few positions there are too few KV heads for all workers: query heads may be split as well.
        let heads = if time(1) < time(group) { 1 } else { group };
        Self { items: count(heads), tile, heads }
    }

    fn item<'a>(&self, attention: &'a Attention<'a>, index: usize, out: SharedMut<'a, f32>) -> Item<'a> {
        let group = attention.params.heads / attention.layout.kv_heads;
        let head_parts = group.div_ceil(self.heads);
        let parts = attention.layout.kv_heads * head_parts;
        let (mut tile, part) = (index / parts, index % parts);
        for span in attention.spans {
            let tiles = span.len.div_ceil(self.tile);
            if tile >= tiles {
                tile -= tiles;
                continue;
            }
            let first = (tiles - 1 - tile) * self.tile;
            let head_first = part % head_parts * self.heads;
            return Item {
                attention,
                span,
                kv_head: part / head_parts,
                head_first,
                head_count: self.heads.min(group - head_first),
                first,
                count: self.tile.min(span.len - first),
                out,
            };
        }
        unreachable!("item index beyond the plan")
    }
}
