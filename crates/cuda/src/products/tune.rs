//! Measuring: which way computes a product fastest with the judge's bits, remembered on disk.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use super::{Choice, Launch, ProductKey, Products, Recipe, usual_kernel};
use crate::blas::{Blas, Operands, ProductShape, Splits};
use crate::compile::keep;
use crate::driver::{Address, Event, Shape, Stream};
use crate::error::CudaError;
use crate::kernels::{LinearKernel, ProductKernels, Randomise};
use crate::plan::Form;
use crate::shape::{LEAST_ROWS, RowClass};

/// Rows that are compared with the judge's.
const JUDGED: usize = LEAST_ROWS;

/// Algorithms that are timed for one product: with few rows they differ more, and take less time.
const TIMED: usize = 6;
const TIMED_LARGE: usize = 3;
const LARGE: usize = 1024;

/// Rows up to which our own kernel can be the fastest: reading weights takes longer than multiplying them, and it begins to read while the
/// kernel before it ends.
const OWN_ROWS: usize = 32;
/// Rows from which unpacking a matrix for the library can pay: it writes three times the bytes that a packed product reads.
const UNPACKED: usize = 96;

/// Bytes of weights that one timing reads: several times the cache of any GPU.
const TIMED_BYTES: usize = 1 << 30;

/// Raised whenever what is remembered on disk means something else.
const FORMAT: u32 = 5;

/// What tuning needs besides the products.
pub struct Bench<'a> {
    /// Where work is queued.
    pub stream: &'a Stream,
    /// The judge, and random inputs.
    pub kernels: &'a ProductKernels,
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

impl<'a> Bench<'a> {
    fn launch(&self, wanted: &Wanted, call: usize) -> Launch<'a> {
        let Self { stream, kernels, .. } = *self;
        Launch { stream, kernels, key: wanted.key, operands: wanted.operands(call) }
    }
}

impl Products {
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
        let compared = key.class.rows().min(JUDGED) * key.outputs * key.results.bytes();
        let usual = Recipe::Own(usual_kernel(bench.kernels, key).name.to_owned());
        let mut best = Choice { recipe: usual, microseconds: f64::INFINITY };
        let (packed, rows) = (key.form != Form::Bf16, key.class.rows());
        let by_library = self.has_room_for(&key) && (!packed || rows >= UNPACKED);
        let mut candidates = Vec::new();
        if rows <= OWN_ROWS || packed && (rows <= LARGE || !by_library) {
            candidates.extend(own_candidates(bench.kernels, key));
        }
        if by_library {
            candidates.extend(library_candidates(blas, key, self.scratch.bytes)?);
        }
        for recipe in candidates {
            forget_rows(bench, wanted)?;
            if self.by_recipe(blas, bench.launch(wanted, 0), &recipe).is_err() {
                continue;
            }
            if read_rows(bench, wanted)?[..compared] != judged[..compared] {
                tracing::debug!(product = key.name(), ?recipe, "a way with other bits is left out");
                continue;
            }
            let microseconds = self.time(blas, bench, &recipe, wanted)?;
            if microseconds < best.microseconds {
                best = Choice { recipe, microseconds };
            }
        }
        if by_library && best.microseconds.is_infinite() {
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
        self.own(Launch { key, ..bench.launch(wanted, 0) }, usual_kernel(bench.kernels, key))?;
        read_rows(bench, wanted)
    }

    /// Microseconds of one product, with weights that are not in the cache. Before a small one, a kernel writes its rows, as in a step: what
    /// a way gains by beginning early counts.
    fn time(
        &self,
        blas: &Blas,
        bench: &Bench<'_>,
        recipe: &Recipe,
        wanted: &Wanted,
    ) -> Result<f64, CudaError> {
        let key = wanted.key;
        let bytes = key.outputs * key.inputs * 2;
        let large = key.class.rows() > LARGE;
        let (calls, rounds) = if large { (2, 2) } else { ((TIMED_BYTES / bytes).clamp(4, 32), 5) };
        let queue = |call| {
            if !large {
                randomise_input(bench, wanted)?;
            }
            self.by_recipe(blas, bench.launch(wanted, call), recipe)
        };
        time_calls(bench.stream, calls, rounds, queue)
    }
}

/// Microseconds of one call in the fastest of several rounds.
pub(super) fn time_calls(
    stream: &Stream,
    calls: usize,
    rounds: usize,
    queue: impl Fn(usize) -> Result<(), CudaError>,
) -> Result<f64, CudaError> {
    let graph = stream.capture(|| (0..calls).try_for_each(&queue))?;
    let device = stream.device();
    let (before, after): (Event, Event) = (device.event()?, device.event()?);
    let mut best = f64::INFINITY;
    for _ in 0..rounds {
        stream.record(&before)?;
        stream.launch_graph(&graph)?;
        stream.record(&after)?;
        after.synchronize()?;
        best = best.min(after.seconds_since(&before)?);
    }
    Ok(best * 1e6 / calls as f64)
}

/// Our kernels that may be the fastest, the usual one first.
fn own_candidates(kernels: &ProductKernels, key: ProductKey) -> Vec<Recipe> {
    let usual = usual_kernel(kernels, key).name;
    let suits = |kernel: &&LinearKernel| kernel.suits(key.class.rows()) && kernel.name != usual;
    let others = kernels.every_tile(key.form).filter(suits);
    let names = std::iter::once(usual).chain(others.map(|kernel| kernel.name));
    names.map(|name| Recipe::Own(name.to_owned())).collect()
}

/// The library's ways to compute a product.
fn library_candidates(blas: &Blas, key: ProductKey, workspace: usize) -> Result<Vec<Recipe>, CudaError> {
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
    let count = (wanted.key.class.rows().max(JUDGED) * wanted.key.inputs) as u64;
    let shape = Shape { grid: [256, 1, 1], threads: 256, shared_bytes: 0 };
    let arguments = Randomise { values: wanted.input, count, seed: 1, amount: 1.0 };
    Ok(bench.stream.launch(&bench.kernels.randomise, shape, &arguments)?)
}

/// Nothing of the first rows is there any more: who writes nothing can't look right.
fn forget_rows(bench: &Bench<'_>, wanted: &Wanted) -> Result<(), CudaError> {
    let bytes = JUDGED * wanted.key.outputs * wanted.key.results.bytes();
    Ok(bench.stream.fill(wanted.output, 0xff, bytes)?)
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
    if let Ok(text) = serde_json::to_vec(known) {
        let _ = keep(place, &text);
    }
}
