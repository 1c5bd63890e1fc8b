//! Attention of whole texts in both directions, in f32, on the projections themselves: no cache, nothing rounded.
//!
//! For encoders, whose tokens see what comes after them too and whose texts are computed once, whole. Texts stand one
//! after the other without padding; an item of work is one head of up to 96 queries of one text, and looks at no other
//! text. Per group of six queries:
//! ```text
//! s[j] = q . k[j] * scale + bias[j - i]       over tiles of 32 keys; keys outside the window are masked
//! p[j] = 2^(s[j] - max s),  out = (sum of p[j] * v[j]) / sum of p[j]
//! ```
//! Keys are first laid out as `[tile][dim][32 keys]`, values as `[key][dim padded to 32]`, in the worker's scratch: both
//! products then stream them through the same tile (`product.rs`). Items, groups and tiles start at fixed places of a
//! text, so a row's bits depend on its text alone.

#![allow(unsafe_code, reason = "items write disjoint outputs; scratch is cut into arrays of floats")]

use std::ops::Range;

use super::product::{COLUMNS, Operands, ProductFn, ROWS, Tile, product_fn};
use crate::compute::Compute;
use crate::elementwise::exp2;
use crate::isa::Isa;
use crate::memory::SharedMut;
use crate::vectorise::{Loop, vectorised};

/// Queries of an item: a multiple of the group, and enough of them to make laying out the keys cheap.
const ITEM_QUERIES: usize = 96;
/// Items handed to a worker at once: short texts make an item of a few microseconds.
const GRAIN: usize = 4;
/// Lanes of every reduction.
const LANES: usize = 16;

/// What is the same for every row of a layer.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct WholeParams<'a> {
    /// Heads, of queries, keys and values alike.
    pub heads: usize,
    /// Values of a head.
    pub head_dim: usize,
    /// Factor of `q . k`.
    pub scale: f32,
    /// Only keys at most this far away are seen, on either side.
    pub reach: Option<usize>,
    /// Added to the scores, if there.
    pub bias: Option<DistanceBias<'a>>,
}

/// A number per head and distance, added to the scaled scores.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct DistanceBias<'a> {
    /// `[head][distance + longest - 1]`, distances being key position minus query position.
    pub values: &'a [f32],
    /// The longest text they serve.
    pub longest: usize,
}

impl<'a> DistanceBias<'a> {
    /// The biases of one head for a query at `position`, from key 0 on.
    fn row(&self, head: usize, position: usize) -> &'a [f32] {
        let distances = 2 * self.longest - 1;
        &self.values[head * distances..(head + 1) * distances][self.longest - 1 - position..]
    }
}

/// Everything one layer's attention reads.
#[derive(Clone, Copy)]
pub struct Whole<'a> {
    /// Constants of the layer.
    pub params: WholeParams<'a>,
    /// `[row][queries | keys | values]`.
    pub projections: &'a [f32],
    /// The rows of each text.
    pub texts: &'a [Range<usize>],
}

/// Worker scratch that attention over texts of up to `longest` tokens needs.
pub fn scratch_bytes(longest: usize, head_dim: usize) -> usize {
    let keys = longest.next_multiple_of(COLUMNS);
    (keys * (head_dim + head_dim.next_multiple_of(COLUMNS) + ROWS) + ROWS * head_dim) * 4 + 256
}

/// Computes `out[row][head][dim]` for all rows of all texts.
///
/// # Panics
/// If texts overlap, or reach beyond the arrays.
pub fn attend(compute: &mut Compute, whole: &Whole<'_>, out: &mut [f32]) {
    let params = &whole.params;
    let width = params.heads * params.head_dim;
    for text in whole.texts {
        assert!(
            text.end * 3 * width <= whole.projections.len() && text.end * width <= out.len(),
            "rows missing"
        );
        assert!(params.bias.is_none_or(|bias| text.len() <= bias.longest), "text longer than the bias");
    }
    let apart = whole.texts.windows(2).all(|pair| pair[0].end <= pair[1].start);
    assert!(apart, "texts share rows");
    let isa = compute.isa();
    let product = product_fn(isa);
    let items: usize = whole.texts.iter().map(blocks).sum::<usize>() * params.heads;
    let out = SharedMut::of(out);
    compute.for_each(items, GRAIN, &|items, scratch| {
        for index in items {
            let (text, block, head) = locate(whole, index);
            let item = Item { isa, product, whole, text, head, out };
            // SAFETY: texts were found not to overlap, so items cover disjoint (row, head) pairs.
            unsafe { item.run(block * ITEM_QUERIES, scratch) };
        }
    });
}

fn blocks(text: &Range<usize>) -> usize {
    text.len().div_ceil(ITEM_QUERIES)
}

/// The text, block of queries and head of an item.
fn locate(whole: &Whole<'_>, index: usize) -> (Range<usize>, usize, usize) {
    let (mut block, head) = (index / whole.params.heads, index % whole.params.heads);
    for text in whole.texts {
        if block < blocks(text) {
            return (text.clone(), block, head);
        }
        block -= blocks(text);
    }
    unreachable!("item index beyond the texts")
}

