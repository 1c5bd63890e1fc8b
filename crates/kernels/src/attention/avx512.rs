//! AVX-512 with VNNI: both products by `vpdpwssd`, two 16-bit products a lane.
//!
//! ```text
//! scores: 6 rows x 64 keys = 6 x 4 registers of sums; per dim pair 4 loads of keys, 6 broadcasts, 24 products
//! weigh:  6 rows x 64 dims = 6 x 4 registers of sums; per key pair 4 loads of values, 6 broadcasts, 24 products
//! ```
//! Per row and tile of 64 keys at 64 dims: 256 products of 64 operations. Softmax takes six rows at once, a third of the time.

#![allow(unsafe_code, reason = "vector intrinsics over raw KV regions")]

use std::arch::x86_64::*;

use super::flash::{self, Element, Group, Loops, Merge, Scores, TOP_WEIGHT, Tile, TileScales, Weights};
use super::{Item, KEYS, ROWS};
use crate::kv::{BLOCK, KvFormat};

/// Registers that hold a tile's 64 keys.
const VECTORS: usize = KEYS / 16;

/// Computes one item.
///
/// # Safety
/// - The CPU must have AVX-512 F, BW, DQ, VL and VNNI.
/// - No other thread may work on the item's rows and heads meanwhile.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,f16c,fma")]
pub(crate) unsafe fn attend(item: &Item<'_>, scratch: &mut [u8]) {
    // SAFETY: passed on from this function's contract; the format chooses the entry type.
    unsafe {
        match item.attention.layout.format {
            KvFormat::Q8 => flash::attend::<Avx512, i8>(item, scratch),
            _ => flash::attend::<Avx512, i16>(item, scratch),
        }
    }
}

struct Avx512;

/// 32 entries as 16-bit lanes.
#[inline(always)]
unsafe fn load<E: Element>(at: *const E) -> __m512i {
    // SAFETY: 32 readable entries by the caller's contract.
    unsafe {
        if size_of::<E>() == 1 {
            _mm512_cvtepi8_epi16(_mm256_loadu_si256(at.cast()))
        } else {
            _mm512_loadu_si512(at.cast())
        }
    }
}

impl Loops for Avx512 {
    #[inline(always)]
    unsafe fn scores<E: Element>(q: *const i16, pairs: usize, rows: usize, keys: Tile<E>, out: &mut Scores) {
        // SAFETY: rows are 1..=6; sizes by the trait's contract.
        unsafe {
            match rows {
                1 => scores::<E, 1>(q, pairs, keys, out),
                2 => scores::<E, 2>(q, pairs, keys, out),
                3 => scores::<E, 3>(q, pairs, keys, out),
                _ => scores::<E, 6>(q, pairs, keys, out),
            }
        }
    }

    #[inline(always)]
    unsafe fn soften(
        tile: &TileScales,
        scores: &Scores,
        rows: usize,
        group: &mut Group,
        out: &mut Weights,
    ) -> [Merge; ROWS] {
        // SAFETY: rows are 1..=6; fixed-size arrays; instruction set by the trait's contract.
        unsafe {
            match rows {
                1 => soften::<1>(tile, scores, group, out),
                2 => soften::<2>(tile, scores, group, out),
                3 => soften::<3>(tile, scores, group, out),
                _ => soften::<6>(tile, scores, group, out),
            }
        }
    }

    #[inline(always)]
    unsafe fn weigh<E: Element>(
        weights: &Weights,
        rows: usize,
        values: Tile<E>,
        dims: usize,
        merge: &[Merge; ROWS],
        o: *mut f32,
    ) {
        // SAFETY: rows are 1..=6; sizes by the trait's contract.
        unsafe {
            match rows {
                1 => weigh_rows::<E, 1>(weights, values, dims, merge, o),
                2 => weigh_rows::<E, 2>(weights, values, dims, merge, o),
                3 => weigh_rows::<E, 3>(weights, values, dims, merge, o),
                _ => weigh_rows::<E, 6>(weights, values, dims, merge, o),
            }
        }
    }
}

