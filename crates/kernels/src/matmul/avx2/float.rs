//! Plain floats on AVX2 with FMA and F16C.
//!
//! ```text
//! tile: 6 rows x 16 outputs = 6 x 2 registers of sums; 2 of weights, 1 broadcast
//! per input k, ascending:  sum[row] += w[k] * x[row][k]
//! ```
//! Per input and tile: 12 fused products, 2 loads of weights and 6 broadcasts. 16-bit weights that several tiles
//! share are first unpacked to f32; a tile alone converts them on the way. Its speed is not measured yet.

#![allow(unsafe_code, reason = "vector intrinsics over raw panels")]
#![allow(
    clippy::wildcard_imports,
    clippy::inline_always,
    clippy::needless_range_loop,
    reason = "kernels name their instructions, must be inlined to use them, and index registers by row"
)]

use std::arch::x86_64::*;

use super::{ACROSS, EXPAND_FROM_TILES, LANES, finish};
use crate::activations::TILE;
use crate::matmul::{PanelJob, PanelWeights, TileOut};
use crate::packed::PANEL;

/// 8 weights as f32.
pub(super) trait LoadFloat {
    /// Bytes of one weight.
    const BYTES: usize;

    /// The weights at `at`, which must be readable.
    unsafe fn load(at: *const u8) -> __m256;
}

pub(super) struct LoadF32;
pub(super) struct LoadF16;
pub(super) struct LoadBf16;

impl LoadFloat for LoadF32 {
    const BYTES: usize = 4;
    #[inline(always)]
    unsafe fn load(at: *const u8) -> __m256 {
        // SAFETY: 32 readable bytes by the caller's contract.
        unsafe { _mm256_loadu_ps(at.cast()) }
    }
}

impl LoadFloat for LoadF16 {
    const BYTES: usize = 2;
    #[inline(always)]
    unsafe fn load(at: *const u8) -> __m256 {
        // SAFETY: 16 readable bytes by the caller's contract.
        unsafe { _mm256_cvtph_ps(_mm_loadu_si128(at.cast())) }
    }
}

impl LoadFloat for LoadBf16 {
    const BYTES: usize = 2;
    #[inline(always)]
    unsafe fn load(at: *const u8) -> __m256 {
        // SAFETY: 16 readable bytes by the caller's contract.
        unsafe {
            let wide = _mm256_cvtepu16_epi32(_mm_loadu_si128(at.cast()));
            _mm256_castsi256_ps(_mm256_slli_epi32::<16>(wide))
        }
    }
}

/// One panel for a range of tiles.
///
/// # Safety
/// As [`super::panel`] says; `L` must read the panel's number type.
#[target_feature(enable = "avx2,fma,f16c")]
pub(super) unsafe fn panel<L: LoadFloat>(job: &mut PanelJob<'_>) {
    // SAFETY: instruction set and sizes by the contract of `panel`; the assertion checks the scratch.
    unsafe {
        if job.tiles.len() >= EXPAND_FROM_TILES && L::BYTES == 2 {
            assert!(job.scratch.len() >= job.panel.len() * 2, "scratch too small for an unpacked panel");
            for at in (0..job.panel.len()).step_by(LANES * 2) {
                let values = L::load(job.panel.as_ptr().add(at));
                _mm256_storeu_ps(job.scratch.as_mut_ptr().add(at * 2).cast(), values);
            }
            float_tiles::<LoadF32>(job, job.scratch.as_ptr());
        } else {
            float_tiles::<L>(job, job.panel.as_ptr());
        }
    }
}

#[inline(always)]
unsafe fn float_tiles<L: LoadFloat>(job: &mut PanelJob<'_>, panel: *const u8) {
    let PanelWeights::Float { input, cols, .. } = job.weights else { return };
    for tile in job.tiles.clone() {
        let rows = TILE.min(job.rows - tile * TILE);
        let x = &input[tile * cols * TILE..(tile + 1) * cols * TILE];
        let mut out = [[0.0; PANEL]; TILE];
        // SAFETY: the panel has as many inputs as `x`, and rows are 1..=6.
        unsafe {
            match rows {
                1 => float_rows::<L, 1, 4>(panel, x, &mut out),
                2 => float_rows::<L, 2, 4>(panel, x, &mut out),
                3 => float_rows::<L, 3, 2>(panel, x, &mut out),
                4 => float_rows::<L, 4, 2>(panel, x, &mut out),
                5 => float_rows::<L, 5, 2>(panel, x, &mut out),
                _ => float_rows::<L, 6, 2>(panel, x, &mut out),
            }
            finish(&job.sink, tile, rows, &mut out);
        }
    }
}

/// `ROWS` rows by 32 outputs over all inputs, `WIDTH` registers of outputs at a time.
#[inline(always)]
unsafe fn float_rows<L: LoadFloat, const ROWS: usize, const WIDTH: usize>(
    panel: *const u8,
    x: &[f32],
    out: &mut TileOut,
) {
    for first in (0..ACROSS).step_by(WIDTH) {
        // SAFETY: all reads stay inside as many inputs of the panel as `x` has.
        unsafe {
            let mut sums = [[_mm256_setzero_ps(); WIDTH]; ROWS];
            for (k, x) in x.as_chunks::<TILE>().0.iter().enumerate() {
                let at = panel.add((k * PANEL + first * LANES) * L::BYTES);
                let mut weights = [_mm256_setzero_ps(); WIDTH];
                for (v, weights) in weights.iter_mut().enumerate() {
                    *weights = L::load(at.add(v * LANES * L::BYTES));
                }
                for row in 0..ROWS {
                    let value = _mm256_set1_ps(x[row]);
                    for v in 0..WIDTH {
                        sums[row][v] = _mm256_fmadd_ps(weights[v], value, sums[row][v]);
                    }
                }
            }
            for row in 0..ROWS {
                for v in 0..WIDTH {
                    let at = out[row].as_mut_ptr().add((first + v) * LANES);
                    _mm256_storeu_ps(at, sums[row][v]);
                }
            }
        }
    }
}
