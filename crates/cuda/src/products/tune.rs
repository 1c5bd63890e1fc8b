//! Measuring: which way computes a product fastest with the reference's bits, remembered on disk.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use super::{Choice, Launch, ProductKey, Products, Recipe, tiles, usual_kernel};
use crate::blas::{Blas, Operands, Scratch, Splits};
use crate::compile::write_atomically;
use crate::driver::{Address, Event, Graph, LaunchShape, Stream};
use crate::error::CudaError;
use crate::kernels::{LinearKernel, ProductKernels, Randomise};
use crate::plan::Form;
use crate::shape::LEAST_ROWS;
use crate::workspace::PRODUCT_BYTES;

/// Algorithms of each kind that are timed for one product. The library's own order says little: its last one is often the fastest.
const TIMED: usize = 12;
/// Rows above which a call is long enough to be timed by itself.
const LARGE: usize = 1024;
/// How often those are timed that come near the fastest in the first rounds.
const ROUNDS: usize = 4;
const NEAR: f64 = 1.05;

/// Bytes of further slices that the residual kernel reads in a second, on top of what it does anyway.
const ADDED_PER_SECOND: f64 = 4e12;

/// Rows above which slices one after the other can be the fastest: fewer don't fill the device by themselves.
const ACCUMULATED_ROWS: usize = 256;

/// Rows up to which our own kernel can be the fastest: reading weights takes longer than multiplying them, and it begins to read while the
/// kernel before it ends.
const OWN_ROWS: usize = 32;
/// Rows from which unpacking a matrix for the library can pay: it writes three times the bytes that a packed product reads.
const UNPACKED: usize = 96;

/// Bytes of weights that one timing reads: several times the cache of any GPU.
const TIMED_BYTES: usize = 1 << 30;

/// Raised whenever what is remembered on disk means something else.
const FORMAT: u32 = 13;

/// What tuning needs besides the products.
pub struct Bench<'a> {
    /// Where work is queued.
    pub stream: &'a Stream,
    /// The reference, and random inputs.
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
    pub(super) fn launch(&self, wanted: &Wanted, call: usize) -> Launch<'a> {
        let Self { stream, kernels, .. } = *self;
        Launch { stream, kernels, key: wanted.key, operands: wanted.operands(call) }
    }
}

