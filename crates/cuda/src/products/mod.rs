//! Matrix products: which way each is computed, chosen by measuring and only among ways that give the same bits.
//!
//! ```text
//! (matrix shape, class) ── tune ──> Recipe: the library with a pinned split, the library slice by slice, or our own kernel
//! ```
//! Our own kernel is the judge: an algorithm of the library is used only if its first rows equal the judge's bit for bit. So a row's sums
//! are the same in every class, whatever computes it. Without the library our kernel computes everything.

mod tune;

use std::collections::HashMap;

use serde::{Deserialize, Serialize};

pub use self::tune::{Bench, Wanted};
use crate::blas::{Algorithm, Blas, Operands, ProductShape, Scratch};
use crate::driver::{Address, Shape, Stream};
use crate::error::CudaError;
use crate::kernels::{Linear, LinearKernel, ProductKernels};
use crate::plan::{MatrixPlan, Results};
use crate::shape::RowClass;
use crate::workspace::{PRODUCT_BYTES, PRODUCT_TILES};

/// What decides how a product is computed, besides the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ProductKey {
    outputs: usize,
    inputs: usize,
    slices: usize,
    results: Results,
    class: RowClass,
}

impl ProductKey {
    /// The product of a matrix with rows of a class.
    pub fn new(matrix: &MatrixPlan, class: RowClass) -> Self {
        let MatrixPlan { outputs, inputs, slices, results, .. } = *matrix;
        Self { outputs, inputs, slices, results, class }
    }

    /// The product of a matrix that is computed in one piece, with results in f32.
    pub fn plain([outputs, inputs]: [usize; 2], class: RowClass) -> Self {
        Self { outputs, inputs, slices: 1, results: Results::F32, class }
    }

    fn name(&self) -> String {
        let Self { outputs, inputs, slices, results, class } = self;
        format!("{outputs}x{inputs} in {slices}, {results:?}, {} rows", class.rows())
    }

    fn shape(&self) -> ProductShape {
        ProductShape {
            n: self.outputs,
            rows: self.class.rows(),
            k: self.inputs,
            stride: self.inputs,
            results: self.results,
        }
    }

    /// Inputs of a slice: where it begins, and how many; cut between blocks of 64 as `linear.cu` does.
    fn slice(&self, index: usize) -> (usize, usize) {
        let blocks = self.inputs.div_ceil(64);
        let cut = |index: usize| (index * blocks / self.slices * 64).min(self.inputs);
        (cut(index), cut(index + 1) - cut(index))
    }
}

/// How a product is computed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
enum Recipe {
    /// Our kernel.
    Own,
    /// One call of the library.
    Library([u64; 8]),
    /// A call per slice, each added to those before.
    Chained([u64; 8]),
}

/// What is measured and remembered about a product.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Choice {
    recipe: Recipe,
    microseconds: f64,
}

/// Operands of a product whose rows are not a plain sequence: experts.
#[derive(Clone, Copy, Debug)]
pub struct Lists {
    /// `[experts][pairs]`.
    pub lists: Address,
    /// `[experts]`.
    pub counts: Address,
    /// Row r of the results reads row r / share of the input.
    pub share: usize,
}

/// How all products of a model are computed.
pub struct Products {
    blas: Option<Blas>,
    choices: HashMap<ProductKey, Choice>,
    scratch: Scratch,
    finished: Address,
}

impl Products {
    /// Products by the library if there is one.
    ///
    /// `bytes` and `finished` are [`PRODUCT_BYTES`] of scratch and [`PRODUCT_TILES`] counters of zero on the device.
    pub fn new(blas: Option<Blas>, bytes: Address, finished: Address) -> Self {
        let scratch = Scratch { address: bytes, bytes: PRODUCT_BYTES };
        Self { blas, choices: HashMap::new(), scratch, finished }
    }

    /// How each tuned product is computed, and in how many microseconds; sorted.
    pub fn choices(&self) -> Vec<String> {
        let mut lines: Vec<String> = self
            .choices
            .iter()
            .map(|(key, choice)| {
                let way = match choice.recipe {
                    Recipe::Own => "own kernel",
                    Recipe::Library(_) => "library",
                    Recipe::Chained(_) => "library, slice by slice",
                };
                format!("{}: {way}, {:.1} us", key.name(), choice.microseconds)
            })
            .collect();
        lines.sort();
        lines
    }

    /// Queues a product.
    pub fn run(
        &self,
        stream: &Stream,
        kernels: &ProductKernels,
        key: ProductKey,
        operands: Operands,
    ) -> Result<(), CudaError> {
        match (&self.blas, self.choices.get(&key)) {
            (Some(blas), Some(choice)) => self.by(&choice.recipe, blas, stream, kernels, key, operands),
            _ => self.own(stream, kernels, key, operands),
        }
    }

