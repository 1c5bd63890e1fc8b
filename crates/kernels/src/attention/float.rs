//! Attention over plain floats: two passes in f32, nothing rounded. The judge of the integer formats.

#![allow(unsafe_code, reason = "reads KV blocks through their addresses")]

use super::Item;
use crate::isa::Isa;
use crate::kv::BLOCK;
use crate::vectorise::vectorised;

/// Computes one item.
///
/// # Safety
/// No other thread may work on the item's rows and heads meanwhile.
pub(crate) unsafe fn attend(isa: Isa, item: &Item<'_>) {
    let mut scores = Vec::new();
    vectorised(isa, || {
        for row in 0..item.rows() {
            // SAFETY: passed on from this function's contract.
            unsafe { attend_row(item, row, &mut scores) };
        }
    });
}

/// # Safety
/// As for [`attend`].
#[inline(always)]
unsafe fn attend_row(item: &Item<'_>, row: usize, scores: &mut Vec<f32>) {
    let (layout, params) = (item.attention.layout, &item.attention.params);
    let dim = layout.head_dim;
    let position = item.position(row);
    let keys = item.window_start(position)..position + 1;
    let at = item.query_index(row) * dim;
    let q = &item.attention.queries.floats[at..at + dim];
    scores.clear();
    for key in keys.clone() {
        let score = dot(q, vector(item, key, 0)) * params.scale;
        scores.push(params.softcap.map_or(score, |cap| cap * (score / cap).tanh()));
    }
    let most = scores.iter().fold(f32::NEG_INFINITY, |most, &s| if s > most { s } else { most });
    for s in scores.iter_mut() {
        *s = (*s - most).exp();
    }
    let sum: f32 = scores.iter().sum();
    // SAFETY: passed on from this function's contract; the only borrow of this row.
    let out = unsafe { item.output(row) };
    out.fill(0.0);
    for (key, p) in keys.zip(scores.iter()) {
        let weight = p / sum;
        for (out, v) in out.iter_mut().zip(vector(item, key, layout.offsets().values)) {
            *out += weight * v;
        }
    }
}

/// A stored vector at key position `key`; `offset` chooses keys or values.
#[inline(always)]
fn vector<'a>(item: &Item<'a>, key: usize, offset: usize) -> &'a [f32] {
    let dim = item.attention.layout.head_dim;
    let region = item.region(key / BLOCK);
    // SAFETY: the region is aligned and holds 32 vectors of `dim` floats at either offset; it lives as long
    // as the attention's borrow of the blocks.
    unsafe { std::slice::from_raw_parts(region.add(offset).cast::<f32>().add(key % BLOCK * dim), dim) }
}

#[inline(always)]
fn dot(a: &[f32], b: &[f32]) -> f32 {
    let mut lanes = [0f32; 16];
    let (a_chunks, a_rest) = a.as_chunks::<16>();
    let (b_chunks, b_rest) = b.as_chunks::<16>();
    for (a, b) in a_chunks.iter().zip(b_chunks) {
        for lane in 0..16 {
            lanes[lane] += a[lane] * b[lane];
        }
    }
    for (lane, (a, b)) in lanes.iter_mut().zip(a_rest.iter().zip(b_rest)) {
        *lane += a * b;
    }
    lanes.iter().sum()
}
