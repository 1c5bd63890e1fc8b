//! The [`Executor`] of this crate: checks a batch, runs the forward pass, samples its rows.

use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use ropeway_executor::{
    Batch, BlockId, CostGuess, Executor, ExecutorError, Guides, Limits, StepOutput, StepSizes,
};
use ropeway_kernels::compute::ComputeSource;
use ropeway_kernels::kv::{BLOCK, KvFormat, KvLayout};
use ropeway_kernels::{activations, attention};
use ropeway_machine::{LeaseRequest, Machine, Seat, Tenant, Threads};
use ropeway_model::load::Progress;
use ropeway_model::{
    Decoder, DecoderSpec, KvCache, LoadError, LoadOptions, RopeScalingChoice, StepArrays, StepLimits,
    Workspace, load,
};
use ropeway_weights::Checkpoint;

use crate::guess;
use crate::sampling::{Asked, Samplers};

/// Tokens of the default step: enough rows for every weight panel to be reused from cache, few enough for the
/// step's arrays to stay near it.
pub const DEFAULT_STEP_TOKENS: usize = 512;

/// How to run a model.
#[derive(Clone, Debug)]
pub struct CpuOptions {
    /// The threads that compute it, shared with other models of the process.
    pub machine: Machine,
    /// The place of a model on that machine with which it computes in turn.
    pub seat: Option<Arc<Seat>>,
    /// How weights are loaded.
    pub load: LoadOptions,
    /// Number format of keys and values; `None` chooses by precision.
    pub kv_format: Option<KvFormat>,
    /// Window; `None` takes the model's own.
    pub context: Option<usize>,
    /// How to stretch a window beyond the trained one.
    pub rope_scaling: Option<RopeScalingChoice>,
    /// Tokens of KV memory; `None` holds one whole window.
    pub kv_tokens: Option<usize>,
    /// Most tokens and rows of logits in one step.
    pub step: StepLimits,
}

impl Default for CpuOptions {
    /// A machine of its own, with all threads of this CPU.
    fn default() -> Self {
        Self::on(Machine::with_threads(Threads::available()))
    }
}

impl CpuOptions {
    /// The defaults on a machine.
    pub fn on(machine: Machine) -> Self {
        Self {
            machine,
            seat: None,
            load: LoadOptions::default(),
            kv_format: None,
            context: None,
            rope_scaling: None,
            kv_tokens: None,
            step: StepLimits { tokens: DEFAULT_STEP_TOKENS, rows: 64 },
        }
    }

    /// Number format of keys and values.
    pub fn kv_format(&self) -> KvFormat {
        self.kv_format.unwrap_or(match self.load.precision {
            ropeway_model::Precision::Fast => KvFormat::S16,
            ropeway_model::Precision::F32 => KvFormat::F32,
        })
    }

    /// Bytes of KV memory for so many tokens, but no more than one window.
    pub fn kv_bytes(&self, tokens: usize, checkpoint: &Checkpoint) -> Result<u64, LoadError> {
        let spec = DecoderSpec::from_checkpoint(checkpoint)?;
        let blocks = tokens.min(self.context.unwrap_or(spec.context)).div_ceil(BLOCK);
        Ok(KvCache::bytes_for(&spec, self.kv_format(), blocks) as u64)
    }

    /// Tokens of KV memory that fit into `bytes`; whole blocks, at least one.
    pub fn kv_tokens_in(&self, bytes: u64, checkpoint: &Checkpoint) -> Result<usize, LoadError> {
        Ok((bytes / self.kv_block_bytes(checkpoint)?).max(1) as usize * BLOCK)
    }

    /// Bytes of a block of KV memory.
    pub fn kv_block_bytes(&self, checkpoint: &Checkpoint) -> Result<u64, LoadError> {
        let spec = DecoderSpec::from_checkpoint(checkpoint)?;
        Ok(KvCache::bytes_for(&spec, self.kv_format(), 1) as u64)
    }
}