#[inline(always)]
unsafe fn scores<E: Element, const R: usize>(q: *const i16, pairs: usize, keys: Tile<E>, out: &mut Scores) {
    // SAFETY: `q` holds `R * pairs` pairs and each key region `pairs * 32` pairs.
    unsafe {
        let mut sums = [[_mm512_setzero_si512(); VECTORS]; R];
        for pair in 0..pairs {
            let at = pair * BLOCK * 2;
            let keys = [
                load(keys.halves[0].add(at)),
                load(keys.halves[0].add(at + 32)),
                load(keys.halves[1].add(at)),
                load(keys.halves[1].add(at + 32)),
            ];
            for row in 0..R {
                let q = _mm512_set1_epi32(q.add((row * pairs + pair) * 2).cast::<i32>().read_unaligned());
                for v in 0..VECTORS {
                    sums[row][v] = _mm512_dpwssd_epi32(sums[row][v], keys[v], q);
                }
            }
        }
        for row in 0..R {
            for v in 0..VECTORS {
                _mm512_storeu_si512(out[row].as_mut_ptr().add(v * 16).cast(), sums[row][v]);
            }
        }
    }
}

/// `R` rows at once: what one row would wait for (its maximum, its sum, a division) is computed for all together.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,f16c,fma")]
unsafe fn soften<const R: usize>(
    tile: &TileScales,
    scores: &Scores,
    group: &mut Group,
    out: &mut Weights,
) -> [Merge; ROWS] {
    // SAFETY: all arrays have 64 entries per row and the group has six rows.
    unsafe {
        let mut s = [[_mm512_setzero_ps(); VECTORS]; R];
        let mut seen = [u64::MAX; R];
        let mut tops = [_mm512_setzero_ps(); SLOTS];
        for row in 0..R {
            let keys = group.seen(row, tile);
            seen[row] = seen_keys(keys.start, keys.end);
            s[row] = score_vectors(tile, group.scale[row], &scores[row]);
            tops[row] = _mm512_mul_ps(top_seen(&s[row], seen[row]), unit(tile, group.scale[row]));
        }
        let old = load_rows(&group.max);
        // The second operand wins where one is NaN.
        let most = _mm256_max_ps(across::<Max>(&tops), old);
        let keep = keep(old, most);
        store_rows(&mut group.max, most);

        let mut sums = [_mm512_setzero_ps(); SLOTS];
        for row in 0..R {
            let (unit, most) = (unit(tile, group.scale[row]), _mm512_set1_ps(group.max[row]));
            let mut p = [_mm512_setzero_ps(); VECTORS];
            for v in 0..VECTORS {
                p[v] = exp2(_mm512_fmsub_ps(s[row][v], unit, most));
                s[row][v] = _mm512_mul_ps(p[v], _mm512_loadu_ps(tile.values.as_ptr().add(v * 16)));
            }
            if seen[row] != u64::MAX {
                // Whatever lies in an unwritten slot.
                keep_seen(&mut p, seen[row]);
                keep_seen(&mut s[row], seen[row]);
            }
            sums[row] = _mm512_add_ps(_mm512_add_ps(p[0], p[1]), _mm512_add_ps(p[2], p[3]));
            tops[row] =
                _mm512_max_ps(_mm512_max_ps(s[row][0], s[row][1]), _mm512_max_ps(s[row][2], s[row][3]));
        }
        let sum = _mm256_fmadd_ps(load_rows(&group.sum), keep, across::<Sum>(&sums));
        store_rows(&mut group.sum, sum);
        round_weights(&s, keep, across::<Max>(&tops), out)
    }
}

/// What takes a row's scores to units of log2.
#[inline(always)]
unsafe fn unit(tile: &TileScales, scale: f32) -> __m512 {
    // SAFETY: register arithmetic only.
    unsafe { _mm512_set1_ps(if tile.softcap.is_some() { 1.0 } else { scale }) }
}

/// A row's scores in units of [`unit`].
#[inline(always)]
unsafe fn score_vectors(tile: &TileScales, scale: f32, scores: &[i32; KEYS]) -> [__m512; VECTORS] {
    // SAFETY: all arrays have 64 entries.
    unsafe {
        let mut s = [_mm512_setzero_ps(); VECTORS];
        for (v, s) in s.iter_mut().enumerate() {
            let raw = _mm512_cvtepi32_ps(_mm512_loadu_si512(scores.as_ptr().add(v * 16).cast()));
            *s = _mm512_mul_ps(raw, _mm512_loadu_ps(tile.keys.as_ptr().add(v * 16)));
        }
        let Some(cap) = tile.softcap else { return s };
        for s in &mut s {
            let mut lanes = [0f32; 16];
            _mm512_storeu_ps(lanes.as_mut_ptr(), *s);
            for lane in &mut lanes {
                *lane = cap.apply(*lane * scale);
            }
            *s = _mm512_loadu_ps(lanes.as_ptr());
        }
        s
    }
}

