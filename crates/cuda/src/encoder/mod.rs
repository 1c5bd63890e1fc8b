//! An encoder on a GPU: batches of whole texts to vectors or scores.
//!
//! ```text
//! EncoderSpec, files ── weights ──┐
//! texts ── memory: arrays ────────┴── pass: launches, a graph per class ── pooled rows back
//! ```
//! The rest of this crate computes decoders; products, memory and upload are shared. A text's bits depend on that text alone.

mod decoder;
pub mod kernels;
mod memory;
mod pass;
mod weights;

use std::collections::HashMap;
use std::collections::hash_map::Entry;

use ropeway_model::LoadError;
use ropeway_model::encoder::device::{Asked, DeviceEncoder, DeviceFacts, DeviceFailure, Encoded};
use ropeway_model::encoder::score::ScoreEnd;
use ropeway_model::encoder::tensors::EncoderTensors;
use ropeway_model::encoder::{EncoderSpec, Pooling, Texts};
use ropeway_weights::Checkpoint;

pub use self::decoder::CudaTextDecoder;
use self::kernels::EncoderKernels;
use self::memory::{Arrays, Memory};
use self::pass::Net;
use self::weights::{LinearAt, UploadList};
use crate::driver::{Address, Buffer, Device, Graph, Pinned};
use crate::error::CudaError;
use crate::executor::CudaOptions;
use crate::load::{Tools, gigabytes};
use crate::products::{Bench, ProductKey, Products, Wanted};
use crate::shape::RowClass;

/// A device is given up after it was lost so often.
const MOST_LOSSES: usize = 3;

/// Passes after which an earlier loss is forgotten.
const PASSES_TO_FORGET: usize = 1000;

/// Memory that is left alone: a model beside this one needs some for its steps.
const RESERVE: usize = 1 << 30;

/// An encoder on a GPU, loaded again when the device was lost.
pub struct CudaEncoder {
    spec: EncoderSpec,
    head: Option<Head>,
    checkpoint: Checkpoint,
    options: CudaOptions,
    tokens: usize,
    loaded: Option<Loaded>,
    losses: Losses,
}

/// The head of a cross-encoder, but for its first matrix.
struct Head {
    pooling: Pooling,
    bias: Option<Vec<f32>>,
    end: ScoreEnd,
}

/// What is on the device.
struct Loaded {
    net: Net,
    layers: HashMap<RowClass, Graph>,
    arrays: Arrays,
    results: Pinned,
    _buffer: Buffer,
}

impl CudaEncoder {
    /// Loads an opened checkpoint, for passes of so many tokens.
    pub fn load(
        checkpoint: &Checkpoint,
        tokens: usize,
        options: CudaOptions,
        progress: &mut dyn FnMut(usize, usize),
    ) -> Result<Self, CudaError> {
        let spec = EncoderSpec::from_checkpoint(checkpoint).map_err(LoadError::from)?;
        check(&spec)?;
        let head = EncoderTensors::new(checkpoint, &spec).scorer()?.map(|scorer| Head {
            pooling: scorer.pooling,
            bias: scorer.dense.bias,
            end: scorer.end,
        });
        let tokens = RowClass::of(tokens).measured().rows();
        let loaded = Loaded::new(checkpoint, &spec, tokens, &options, progress)?;
        let checkpoint = checkpoint.clone();
        Ok(Self { spec, head, checkpoint, options, tokens, loaded: Some(loaded), losses: Losses::default() })
    }

    /// One line about where it runs.
    pub fn describe(&self) -> String {
        let Some(loaded) = &self.loaded else { return "a lost GPU".into() };
        loaded.net.stream.device().properties().name.clone()
    }

    fn run(&mut self, texts: &Texts<'_>, asked: Asked) -> Result<Encoded, CudaError> {
        if self.loaded.is_none() {
            let (checkpoint, options) = (&self.checkpoint, &self.options);
            let loaded = Loaded::new(checkpoint, &self.spec, self.tokens, options, &mut |_, _| {});
            self.loaded = Some(loaded.inspect_err(|_| self.losses.count())?);
        }
        let Some(loaded) = &mut self.loaded else { return Ok(Encoded::default()) };
        loaded.pass(texts)?;
        let vectors = asked.vectors.map(|pooling| loaded.vectors(texts, pooling)).transpose()?;
        let scores = match &self.head {
            Some(head) if asked.scores => loaded.scores(texts, head)?,
            _ => Vec::new(),
        };
        Ok(Encoded { vectors: vectors.unwrap_or_default(), scores })
    }

