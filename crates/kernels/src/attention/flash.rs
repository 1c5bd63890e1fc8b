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

use std::ops::Range;

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

/// The rows a kernel handles together: what each is, and what it carries from tile to tile. Spare rows see nothing.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Group {
    /// Query scale times score scale, in units of log2 (before the softcap if there is one).
    pub scale: [f32; ROWS],
    /// Key positions seen: from here,
    pub from: [u32; ROWS],
    /// up to here, exclusive.
    pub to: [u32; ROWS],
    /// Largest score so far.
    pub max: [f32; ROWS],
    /// Sum of `2^(score - max)` so far.
    pub sum: [f32; ROWS],
}

impl Group {
    const EMPTY: Self =
        Self { scale: [0.0; ROWS], from: [0; ROWS], to: [0; ROWS], max: [NO_SCORE; ROWS], sum: [0.0; ROWS] };

    /// The keys of a tile that a row sees.
    #[inline(always)]
    pub(crate) fn seen(&self, row: usize, tile: &TileScales) -> Range<usize> {
        let clip = |key: u32| (key as usize).saturating_sub(tile.first_key).min(KEYS);
        clip(self.from[row])..clip(self.to[row])
    }
}

/// What softmax needs to know of a tile.
pub(crate) struct TileScales {
    /// Position of its first key.
    pub first_key: usize,
    pub softcap: Option<Softcap>,
    pub keys: [f32; KEYS],
    pub values: [f32; KEYS],
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

    /// The softmax step of the first `rows` rows of a group: rounded weights, and how to merge them.
    unsafe fn soften(
        tile: &TileScales,
        scores: &Scores,
        rows: usize,
        group: &mut Group,
        out: &mut Weights,
    ) -> [Merge; ROWS];

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
    groups: &'a mut [Group],
    /// `[row][even dim]`.
    q: &'a mut [i16],
}

/// Computes an item whose blocks hold `E`.
///
/// # Safety
/// - As [`Loops`] says for `L`; the item's blocks must be of format `E`.
/// - No other thread may work on the item's rows and heads meanwhile.
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
        let inverse = 1.0 / work.groups[row / ROWS].sum[row % ROWS];
        // SAFETY: passed on from this function's contract; the only borrow of this row.
        let out = unsafe { item.output(row) };
        for (out, value) in out.iter_mut().zip(o) {
            *out = value * inverse;
        }
    }
}

#[inline(always)]
fn carve<'a>(item: &Item<'_>, scratch: &'a mut [u8]) -> Work<'a> {
    let layout = item.attention.layout;
    let rows = item.rows().next_multiple_of(ROWS);
    let (o, rest) = take::<f32>(scratch, rows * layout.padded_dim());
    let (groups, rest) = take::<Group>(rest, rows / ROWS);
    let (q, _) = take::<i16>(rest, rows * layout.head_dim.next_multiple_of(2));
    o.fill(0.0);
    q.fill(0);
    groups.fill(Group::EMPTY);
    Work { o, groups, q }
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
    let (dim, params) = (item.attention.layout.head_dim, &item.attention.params);
    let even = dim.next_multiple_of(2);
    let unit = if params.softcap.is_some() { 1.0 } else { std::f32::consts::LOG2_E };
    for row in 0..item.rows() {
        let (query, position) = (item.query_index(row), item.position(row));
        let (group, slot) = (&mut work.groups[row / ROWS], row % ROWS);
        group.scale[slot] = item.attention.queries.scales[query] * params.scale * unit;
        group.from[slot] = item.window_start(position) as u32;
        group.to[slot] = position as u32 + 1;
        let from = query * dim;
        work.q[row * even..row * even + dim]
            .copy_from_slice(&item.attention.queries.quants[from..from + dim]);
    }
}

/// One tile's addresses and scales.
struct TileView<E> {
    keys: Tile<E>,
    values: Tile<E>,
    scales: TileScales,
}

#[inline(always)]
unsafe fn view<E: Element>(item: &Item<'_>, tile: usize) -> TileView<E> {
    let at = item.attention.layout.offsets();
    let regions = [item.region(tile * 2), item.region(tile * 2 + 1)];
    let mut view = TileView {
        keys: Tile { halves: regions.map(<*const u8>::cast::<E>) },
        // SAFETY: offsets lie inside a region, whose bounds `Item::region` checked.
        values: Tile { halves: regions.map(|r| unsafe { r.add(at.values).cast::<E>() }) },
        scales: TileScales {
            first_key: tile * KEYS,
            softcap: item.attention.params.softcap.map(|cap| Softcap { cap }),
            keys: [0.0; KEYS],
            values: [0.0; KEYS],
        },
    };
    for (half, region) in regions.into_iter().enumerate() {
        // SAFETY: as above; each scale area holds 32 aligned floats.
        let (k, v) = unsafe {
            let k = region.add(at.key_scales).cast::<[f32; BLOCK]>();
            let v = region.add(at.value_scales).cast::<[f32; BLOCK]>();
            (&*k, &*v)
        };
        view.scales.keys[half * BLOCK..(half + 1) * BLOCK].copy_from_slice(k);
        view.scales.values[half * BLOCK..(half + 1) * BLOCK].copy_from_slice(v);
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
        // SAFETY: rows and dims are inside the working memory cut for this item.
        unsafe {
            L::scores(work.q.as_ptr().add(first * even), even / 2, rows, view.keys, &mut scores);
            let group = &mut work.groups[first / ROWS];
            let merge = L::soften(&view.scales, &scores, rows, group, &mut weights);
            L::weigh(&weights, rows, view.values, dims, &merge, work.o.as_mut_ptr().add(first * dims));
        }
    }
}