/// A model on the CPU.
pub struct CpuExecutor {
    tenant: Tenant,
    decoder: Decoder,
    /// What steps will cost, before any was measured.
    cost: CostGuess,
    kv: KvCache,
    work: Workspace,
    samplers: Samplers,
    /// The batch as the forward pass reads it; refilled every step.
    arrays: StepArrays,
    /// Results of the step that was launched, until they are collected.
    done: StepOutput,
}

impl CpuExecutor {
    /// Opens a model file or folder and loads it.
    pub fn open(path: &Path, options: &CpuOptions, progress: Progress<'_>) -> Result<Self, LoadError> {
        let checkpoint = Checkpoint::open(path)?;
        Self::load(&checkpoint, options, progress)
    }

    /// Loads an opened checkpoint.
    pub fn load(
        checkpoint: &Checkpoint,
        options: &CpuOptions,
        progress: Progress<'_>,
    ) -> Result<Self, LoadError> {
        let mut spec = DecoderSpec::from_checkpoint(checkpoint)?;
        if options.context.is_some() || options.rope_scaling.is_some() {
            let context = options.context.unwrap_or(spec.context);
            spec = spec.with_context(context, options.rope_scaling)?;
        }
        let mut compute = options.machine.loading_compute();
        let decoder = load(checkpoint, spec, options.load, &mut compute, progress)?;
        let blocks = options.kv_tokens.unwrap_or(decoder.spec.context).div_ceil(BLOCK).max(1);
        let kv = KvCache::new(&decoder.spec, options.kv_format(), blocks);
        let work = Workspace::new(&decoder, kv.layout(), options.step, &mut compute);
        let samplers = Samplers::new(&compute);
        let (layers, scratch) = (decoder.spec.layers.len(), compute.scratch_bytes());
        let tenant = match &options.seat {
            Some(seat) => seat.share(layers, scratch),
            None => options.machine.join(layers, scratch),
        };
        let (arrays, done) = (StepArrays::default(), StepOutput::default());
        let cost = guess::cost(&decoder, options.machine.threads().most());
        Ok(Self { tenant, decoder, cost, kv, work, samplers, arrays, done })
    }

    /// The model.
    pub fn decoder(&self) -> &Decoder {
        &self.decoder
    }

    /// Bytes of its weights and of its KV memory, whether that was touched yet or not.
    pub fn memory(&self) -> u64 {
        let kv = KvCache::bytes_for(&self.decoder.spec, self.kv.layout().format, self.kv.blocks());
        (self.decoder.weight_bytes() + kv) as u64
    }

    /// How its blocks are laid out.
    pub fn kv_layout(&self) -> KvLayout {
        self.kv.layout()
    }

    /// Its place on the machine.
    pub fn tenant(&mut self) -> &mut Tenant {
        &mut self.tenant
    }

    /// The logits of row `row` of the last step, as the sampler left them.
    pub fn logits(&mut self, row: usize) -> &[f32] {
        self.work.logits(row)
    }

    /// Runs the forward pass alone: logits are computed and left in place, nothing is sampled.
    pub fn forward(&mut self, batch: &Batch) -> Result<(), ExecutorError> {
        self.prepare(batch)?;
        if !batch.tokens.is_empty() {
            let mut lease = self.tenant.lease(lease_request(batch, self.cost));
            self.decoder.forward(&mut lease, &self.arrays.step(), &mut self.kv, &mut self.work);
        }
        Ok(())
    }

    fn check_transfer(&self, block: BlockId, bytes: usize) -> Result<(), ExecutorError> {
        if block.0 as usize >= self.kv.blocks() || bytes != self.kv.block_bytes() {
            let wanted = self.kv.block_bytes();
            let problem = format!("block {} with {bytes} bytes, of which it has {wanted}", block.0);
            return Err(ExecutorError::BadBatch(problem));
        }
        Ok(())
    }

