//! Matrix products: which way each is computed, chosen by measuring and only among ways that give the same bits.
//!
//! ```text
//! (matrix shape, class) ── tune ──> Recipe: the library with a pinned split, slice by slice or with all slices side by side; or our own
//!                                   kernel
//! ```
//! Our own kernel is the reference: an algorithm of the library is used only if the first, middle and last 8 rows of its results equal the
//! reference's bit for bit (`reference`). So a row's sums are the same in every class, whatever computes it. Without the library our
//! kernel computes everything.
//!
//! Packed matrices are multiplied by our kernels, or unpacked into a scratch for the library, where measuring says that it pays.

mod key;
mod reference;
mod tiles;
pub mod trial;
mod tune;

use std::collections::HashMap;

use serde::{Deserialize, Serialize};

pub use self::key::ProductKey;
pub use self::tune::{Bench, Wanted};
use crate::blas::{Algorithm, Blas, Operands, ProductShape, Scratch};
use crate::driver::{Address, LaunchShape, Stream};
use crate::error::CudaError;
use crate::kernels::{ExpertTiles, Linear, LinearKernel, ProductKernels};
use crate::packed::{PackedForm, RECORD_INPUTS, STRIP, Unpack};
use crate::plan::{Form, MatrixPlan, Results};
use crate::workspace::{PRODUCT_BYTES, PRODUCT_TILES, Workspace};

/// How a product is computed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
enum Recipe {
    /// Our kernel of this name.
    Own(String),
    /// One call of the library.
    Library([u64; 8]),
    /// A call per slice, each added to those before.
    Accumulated([u64; 8]),
    /// One call for all slices side by side, which whoever reads them adds up.
    Batched([u64; 8]),
}

/// What is measured and remembered about a product.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Choice {
    recipe: Recipe,
    microseconds: f64,
}

/// Operands of a product whose rows are not a plain sequence: experts.
#[derive(Clone, Copy, Debug)]
pub struct ExpertRows {
    /// `[pairs]`, sorted by expert.
    pub lists: Address,
    /// What is computed together: so many items as `tiles` has.
    pub work: Address,
    /// How many pairs an item has at most, and how many items there may be.
    pub tiles: ExpertTiles,
    /// Row r of the results reads row `r / rows_per_input` of the input.
    pub rows_per_input: usize,
}

/// A product to be queued.
#[derive(Clone, Copy)]
struct Launch<'a> {
    stream: &'a Stream,
    kernels: &'a ProductKernels,
    key: ProductKey,
    operands: Operands,
}

/// Results that are the sum of several arrays, added in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Summands {
    /// The first of them.
    pub first: Address,
    /// How many there are.
    pub count: usize,
    /// Values from one to the next.
    pub stride: usize,
}

/// What products use on the device besides their operands.
#[derive(Clone, Copy, Debug)]
pub struct ProductMemory {
    /// Partial sums of slices, and the library's own: at least [`PRODUCT_BYTES`].
    pub scratch: Scratch,
    /// A packed matrix, unpacked; empty where there is none.
    pub unpacked: Scratch,
    /// [`PRODUCT_TILES`] counters, zero between launches.
    pub finished: Address,
}

impl ProductMemory {
    /// What lies in a decoder's workspace.
    pub fn of(workspace: &Workspace, unpacked_bytes: usize) -> Self {
        Self {
            scratch: workspace.product_scratch,
            unpacked: Scratch { address: workspace.unpacked, bytes: unpacked_bytes },
            finished: workspace.product_finished,
        }
    }
}

/// How all products of a model are computed.
pub struct Products {
    blas: Option<Blas>,
    choices: HashMap<ProductKey, Choice>,
    scratch: Scratch,
    /// Where packed matrices are unpacked to, one at a time.
    unpacked: Scratch,
    finished: Address,
}

impl Products {
    /// Products by the library if there is one.
    pub fn new(blas: Option<Blas>, memory: ProductMemory) -> Self {
        let ProductMemory { scratch, unpacked, finished } = memory;
        Self { blas, choices: HashMap::new(), scratch, unpacked, finished }
    }