struct Item<'a> {
    isa: Isa,
    product: ProductFn,
    whole: &'a Whole<'a>,
    text: Range<usize>,
    head: usize,
    out: SharedMut<'a, f32>,
}

/// An item's working memory, cut from the worker's scratch.
struct Work<'a> {
    /// `[tile][dim][32 keys]`; zeros where the text ends.
    keys: &'a mut [f32],
    /// `[key][dim padded to 32]`.
    values: &'a mut [f32],
    /// `[6 queries][key]`: scores, then weights.
    scores: &'a mut [f32],
    /// `[6 queries][dim]`, scaled.
    queries: &'a mut [f32],
}

impl Item<'_> {
    /// # Safety
    /// No other thread may work on this head of the rows from `first` on meanwhile.
    unsafe fn run(&self, first: usize, scratch: &mut [u8]) {
        let mut work = self.carve(scratch);
        vectorised(self.isa, LayOut { item: self, work: &mut work });
        let end = (first + ITEM_QUERIES).min(self.text.len());
        for query in (first..end).step_by(ROWS) {
            // SAFETY: passed on from this function's contract.
            unsafe { self.group(query, ROWS.min(end - query), &mut work) };
        }
    }

    fn carve<'s>(&self, scratch: &'s mut [u8]) -> Work<'s> {
        let dim = self.whole.params.head_dim;
        let keys = self.text.len().next_multiple_of(COLUMNS);
        // SAFETY: every bit pattern is a float.
        let (before, floats, _) = unsafe { scratch.align_to_mut::<f32>() };
        assert!(before.is_empty(), "scratch is aligned");
        let (key_part, rest) = floats.split_at_mut(keys * dim);
        let (value_part, rest) = rest.split_at_mut(keys * dim.next_multiple_of(COLUMNS));
        let (scores, rest) = rest.split_at_mut(keys * ROWS);
        Work { keys: key_part, values: value_part, scores, queries: &mut rest[..ROWS * dim] }
    }

    /// One head of a row: 0 for queries, 1 for keys, 2 for values.
    #[inline(always)]
    fn vector(&self, position: usize, part: usize) -> &[f32] {
        let (heads, dim) = (self.whole.params.heads, self.whole.params.head_dim);
        let row = (self.text.start + position) * 3 * heads * dim;
        &self.whole.projections[row + (part * heads + self.head) * dim..][..dim]
    }

    /// The keys that the queries `first..first + rows` see, all of them together.
    fn seen(&self, first: usize, rows: usize) -> Range<usize> {
        match self.whole.params.reach {
            Some(reach) => first.saturating_sub(reach)..(first + rows + reach).min(self.text.len()),
            None => 0..self.text.len(),
        }
    }

    /// Up to six queries of one head.
    ///
    /// # Safety
    /// As for [`run`](Self::run), of the rows from `first` on.
    unsafe fn group(&self, first: usize, rows: usize, work: &mut Work<'_>) {
        let (dim, stride) = (self.whole.params.head_dim, self.text.len().next_multiple_of(COLUMNS));
        let factor = self.whole.params.scale * std::f32::consts::LOG2_E;
        work.queries.fill(0.0);
        for row in 0..rows {
            let query = self.vector(first + row, 0);
            for (out, q) in work.queries[row * dim..].iter_mut().zip(query) {
                *out = q * factor;
            }
        }
        let seen = self.seen(first, rows);
        let tiles = seen.start / COLUMNS..seen.end.div_ceil(COLUMNS);
        for tile in tiles.clone() {
            let part = self.scores(tile, work);
            for (row, part) in part.iter().enumerate() {
                work.scores[row * stride + tile * COLUMNS..][..COLUMNS].copy_from_slice(part);
            }
        }
        let keys = tiles.start * COLUMNS..tiles.end * COLUMNS;
        let mut sums = [1.0; ROWS];
        for (row, sum) in sums[..rows].iter_mut().enumerate() {
            let seen = self.seen(first + row, 1);
            let bias = self.whole.params.bias.map(|bias| &bias.row(self.head, first + row)[..seen.end]);
            let scores = &mut work.scores[row * stride..][keys.clone()];
            *sum = vectorised(self.isa, Soften { scores, first: keys.start, seen, bias });
        }
        // SAFETY: passed on from this function's contract.
        unsafe { self.weigh(first, &sums[..rows], keys, work) };
    }

    fn scores(&self, tile: usize, work: &Work<'_>) -> Tile {
        let dim = self.whole.params.head_dim;
        let mut out = [[0.0; COLUMNS]; ROWS];
        let keys = &work.keys[tile * dim * COLUMNS..][..dim * COLUMNS];
        let operands = Operands {
            left: work.queries.as_ptr(),
            left_stride: dim,
            right: keys.as_ptr(),
            right_stride: COLUMNS,
            len: dim,
        };
        debug_assert!(work.queries.len() == ROWS * dim);
        // SAFETY: the ISA is proven by `Isa`; six queries of `dim` values, `dim` rows of 32 keys.
        unsafe { (self.product)(operands, &mut out) };
        out
    }

    /// `out[row] = weights[row] . values / sums[row]` over a range of keys.
    ///
    /// # Safety
    /// As for [`group`](Self::group).
    unsafe fn weigh(&self, first: usize, sums: &[f32], keys: Range<usize>, work: &Work<'_>) {
        let (heads, dim) = (self.whole.params.heads, self.whole.params.head_dim);
        let (stride, padded) = (self.text.len().next_multiple_of(COLUMNS), dim.next_multiple_of(COLUMNS));
        let mut tile = [[0.0; COLUMNS]; ROWS];
        for column in (0..dim).step_by(COLUMNS) {
            let operands = Operands {
                left: work.scores[keys.start..].as_ptr(),
                left_stride: stride,
                right: work.values[keys.start * padded + column..].as_ptr(),
                right_stride: padded,
                len: keys.len(),
            };
            debug_assert!(keys.end <= stride && work.values.len() >= keys.end * padded);
            // SAFETY: the ISA is proven by `Isa`; six rows of `stride` weights, `stride` rows of `padded` values.
            unsafe { (self.product)(operands, &mut tile) };
            let columns = COLUMNS.min(dim - column);
            for (row, sum) in sums.iter().enumerate() {
                let at = ((self.text.start + first + row) * heads + self.head) * dim + column;
                // SAFETY: this thread alone works on this head of the row.
                let out = unsafe { self.out.slice(at, columns) };
                for (out, value) in out.iter_mut().zip(&tile[row]) {
                    *out = value / sum;
                }
            }
        }
    }
}

