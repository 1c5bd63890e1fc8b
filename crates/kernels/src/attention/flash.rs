//! The walk over key tiles for integer formats, written once; an instruction set supplies three loops.
//!
//! Per row and tile of 64 keys:
//! ```text
//! s[j] = (q . k[j]) * q_scale * k_scale[j]        in units of log2, softcapped, masked
//! m'   = max(m, s),  c = 2^(m - m'),  p[j] = 2^(s[j] - m'),  l' = l * c + sum p
//! w[j] = round(p[j] * v_scale[j] / t),  t = max(p * v_scale) / 8191
//! o'   = o * c + t * (w . v)
//! ```

#![allow(unsafe_code, reason = "reads KV blocks through their addresses")]

use std::marker::PhantomData;

use super::{Item, KEYS, ROWS};
use crate::elementwise::tanh;
use crate::kv::BLOCK;

/// Raw scores of a row group.
pub(crate) type Scores = [[i32; KEYS]; ROWS];
/// Rounded weights of a row group.
pub(crate) type Weights = [[i16; KEYS]; ROWS];

/// Largest rounded weight: 64 x 8191 x 4095 stays below 2^31.
pub(crate) const TOP_WEIGHT: f32 = 8191.0;
/// Running maximum before any key: finite, so that differences stay numbers.
const NO_SCORE: f32 = -1e30;

/// Storage of a key or value entry.
pub(crate) trait Element: Copy {
    /// Widened.
    fn wide(self) -> i32;
}

impl Element for i16 {
    #[inline(always)]
    fn wide(self) -> i32 {
        i32::from(self)
    }
}

impl Element for i8 {
    #[inline(always)]
    fn wide(self) -> i32 {
        i32::from(self)
    }
}

/// Two blocks' regions: a tile of keys or values.
#[derive(Clone, Copy)]
pub(crate) struct Tile<E> {
    pub halves: [*const E; 2],
}

/// What a row carries from tile to tile.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Running {
    pub max: f32,
    pub sum: f32,
}

/// One row's softmax step over a tile.
pub(crate) struct Soften<'a> {
    /// Query scale times score scale, in units of log2 (before the softcap if there is one).
    pub scale: f32,
    pub softcap: Option<Softcap>,
    /// Keys of the tile this row sees.
    pub from: usize,
    pub to: usize,
    pub key_scales: &'a [f32; KEYS],
    pub value_scales: &'a [f32; KEYS],
}

/// `cap * tanh(s / cap)`, result in units of log2.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Softcap {
    pub cap: f32,
}

impl Softcap {
    #[inline(always)]
    pub(crate) fn apply(self, score: f32) -> f32 {
        self.cap * std::f32::consts::LOG2_E * tanh(score / self.cap)
    }
}

/// How old and new parts of a row's result combine.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Merge {
    /// Factor of the old part.
    pub keep: f32,
    /// Factor of the integer product.
    pub scale: f32,
}

/// The loops of one instruction set.
///
/// # Safety
/// Implementations may need instructions; callers must be compiled for, and run on, a CPU that has them.
pub(crate) trait Loops {
    /// `out[row][j] = q[row] . key[j]` for `rows` rows of `pairs` dim pairs.
    unsafe fn scores<E: Element>(q: *const i16, pairs: usize, rows: usize, keys: Tile<E>, out: &mut Scores);

    /// One row's softmax step.
    unsafe fn soften(
        step: &Soften<'_>,
        scores: &[i32; KEYS],
        state: &mut Running,
        out: &mut [i16; KEYS],
    ) -> Merge;

    /// `o[row] = o[row] * keep + scale * (w[row] . values)`, `dims` a multiple of 16, `o` rows `dims` apart.
    unsafe fn weigh<E: Element>(
        weights: &Weights,
        rows: usize,
        values: Tile<E>,
        dims: usize,
        merge: &[Merge; ROWS],
        o: *mut f32,
    );
}

/// An item's working memory, cut from the worker's scratch.
struct Work<'a> {
    /// `[row][padded dim]`.
    o: &'a mut [f32],
    running: &'a mut [Running],
    /// `[row][even dim]`.
    q: &'a mut [i16],
}

/// Computes an item whose blocks hold `E`.
///
/// # Safety
/// As [`Loops`] says for `L`; the item's blocks must be of format `E`.
#[inline(always)]
pub(crate) unsafe fn attend<L: Loops, E: Element>(item: &Item<'_>, scratch: &mut [u8]) {
    let layout = item.attention.layout;
    let mut work = carve(item, scratch);
    load_queries(item, &mut work);
    let first_tile = item.first_key() / KEYS;
    for tile in first_tile..item.end_key().div_ceil(KEYS) {
        // SAFETY: passed on from this function's contract.
        unsafe { visit_tile::<L, E>(item, tile, &mut work) };
    }
    for row in 0..item.rows() {
        let o = &work.o[row * layout.padded_dim()..][..layout.head_dim];
        let inverse = 1.0 / work.running[row].sum;
        for (out, value) in item.output(row).iter_mut().zip(o) {
            *out = value * inverse;
        }
    }
}

