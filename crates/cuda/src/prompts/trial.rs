//! Attention by itself, on random queries, keys and values: for tests and measurements.

use ropeway_executor::{Batch, BlockId};

use super::{PromptForm, PromptKernel};
use crate::compile::Compiler;
use crate::decodes::{DecodeForm, DecodeKernels, FormKernels};
use crate::driver::{Buffer, Device, DriverError, Properties, Stream};
use crate::error::CudaError;
use crate::executor::CudaOptions;
use crate::kernels::{Attend, BLOCK, KernelConstants};
use crate::kv::KvForm;
use crate::sections::{DecodeStrategy, Filler, Sections, StepKind};
use crate::shape::{ModelShape, RowClass, StepShape};

/// A GPU and its compiler.
pub struct AttentionBench {
    /// The GPU's queue.
    pub stream: Stream,
    compiler: Compiler,
}

impl AttentionBench {
    /// Opens the GPU that the options name.
    pub fn open(options: &CudaOptions) -> Result<Self, CudaError> {
        let device = Device::open(&options.search, options.ordinal)?;
        let properties = device.properties();
        let library = options.search.compiler(properties.driver_version / 1000)?;
        let compiler = Compiler::new(library, properties.capability, options.cache.clone())?;
        Ok(Self { stream: device.stream()?, compiler })
    }

    /// Compiles forms of prompt kernels and all of decode kernels for every head dimension that has several, side by side, so that the
    /// cache has them.
    pub fn prepare(&self, forms: &[PromptForm]) -> Result<(), CudaError> {
        let shapes = [(64, false), (64, true), (128, false), (128, true)];
        let Properties { shared_bytes, capability, .. } = *self.stream.device().properties();
        let mut sources = Vec::new();
        for ((head_dim, capped), kv) in shapes.into_iter().flat_map(|one| KvForm::ALL.map(|kv| (one, kv))) {
            let decode_forms = DecodeForm::possible(capability, head_dim, kv);
            let constants = KernelConstants { head_dim, hidden: 0, capped, kv, decode_forms, shared_bytes };
            let shape = constants.attend_shape()?;
            sources.extend(forms.iter().map(|form| form.source(constants, &shape)));
            sources.extend(DecodeKernels::sources(constants)?);
        }
        let compiler = &self.compiler;
        std::thread::scope(|scope| {
            let compile = |source| scope.spawn(move || compiler.compiled(source).map(drop));
            let threads: Vec<_> = sources.iter().map(compile).collect();
            threads.into_iter().try_for_each(|thread| thread.join().expect("a compiler does not panic"))
        })?;
        Ok(())
    }

    /// A form's kernels for a trial's decoded rows.
    pub fn decode_kernels(&self, form: DecodeForm, trial: &AttentionCase) -> Result<FormKernels, CudaError> {
        let constants = trial.constants(self.stream.device());
        let load = |source| -> Result<_, CudaError> {
            let compiled = self.compiler.compiled(&source)?;
            Ok(self.stream.device().module(&compiled.image)?)
        };
        let [decode, whole_rows] = FormKernels::sources(form, constants)?.map(load);
        FormKernels::find(form, [&decode?, &whole_rows?], constants)
    }

    /// A kernel for a trial's prompts.
    pub fn kernel(&self, form: PromptForm, trial: &AttentionCase) -> Result<PromptKernel, CudaError> {
        let constants = trial.constants(self.stream.device());
        let shape = constants.attend_shape()?;
        let compiled = self.compiler.compiled(&form.source(constants, &shape))?;
        let module = self.stream.device().module(&compiled.image)?;
        PromptKernel::find(form, &module, constants)
    }
}

/// A piece of one sequence's prompt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Piece {
    /// Tokens before it.
    pub after: usize,
    /// Its tokens.
    pub tokens: usize,
}

/// One step's attention.
#[derive(Clone, Debug, PartialEq)]
pub struct AttentionCase {
    /// Query heads.
    pub heads: usize,
    /// Heads of keys and values.
    pub kv_heads: usize,
    /// Values of a head.
    pub head_dim: usize,
    /// The sliding window.
    pub window: Option<usize>,
    /// Cap of the scores.
    pub cap: Option<f32>,
    /// One for each sequence.
    pub pieces: Vec<Piece>,
    /// The form of keys and values.
    pub kv: KvForm,
    /// Of the numbers.
    pub seed: u64,
}