    /// Queues a product that is computed in this way.
    fn by(
        &self,
        recipe: &Recipe,
        blas: &Blas,
        stream: &Stream,
        kernels: &ProductKernels,
        key: ProductKey,
        operands: Operands,
    ) -> Result<(), CudaError> {
        match recipe {
            Recipe::Own => self.own(stream, kernels, key, operands),
            Recipe::Library(algorithm) => {
                blas.product(key.shape())?.run(stream, &Algorithm(*algorithm), operands, self.scratch, false)
            }
            Recipe::Chained(algorithm) => (0..key.slices).try_for_each(|slice| {
                let (first, k) = key.slice(slice);
                let product = blas.product(ProductShape { k, ..key.shape() })?;
                let operands =
                    Operands { w: operands.w.plus(first * 2), x: operands.x.plus(first * 2), ..operands };
                product.run(stream, &Algorithm(*algorithm), operands, self.scratch, slice > 0)
            }),
        }
    }

    /// Queues our own kernel, as many rows at a time as its partial sums have room for.
    fn own(
        &self,
        stream: &Stream,
        kernels: &ProductKernels,
        key: ProductKey,
        operands: Operands,
    ) -> Result<(), CudaError> {
        let rows = key.class.rows();
        let kernel = kernel_for(kernels, rows);
        let row_bytes = key.slices * key.outputs.next_multiple_of(kernel.outputs) * 4;
        let at_once = match key.slices {
            1 => rows,
            _ => (PRODUCT_BYTES / row_bytes / kernel.rows * kernel.rows)
                .clamp(kernel.rows, rows.max(kernel.rows)),
        };
        for first in (0..rows).step_by(at_once) {
            let rows = at_once.min(rows - first);
            let arguments = Linear {
                w: operands.w,
                x: operands.x.plus(first * key.inputs * 2),
                y: operands.y.plus(first * key.outputs * key.results.bytes()),
                partial: self.scratch.address,
                finished: self.finished,
                lists: Address::NULL,
                counts: Address::NULL,
                n: key.outputs as u32,
                rows: rows as u32,
                k: key.inputs as u32,
                slices: key.slices as u32,
                input_share: 1,
            };
            let tiles = [key.outputs.div_ceil(kernel.outputs), key.slices, rows.div_ceil(kernel.rows)];
            debug_assert!(key.slices == 1 || tiles[0] * tiles[2] <= PRODUCT_TILES);
            launch_linear(stream, kernel, key.results, tiles, &arguments)?;
        }
        Ok(())
    }

    /// Queues the products of all experts.
    pub fn run_experts(
        &self,
        stream: &Stream,
        kernels: &ProductKernels,
        matrix: &MatrixPlan,
        pairs: usize,
        operands: Operands,
        lists: Lists,
    ) -> Result<(), CudaError> {
        // Few pairs reach an expert in a small step; a block without any ends at once.
        let kernel = kernel_for(kernels, pairs.div_ceil(matrix.copies).max(8) * 2);
        let arguments = Linear {
            w: operands.w,
            x: operands.x,
            y: operands.y,
            partial: self.scratch.address,
            finished: self.finished,
            lists: lists.lists,
            counts: lists.counts,
            n: matrix.outputs as u32,
            rows: pairs as u32,
            k: matrix.inputs as u32,
            slices: 1,
            input_share: lists.share as u32,
        };
        let tiles = [matrix.outputs.div_ceil(kernel.outputs), matrix.copies, pairs.div_ceil(kernel.rows)];
        launch_linear(stream, kernel, matrix.results, tiles, &arguments)
    }
}

fn kernel_for(kernels: &ProductKernels, rows: usize) -> &LinearKernel {
    let [.., largest] = &kernels.linear;
    kernels.linear.iter().find(|kernel| rows <= kernel.rows).unwrap_or(largest)
}

fn launch_linear(
    stream: &Stream,
    kernel: &LinearKernel,
    results: Results,
    tiles: [usize; 3],
    arguments: &Linear,
) -> Result<(), CudaError> {
    let function = match results {
        Results::F32 => &kernel.f32,
        Results::Bf16 => &kernel.bf16,
    };
    let shape =
        Shape { grid: tiles.map(|side| side as u32), threads: kernel.threads, shared_bytes: kernel.shared };
    Ok(stream.launch(function, shape, arguments)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slices_cover_the_inputs_between_blocks_of_64() {
        let key =
            ProductKey { outputs: 8, inputs: 8960, slices: 4, results: Results::F32, class: RowClass::of(8) };
        assert_eq!(
            (0..4).map(|index| key.slice(index)).collect::<Vec<_>>(),
            [(0, 2240), (2240, 2240), (4480, 2240), (6720, 2240)]
        );
        let uneven = ProductKey { inputs: 64 * 5, slices: 2, ..key };
        assert_eq!([uneven.slice(0), uneven.slice(1)], [(0, 128), (128, 192)]);
    }
}