#[inline(always)]
fn carve<'a>(item: &Item<'_>, scratch: &'a mut [u8]) -> Work<'a> {
    let layout = item.attention.layout;
    let rows = item.rows().next_multiple_of(ROWS);
    let (o, rest) = take::<f32>(scratch, rows * layout.padded_dim());
    let (running, rest) = take::<Running>(rest, rows);
    let (q, _) = take::<i16>(rest, rows * layout.head_dim.next_multiple_of(2));
    o.fill(0.0);
    q.fill(0);
    running.fill(Running { max: NO_SCORE, sum: 0.0 });
    Work { o, running, q }
}

/// Cuts `len` values off the front of the scratch.
#[inline(always)]
fn take<T: Copy>(scratch: &mut [u8], len: usize) -> (&mut [T], &mut [u8]) {
    let (front, rest) = scratch.split_at_mut((len * size_of::<T>()).next_multiple_of(64));
    assert!(front.as_ptr().align_offset(align_of::<T>()) == 0);
    // SAFETY: aligned and large enough; scratch bytes are initialised, and `T` here is made of plain numbers.
    (unsafe { std::slice::from_raw_parts_mut(front.as_mut_ptr().cast(), len) }, rest)
}

#[inline(always)]
fn load_queries(item: &Item<'_>, work: &mut Work<'_>) {
    let dim = item.attention.layout.head_dim;
    let even = dim.next_multiple_of(2);
    for row in 0..item.rows() {
        let from = item.query_index(row) * dim;
        work.q[row * even..row * even + dim]
            .copy_from_slice(&item.attention.queries.quants[from..from + dim]);
    }
}

/// One tile's addresses and scales.
struct TileView<E> {
    keys: Tile<E>,
    values: Tile<E>,
    key_scales: [f32; KEYS],
    value_scales: [f32; KEYS],
    entry: PhantomData<E>,
}

#[inline(always)]
unsafe fn view<E: Element>(item: &Item<'_>, tile: usize) -> TileView<E> {
    let at = item.attention.layout.offsets();
    let regions = [item.region(tile * 2), item.region(tile * 2 + 1)];
    let mut view = TileView {
        keys: Tile { halves: regions.map(<*const u8>::cast::<E>) },
        // SAFETY: offsets lie inside a region, whose bounds `Item::region` checked.
        values: Tile { halves: regions.map(|r| unsafe { r.add(at.values).cast::<E>() }) },
        key_scales: [0.0; KEYS],
        value_scales: [0.0; KEYS],
        entry: PhantomData,
    };
    for (half, region) in regions.into_iter().enumerate() {
        // SAFETY: as above; each scale area holds 32 aligned floats.
        let (k, v) = unsafe {
            let k = region.add(at.key_scales).cast::<[f32; BLOCK]>();
            let v = region.add(at.value_scales).cast::<[f32; BLOCK]>();
            (&*k, &*v)
        };
        view.key_scales[half * BLOCK..(half + 1) * BLOCK].copy_from_slice(k);
        view.value_scales[half * BLOCK..(half + 1) * BLOCK].copy_from_slice(v);
    }
    view
}

#[inline(always)]
unsafe fn visit_tile<L: Loops, E: Element>(item: &Item<'_>, tile: usize, work: &mut Work<'_>) {
    let layout = item.attention.layout;
    let (dims, even) = (layout.padded_dim(), layout.head_dim.next_multiple_of(2));
    let first_key = tile * KEYS;
    // SAFETY: passed on from the contract of `attend`.
    let view = unsafe { view::<E>(item, tile) };
    for first in (0..item.rows()).step_by(ROWS) {
        let rows = ROWS.min(item.rows() - first);
        if item.position(first + rows - 1) < first_key {
            continue;
        }
        let mut scores = [[0; KEYS]; ROWS];
        let mut weights = [[0; KEYS]; ROWS];
        let mut merge = [Merge::default(); ROWS];
        // SAFETY: rows and dims are inside the working memory cut for this item.
        unsafe {
            L::scores(work.q.as_ptr().add(first * even), even / 2, rows, view.keys, &mut scores);
            for row in 0..rows {
                let step = step_of(item, first + row, first_key, &view);
                let state = &mut work.running[first + row];
                merge[row] = L::soften(&step, &scores[row], state, &mut weights[row]);
            }
            L::weigh(&weights, rows, view.values, dims, &merge, work.o.as_mut_ptr().add(first * dims));
        }
    }
}

#[inline(always)]
fn step_of<'a, E>(item: &Item<'_>, row: usize, first_key: usize, view: &'a TileView<E>) -> Soften<'a> {
    let params = &item.attention.params;
    let position = item.position(row);
    let unit = if params.softcap.is_some() { 1.0 } else { std::f32::consts::LOG2_E };
    let clip = |key: usize| key.saturating_sub(first_key).min(KEYS);
    Soften {
        scale: item.attention.queries.scales[item.query_index(row)] * params.scale * unit,
        softcap: params.softcap.map(|cap| Softcap { cap }),
        from: clip(item.window_start(position)),
        to: clip(position + 1),
        key_scales: &view.key_scales,
        value_scales: &view.value_scales,
    }
}
