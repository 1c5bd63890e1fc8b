//! The [`Executor`] of this crate: a model on a GPU, loaded from its files, and again when the device was lost.

use std::path::PathBuf;

use ropeway_executor::{Batch, BlockId, Executor, ExecutorError, Guides, Limits, StepOutput};
use ropeway_model::{DecoderSpec, LoadError, Quantize, RopeScalingChoice};
use ropeway_weights::Checkpoint;

use crate::driver::DriverError;
use crate::error::CudaError;
use crate::kernels::BLOCK;
use crate::kv::KvForm;
use crate::libraries::Search;
use crate::load::ModelSource;
use crate::plan::Plan;
use crate::program::Program;
use crate::shape::ModelShape;
use crate::steps::Loaded;

/// Tokens of the default step: enough for products to run at full speed several times over.
pub const DEFAULT_STEP_TOKENS: usize = 8192;

/// Rows of logits of the default step.
pub const DEFAULT_STEP_ROWS: usize = 512;

/// Fraction of the memory that weights and workspace leave free which blocks of keys and values take by default.
pub const KV_SHARE: f64 = 0.92;

/// Fraction of it that they may take if a size was requested. It is more than the default, so that a model which is loaded again after a device
/// loss finds room for as many blocks as before, even if slightly less memory is free.
pub const REQUESTED_KV_SHARE: f64 = 0.96;

/// How to run a model.
#[derive(Clone, Debug)]
pub struct CudaOptions {
    /// Where libraries are looked for.
    pub search: Search,
    /// Which GPU.
    pub ordinal: usize,
    /// Window; `None` takes the model's own.
    pub context: Option<usize>,
    /// How to stretch a window beyond the trained one.
    pub rope_scaling: Option<RopeScalingChoice>,
    /// Packs float weights as integers.
    pub quantize: Option<Quantize>,
    /// The form of keys and values.
    pub kv: KvForm,
    /// Tokens of KV memory; `None` takes most of what is free.
    pub kv_tokens: Option<usize>,
    /// Whether TMA copies keys and values of decoded rows, where it can (`DecodeForm`). Off by default: it has run on the emulator, and on no GPU
    /// yet.
    pub tma: bool,
    /// Most tokens in one step.
    pub step_tokens: usize,
    /// Most rows of logits in one step.
    pub step_rows: usize,
    /// The folder that remembers compiled kernels and tuned products.
    pub cache: Option<PathBuf>,
}

impl Default for CudaOptions {
    fn default() -> Self {
        Self {
            search: Search::from_environment(),
            ordinal: 0,
            context: None,
            rope_scaling: None,
            quantize: None,
            kv: KvForm::default(),
            kv_tokens: None,
            tma: false,
            step_tokens: DEFAULT_STEP_TOKENS,
            step_rows: DEFAULT_STEP_ROWS,
            cache: None,
        }
    }
}

impl CudaOptions {
    /// What a checkpoint holds, with the window that is asked for.
    pub(crate) fn spec_of(&self, checkpoint: &Checkpoint) -> Result<DecoderSpec, CudaError> {
        self.with_window(DecoderSpec::from_checkpoint(checkpoint).map_err(LoadError::from)?)
    }

    fn with_window(&self, spec: DecoderSpec) -> Result<DecoderSpec, CudaError> {
        if self.context.is_none() && self.rope_scaling.is_none() {
            return Ok(spec);
        }
        let context = self.context.unwrap_or(spec.context);
        Ok(spec.with_context(context, self.rope_scaling).map_err(LoadError::from)?)
    }

    /// Tokens of KV memory that fit into `bytes`, for a model or for several together; whole blocks, at least one.
    pub fn kv_tokens_in<'a>(
        bytes: u64,
        kv: KvForm,
        models: impl IntoIterator<Item = &'a Checkpoint>,
    ) -> Result<usize, CudaError> {
        let mut block = 0;
        for checkpoint in models {
            let spec = DecoderSpec::from_checkpoint(checkpoint).map_err(LoadError::from)?;
            block += ModelShape::new(&spec, &Plan::new(&spec), kv)?.block_bytes();
        }
        Ok((bytes / block.max(1) as u64).max(1) as usize * BLOCK)
    }
}

/// A model on a GPU.
pub struct CudaExecutor {
    spec: DecoderSpec,
    source: ModelSource,
    options: CudaOptions,
    limits: Limits,
    loaded: Option<Loaded>,
}

impl CudaExecutor {
    /// Loads an opened checkpoint.
    pub fn load(
        checkpoint: &Checkpoint,
        options: CudaOptions,
        progress: &mut dyn FnMut(usize, usize),
    ) -> Result<Self, CudaError> {
        let spec = options.spec_of(checkpoint)?;
        Self::build(spec, ModelSource::Checkpoint(checkpoint.clone()), options, progress)
    }

    /// A model with random weights: for measurements.
    pub fn random(spec: DecoderSpec, seed: u32, options: CudaOptions) -> Result<Self, CudaError> {
        Self::build(options.with_window(spec)?, ModelSource::Random(seed), options, &mut |_, _| {})
    }