    /// Forgets a device that is lost, so that the next pass loads it again. What was queued on another one is over before its memory is
    /// used again.
    fn on_error(&mut self, error: &CudaError) -> DeviceFailure {
        let over = self.loaded.as_ref().map(|loaded| loaded.net.stream.synchronize());
        if over.is_some_and(|over| over.is_err_and(|error| error.is_lost())) {
            self.losses.count();
            self.loaded = None;
        }
        DeviceFailure(error.to_string())
    }
}

/// How often a device was lost lately.
#[derive(Clone, Copy, Debug, Default)]
struct Losses {
    count: usize,
    /// Good passes since the last one.
    passes: usize,
}

impl Losses {
    fn count(&mut self) {
        *self = Self { count: self.count + 1, passes: 0 };
    }

    /// A pass went well; after many of them what was before is forgotten.
    fn pass(&mut self) {
        self.passes += 1;
        if self.passes >= PASSES_TO_FORGET {
            *self = Self::default();
        }
    }

    fn are_too_many(&self) -> bool {
        self.count >= MOST_LOSSES
    }
}

impl DeviceEncoder for CudaEncoder {
    fn facts(&self) -> DeviceFacts {
        DeviceFacts {
            family: self.spec.family,
            dimensions: self.spec.hidden,
            max_tokens: self.spec.max_tokens,
            vocab: self.spec.vocab,
            can_score: self.head.is_some(),
            pooling: None,
            pass_tokens: self.tokens,
        }
    }

    fn room(&self, tokens: usize) -> usize {
        tokens
    }

    fn encode(&mut self, texts: &Texts<'_>, asked: Asked) -> Result<Encoded, DeviceFailure> {
        if self.losses.are_too_many() {
            return Err(given_up());
        }
        texts.check(self.tokens, &self.spec).map_err(|problem| DeviceFailure(problem.into()))?;
        let encoded = self.run(texts, asked).map_err(|error| self.on_error(&error))?;
        self.losses.pass();
        Ok(encoded)
    }
}

fn given_up() -> DeviceFailure {
    DeviceFailure(format!("the GPU was lost {MOST_LOSSES} times; restart the server once it is well again"))
}

/// Whether the kernels can run an encoder.
fn check(spec: &EncoderSpec) -> Result<(), CudaError> {
    let refuse = |problem: String| Err(CudaError::Shape(problem));
    if !spec.head_dim.is_multiple_of(16) || spec.head_dim > 128 {
        return refuse(format!("heads of {} values are not a multiple of 16 up to 128", spec.head_dim));
    }
    if !spec.hidden.is_multiple_of(8) || !spec.intermediate.is_multiple_of(8) {
        return refuse(format!("{} x {} values are not aligned", spec.hidden, spec.intermediate));
    }
    if spec.hidden > 16384 {
        return refuse(format!("a residual stream of {} values is wider than 16384", spec.hidden));
    }
    Ok(())
}

/// Whether weights and a pass fit beside what is on the device.
fn check_memory(device: &Device, weights: usize, working: usize) -> Result<(), CudaError> {
    device.make_current()?;
    let free = device.memory()?.free;
    // A small card has no use for a large reserve.
    let reserve = RESERVE.min(free / 8);
    if free - reserve >= weights + working {
        return Ok(());
    }
    Err(CudaError::Memory(format!(
        "the GPU has {} free; the model's weights need {}, a pass {}, and {} stay free for others. Run it on the CPU with `--device cpu`",
        gigabytes(free),
        gigabytes(weights),
        gigabytes(working),
        gigabytes(reserve),
    )))
}