    /// How each measured product is computed, and in how many microseconds; sorted.
    pub fn choices(&self) -> Vec<String> {
        let mut lines: Vec<String> = self
            .choices
            .iter()
            .filter(|(key, choice)| key.measured() == **key || self.is_exception(key, choice))
            .map(|(key, choice)| {
                let way = match &choice.recipe {
                    Recipe::Own(name) => name,
                    Recipe::Library(_) => "library",
                    Recipe::Accumulated(_) => "library, slice by slice",
                    Recipe::Batched(_) => "library, slices side by side",
                };
                format!("{}: {way}, {:.1} us", key.name(), choice.microseconds)
            })
            .collect();
        lines.sort();
        lines
    }

    /// Whether a product is computed in another way than the next one that was measured.
    fn is_exception(&self, key: &ProductKey, choice: &Choice) -> bool {
        self.choices.get(&key.measured()).is_some_and(|measured| measured.recipe != choice.recipe)
    }

    /// Where the results of a product into `y` are, once it was queued and until the next one is.
    pub fn results(&self, key: ProductKey, y: Address) -> Summands {
        match self.choices.get(&key) {
            Some(Choice { recipe: Recipe::Batched(_), .. }) if self.blas.is_some() => {
                Summands { first: self.scratch.address, count: key.slices, stride: key.slice_values() }
            }
            _ => Summands { first: y, count: 1, stride: 0 },
        }
    }

    /// Queues a product. Where its results are then, [`Products::results`] knows.
    pub fn run(
        &self,
        stream: &Stream,
        kernels: &ProductKernels,
        key: ProductKey,
        operands: Operands,
    ) -> Result<(), CudaError> {
        match (&self.blas, self.choices.get(&key)) {
            (Some(blas), Some(Choice { recipe, .. })) => {
                self.by_recipe(blas, Launch { stream, kernels, key, operands }, recipe)
            }
            _ => self.own(Launch { stream, kernels, key, operands }, usual_kernel(kernels, key)),
        }
    }

    fn by_recipe(&self, blas: &Blas, launch: Launch<'_>, recipe: &Recipe) -> Result<(), CudaError> {
        let Launch { stream, key, .. } = launch;
        let operands = match key.form {
            Form::Packed(form) if !matches!(recipe, Recipe::Own(_)) => self.unpack(launch, form)?,
            _ => launch.operands,
        };
        match recipe {
            Recipe::Own(name) => self.own(launch, named_kernel(launch.kernels, key, name)),
            Recipe::Library(algorithm) => {
                blas.product(key.shape())?.run(stream, &Algorithm(*algorithm), operands, self.scratch, false)
            }
            Recipe::Accumulated(algorithm) => (0..key.slices).try_for_each(|slice| {
                let (first, k) = key.slice(slice);
                let product = blas.product(ProductShape { k, ..key.shape() })?;
                let operands =
                    Operands { w: operands.w.plus(first * 2), x: operands.x.plus(first * 2), ..operands };
                product.run(stream, &Algorithm(*algorithm), operands, self.scratch, slice > 0)
            }),
            Recipe::Batched(algorithm) => {
                let (shape, y, rest) = self.batched(&key).ok_or_else(|| {
                    CudaError::Step(format!("slices of {} have no room side by side", key.name()))
                })?;
                blas.product(shape)?.run(
                    stream,
                    &Algorithm(*algorithm),
                    Operands { y, ..operands },
                    rest,
                    false,
                )
            }
        }
    }

    /// Queues unpacking; the operands with plain weights.
    fn unpack(&self, launch: Launch<'_>, form: PackedForm) -> Result<Operands, CudaError> {
        let Launch { stream, kernels, key, operands } = launch;
        let (w, out) = (operands.w, self.unpacked.address);
        let strip_scales = w.plus(form.records_bytes(key.outputs, key.inputs));
        let arguments = Unpack { w, strip_scales, out, n: key.outputs as u32, k: key.inputs as u32 };
        // A block has four warps, and each takes a record.
        let grid = [key.outputs.div_ceil(STRIP), key.inputs.div_ceil(4 * RECORD_INPUTS), 1];
        let shape = LaunchShape { grid: grid.map(|side| side as u32), threads: 128, shared_bytes: 0 };
        stream.launch(&kernels.packed(form).unpack, shape, &arguments)?;
        Ok(Operands { w: out, ..operands })
    }