/// Lays out a text's keys and values for the products.
struct LayOut<'i, 'w, 's> {
    item: &'i Item<'i>,
    work: &'w mut Work<'s>,
}

impl Loop for LayOut<'_, '_, '_> {
    type Output = ();

    #[inline(always)]
    fn run(self) {
        let Self { item, work } = self;
        let (dim, tokens) = (item.whole.params.head_dim, item.text.len());
        let padded = dim.next_multiple_of(COLUMNS);
        let last = tokens / COLUMNS * dim * COLUMNS;
        work.keys[last..].fill(0.0);
        for position in 0..tokens {
            let (tile, slot) = (position / COLUMNS, position % COLUMNS);
            let tile = &mut work.keys[tile * dim * COLUMNS..][..dim * COLUMNS];
            for (keys, key) in tile.as_chunks_mut::<COLUMNS>().0.iter_mut().zip(item.vector(position, 1)) {
                keys[slot] = *key;
            }
            let values = &mut work.values[position * padded..][..padded];
            values[..dim].copy_from_slice(item.vector(position, 2));
            values[dim..].fill(0.0);
        }
        // Their weights are zero, and zero times what scratch held before may not be.
        work.values[tokens * padded..].fill(0.0);
        // Rows without a query are multiplied too.
        work.scores.fill(0.0);
    }
}

/// From one row's scores to its weights; gives their sum.
struct Soften<'a> {
    /// Of the keys from `first` on, in whole tiles.
    scores: &'a mut [f32],
    first: usize,
    /// The keys that count.
    seen: Range<usize>,
    /// From key 0 on.
    bias: Option<&'a [f32]>,
}

impl Loop for Soften<'_> {
    type Output = f32;

    #[inline(always)]
    fn run(self) -> f32 {
        let Self { scores, first, seen, bias } = self;
        let inside = seen.start - first..seen.end - first;
        if let Some(bias) = bias {
            for (score, bias) in scores[inside.clone()].iter_mut().zip(&bias[seen]) {
                *score += bias * std::f32::consts::LOG2_E;
            }
        }
        scores[..inside.start].fill(f32::NEG_INFINITY);
        scores[inside.end..].fill(f32::NEG_INFINITY);
        let chunks = scores.as_chunks_mut::<LANES>().0;
        let mut lanes = [f32::NEG_INFINITY; LANES];
        for chunk in chunks.iter() {
            for (lane, &score) in lanes.iter_mut().zip(chunk) {
                *lane = if score > *lane { score } else { *lane };
            }
        }
        let most = lanes.iter().fold(f32::NEG_INFINITY, |most, &lane| if lane > most { lane } else { most });
        let mut sums = [0.0; LANES];
        for chunk in chunks {
            for (sum, score) in sums.iter_mut().zip(chunk) {
                let weight = exp2(*score - most);
                // 2^-127 stands for nothing, and would weigh a masked key.
                *score = if weight < f32::MIN_POSITIVE { 0.0 } else { weight };
                *sum += *score;
            }
        }
        let mut width = LANES / 2;
        while width > 0 {
            for lane in 0..width {
                sums[lane] += sums[lane + width];
            }
            width /= 2;
        }
        sums[0]
    }
}
