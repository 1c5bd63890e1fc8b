//! Matrix products: which way each is computed, chosen by measuring and only among ways that give the same bits.
//!
//! ```text
//! (matrix shape, class) ── tune ──> Recipe: the library with a pinned split, the library slice by slice, or our own kernel
//! ```
//! Our own kernel is the judge: an algorithm of the library is used only if its first rows equal the judge's bit for bit. So a row's sums
//! are the same in every class, whatever computes it. Without the library our kernel computes everything.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::blas::{Algorithm, Blas, Operands, ProductShape, Scratch, Splits};
use crate::driver::{Address, Event, Shape, Stream};
use crate::error::CudaError;
use crate::kernels::{Kernels, Linear, LinearKernel, Randomise};
use crate::plan::{MatrixPlan, Results};
use crate::shape::RowClass;
use crate::workspace::{PRODUCT_BYTES, PRODUCT_TILES, Workspace};

/// Rows that are compared with the judge's.
const JUDGED: usize = 8;

/// Algorithms that are timed for one product: with few rows they differ more, and take less time.
const TIMED: usize = 6;
const TIMED_LARGE: usize = 3;
const LARGE: usize = 1024;

/// Bytes of weights that one timing reads at most: beyond the cache of any GPU.
const TIMED_BYTES: usize = 256 << 20;

/// Raised whenever what is remembered on disk means something else.
const FORMAT: u32 = 1;

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

/// What tuning needs besides the products.
pub struct Bench<'a> {
    /// Where work is queued.
    pub stream: &'a Stream,
    /// The judge, and random inputs.
    pub kernels: &'a Kernels,
    /// The device's name.
    pub device: &'a str,
    /// The folder that remembers.
    pub cache: Option<&'a Path>,
}

/// A product that is to be tuned.
pub struct Wanted {
    /// What it is.
    pub key: ProductKey,
    /// Where its inputs lie; overwritten.
    pub input: Address,
    /// Where its results go.
    pub output: Address,
    /// Where the matrices of this shape lie.
    pub weights: Vec<Address>,
}

impl Wanted {
    fn operands(&self, call: usize) -> Operands {
        Operands { w: self.weights[call % self.weights.len()], x: self.input, y: self.output }
    }
}

impl Products {
    /// Products by the library if there is one.
    pub fn new(blas: Option<Blas>, workspace: &Workspace) -> Self {
        let scratch = Scratch { address: workspace.product_bytes, bytes: PRODUCT_BYTES };
        Self { blas, choices: HashMap::new(), scratch, finished: workspace.product_finished }
    }

    /// Chooses how each of these products is computed.
    pub fn tune(&mut self, bench: &Bench<'_>, wanted: &[Wanted]) -> Result<(), CudaError> {
        let Some(blas) = self.blas.take() else { return Ok(()) };
        let place = bench.cache.map(|folder| memory_file(folder, bench.device, blas.version()));
        let mut known = place.as_deref().and_then(remembered).unwrap_or_default();
        let mut fresh = false;
        for wanted in wanted {
            let name = wanted.key.name();
            let choice = if let Some(choice) = known.get(&name) {
                choice.clone()
            } else {
                fresh = true;
                let choice = self.choose(&blas, bench, wanted)?;
                known.insert(name, choice.clone());
                choice
            };
            self.choices.insert(wanted.key, choice);
        }
        if let Some(place) = place.filter(|_| fresh) {
            remember(&place, &known);
        }
        self.blas = Some(blas);
        Ok(())
    }

    /// The fastest way that gives the judge's bits.
    fn choose(&self, blas: &Blas, bench: &Bench<'_>, wanted: &Wanted) -> Result<Choice, CudaError> {
        let key = wanted.key;
        randomise_input(bench, wanted)?;
        let judged = self.judge(bench, wanted)?;
        let mut best = Choice { recipe: Recipe::Own, microseconds: f64::INFINITY };
        for recipe in candidates(blas, key, self.scratch.bytes)? {
            if self.by_library(blas, bench.stream, &recipe, key, wanted.operands(0)).is_err() {
                continue;
            }
            if read_rows(bench, wanted)? != judged {
                tracing::debug!(product = key.name(), "an algorithm with other bits is left out");
                continue;
            }
            let microseconds = self.time(blas, bench, &recipe, wanted)?;
            if microseconds < best.microseconds {
                best = Choice { recipe, microseconds };
            }
        }
        if best.recipe == Recipe::Own {
            tracing::warn!(
                product = key.name(),
                "no algorithm of cuBLASLt gives the expected bits; the own kernel computes it"
            );
        }
        Ok(best)
    }

    /// The judge's first rows.
    fn judge(&self, bench: &Bench<'_>, wanted: &Wanted) -> Result<Vec<u8>, CudaError> {
        let key = ProductKey { class: RowClass::of(JUDGED), ..wanted.key };
        self.own(bench.stream, bench.kernels, key, wanted.operands(0))?;
        read_rows(bench, wanted)
    }

