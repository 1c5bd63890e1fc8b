//! AVX-512 with VNNI: both products by `vpdpwssd`, two 16-bit products a lane.
//!
//! ```text
//! scores: 6 rows x 64 keys = 6 x 4 registers of sums; per dim pair 4 loads of keys, 6 broadcasts, 24 products
//! weigh:  6 rows x 64 dims = 6 x 4 registers of sums; per key pair 4 loads of values, 6 broadcasts, 24 products
//! ```
//! Per row and tile of 64 keys at 64 dims: 256 products of 64 operations, about 110 instructions of softmax.

#![allow(unsafe_code, reason = "vector intrinsics over raw KV regions")]

use std::arch::x86_64::*;

use super::flash::{self, Element, Loops, Merge, Running, Scores, Soften, TOP_WEIGHT, Tile, Weights};
use super::{Item, KEYS, ROWS};
use crate::kv::{BLOCK, KvFormat};

/// Registers that hold a tile's 64 keys.
const VECTORS: usize = KEYS / 16;

/// Computes one item.
///
/// # Safety
/// The CPU must have AVX-512 F, BW, DQ, VL and VNNI.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,f16c,fma")]
pub(crate) unsafe fn attend(item: &Item<'_>, scratch: &mut [u8]) {
    // SAFETY: instruction set by this function's contract; the format chooses the entry type.
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
        step: &Soften<'_>,
        scores: &[i32; KEYS],
        state: &mut Running,
        out: &mut [i16; KEYS],
    ) -> Merge {
        // SAFETY: fixed-size arrays; instruction set by the trait's contract.
        unsafe { soften(step, scores, state, out) }
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

#[inline(always)]
unsafe fn soften(
    step: &Soften<'_>,
    scores: &[i32; KEYS],
    state: &mut Running,
    out: &mut [i16; KEYS],
) -> Merge {
    // SAFETY: all arrays have 64 entries.
    unsafe {
        let mut s = score_vectors(step, scores);
        if step.from > 0 || step.to < KEYS {
            let seen = seen_keys(step.from, step.to);
            for (v, s) in s.iter_mut().enumerate() {
                let seen = (seen >> (16 * v)) as u16;
                *s = _mm512_mask_mov_ps(_mm512_set1_ps(f32::NEG_INFINITY), seen, *s);
            }
        }
        let top = _mm512_max_ps(_mm512_max_ps(s[0], s[1]), _mm512_max_ps(s[2], s[3]));
        let most = _mm512_reduce_max_ps(top).max(state.max);
        // Most tiles leave the maximum where it was.
        let keep = if most > state.max { crate::elementwise::exp2(state.max - most) } else { 1.0 };
        let most_all = _mm512_set1_ps(most);
        // Plain loops, not closures: a closure is compiled without this file's instruction sets.
        let mut p = s;
        for p in &mut p {
            *p = exp2(_mm512_sub_ps(*p, most_all));
        }
        let total = _mm512_add_ps(_mm512_add_ps(p[0], p[1]), _mm512_add_ps(p[2], p[3]));
        *state = Running { max: most, sum: state.sum * keep + _mm512_reduce_add_ps(total) };
        Merge { keep, scale: round_weights(p, step.value_scales, out) }
    }
}

#[inline(always)]
unsafe fn score_vectors(step: &Soften<'_>, scores: &[i32; KEYS]) -> [__m512; VECTORS] {
    // SAFETY: all arrays have 64 entries.
    unsafe {
        let scale = _mm512_set1_ps(step.scale);
        let mut s = [_mm512_setzero_ps(); VECTORS];
        for (v, s) in s.iter_mut().enumerate() {
            let raw = _mm512_cvtepi32_ps(_mm512_loadu_si512(scores.as_ptr().add(v * 16).cast()));
            let key_scale = _mm512_loadu_ps(step.key_scales.as_ptr().add(v * 16));
            *s = _mm512_mul_ps(raw, _mm512_mul_ps(scale, key_scale));
        }
        let Some(cap) = step.softcap else { return s };
        for s in &mut s {
            let mut lanes = [0f32; 16];
            _mm512_storeu_ps(lanes.as_mut_ptr(), *s);
            for lane in &mut lanes {
                *lane = cap.apply(*lane);
            }
            *s = _mm512_loadu_ps(lanes.as_ptr());
        }
        s
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

/// `2^x` for x <= 0, to 3e-6 relative (weights are rounded to 1e-4 afterwards); 0 for -infinity.
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
        // -infinity gives f = NaN; the scaling by 2^-infinity must give 0 all the same.
        let masked = _mm512_cmp_ps_mask::<_CMP_EQ_OQ>(n, _mm512_set1_ps(f32::NEG_INFINITY));
        _mm512_mask_mov_ps(_mm512_scalef_ps(p, n), masked, _mm512_setzero_ps())
    }
}

/// Folds the value scales in and rounds to 13 bits; returns the scale of the result.
#[inline(always)]
unsafe fn round_weights(p: [__m512; VECTORS], value_scales: &[f32; KEYS], out: &mut [i16; KEYS]) -> f32 {
    // SAFETY: all arrays have 64 entries.
    unsafe {
        let mut w = p;
        for (v, w) in w.iter_mut().enumerate() {
            // Masked keys have p = 0 and must stay 0 whatever lies in an unwritten slot.
            let seen = _mm512_cmp_ps_mask::<_CMP_GT_OQ>(*w, _mm512_setzero_ps());
            let scales = _mm512_loadu_ps(value_scales.as_ptr().add(v * 16));
            *w = _mm512_maskz_mul_ps(seen, *w, scales);
        }
        let top = _mm512_max_ps(_mm512_max_ps(w[0], w[1]), _mm512_max_ps(w[2], w[3]));
        let most = _mm512_reduce_max_ps(top);
        let inverse = _mm512_set1_ps(if most > 0.0 { TOP_WEIGHT / most } else { 0.0 });
        for (v, w) in w.into_iter().enumerate() {
            let rounded = _mm512_cvtps_epi32(_mm512_mul_ps(w, inverse));
            _mm256_storeu_si256(out.as_mut_ptr().add(v * 16).cast(), _mm512_cvtepi32_epi16(rounded));
        }
        most / TOP_WEIGHT
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