/// How large random trials get.
#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    /// Heads of keys and values.
    pub kv_heads: usize,
    /// Query heads that share one of them.
    pub group: usize,
    /// Tokens of a piece, and before it.
    pub tokens: usize,
    /// Pieces.
    pub pieces: usize,
}

impl AttentionCase {
    /// A trial that the seed decides.
    pub fn random(seed: u64, bounds: Bounds) -> Self {
        let mut numbers = Numbers::new(seed);
        let kv_heads = 1 + numbers.below(bounds.kv_heads);
        let piece = |numbers: &mut Numbers| Piece {
            after: numbers.below(2) * numbers.below(bounds.tokens),
            // One token would be decoded.
            tokens: 2 + numbers.below(bounds.tokens),
        };
        Self {
            heads: kv_heads * (1 + numbers.below(bounds.group)),
            kv_heads,
            head_dim: [64, 128][numbers.below(2)],
            window: (numbers.below(2) == 0).then(|| 1 + numbers.below(bounds.tokens)),
            cap: (numbers.below(3) == 0).then(|| 1.0 + numbers.below(30) as f32),
            pieces: (0..=numbers.below(bounds.pieces)).map(|_| piece(&mut numbers)).collect(),
            kv: KvForm::ALL[numbers.below(2)],
            seed,
        }
    }

    /// The same with one token of each sequence, which is decoded.
    pub fn random_decodes(seed: u64, bounds: Bounds) -> Self {
        let trial = Self::random(seed, bounds);
        let decoded = |piece: Piece| Piece { after: piece.after + piece.tokens - 1, tokens: 1 };
        Self { pieces: trial.pieces.iter().copied().map(decoded).collect(), ..trial }
    }

    /// Operations on the keys that its tokens see: two products of two operations each.
    pub fn operations(&self) -> f64 {
        let seen = |position: usize| (position + 1).min(self.window.unwrap_or(usize::MAX));
        let positions = self.pieces.iter().flat_map(|piece| piece.after..piece.after + piece.tokens);
        positions.map(seen).sum::<usize>() as f64 * (4 * self.heads * self.head_dim) as f64
    }