    /// Microseconds of one product, with weights that are not in the cache.
    fn time(
        &self,
        blas: &Blas,
        bench: &Bench<'_>,
        recipe: &Recipe,
        wanted: &Wanted,
    ) -> Result<f64, CudaError> {
        let key = wanted.key;
        let bytes = key.outputs * key.inputs * 2;
        let calls = (TIMED_BYTES / bytes).clamp(2, 24);
        let graph = bench.stream.capture(|| {
            (0..calls)
                .try_for_each(|call| self.by_library(blas, bench.stream, recipe, key, wanted.operands(call)))
        })?;
        let device = bench.stream.device();
        let (before, after): (Event, Event) = (device.event()?, device.event()?);
        let mut best = f64::INFINITY;
        for _ in 0..3 {
            bench.stream.record(&before)?;
            bench.stream.launch_graph(&graph)?;
            bench.stream.record(&after)?;
            after.synchronize()?;
            best = best.min(after.seconds_since(&before)?);
        }
        Ok(best * 1e6 / calls as f64)
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
        kernels: &Kernels,
        key: ProductKey,
        operands: Operands,
    ) -> Result<(), CudaError> {
        match (&self.blas, self.choices.get(&key)) {
            (Some(blas), Some(Choice { recipe, .. })) if *recipe != Recipe::Own => {
                self.by_library(blas, stream, recipe, key, operands)
            }
            _ => self.own(stream, kernels, key, operands),
        }
    }

    fn by_library(
        &self,
        blas: &Blas,
        stream: &Stream,
        recipe: &Recipe,
        key: ProductKey,
        operands: Operands,
    ) -> Result<(), CudaError> {
        match recipe {
            Recipe::Own => Ok(()),
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
        kernels: &Kernels,
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
        kernels: &Kernels,
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

fn kernel_for(kernels: &Kernels, rows: usize) -> &LinearKernel {
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
    let shape = Shape { grid: tiles.map(|side| side as u32), threads: 128, shared_bytes: kernel.shared };
    Ok(stream.launch(function, shape, arguments)?)
}

/// The library's ways to compute a product.
fn candidates(blas: &Blas, key: ProductKey, workspace: usize) -> Result<Vec<Recipe>, CudaError> {
    let whole = blas.product(key.shape())?;
    let timed = if key.class.rows() > LARGE { TIMED_LARGE } else { TIMED };
    if key.slices == 1 {
        let found = whole.algorithms(Splits::None, workspace)?;
        return Ok(found.into_iter().take(timed).map(|algorithm| Recipe::Library(algorithm.0)).collect());
    }
    let pinned = whole.algorithms(Splits::Pinned(key.slices), workspace)?;
    let (_, k) = key.slice(0);
    let slice = blas.product(ProductShape { k, ..key.shape() })?;
    // Slices of one length only: an algorithm is asked for a shape.
    let even = (0..key.slices).all(|index| key.slice(index).1 == k);
    let chained = if even { slice.algorithms(Splits::None, workspace)? } else { Vec::new() };
    let pinned = pinned.into_iter().take(2 * timed).map(|algorithm| Recipe::Library(algorithm.0));
    let chained = chained.into_iter().take(timed.div_ceil(2)).map(|algorithm| Recipe::Chained(algorithm.0));
    Ok(pinned.chain(chained).collect())
}

fn randomise_input(bench: &Bench<'_>, wanted: &Wanted) -> Result<(), CudaError> {
    let count = (wanted.key.class.rows() * wanted.key.inputs) as u64;
    let shape = Shape { grid: [256, 1, 1], threads: 256, shared_bytes: 0 };
    let arguments = Randomise { values: wanted.input, count, seed: 1, amount: 1.0 };
    Ok(bench.stream.launch(&bench.kernels.randomise, shape, &arguments)?)
}

/// The first rows of the results.
fn read_rows(bench: &Bench<'_>, wanted: &Wanted) -> Result<Vec<u8>, CudaError> {
    let bytes = JUDGED * wanted.key.outputs * wanted.key.results.bytes();
    let mut pinned = bench.stream.device().allocate_pinned(bytes)?;
    bench.stream.download(&mut pinned, wanted.output, bytes)?;
    bench.stream.synchronize()?;
    Ok(pinned.bytes().to_vec())
}

fn memory_file(folder: &Path, device: &str, version: i32) -> PathBuf {
    let device: String = device.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '-' }).collect();
    folder.join(format!("products-{device}-{version}-{FORMAT}.json"))
}

fn remembered(place: &Path) -> Option<HashMap<String, Choice>> {
    serde_json::from_slice(&std::fs::read(place).ok()?).ok()
}

/// A memory that can't be written costs time at the next start, nothing else.
fn remember(place: &Path, known: &HashMap<String, Choice>) {
    let beside = place.with_extension("part");
    let written = serde_json::to_vec(known).ok().and_then(|text| std::fs::write(&beside, text).ok());
    if written.is_some() {
        let _ = std::fs::rename(beside, place);
    }
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