impl Products {
    /// Chooses how each of these products is computed.
    pub fn tune(&mut self, bench: &Bench<'_>, wanted: &[Wanted]) -> Result<(), CudaError> {
        let Some(blas) = self.blas.take() else { return Ok(()) };
        let place = bench.cache.map(|folder| choices_file(folder, bench.device, blas.version()));
        let mut known = place.as_deref().and_then(read_choices).unwrap_or_default();
        let mut fresh = false;
        for wanted in measured_first(wanted) {
            let name = wanted.key.name();
            let choice =
                if let Some(choice) = known.get(&name).filter(|known| self.has_room(known, &wanted.key)) {
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
            write_choices(&place, &known);
        }
        self.blas = Some(blas);
        Ok(())
    }

    /// Whether a remembered way still fits into the scratch.
    fn has_room(&self, choice: &Choice, key: &ProductKey) -> bool {
        !matches!(choice.recipe, Recipe::Batched(_)) || self.batched(key).is_some()
    }

    /// The fastest way that gives the reference's bits; with numbers of rows that are not measured, the way of the next one that was.
    fn choose(&self, blas: &Blas, bench: &Bench<'_>, wanted: &Wanted) -> Result<Choice, CudaError> {
        let key = wanted.key;
        if let Some(choice) = self.choices.get(&key.measured()) {
            if !self.matching(blas, bench, wanted, vec![choice.recipe.clone()])?.is_empty() {
                return Ok(choice.clone());
            }
            tracing::info!(
                product = key.name(),
                "the way of the next measured number of rows gives other bits"
            );
        }
        let (packed, rows) = (key.form != Form::Bf16, key.class.rows());
        let by_library = self.has_room_for(&key) && (!packed || rows >= UNPACKED);
        let mut recipes = Vec::new();
        if rows <= OWN_ROWS || packed && (rows <= LARGE || !by_library) {
            recipes.extend(own_candidates(bench.kernels, key));
        }
        if by_library {
            recipes.extend(self.library_candidates(blas, bench, key)?);
        }
        let mut right = self.matching(blas, bench, wanted, recipes)?;
        if right.is_empty() && by_library {
            tracing::warn!(
                product = key.name(),
                "no algorithm of cuBLASLt gives the expected bits; the own kernel computes it"
            );
        }
        if right.is_empty() {
            right.push(Recipe::Own(usual_kernel(bench.kernels, key).name.to_owned()));
        }
        let candidates = right.into_iter().map(|recipe| self.candidate(blas, bench, recipe, wanted));
        fastest(bench.stream, candidates.collect::<Result<_, _>>()?)
    }

    /// The library's ways to compute a product.
    fn library_candidates(
        &self,
        blas: &Blas,
        bench: &Bench<'_>,
        key: ProductKey,
    ) -> Result<Vec<Recipe>, CudaError> {
        let multiprocessors = bench.stream.device().properties().multiprocessors as usize;
        let found = |shape, splits, scratch: Scratch| -> Result<Vec<[u64; 8]>, CudaError> {
            let product = blas.product(shape)?;
            // What is remembered has to do with the least scratch that a model may have.
            let bytes = scratch.bytes.min(PRODUCT_BYTES);
            let mut algorithms = product.algorithms(splits, bytes)?;
            algorithms.truncate(TIMED);
            if let (Splits::None, Some(&first)) = (splits, algorithms.first()) {
                let tiled = |tiling| product.tiled(first, tiling, bytes);
                algorithms.extend(tiles::suited(&shape, multiprocessors).into_iter().filter_map(tiled));
            }
            Ok(algorithms.into_iter().map(|algorithm| algorithm.0).collect())
        };
        if key.slices == 1 {
            let whole = found(key.shape(), Splits::None, self.scratch)?;
            return Ok(whole.into_iter().map(Recipe::Library).collect());
        }
        let Some(slice) = key.slice_shape() else {
            let pinned = found(key.shape(), Splits::Exactly(key.slices), self.scratch)?;
            return Ok(pinned.into_iter().map(Recipe::Library).collect());
        };
        let beside = self.batched(&key);
        let mut recipes = Vec::new();
        if beside.is_none() || key.class.rows() > ACCUMULATED_ROWS {
            recipes.extend(found(slice, Splits::None, self.scratch)?.into_iter().map(Recipe::Accumulated));
        }
        if let Some((all, _, rest)) = beside {
            recipes.extend(found(all, Splits::None, rest)?.into_iter().map(Recipe::Batched));
        }
        Ok(recipes)
    }

    /// Calls of a way, with weights that are not in the cache. Before a small product, a kernel writes its rows, as in a step: what a way
    /// gains by beginning early counts.
    fn candidate(
        &self,
        blas: &Blas,
        bench: &Bench<'_>,
        recipe: Recipe,
        wanted: &Wanted,
    ) -> Result<Candidate, CudaError> {
        let key = wanted.key;
        let large = key.class.rows() > LARGE;
        let calls = if large { 1 } else { (TIMED_BYTES / (key.outputs * key.inputs * 2)).clamp(1, 32) };
        let queue = |call| {
            if !large {
                randomise_input(bench, wanted)?;
            }
            self.by_recipe(blas, bench.launch(wanted, call), &recipe)
        };
        let graph = bench.stream.capture(|| (0..calls).try_for_each(queue))?;
        let further = if matches!(recipe, Recipe::Batched(_)) { key.slices - 1 } else { 0 };
        let added = further * key.slice_values() * key.results.bytes();
        Ok(Candidate { recipe, graph, calls, adding: added as f64 / ADDED_PER_SECOND, seconds: Vec::new() })
    }
}

/// A way to compute a product, and how long its calls took.
struct Candidate {
    recipe: Recipe,
    graph: Graph,
    calls: usize,
    /// Seconds that its reader takes to add up what it leaves.
    adding: f64,
    /// Seconds of all calls, each time.
    seconds: Vec<f64>,
}

impl Candidate {
    /// Microseconds of one call, in the middle of all that were timed.
    fn microseconds(&self) -> f64 {
        let mut seconds = self.seconds.clone();
        seconds.sort_by(f64::total_cmp);
        let middle = seconds.get(seconds.len() / 2).copied().unwrap_or(f64::INFINITY);
        (middle / self.calls as f64 + self.adding) * 1e6
    }