/// The largest of the seen scores, in each lane.
#[inline(always)]
unsafe fn top_seen(s: &[__m512; VECTORS], seen: u64) -> __m512 {
    // SAFETY: register arithmetic only.
    unsafe {
        if seen == u64::MAX {
            return _mm512_max_ps(_mm512_max_ps(s[0], s[1]), _mm512_max_ps(s[2], s[3]));
        }
        let mut top = _mm512_set1_ps(f32::MIN);
        for (v, s) in s.iter().enumerate() {
            top = _mm512_mask_max_ps(top, (seen >> (16 * v)) as u16, top, *s);
        }
        top
    }
}

/// Zero for keys that are not seen.
#[inline(always)]
unsafe fn keep_seen(x: &mut [__m512; VECTORS], seen: u64) {
    for (v, x) in x.iter_mut().enumerate() {
        // SAFETY: register arithmetic only.
        *x = unsafe { _mm512_maskz_mov_ps((seen >> (16 * v)) as u16, *x) };
    }
}

/// Factor of a row's past where its maximum grows.
#[inline(always)]
unsafe fn keep(old: __m256, most: __m256) -> __m256 {
    // SAFETY: register arithmetic only.
    unsafe {
        // Differences to "no score yet" are too large for `exp2`: anything this low is zero.
        let drop = _mm256_max_ps(_mm256_set1_ps(-1000.0), _mm256_sub_ps(old, most));
        _mm512_castps512_ps256(exp2(_mm512_castps256_ps512(drop)))
    }
}

/// Rows that [`across`] takes together.
const SLOTS: usize = 8;
/// The lanes of those that exist.
const REAL: u8 = (1 << ROWS) - 1;

#[inline(always)]
unsafe fn load_rows(from: &[f32; ROWS]) -> __m256 {
    // SAFETY: the mask ends with the array.
    unsafe { _mm256_maskz_loadu_ps(REAL, from.as_ptr()) }
}

#[inline(always)]
unsafe fn store_rows(to: &mut [f32; ROWS], rows: __m256) {
    // SAFETY: the mask ends with the array.
    unsafe { _mm256_mask_storeu_ps(to.as_mut_ptr(), REAL, rows) }
}

/// How lanes are combined.
trait Combine {
    unsafe fn two(a: __m256, b: __m256) -> __m256;
}

struct Max;
struct Sum;

impl Combine for Max {
    #[inline(always)]
    unsafe fn two(a: __m256, b: __m256) -> __m256 {
        // SAFETY: register arithmetic only.
        unsafe { _mm256_max_ps(a, b) }
    }
}

impl Combine for Sum {
    #[inline(always)]
    unsafe fn two(a: __m256, b: __m256) -> __m256 {
        // SAFETY: register arithmetic only.
        unsafe { _mm256_add_ps(a, b) }
    }
}

/// Combines the 16 lanes of each row into one; the tree is the same for every row. Halves, then pairs of rows
/// interleave: `a0 a1 a2 a3`, `b0 b1 b2 b3` become `a0+a2 b0+b2 a1+a3 b1+b3`, and so on.
#[inline(always)]
unsafe fn across<C: Combine>(rows: &[__m512; SLOTS]) -> __m256 {
    // SAFETY: register arithmetic only.
    unsafe {
        let mut x = [_mm256_setzero_ps(); SLOTS];
        for (x, row) in x.iter_mut().zip(rows) {
            *x = C::two(_mm512_castps512_ps256(*row), _mm512_extractf32x8_ps::<1>(*row));
        }
        for i in 0..4 {
            let (a, b) = (x[2 * i], x[2 * i + 1]);
            x[i] = C::two(_mm256_unpacklo_ps(a, b), _mm256_unpackhi_ps(a, b));
        }
        for i in 0..2 {
            let (a, b) = (x[2 * i], x[2 * i + 1]);
            x[i] = C::two(_mm256_shuffle_ps::<0b01_00_01_00>(a, b), _mm256_shuffle_ps::<0b11_10_11_10>(a, b));
        }
        let (a, b) = (x[0], x[1]);
        C::two(_mm256_permute2f128_ps::<0x20>(a, b), _mm256_permute2f128_ps::<0x31>(a, b))
    }
}

/// One bit per key of the tile.
#[inline(always)]
fn seen_keys(from: usize, to: usize) -> u64 {
    if to <= from {
        return 0;
    }
    (u64::MAX >> (64 - (to - from))) << from
}

