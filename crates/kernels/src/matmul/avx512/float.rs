//! Plain floats on AVX-512.
//!
//! ```text
//! two tiles: 12 rows x 32 outputs = 12 x 2 registers of sums; 2 of weights, 1 broadcast
//! per input k, ascending:  sum[row] += w[k] * x[row][k]
//! ```
//! Per input and pair of tiles: 24 fused products, 2 loads of weights and 12 broadcasts. A panel of f32 is larger than L1, so
//! its weights come from L2: with two tiles at a time they come half as often. 16-bit weights that several tiles share
//! are first unpacked to f32; a tile alone converts them on the way.

#![allow(unsafe_code, reason = "vector intrinsics over raw panels")]

use std::arch::x86_64::*;

use super::EXPAND_FROM_TILES;
use crate::activations::TILE;
use crate::matmul::{PanelJob, PanelWeights, TileOut};
use crate::packed::PANEL;

/// 16 weights as f32.
pub(super) trait LoadFloat {
    /// Bytes of one weight.
    const BYTES: usize;

    /// The weights at `at`, which must be readable.
    unsafe fn load(at: *const u8) -> __m512;
}

pub(super) struct LoadF32;
pub(super) struct LoadF16;
pub(super) struct LoadBf16;

impl LoadFloat for LoadF32 {
    const BYTES: usize = 4;
    #[inline(always)]
    unsafe fn load(at: *const u8) -> __m512 {
        // SAFETY: 64 readable bytes by the caller's contract.
        unsafe { _mm512_loadu_ps(at.cast()) }
    }
}

impl LoadFloat for LoadF16 {
    const BYTES: usize = 2;
    #[inline(always)]
    unsafe fn load(at: *const u8) -> __m512 {
        // SAFETY: 32 readable bytes by the caller's contract.
        unsafe { _mm512_cvtph_ps(_mm256_loadu_si256(at.cast())) }
    }
}

impl LoadFloat for LoadBf16 {
    const BYTES: usize = 2;
    #[inline(always)]
    unsafe fn load(at: *const u8) -> __m512 {
        // SAFETY: 32 readable bytes by the caller's contract.
        unsafe {
            let wide = _mm512_cvtepu16_epi32(_mm256_loadu_si256(at.cast()));
            _mm512_castsi512_ps(_mm512_slli_epi32::<16>(wide))
        }
    }
}

/// One panel for a range of tiles.
///
/// # Safety
/// As [`super::panel`] says; `L` must read the panel's number type.
#[inline(always)]
pub(super) unsafe fn panel<L: LoadFloat>(job: &mut PanelJob<'_>) {
    let PanelWeights::Float { input, cols, .. } = job.weights else { return };
    // SAFETY: instruction set and sizes by the contract of `panel`; the scratch holds an unpacked panel.
    unsafe {
        if job.tiles.len() >= EXPAND_FROM_TILES && L::BYTES == 2 {
            assert!(job.scratch.len() >= cols * PANEL * 4, "scratch too small for an unpacked panel");
            for at in (0..cols * PANEL).step_by(16) {
                let values = L::load(job.panel.as_ptr().add(at * L::BYTES));
                _mm512_storeu_ps(job.scratch.as_mut_ptr().add(at * 4).cast(), values);
            }
            all_tiles::<LoadF32>(job, job.scratch.as_ptr(), input, cols);
        } else {
            all_tiles::<L>(job, job.panel.as_ptr(), input, cols);
        }
    }
}

#[inline(always)]
unsafe fn all_tiles<L: LoadFloat>(job: &mut PanelJob<'_>, panel: *const u8, input: &[f32], cols: usize) {
    let mut tile = job.tiles.start;
    while tile < job.tiles.end {
        let x = input[tile * cols * TILE..(tile + 1) * cols * TILE].as_ptr();
        let rows = (job.rows - tile * TILE).min(2 * TILE);
        // SAFETY: `x` has `cols` groups of six for each tile, the panel as many inputs, and rows are 1..=12.
        unsafe {
            if rows == 2 * TILE && tile + 1 < job.tiles.end {
                let mut out = [[[0.0; PANEL]; TILE]; 2];
                tiles::<L, 2, TILE>(panel, x, cols, &mut out);
                job.sink.put(tile * TILE, TILE, &mut out[0]);
                job.sink.put((tile + 1) * TILE, TILE, &mut out[1]);
                tile += 2;
                continue;
            }
            let mut out = [[[0.0; PANEL]; TILE]];
            match rows {
                1 => tiles::<L, 1, 1>(panel, x, cols, &mut out),
                2 => tiles::<L, 1, 2>(panel, x, cols, &mut out),
                3 | 4 => tiles::<L, 1, 4>(panel, x, cols, &mut out),
                _ => tiles::<L, 1, TILE>(panel, x, cols, &mut out),
            }
            job.sink.put(tile * TILE, rows.min(TILE), &mut out[0]);
            tile += 1;
        }
    }
}

/// `ROWS` rows of each of `TILES` adjacent tiles.
#[inline(always)]
unsafe fn tiles<L: LoadFloat, const TILES: usize, const ROWS: usize>(
    panel: *const u8,
    x: *const f32,
    cols: usize,
    out: &mut [TileOut; TILES],
) {
    // SAFETY: all reads stay inside `cols` inputs of panel and activations.
    unsafe {
        let mut sums = [[[_mm512_setzero_ps(); 2]; ROWS]; TILES];
        for k in 0..cols {
            let at = panel.add(k * PANEL * L::BYTES);
            let weights = [L::load(at), L::load(at.add(16 * L::BYTES))];
            for tile in 0..TILES {
                for row in 0..ROWS {
                    let value = _mm512_set1_ps(*x.add((tile * cols + k) * TILE + row));
                    for half in 0..2 {
                        sums[tile][row][half] = _mm512_fmadd_ps(weights[half], value, sums[tile][row][half]);
                    }
                }
            }
        }
        for tile in 0..TILES {
            for row in 0..ROWS {
                for half in 0..2 {
                    _mm512_storeu_ps(out[tile][row].as_mut_ptr().add(half * 16), sums[tile][row][half]);
                }
            }
        }
    }
}