    /// What its decoded rows can attend with.
    pub fn decode_forms(&self, device: &Device) -> &'static [DecodeForm] {
        DecodeForm::possible(device.properties().capability, self.head_dim, self.kv)
    }

    fn constants(&self, device: &Device) -> KernelConstants {
        KernelConstants {
            head_dim: self.head_dim,
            hidden: self.heads * self.head_dim,
            capped: self.cap.is_some(),
            kv: self.kv,
            decode_forms: self.decode_forms(device),
            shared_bytes: device.properties().shared_bytes,
        }
    }

    fn tokens(&self) -> usize {
        self.pieces.iter().map(|piece| piece.tokens).sum()
    }

    fn model(&self) -> ModelShape {
        ModelShape {
            vocab: 64,
            hidden: self.heads * self.head_dim,
            heads: self.heads,
            kv_heads: self.kv_heads,
            head_dim: self.head_dim,
            kv: self.kv,
            layers: 1,
            context: self.pieces.iter().map(|piece| piece.after + piece.tokens).max().unwrap_or(1),
            gated: 64,
            experts: 0,
            top_k: 0,
            windows: 1,
            unpacked: 0,
            branch_slices: 0,
        }
    }

    /// The step's batch; sequences' blocks lie in a random order.
    fn batch(&self, numbers: &mut Numbers) -> Batch {
        let blocks = |piece: &Piece| (piece.after + piece.tokens).div_ceil(BLOCK);
        let mut order: Vec<BlockId> =
            (0..self.pieces.iter().map(blocks).sum::<usize>() as u32).map(BlockId).collect();
        for last in (1..order.len()).rev() {
            order.swap(last, numbers.below(last + 1));
        }
        let (mut batch, mut rest) = (Batch::default(), &order[..]);
        for piece in &self.pieces {
            let (table, others) = rest.split_at(blocks(piece));
            batch.push_chunk(&vec![0; piece.tokens], piece.after, table);
            rest = others;
        }
        batch
    }

    /// Keys and values; what no token wrote is NaN, or has scales that are.
    fn keys_and_values(&self, batch: &Batch, numbers: &mut Numbers) -> Vec<u8> {
        let half = self.kv.half_bytes(self.head_dim);
        let mut kv = vec![u8::MAX; batch.blocks.len() * self.kv_heads * 2 * half];
        for (chunk, piece) in batch.chunks.iter().zip(&self.pieces) {
            for (index, block) in batch.blocks[chunk.blocks.clone()].iter().enumerate() {
                let written = (piece.after + piece.tokens - index * BLOCK).min(BLOCK);
                let first = block.0 as usize * self.kv_heads * 2 * half;
                for part in kv[first..first + self.kv_heads * 2 * half].chunks_exact_mut(half) {
                    self.write_tokens(part, written, numbers);
                }
            }
        }
        kv
    }

    /// Writes the first tokens of a half.
    fn write_tokens(&self, half: &mut [u8], tokens: usize, numbers: &mut Numbers) {
        let (values, scales) = half.split_at_mut(BLOCK * self.head_dim * self.kv.value_bytes());
        let values = &mut values[..tokens * self.head_dim * self.kv.value_bytes()];
        match self.kv {
            KvForm::Bf16 => write(values, || numbers.bf16().to_le_bytes()),
            KvForm::Q8 => {
                write(values, || numbers.quant().to_le_bytes());
                write(&mut scales[..tokens * 4], || numbers.scale().to_le_bytes());
            }
        }
    }

    /// Bytes of its keys and values that are read once, if no heads of a group or rows of a prompt share them.
    pub fn kv_bytes(&self) -> usize {
        let keys: usize = self.pieces.iter().map(|piece| piece.after + piece.tokens).sum();
        keys * self.kv_heads * 2 * self.kv.half_bytes(self.head_dim) / BLOCK
    }

    /// Brings it onto the GPU.
    pub fn upload(&self, stream: &Stream) -> Result<Uploaded, CudaError> {
        self.upload_layers(stream, 1)
    }

    /// The same with so many layers of the same keys and values.
    pub fn upload_layers(&self, stream: &Stream, layers: usize) -> Result<Uploaded, CudaError> {
        self.upload_step(stream, layers, self.step(stream)?)
    }

    /// The same with one layer, in steps without room for segments of decoded rows: single tokens are attended like prompts.
    pub fn upload_as_prompts(&self, stream: &Stream) -> Result<Uploaded, CudaError> {
        self.upload_step(stream, 1, StepShape { items: 0, ..self.step(stream)? })
    }

    fn step(&self, stream: &Stream) -> Result<StepShape, CudaError> {
        StepShape::new(&self.model(), stream.device().properties(), self.tokens(), self.tokens())
    }

    fn upload_step(&self, stream: &Stream, layers: usize, step: StepShape) -> Result<Uploaded, CudaError> {
        let mut numbers = Numbers::new(self.seed);
        let batch = self.batch(&mut numbers);
        let kv = upload_times(stream, &self.keys_and_values(&batch, &mut numbers), layers)?;
        let values = self.tokens() * self.heads * self.head_dim;
        let mut queries = vec![0; values * 2];
        write(&mut queries, || numbers.bf16().to_le_bytes());
        let model = self.model();
        let sections = Sections::new(&model, &step, RowClass::of(self.tokens()));
        let mut words = vec![0u32; sections.bytes() / 4];
        let filled = Filler::fill(sections, &[self.window], &mut words, &batch, &mut Vec::new())
            .map_err(CudaError::Step)?;
        let arrays: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        Ok(Uploaded {
            arrays: upload(stream, &arrays)?,
            sections,
            filled,
            queries: upload(stream, &queries)?,
            kv,
            layers,
            out: stream.device().allocate(values * 2)?,
            partial_values: stream.device().allocate(step.items.max(1) * model.queries() * 4)?,
            partial_stats: stream.device().allocate(step.items.max(1) * model.heads * 8)?,
            trial: self.clone(),
        })
    }
}

/// Fills bytes with numbers.
fn write<const N: usize>(bytes: &mut [u8], mut number: impl FnMut() -> [u8; N]) {
    for to in bytes.as_chunks_mut().0 {
        *to = number();
    }
}

fn upload(stream: &Stream, bytes: &[u8]) -> Result<Buffer, DriverError> {
    upload_times(stream, bytes, 1)
}