impl Loaded {
    fn new(
        checkpoint: &Checkpoint,
        spec: &EncoderSpec,
        tokens: usize,
        options: &CudaOptions,
        progress: &mut dyn FnMut(usize, usize),
    ) -> Result<Self, CudaError> {
        let device = Device::open(&options.search, options.ordinal)?;
        let (packing, layout) = UploadList::of(checkpoint, spec)?;
        let (weights, working) = (packing.bytes(), Memory::bytes(spec, tokens));
        check_memory(&device, weights, working)?;
        let Tools { stream, compiler, blas } = Tools::new(&device, options)?;
        let kernels = EncoderKernels::load(&device, &compiler, spec)?;
        let weights = packing.upload(&stream, layout, progress)?;
        let buffer = device.allocate(working)?;
        let memory = Memory::new(spec, tokens, &buffer, &stream)?;
        let products = Products::new(blas, memory.products());
        let mut net = Net { stream, kernels, spec: spec.clone(), weights, memory, products };
        net.tune(tokens, options)?;
        Ok(Self {
            net,
            layers: HashMap::new(),
            arrays: Arrays::new(&device, tokens)?,
            results: device.allocate_pinned(tokens * spec.hidden * 4)?,
            _buffer: buffer,
        })
    }

    /// Queues all layers.
    fn pass(&mut self, texts: &Texts<'_>) -> Result<(), CudaError> {
        let Self { net, layers, arrays, .. } = self;
        net.stream.device().make_current()?;
        let class = RowClass::of(texts.tokens.len());
        arrays.upload(&net.stream, &net.memory, texts, class)?;
        let graph = match layers.entry(class) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(place) => place.insert(net.stream.capture(|| net.layers(class))?),
        };
        Ok(net.stream.launch_graph(graph)?)
    }

    fn vectors(&mut self, texts: &Texts<'_>, pooling: Pooling) -> Result<Vec<Vec<f32>>, CudaError> {
        self.net.pool(texts.rows.len(), pooling)?;
        self.download(self.net.memory.pooled, texts.rows.len())
    }

    fn scores(&mut self, texts: &Texts<'_>, head: &Head) -> Result<Vec<f32>, CudaError> {
        let Some(dense) = self.net.weights.layout.dense else { return Ok(Vec::new()) };
        self.net.pool(texts.rows.len(), head.pooling)?;
        self.net.dense(RowClass::of(texts.rows.len()), &dense)?;
        let mut rows = self.download(self.net.memory.dense, texts.rows.len())?;
        Ok(rows.iter_mut().map(|row| head.score(row)).collect())
    }

    /// The first rows of an array, once all that is queued is done.
    fn download(&mut self, from: Address, rows: usize) -> Result<Vec<Vec<f32>>, CudaError> {
        let width = self.net.spec.hidden;
        self.net.stream.download(&mut self.results, from, rows * width * 4)?;
        self.net.stream.synchronize()?;
        let words = &self.results.words_mut()[..rows * width];
        Ok(words
            .chunks_exact(width)
            .map(|row| row.iter().map(|bits| f32::from_bits(*bits)).collect())
            .collect())
    }
}

impl Head {
    fn score(&self, row: &mut [f32]) -> f32 {
        for (value, bias) in row.iter_mut().zip(self.bias.iter().flatten()) {
            *value += bias;
        }
        self.end.score(row)
    }
}

impl Net {
    /// Chooses how products are computed.
    fn tune(&mut self, tokens: usize, options: &CudaOptions) -> Result<(), CudaError> {
        let wanted = self.wanted(tokens);
        let device = &self.stream.device().properties().name;
        let bench = Bench {
            stream: &self.stream,
            kernels: &self.kernels.products,
            device,
            cache: options.cache.as_deref(),
        };
        self.products.tune(&bench, &wanted)
    }

    /// Every product in every class, with where its operands lie.
    fn wanted(&self, tokens: usize) -> Vec<Wanted> {
        let memory = &self.memory;
        let mut wanted: Vec<Wanted> = Vec::new();
        let mut want = |matrix: &LinearAt, input, output| {
            for class in RowClass::up_to(tokens) {
                let key = ProductKey::plain(matrix.shape, class);
                let weight = self.weights.at(matrix.weight);
                match wanted.iter_mut().find(|known| known.key == key) {
                    Some(known) => known.weights.push(weight),
                    None => wanted.push(Wanted { key, input, output, weights: vec![weight] }),
                }
            }
        };
        for layer in &self.weights.layout.layers {
            want(&layer.qkv, memory.ready, memory.projections);
            want(&layer.output, memory.attended, memory.branch);
            want(&layer.up, memory.ready, memory.inner);
            want(&layer.down, memory.activated, memory.branch);
        }
        if let Some(dense) = &self.weights.layout.dense {
            want(dense, memory.pooled_ready, memory.dense);
        }
        wanted
    }
}
