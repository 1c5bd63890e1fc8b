//! One step's attention: heads, pieces of sequences, and the random numbers that it is filled with.

use ropeway_executor::{Batch, BlockId};

use super::Uploaded;
use super::numbers::{Numbers, write};
use super::uploaded::{upload, upload_times};
use crate::attention::DecodeForm;
use crate::driver::{Device, Stream};
use crate::error::CudaError;
use crate::kernels::{BLOCK, KernelConstants};
use crate::kv::KvForm;
use crate::sections::{Filler, Sections};
use crate::shape::{ModelShape, RowClass, StepShape};

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

    pub(super) fn constants(&self, device: &Device) -> KernelConstants {
        KernelConstants {
            head_dim: self.head_dim,
            hidden: self.heads * self.head_dim,
            capped: self.cap.is_some(),
            kv: self.kv,
            decode_form: DecodeForm::Threads,
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