/// Uploads the same bytes several times, one after another.
fn upload_times(stream: &Stream, bytes: &[u8], times: usize) -> Result<Buffer, DriverError> {
    let buffer = stream.device().allocate(times * bytes.len())?;
    let mut pinned = stream.device().allocate_pinned(bytes.len())?;
    pinned.bytes_mut().copy_from_slice(bytes);
    for time in 0..times {
        stream.upload(buffer.address().plus(time * bytes.len()), &pinned, 0, bytes.len())?;
    }
    stream.synchronize()?;
    Ok(buffer)
}

/// A trial on a GPU.
pub struct Uploaded {
    trial: AttentionCase,
    sections: Sections,
    filled: StepKind,
    arrays: Buffer,
    queries: Buffer,
    kv: Buffer,
    layers: usize,
    out: Buffer,
    partial_values: Buffer,
    partial_stats: Buffer,
}

impl Uploaded {
    fn arguments(&self, layer: usize) -> Attend {
        let array = |word: usize| self.arrays.address().plus(word * 4);
        Attend {
            queries: self.queries.address(),
            kv: self.kv.address().plus(layer * (self.kv.bytes() / self.layers)),
            out: self.out.address(),
            tables: array(self.sections.tables()),
            counts: array(self.sections.counts(0)),
            items: array(self.sections.items(0)),
            prompts: array(self.sections.prompts()),
            partial_values: self.partial_values.address(),
            partial_stats: self.partial_stats.address(),
            heads: self.trial.heads as u32,
            kv_heads: self.trial.kv_heads as u32,
            window: self.trial.window.unwrap_or(0) as u32,
            scale: 1.0 / (self.trial.head_dim as f32).sqrt(),
            cap: self.trial.cap.unwrap_or(0.0),
        }
    }

    /// Queues a kernel.
    pub fn launch(&self, stream: &Stream, kernel: &PromptKernel) -> Result<(), CudaError> {
        Ok(kernel.launch(stream, &self.arguments(0), self.blocks())?)
    }

    /// Blocks of keys and values of a layer.
    fn blocks(&self) -> usize {
        let AttentionCase { kv, kv_heads, head_dim, .. } = self.trial;
        self.kv.bytes() / self.layers / (kv_heads * 2 * kv.half_bytes(head_dim))
    }

    /// Queues the decoded rows of every layer.
    pub fn launch_decodes(&self, stream: &Stream, kernels: &FormKernels) -> Result<(), CudaError> {
        let blocks = self.blocks();
        (0..self.layers)
            .try_for_each(|layer| kernels.launch(stream, self.filled, &self.arguments(layer), blocks))
    }

    /// How its decoded rows attend.
    pub fn decodes(&self) -> DecodeStrategy {
        self.filled.decodes
    }

    /// What a kernel gives.
    pub fn run(&self, stream: &Stream, kernel: &PromptKernel) -> Result<Vec<u16>, CudaError> {
        self.results(stream, || self.launch(stream, kernel))
    }

    /// What is computed by a launch: bf16 values of every token and head. Values that it does not write are NaN.
    pub fn results(
        &self,
        stream: &Stream,
        launch: impl FnOnce() -> Result<(), CudaError>,
    ) -> Result<Vec<u16>, CudaError> {
        stream.memset(self.out.address(), 0xff, self.out.bytes())?;
        launch()?;
        let mut pinned = stream.device().allocate_pinned(self.out.bytes())?;
        stream.download(&mut pinned, self.out.address(), self.out.bytes())?;
        stream.synchronize()?;
        Ok(pinned.bytes().chunks_exact(2).map(|half| u16::from_le_bytes([half[0], half[1]])).collect())
    }
}

/// Random numbers of a seed (xorshift).
struct Numbers(u64);

impl Numbers {
    fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 >> 11
    }

    fn below(&mut self, end: usize) -> usize {
        (self.next() % end.max(1) as u64) as usize
    }

    /// Between -127 and 127.
    fn quant(&mut self) -> i8 {
        ((self.next() % 255) as i16 - 127) as i8
    }

    /// What makes quants values between -2 and 2, or less.
    fn scale(&mut self) -> f32 {
        (self.next() % 4096) as f32 / (4096.0 * 63.5)
    }

    /// Between -2 and 2.
    fn bf16(&mut self) -> u16 {
        let value = (self.next() % 4096) as f32 / 1024.0 - 2.0;
        (value.to_bits() >> 16) as u16
    }
}
