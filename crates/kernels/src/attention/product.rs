//! The product inside attention of whole texts: six rows by 32 columns, in f32.
//!
//! ```text
//! out[row][column] = sum over k, ascending, of  left[row][k] * right[k][column]
//! tile: 6 rows x 32 columns = 6 x 2 registers of sums (AVX-512); 2 of right, 1 broadcast
//! ```
//! It serves both of attention's products: `q . k` (k over dims, columns are keys) and `p . v` (k over keys, columns are
//! dims). Per k: 12 fused products for 2 loads and 6 broadcasts.

#![allow(unsafe_code, reason = "vector intrinsics over raw rows")]

use crate::isa::{Isa, Level};

/// Rows of the tile.
pub(super) const ROWS: usize = 6;
/// Columns of the tile.
pub(super) const COLUMNS: usize = 32;

/// A finished tile.
pub(super) type Tile = [[f32; COLUMNS]; ROWS];

/// The operands of one tile.
#[derive(Clone, Copy)]
pub(super) struct Operands {
    /// `[row][k]`, six rows.
    pub left: *const f32,
    /// Values from one row of `left` to the next.
    pub left_stride: usize,
    /// `[k][column]`.
    pub right: *const f32,
    /// Values from one `k` of `right` to the next.
    pub right_stride: usize,
    /// How many `k`.
    pub len: usize,
}

/// Computes one tile.
///
/// # Safety
/// - The CPU must have the instruction set the function was written for.
/// - `left` must have six rows of `len` readable values, `right` `len` rows of 32.
pub(super) type ProductFn = unsafe fn(Operands, &mut Tile);

/// The fastest product of an instruction set.
pub(super) fn product_fn(isa: Isa) -> ProductFn {
    match isa.level() {
        Level::Reference | Level::Portable => plain,
        #[cfg(target_arch = "x86_64")]
        Level::Avx2 => avx2,
        #[cfg(target_arch = "x86_64")]
        Level::Avx512Vnni => avx512,
        #[cfg(not(target_arch = "x86_64"))]
        Level::Avx2 | Level::Avx512Vnni => plain,
    }
}

unsafe fn plain(operands: Operands, out: &mut Tile) {
    let Operands { left, left_stride, right, right_stride, len } = operands;
    *out = [[0.0; COLUMNS]; ROWS];
    for k in 0..len {
        // SAFETY: `k` is below `len`, and rows below six, by this function's contract.
        let right = unsafe { &*right.add(k * right_stride).cast::<[f32; COLUMNS]>() };
        for (row, sums) in out.iter_mut().enumerate() {
            // SAFETY: as above.
            let value = unsafe { *left.add(row * left_stride + k) };
            for (sum, right) in sums.iter_mut().zip(right) {
                *sum += value * right;
            }
        }
    }
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma")]
unsafe fn avx2(operands: Operands, out: &mut Tile) {
    use std::arch::x86_64::*;
    const LANES: usize = 8;
    let Operands { left, left_stride, right, right_stride, len } = operands;
    for first in (0..COLUMNS).step_by(2 * LANES) {
        // SAFETY: `k` is below `len`, rows below six and columns below 32, by this function's contract.
        unsafe {
            let mut sums = [[_mm256_setzero_ps(); 2]; ROWS];
            for k in 0..len {
                let at = right.add(k * right_stride + first);
                let columns = [_mm256_loadu_ps(at), _mm256_loadu_ps(at.add(LANES))];
                for row in 0..ROWS {
                    let value = _mm256_set1_ps(*left.add(row * left_stride + k));
                    for half in 0..2 {
                        sums[row][half] = _mm256_fmadd_ps(value, columns[half], sums[row][half]);
                    }
                }
            }
            for row in 0..ROWS {
                for half in 0..2 {
                    let at = out[row].as_mut_ptr().add(first + half * LANES);
                    _mm256_storeu_ps(at, sums[row][half]);
                }
            }
        }
    }
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f")]
unsafe fn avx512(operands: Operands, out: &mut Tile) {
    use std::arch::x86_64::*;
    const LANES: usize = 16;
    let Operands { left, left_stride, right, right_stride, len } = operands;
    // SAFETY: `k` is below `len`, rows below six and columns below 32, by this function's contract.
    unsafe {
        let mut sums = [[_mm512_setzero_ps(); 2]; ROWS];
        for k in 0..len {
            let at = right.add(k * right_stride);
            let columns = [_mm512_loadu_ps(at), _mm512_loadu_ps(at.add(LANES))];
            for row in 0..ROWS {
                let value = _mm512_set1_ps(*left.add(row * left_stride + k));
                for half in 0..2 {
                    sums[row][half] = _mm512_fmadd_ps(value, columns[half], sums[row][half]);
                }
            }
        }
        for row in 0..ROWS {
            for half in 0..2 {
                _mm512_storeu_ps(out[row].as_mut_ptr().add(half * LANES), sums[row][half]);
            }
        }
    }
}