    /// A product with all slices side by side, where they go, and what is left for the library; none where its reader would not find
    /// them, or they have no room.
    fn batched(&self, key: &ProductKey) -> Option<(ProductShape, Address, Scratch)> {
        let (first, rest) = self.scratch.split(key.partial_bytes())?;
        Some((key.batched_shape()?, first, rest))
    }

    /// Whether the library can compute a product: of a packed matrix only where it can be unpacked.
    fn has_room_for(&self, key: &ProductKey) -> bool {
        key.form == Form::Bf16 || key.outputs * key.inputs * 2 <= self.unpacked.bytes
    }

    /// Queues a kernel of ours, as many rows at a time as its partial sums have room for.
    fn own(&self, launch: Launch<'_>, kernel: &LinearKernel) -> Result<(), CudaError> {
        let Launch { stream, key, operands, .. } = launch;
        let rows = key.class.rows();
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
                strip_scales: strip_scales(key.form, operands.w, 1, [key.outputs, key.inputs]),
                x: operands.x.plus(first * key.inputs * 2),
                y: operands.y.plus(first * key.outputs * key.results.bytes()),
                partial: self.scratch.address,
                finished: self.finished,
                lists: Address::NULL,
                work: Address::NULL,
                n: key.outputs as u32,
                rows: rows as u32,
                k: key.inputs as u32,
                slices: key.slices as u32,
                rows_per_input: 1,
                bf16_results: u32::from(key.results == Results::Bf16),
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
        lists: ExpertRows,
    ) -> Result<(), CudaError> {
        let ExpertRows { lists, work, tiles, rows_per_input } = lists;
        let kernel = kernels.of_experts(matrix.form, tiles.rows);
        let arguments = Linear {
            w: operands.w,
            strip_scales: strip_scales(
                matrix.form,
                operands.w,
                matrix.copies,
                [matrix.outputs, matrix.inputs],
            ),
            x: operands.x,
            y: operands.y,
            partial: self.scratch.address,
            finished: self.finished,
            lists,
            work,
            n: matrix.outputs as u32,
            rows: pairs as u32,
            k: matrix.inputs as u32,
            slices: 1,
            rows_per_input: rows_per_input as u32,
            bf16_results: u32::from(matrix.results == Results::Bf16),
        };
        let tiles = [matrix.outputs.div_ceil(kernel.outputs), 1, tiles.most];
        launch_linear(stream, kernel, matrix.results, tiles, &arguments)
    }
}

/// Where the strips' scales of a packed matrix lie.
fn strip_scales(form: Form, w: Address, copies: usize, [outputs, inputs]: [usize; 2]) -> Address {
    match form {
        Form::Bf16 => Address::NULL,
        Form::Packed(form) => w.plus(copies * form.records_bytes(outputs, inputs)),
    }
}

fn kernel_for(tiles: &[LinearKernel], rows: usize) -> &LinearKernel {
    let fits = tiles.iter().find(|kernel| rows <= kernel.rows);
    fits.or(tiles.last()).expect("every form has kernels")
}

/// The kernel that computes a product unless another one was measured to be faster.
fn usual_kernel(kernels: &ProductKernels, key: ProductKey) -> &LinearKernel {
    kernel_for(kernels.tiles(key.form), key.class.rows())
}

/// The kernel that was remembered; the usual one where this device does not have it.
fn named_kernel<'a>(kernels: &'a ProductKernels, key: ProductKey, name: &str) -> &'a LinearKernel {
    let found = kernels.every_tile(key.form).find(|kernel| kernel.name == name);
    found.unwrap_or_else(|| usual_kernel(kernels, key))
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
    let shape = LaunchShape {
        grid: tiles.map(|side| side as u32),
        threads: kernel.threads,
        shared_bytes: kernel.shared,
    };
    Ok(stream.launch(function, shape, arguments)?)
}
