//! Into how many pieces a product's inputs are cut, so that a product with few outputs and many inputs keeps the whole device busy.
//!
//! A row's sums depend on it: it is decided by the shape and the form of a matrix, never by the batch. That the numbers fit an H200 (132
//! multiprocessors) only matters for speed.

use super::Results;

/// Inputs up to which a product of bf16 weights is computed in one piece, whatever its shape.
const SHORT: usize = 2048;

/// Outputs that one block computes.
const TILE: usize = 64;

/// Blocks that keep the device busy with bf16 weights: one for each multiprocessor.
const BLOCKS: usize = 132;

/// The same with packed weights: unpacking takes warps, so that it is nearly two for each multiprocessor.
const PACKED_BLOCKS: usize = 256;

/// Inputs that a slice of packed weights has at least: with fewer, adding the slices up takes longer than is gained.
const PACKED_SHORT: usize = 1024;

/// Inputs between which a product may be cut.
const CUT: usize = 64;

/// At most so many, as in `product.cuh`.
const MOST: usize = 4;

/// Slices of a product of bf16 weights: a power of two. Rounded results are never added up.
pub(super) fn plain([outputs, inputs]: [usize; 2], results: Results) -> usize {
    let wanted = BLOCKS / outputs.div_ceil(TILE).max(1);
    if results == Results::Bf16 || inputs <= SHORT || wanted < 2 {
        return 1;
    }
    (1 << wanted.ilog2()).min(MOST)
}

/// Slices of a product of packed weights: a power of two. They have one length, so that the library can compute them one by one.
pub fn packed_slices([outputs, inputs]: [usize; 2], results: Results) -> usize {
    if results == Results::Bf16 {
        return 1;
    }
    let wanted = PACKED_BLOCKS.div_ceil(outputs.div_ceil(TILE).max(1)).next_power_of_two().min(MOST);
    let fits = |slices: &usize| inputs / slices >= PACKED_SHORT && inputs % (slices * CUT) == 0;
    (0..=wanted.ilog2()).rev().map(|power| 1 << power).find(fits).unwrap_or(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_long_products_with_few_outputs_are_cut() {
        let slices = |outputs, inputs| plain([outputs, inputs], Results::F32);
        assert_eq!(slices(576, 1536), 1, "135M down");
        assert_eq!(slices(1536, 8960), 4, "1.5B down");
        assert_eq!(slices(1536, 1536), 1, "1.5B output");
        assert_eq!(slices(4096, 14336), 2, "8B down");
        assert_eq!(slices(4096, 4096), 2, "8B output");
        assert_eq!(slices(6144, 4096), 1, "8B qkv");
        assert_eq!(slices(128_256, 4096), 1, "8B head");
    }

    #[test]
    fn packed_products_are_cut_into_more_slices_of_one_length() {
        let slices = |outputs, inputs| packed_slices([outputs, inputs], Results::F32);
        assert_eq!(slices(1536, 1536), 1, "1.5B output");
        assert_eq!(slices(1536, 8960), 4, "1.5B down");
        assert_eq!(slices(2048, 2048), 2, "1B output");
        assert_eq!(slices(4096, 14336), 4, "8B down");
        assert_eq!(slices(4096, 4096), 4, "8B output");
        assert_eq!(slices(6144, 4096), 4, "8B qkv");
        assert_eq!(slices(128_256, 4096), 1, "8B head");
        assert_eq!(slices(4096, 4096 + 64), 1, "no two slices of one length");
    }

    #[test]
    fn rounded_results_are_never_added_up() {
        assert_eq!(plain([64, 8192], Results::Bf16), 1);
        assert_eq!(packed_slices([64, 8192], Results::Bf16), 1);
    }
}