/// `2^x` for finite x <= 0, to 3e-6 relative (weights are rounded to 1e-4 afterwards); NaN for NaN.
#[inline(always)]
unsafe fn exp2(x: __m512) -> __m512 {
    // SAFETY: register arithmetic only.
    unsafe {
        let n = _mm512_roundscale_ps::<{ _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC }>(x);
        let f = _mm512_sub_ps(x, n);
        let mut p = _mm512_set1_ps(9.582_853e-3);
        p = _mm512_fmadd_ps(p, f, _mm512_set1_ps(5.590_642_7e-2));
        p = _mm512_fmadd_ps(p, f, _mm512_set1_ps(2.402_409_9e-1));
        p = _mm512_fmadd_ps(p, f, _mm512_set1_ps(6.931_242e-1));
        p = _mm512_fmadd_ps(p, f, _mm512_set1_ps(1.0));
        _mm512_scalef_ps(p, n)
    }
}

/// Rounds weights to 13 bits of each row's largest.
#[inline(always)]
unsafe fn round_weights<const R: usize>(
    w: &[[__m512; VECTORS]; R],
    keep: __m256,
    most: __m256,
    out: &mut Weights,
) -> [Merge; ROWS] {
    // SAFETY: all arrays have 64 entries per row.
    unsafe {
        let some = _mm256_cmp_ps_mask::<_CMP_GT_OQ>(most, _mm256_setzero_ps());
        let (mut inverse, mut scale, mut kept) = ([0f32; SLOTS], [0f32; SLOTS], [0f32; SLOTS]);
        let top = _mm256_set1_ps(TOP_WEIGHT);
        _mm256_storeu_ps(inverse.as_mut_ptr(), _mm256_maskz_div_ps(some, top, most));
        _mm256_storeu_ps(scale.as_mut_ptr(), _mm256_div_ps(most, top));
        _mm256_storeu_ps(kept.as_mut_ptr(), keep);
        let mut merge = [Merge::default(); ROWS];
        for row in 0..R {
            merge[row] = Merge { keep: kept[row], scale: scale[row] };
            let inverse = _mm512_set1_ps(inverse[row]);
            for (v, w) in w[row].iter().enumerate() {
                let rounded = _mm512_cvtps_epi32(_mm512_mul_ps(*w, inverse));
                _mm256_storeu_si256(out[row].as_mut_ptr().add(v * 16).cast(), _mm512_cvtepi32_epi16(rounded));
            }
        }
        merge
    }
}

#[inline(always)]
unsafe fn weigh_rows<E: Element, const R: usize>(
    weights: &Weights,
    values: Tile<E>,
    dims: usize,
    merge: &[Merge; ROWS],
    o: *mut f32,
) {
    let mut first = 0;
    // SAFETY: `first + 16 * width <= dims` in every call.
    unsafe {
        while first + 64 <= dims {
            weigh::<E, R, 4>(weights, values, (dims, first), merge, o);
            first += 64;
        }
        while first < dims {
            weigh::<E, R, 1>(weights, values, (dims, first), merge, o);
            first += 16;
        }
    }
}

/// `R` rows by `16 * W` dims.
#[inline(always)]
unsafe fn weigh<E: Element, const R: usize, const W: usize>(
    weights: &Weights,
    values: Tile<E>,
    (dims, first): (usize, usize),
    merge: &[Merge; ROWS],
    o: *mut f32,
) {
    // SAFETY: value regions hold 16 pairs of `dims` entries; `o` holds `R` rows of `dims` floats.
    unsafe {
        let mut sums = [[_mm512_setzero_si512(); W]; R];
        for pair in 0..KEYS / 2 {
            let half = values.halves[pair / (BLOCK / 2)];
            let at = half.add((pair % (BLOCK / 2) * dims + first) * 2);
            let mut v = [_mm512_setzero_si512(); W];
            for (i, v) in v.iter_mut().enumerate() {
                *v = load(at.add(i * 32));
            }
            for row in 0..R {
                let two = weights[row].as_ptr().add(pair * 2).cast::<i32>().read_unaligned();
                let two = _mm512_set1_epi32(two);
                for i in 0..W {
                    sums[row][i] = _mm512_dpwssd_epi32(sums[row][i], v[i], two);
                }
            }
        }
        for row in 0..R {
            let (keep, scale) = (_mm512_set1_ps(merge[row].keep), _mm512_set1_ps(merge[row].scale));
            for i in 0..W {
                let at = o.add(row * dims + first + i * 16);
                let new = _mm512_mul_ps(_mm512_cvtepi32_ps(sums[row][i]), scale);
                _mm512_storeu_ps(at, _mm512_fmadd_ps(_mm512_loadu_ps(at), keep, new));
            }
        }
    }
}