    /// Everything that happens before the step's first layer.
    fn prepare(&mut self, batch: &Batch) -> Result<(), ExecutorError> {
        batch.check(&self.limits())?;
        for (from, to) in &batch.copies {
            self.kv.copy(from.0 as usize, to.0 as usize);
        }
        fill(&mut self.arrays, batch);
        Ok(())
    }
}

/// A step is leased whole: its streams wait for all of it.
fn lease_request(batch: &Batch, cost: CostGuess) -> LeaseRequest {
    LeaseRequest { class: batch.class, budget: batch.expected, size: size(batch, cost), yields: false }
}

/// The step's tokens, and as many more as its attention to earlier positions costs.
fn size(batch: &Batch, cost: CostGuess) -> usize {
    let pairs = batch.chunks.iter().map(|chunk| (chunk.tokens.len() * chunk.start) as u64).sum::<u64>();
    batch.tokens.len() + (pairs.saturating_mul(cost.pair) / cost.token.max(1)) as usize
}

/// Flattens a batch into the arrays that the forward pass reads.
fn fill(arrays: &mut StepArrays, batch: &Batch) {
    arrays.clear();
    for chunk in &batch.chunks {
        let table = batch.blocks[chunk.blocks.clone()].iter().map(|block| block.0);
        arrays.push_chunk(&batch.tokens[chunk.tokens.clone()], chunk.start, table);
    }
    for row in &batch.rows {
        arrays.want_logits(row.token);
    }
}

impl Executor for CpuExecutor {
    fn limits(&self) -> Limits {
        let step = self.work.limits();
        Limits {
            block_tokens: BLOCK,
            block_bytes: self.kv.block_bytes(),
            blocks: self.kv.blocks(),
            context: self.decoder.spec.context,
            reach: self.decoder.spec.reach().map(|window| window + attention::SLACK),
            step_tokens: step.tokens,
            step_rows: step.rows,
            vocab: self.decoder.spec.vocab,
            sizes: StepSizes::Multiples(activations::TILE),
            ahead: 0,
            cost: self.cost,
        }
    }

    /// Computes the step at once: the cores that would plan the next one are the ones that compute this one.
    fn launch(&mut self, batch: &Batch, guides: &dyn Guides) -> Result<(), ExecutorError> {
        self.prepare(batch)?;
        self.done.clear();
        if batch.tokens.is_empty() {
            return Ok(());
        }
        let mut lease = self.tenant.lease(lease_request(batch, self.cost));
        let began = Instant::now();
        self.decoder.forward(&mut lease, &self.arrays.step(), &mut self.kv, &mut self.work);
        let logits = self.work.logit_rows(batch.rows.len());
        self.samplers.run(lease.compute(), Asked { batch, guides }, logits, &mut self.done);
        (self.done.waited, self.done.device) = (lease.waited(), began.elapsed());
        Ok(())
    }

    fn collect(&mut self, _: &dyn Guides, output: &mut StepOutput) -> Result<(), ExecutorError> {
        output.clear();
        std::mem::swap(&mut self.done, output);
        Ok(())
    }

    fn export(&mut self, block: BlockId, bytes: &mut [u8]) -> Result<(), ExecutorError> {
        self.check_transfer(block, bytes.len())?;
        self.kv.export(block.0 as usize, bytes);
        Ok(())
    }

    fn import(&mut self, block: BlockId, bytes: &[u8]) -> Result<(), ExecutorError> {
        self.check_transfer(block, bytes.len())?;
        self.kv.import(block.0 as usize, bytes);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use ropeway_executor::Chunk;

    use super::*;

    #[test]
    fn a_chunk_after_many_positions_counts_as_more_tokens() {
        let cost = CostGuess { token: 1000, pair: 2, ..CostGuess::SMALL_CPU };
        let chunk = |start| Batch {
            tokens: vec![0; 100],
            chunks: vec![Chunk { tokens: 0..100, start, blocks: 0..0 }],
            ..Batch::default()
        };
        assert_eq!(size(&chunk(0), cost), 100);
        assert_eq!(size(&chunk(10_000), cost), 100 + 2 * 1000);
    }
}
