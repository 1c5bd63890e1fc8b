//! A case on a GPU: its arrays, queries, keys and values, launched by any kernel.

use super::AttentionCase;
use crate::attention::{DecodeKernels, DecodeStrategy, PromptKernel};
use crate::driver::{Buffer, DriverError, Stream};
use crate::error::CudaError;
use crate::kernels::Attend;
use crate::sections::{Sections, StepKind};

/// A trial on a GPU.
pub struct Uploaded {
    pub(super) trial: AttentionCase,
    pub(super) sections: Sections,
    pub(super) filled: StepKind,
    pub(super) arrays: Buffer,
    pub(super) queries: Buffer,
    pub(super) kv: Buffer,
    pub(super) layers: usize,
    pub(super) out: Buffer,
    pub(super) partial_values: Buffer,
    pub(super) partial_stats: Buffer,
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
    pub fn launch_decodes(&self, stream: &Stream, kernels: &DecodeKernels) -> Result<(), CudaError> {
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

/// Uploads bytes.
pub(super) fn upload(stream: &Stream, bytes: &[u8]) -> Result<Buffer, DriverError> {
    upload_times(stream, bytes, 1)
}

/// Uploads the same bytes several times, one after another.
pub(super) fn upload_times(stream: &Stream, bytes: &[u8], times: usize) -> Result<Buffer, DriverError> {
    let buffer = stream.device().allocate(times * bytes.len())?;
    let mut pinned = stream.device().allocate_pinned(bytes.len())?;
    pinned.bytes_mut().copy_from_slice(bytes);
    for time in 0..times {
        stream.upload(buffer.address().plus(time * bytes.len()), &pinned, 0, bytes.len())?;
    }
    stream.synchronize()?;
    Ok(buffer)
}