    /// Seconds of the fastest calls.
    fn fastest(&self) -> f64 {
        self.seconds.iter().copied().fold(f64::INFINITY, f64::min)
    }
}

/// Those with numbers of rows that are measured, then those that are computed in their ways.
fn measured_first(wanted: &[Wanted]) -> impl Iterator<Item = &Wanted> {
    let is_measured = |wanted: &&Wanted| wanted.key.measured() == wanted.key;
    wanted.iter().filter(is_measured).chain(wanted.iter().filter(move |wanted| !is_measured(wanted)))
}

/// The fastest of one or more ways, timed in turn. Timed each by itself, repeated until the clock has settled, other ways win, and a step of
/// 256 rows of an 8B model is 1 % slower (H200): beside attention, which leaves the GPU some of its power, clocks count more than energy.
fn fastest(stream: &Stream, mut candidates: Vec<Candidate>) -> Result<Choice, CudaError> {
    // The first time that a graph is launched takes longer.
    time_in_turn(stream, &mut candidates, 2)?;
    let best = candidates.iter().map(Candidate::fastest).fold(f64::INFINITY, f64::min);
    candidates.retain(|candidate| candidate.fastest() <= best * NEAR);
    time_in_turn(stream, &mut candidates, ROUNDS)?;
    let choices = candidates.into_iter().map(|candidate| {
        let microseconds = candidate.microseconds();
        Choice { recipe: candidate.recipe, microseconds }
    });
    let fastest = choices.min_by(|one, other| one.microseconds.total_cmp(&other.microseconds));
    Ok(fastest.expect("there is at least one candidate"))
}

/// Times all candidates, so many times. They take turns, without a pause: a GPU that is kept busy slows down, and all of them should be timed as
/// busy as it will be.
fn time_in_turn(stream: &Stream, candidates: &mut [Candidate], rounds: usize) -> Result<(), CudaError> {
    let device = stream.device();
    let mark = || -> Result<Event, CudaError> {
        let event = device.event()?;
        stream.record(&event)?;
        Ok(event)
    };
    let mut marks = vec![mark()?];
    for _ in 0..rounds {
        for candidate in &*candidates {
            stream.launch_graph(&candidate.graph)?;
            marks.push(mark()?);
        }
    }
    stream.synchronize()?;
    for (index, pair) in marks.windows(2).enumerate() {
        let seconds = pair[1].seconds_since(&pair[0])?;
        candidates[index % candidates.len()].seconds.push(seconds);
    }
    Ok(())
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

pub(super) fn randomise_input(bench: &Bench<'_>, wanted: &Wanted) -> Result<(), CudaError> {
    let count = (wanted.key.class.rows().max(LEAST_ROWS) * wanted.key.inputs) as u64;
    let shape = LaunchShape { grid: [256, 1, 1], threads: 256, shared_bytes: 0 };
    let arguments = Randomise { values: wanted.input, count, seed: 1, amount: 1.0 };
    Ok(bench.stream.launch(&bench.kernels.randomise, shape, &arguments)?)
}

fn choices_file(folder: &Path, device: &str, version: i32) -> PathBuf {
    let device: String = device.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '-' }).collect();
    folder.join(format!("products-{device}-{version}-{FORMAT}.json"))
}

fn read_choices(place: &Path) -> Option<HashMap<String, Choice>> {
    serde_json::from_slice(&std::fs::read(place).ok()?).ok()
}

/// A memory that can't be written costs time at the next start, nothing else.
fn write_choices(place: &Path, known: &HashMap<String, Choice>) {
    if let Ok(text) = serde_json::to_vec(known) {
        let _ = write_atomically(place, &text);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shape::RowClass;

    #[test]
    fn every_product_follows_the_one_whose_way_it_takes() {
        let wanted: Vec<Wanted> = RowClass::up_to(8192)
            .map(|class| Wanted {
                key: ProductKey::plain([64, 64], class),
                input: Address::NULL,
                output: Address::NULL,
                weights: Vec::new(),
            })
            .collect();
        let order: Vec<ProductKey> = measured_first(&wanted).map(|wanted| wanted.key).collect();
        assert_eq!(order.len(), wanted.len());
        for (at, key) in order.iter().enumerate() {
            let measured = order.iter().position(|other| *other == key.measured());
            assert!(measured.is_some_and(|measured| measured <= at), "{}", key.name());
        }
    }
}