    fn build(
        spec: DecoderSpec,
        source: ModelSource,
        options: CudaOptions,
        progress: &mut dyn FnMut(usize, usize),
    ) -> Result<Self, CudaError> {
        let loaded = Loaded::new(&spec, &source, &options, progress)?;
        let limits = *loaded.limits();
        // Started again, it has to have room for as much as the engine knows of.
        let options = CudaOptions { kv_tokens: Some(limits.blocks * BLOCK), ..options };
        Ok(Self { spec, source, options, limits, loaded: Some(loaded) })
    }

    /// What it is.
    pub fn spec(&self) -> &DecoderSpec {
        &self.spec
    }

    /// One line about where it runs.
    pub fn describe(&self) -> String {
        let Some(program) = self.program() else { return "a lost GPU".into() };
        let properties = program.stream.device().properties();
        let gigabytes = |bytes: usize| bytes as f64 / 1e9;
        format!(
            "{} ({:.1} GB of weights, {:.1} GB of keys and values)",
            properties.name,
            gigabytes(program.plan.weight_bytes()),
            gigabytes(program.blocks * program.model.block_bytes())
        )
    }

    /// The device and the model on it; `None` while the device is lost.
    pub fn program(&self) -> Option<&Program> {
        self.loaded.as_ref().map(Loaded::program)
    }

    /// The logits of the last step's rows, as the model gave them. Waits for the device.
    pub fn logits(&mut self, rows: usize) -> Result<Vec<Vec<f32>>, CudaError> {
        let Some(loaded) = &mut self.loaded else { return Ok(Vec::new()) };
        let Program { stream, workspace, model, .. } = loaded.program();
        stream.device().make_current()?;
        let mut pinned = stream.device().allocate_pinned(rows * model.vocab * 4)?;
        let bytes = rows * model.vocab * 4;
        stream.download(&mut pinned, workspace.logits, bytes)?;
        stream.synchronize()?;
        let words = pinned.words_mut();
        Ok(words
            .chunks_exact(model.vocab)
            .map(|row| row.iter().map(|bits| f32::from_bits(*bits)).collect())
            .collect())
    }

    /// Runs a batch's tokens and gives the normed residual stream of its rows, in place of logits. Waits for the device.
    pub fn hidden_states(&mut self, batch: &Batch) -> Result<Vec<Vec<f32>>, ExecutorError> {
        let loaded = self.loaded()?;
        batch.check(loaded.limits())?;
        loaded.hidden_states(batch).map_err(|error| self.on_error(error))
    }

    fn loaded(&mut self) -> Result<&mut Loaded, ExecutorError> {
        self.loaded.as_mut().ok_or_else(|| ExecutorError::Lost("it has to be restarted".into()))
    }

    /// Lets go of a device that is lost, so that nothing is computed on it until it is restarted.
    fn on_error(&mut self, error: CudaError) -> ExecutorError {
        let error = self.classify_error(error);
        if matches!(error, ExecutorError::Lost(_)) {
            tracing::error!(target: "engine", "{error}; the model is loaded again");
            self.loaded = None;
        }
        error
    }

    /// Whether the device is gone, or only this step. After another library's error the driver is asked.
    fn classify_error(&self, error: CudaError) -> ExecutorError {
        let lost = self.program().and_then(|program| program.stream.synchronize().err());
        match lost.filter(DriverError::is_lost) {
            Some(lost) => ExecutorError::Lost(lost.to_string()),
            None => error.into_step_error(),
        }
    }
}

impl Executor for CudaExecutor {
    fn limits(&self) -> Limits {
        self.limits
    }

    fn launch(&mut self, batch: &Batch, guides: &dyn Guides) -> Result<(), ExecutorError> {
        let loaded = self.loaded()?;
        batch.check(loaded.limits())?;
        loaded.launch(batch, guides).map_err(|error| self.on_error(error))
    }

    fn collect(&mut self, guides: &dyn Guides, output: &mut StepOutput) -> Result<(), ExecutorError> {
        output.clear();
        let loaded = self.loaded()?;
        loaded.collect(guides, output).map_err(|error| self.on_error(error))
    }

    fn export(&mut self, block: BlockId, bytes: &mut [u8]) -> Result<(), ExecutorError> {
        let loaded = self.loaded()?;
        check_transfer(loaded.limits(), block, bytes.len())?;
        loaded.export(block, bytes).map_err(|error| self.on_error(error))
    }

    fn import(&mut self, block: BlockId, bytes: &[u8]) -> Result<(), ExecutorError> {
        let loaded = self.loaded()?;
        check_transfer(loaded.limits(), block, bytes.len())?;
        loaded.import(block, bytes).map_err(|error| self.on_error(error))
    }

    fn restart(&mut self) -> Result<(), ExecutorError> {
        self.loaded = None;
        let loaded = Loaded::new(&self.spec, &self.source, &self.options, &mut |_, _| {});
        self.loaded = Some(loaded.map_err(|error| ExecutorError::Lost(error.to_string()))?);
        Ok(())
    }
}

fn check_transfer(limits: &Limits, block: BlockId, bytes: usize) -> Result<(), ExecutorError> {
    if block.0 as usize >= limits.blocks || bytes != limits.block_bytes {
        let problem = format!("block {} with {bytes} bytes, of which it has {}", block.0, limits.block_bytes);
        return Err(ExecutorError::BadBatch(problem));
    }
    Ok(())
}
