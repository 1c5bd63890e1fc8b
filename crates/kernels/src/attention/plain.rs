//! The three loops in plain Rust, vectorised by the compiler for whatever CPU it builds for.

#![allow(unsafe_code, reason = "shares the signatures of the ISA loops")]

use super::flash::{self, Element, Group, Loops, Merge, Scores, TOP_WEIGHT, Tile, TileScales, Weights};
use super::{Item, KEYS, ROWS};
use crate::elementwise::exp2;
use crate::kv::{BLOCK, KvFormat, round};

/// Computes one item.
///
/// # Safety
/// No other thread may work on the item's rows and heads meanwhile.
pub(crate) unsafe fn attend(item: &Item<'_>, scratch: &mut [u8]) {
    // SAFETY: plain loops need no instruction set, the format chooses the entry type, and the rest is passed on.
    unsafe {
        match item.attention.layout.format {
            KvFormat::Q8 => flash::attend::<Plain, i8>(item, scratch),
            _ => flash::attend::<Plain, i16>(item, scratch),
        }
    }
}

struct Plain;

impl Loops for Plain {
    #[inline]
    unsafe fn scores<E: Element>(q: *const i16, pairs: usize, rows: usize, keys: Tile<E>, out: &mut Scores) {
        for (row, sums) in out[..rows].iter_mut().enumerate() {
            for pair in 0..pairs {
                for (half, &keys) in keys.halves.iter().enumerate() {
                    // SAFETY: `q` holds `rows * pairs` pairs and a key region `pairs * 32` pairs.
                    unsafe {
                        let q = q.add((row * pairs + pair) * 2);
                        let (a, b) = (i32::from(*q), i32::from(*q.add(1)));
                        let keys = std::slice::from_raw_parts(keys.add(pair * BLOCK * 2), BLOCK * 2);
                        for (sum, key) in
                            sums[half * BLOCK..(half + 1) * BLOCK].iter_mut().zip(keys.chunks_exact(2))
                        {
                            *sum += a * key[0].wide() + b * key[1].wide();
                        }
                    }
                }
            }
        }
    }

    #[inline]
    unsafe fn soften(
        tile: &TileScales,
        scores: &Scores,
        rows: usize,
        group: &mut Group,
        out: &mut Weights,
    ) -> [Merge; ROWS] {
        let mut merge = [Merge::default(); ROWS];
        for row in 0..rows {
            merge[row] = soften(tile, &scores[row], (group, row), &mut out[row]);
        }
        merge
    }

    #[inline]
    unsafe fn weigh<E: Element>(
        weights: &Weights,
        rows: usize,
        values: Tile<E>,
        dims: usize,
        merge: &[Merge; ROWS],
        o: *mut f32,
    ) {
        for row in 0..rows {
            for first in (0..dims).step_by(16) {
                let mut sums = [0i32; 16];
                for pair in 0..KEYS / 2 {
                    let (a, b) = (i32::from(weights[row][pair * 2]), i32::from(weights[row][pair * 2 + 1]));
                    let half = values.halves[pair / (BLOCK / 2)];
                    let at = (pair % (BLOCK / 2) * dims + first) * 2;
                    // SAFETY: a value region holds 16 pairs of `dims` entries, and `first + 16 <= dims`.
                    let pairs = unsafe { std::slice::from_raw_parts(half.add(at), 32) };
                    for (sum, value) in sums.iter_mut().zip(pairs.chunks_exact(2)) {
                        *sum += a * value[0].wide() + b * value[1].wide();
                    }
                }
                // SAFETY: `o` holds `rows` rows of `dims` floats.
                let out = unsafe { std::slice::from_raw_parts_mut(o.add(row * dims + first), 16) };
                for (out, sum) in out.iter_mut().zip(sums) {
                    *out = *out * merge[row].keep + sum as f32 * merge[row].scale;
                }
            }
        }
    }
}

/// One row's softmax step.
#[inline]
fn soften(
    tile: &TileScales,
    scores: &[i32; KEYS],
    (group, row): (&mut Group, usize),
    out: &mut [i16; KEYS],
) -> Merge {
    let (seen, old) = (group.seen(row, tile), group.max[row]);
    let mut s = [0f32; KEYS];
    for (j, value) in s.iter_mut().enumerate() {
        *value = scores[j] as f32 * (group.scale[row] * tile.keys[j]);
    }
    if let Some(cap) = tile.softcap {
        for value in &mut s {
            *value = cap.apply(*value);
        }
    }
    s[..seen.start].fill(f32::NEG_INFINITY);
    s[seen.end..].fill(f32::NEG_INFINITY);
    let most = s.iter().fold(old, |most, &v| if v > most { v } else { most });
    let keep = exp2(old - most);
    let mut p = [0f32; KEYS];
    for (p, &s) in p.iter_mut().zip(&s) {
        *p = if s == f32::NEG_INFINITY { 0.0 } else { exp2(s - most) };
    }
    group.max[row] = most;
    group.sum[row] = group.sum[row] * keep + tree_sum(p);
    let scale = round_weights(p, &tile.values, out);
    Merge { keep, scale }
}

/// Sum in 16 lanes, then a balanced tree.
#[inline]
fn tree_sum(p: [f32; KEYS]) -> f32 {
    let mut lanes = [0f32; 16];
    for part in p.as_chunks::<16>().0 {
        for (lane, value) in lanes.iter_mut().zip(part) {
            *lane += value;
        }
    }
    let mut width = 8;
    while width > 0 {
        for lane in 0..width {
            lanes[lane] += lanes[lane + width];
        }
        width /= 2;
    }
    lanes[0]
}

/// Folds the value scales in and rounds to 13 bits; returns the scale of the result.
#[inline]
fn round_weights(mut p: [f32; KEYS], value_scales: &[f32; KEYS], out: &mut [i16; KEYS]) -> f32 {
    for (p, scale) in p.iter_mut().zip(value_scales) {
        *p = if *p > 0.0 { *p * scale } else { *p };
    }
    let most = p.iter().fold(0f32, |most, &v| if v > most { v } else { most });
    let inverse = if most > 0.0 { TOP_WEIGHT / most } else { 0.0 };
    for (out, p) in out.iter_mut().zip(&p) {
        *out = round(*p * inverse) as i16;
    }
    most / TOP_WEIGHT
}
