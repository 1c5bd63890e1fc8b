//! The arguments of every command that loads a model, and the loading itself.

use std::io::{self, IsTerminal};
use std::sync::Arc;

use clap::{Args, ValueEnum};
use indicatif::{ProgressBar, ProgressStyle};
use ropeway_cpu::{CpuExecutor, CpuOptions};
use ropeway_cuda::KvForm;
use ropeway_hub::{Check, Hub, HubError, ModelFiles, ModelRef};
use ropeway_kernels::kv::{BLOCK, KvFormat};
use ropeway_machine::Machine;
use ropeway_model::{LoadOptions, Precision, Quantize, RopeScalingChoice, StepLimits};
use ropeway_weights::Checkpoint;

use crate::device_args::{Device, GpuModels, GpuRoom, OnGpu};
use crate::draft_model::check_tokenizers;
use crate::failure::Failure;
use crate::load_report::LoadReport;
use crate::machine_args::MachineArgs;
use crate::pulling;

/// How a model is run.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Model options")]
pub struct ModelArgs {
    #[command(flatten)]
    machine: MachineArgs,
    /// What computes: auto (a GPU if there is one and the model fits), cpu,
    /// cuda, or cuda:N for one of several GPUs
    #[arg(long, value_name = "DEVICE", default_value = "auto")]
    pub device: Device,
    /// Longest conversation, in tokens (default: what the model was trained
    /// for)
    #[arg(long, value_name = "TOKENS")]
    context: Option<usize>,
    /// Stretch the window beyond the trained one: yarn, linear, dynamic, or
    /// with a factor as in yarn:4
    #[arg(long, value_name = "HOW", value_parser = parse_scaling)]
    rope_scaling: Option<RopeScalingChoice>,
    /// Pack 16-bit weights as integers while loading
    #[arg(long, value_name = "TYPE")]
    quantize: Option<QuantizeArg>,
    /// Number format of the KV cache: q8 (half the memory); on the CPU also s16
    /// (exact integer products, the default there) and f32
    #[arg(long, value_name = "TYPE")]
    kv: Option<KvArg>,
    /// `f32` computes everything in plain floats: slow, the judge of `fast`
    #[arg(long, value_name = "HOW", default_value = "fast")]
    precision: PrecisionArg,
    /// Who is told how far the loading is.
    #[arg(skip)]
    pub report: LoadReport,
    /// Compare every byte of the model with its checksums before loading it
    #[arg(long)]
    verify: bool,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum QuantizeArg {
    Q8,
    Q4,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum KvArg {
    S16,
    Q8,
    F32,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum PrecisionArg {
    Fast,
    F32,
}

fn parse_scaling(text: &str) -> Result<RopeScalingChoice, String> {
    text.parse().map_err(|error: ropeway_model::SpecError| error.to_string())
}

/// A model ready to run, and the files it came from.
pub struct Loaded {
    /// Its name and files.
    pub files: ModelFiles,
    /// The files, opened.
    pub checkpoint: Checkpoint,
    /// The model itself.
    pub executor: CpuExecutor,
}

/// What a command needs of the model's memory.
#[derive(Clone, Copy, Debug)]
pub struct Room {
    /// KV memory.
    pub kv: KvRoom,
    /// Largest step.
    pub step: StepLimits,
}

/// How much KV memory there is.
#[derive(Clone, Copy, Debug)]
pub enum KvRoom {
    /// One whole window.
    Window,
    /// So many tokens.
    Tokens(usize),
    /// What fits into so many bytes.
    Bytes(u64),
}

impl ModelArgs {
    /// The files of a model, fetched if they are not here yet, and verified if that was asked for.
    pub fn files(&self, hub: &Hub, model: &str) -> Result<ModelFiles, Failure> {
        let files = pulling::pull(hub, model, Check::Sizes)?.files;
        self.verify(hub, &hub.parse(model)?)?;
        Ok(files)
    }

    /// Verifies a model if that was asked for. A file of the user's own has nothing to be compared with.
    pub fn verify(&self, hub: &Hub, model: &ModelRef) -> Result<(), HubError> {
        if !self.verify || matches!(model, ModelRef::Local(_)) {
            return Ok(());
        }
        let verified = pulling::verify(hub, model)?;
        match verified.damage.first() {
            None => Ok(()),
            Some(damage) => Err(HubError::Damaged { name: verified.name, problem: damage.to_string() }),
        }
    }

    /// The model on a GPU, if that is where it is to run, with one that drafts for it.
    pub fn load_on_gpu(
        &self,
        checkpoint: &Checkpoint,
        draft: Option<&Checkpoint>,
        room: GpuRoom,
        step: Option<StepLimits>,
    ) -> Result<Option<GpuModels>, Failure> {
        let (device, context, rope_scaling) = (self.device, self.context, self.rope_scaling);
        let (quantize, only_cpu, kv) = (self.quantize(), self.only_cpu(), self.kv_on_gpu());
        OnGpu { device, only_cpu, checkpoint, draft, context, rope_scaling, quantize, kv, room, step }.load()
    }

    /// Loads a model from its files.
    pub fn load_files(&self, files: ModelFiles, room: Room) -> Result<Loaded, Failure> {
        let checkpoint = Checkpoint::open(files.checkpoint())?;
        let mut options = self.options(Some(room.step));
        options.kv_tokens = match room.kv {
            KvRoom::Window => None,
            KvRoom::Tokens(tokens) => Some(tokens),
            KvRoom::Bytes(bytes) => Some(options.kv_tokens_in(bytes, &checkpoint)?),
        };
        let executor = self.load_checkpoint(&files.name, &checkpoint, &options)?;
        Ok(Loaded { files, checkpoint, executor })
    }

    /// Loads a model and one that drafts for it, on the fast path whatever the first one's precision. Keys and values of as
    /// many tokens for both share the memory.
    pub fn load_with_draft(
        &self,
        files: ModelFiles,
        draft: &ModelFiles,
        room: Room,
    ) -> Result<(Loaded, CpuExecutor), Failure> {
        let (checkpoint, draft_checkpoint) =
            (Checkpoint::open(files.checkpoint())?, Checkpoint::open(draft.checkpoint())?);
        check_tokenizers(&checkpoint, &draft_checkpoint)?;
        let mut options = self.options(Some(room.step));
        let mut draft_options = CpuOptions { kv_format: None, ..options.clone() };
        draft_options.load.precision = Precision::Fast;
        let tokens = match room.kv {
            KvRoom::Window => None,
            KvRoom::Tokens(tokens) => Some(tokens),
            KvRoom::Bytes(bytes) => {
                let block =
                    options.kv_block_bytes(&checkpoint)? + draft_options.kv_block_bytes(&draft_checkpoint)?;
                Some((bytes / block).max(1) as usize * BLOCK)
            }
        };
        (options.kv_tokens, draft_options.kv_tokens) = (tokens, tokens);
        let mut executor = self.load_checkpoint(&files.name, &checkpoint, &options)?;
        // To other models on the machine the two are one, which they compute for in turn.
        draft_options.seat = Some(Arc::clone(executor.tenant().seat()));
        let draft = self.load_checkpoint(&draft.name, &draft_checkpoint, &draft_options)?;
        Ok((Loaded { files, checkpoint, executor }, draft))
    }

    fn load_checkpoint(
        &self,
        name: &str,
        checkpoint: &Checkpoint,
        options: &CpuOptions,
    ) -> Result<CpuExecutor, Failure> {
        let bar = LoadBar::new();
        let mut show = |done, total| {
            bar.show(done, total);
            self.report.tell(name, done as u64, total as u64);
        };
        Ok(CpuExecutor::load(checkpoint, options, &mut show)?)
    }

    /// What it computes on: the same machine for every model that is loaded with clones of these arguments.
    pub fn machine(&self) -> Machine {
        self.machine.machine()
    }

    /// Bytes of KV memory for so many tokens, but no more than one window.
    pub fn kv_bytes(&self, tokens: usize, checkpoint: &Checkpoint) -> Result<u64, Failure> {
        Ok(self.options(None).kv_bytes(tokens, checkpoint)?)
    }

    /// An option that only the CPU has, if one was given.
    fn only_cpu(&self) -> Option<&'static str> {
        match (self.kv, self.precision) {
            (Some(KvArg::S16), _) => Some("--kv s16"),
            (Some(KvArg::F32), _) => Some("--kv f32"),
            (_, PrecisionArg::F32) => Some("--precision f32"),
            (Some(KvArg::Q8) | None, PrecisionArg::Fast) => None,
        }
    }

    fn kv_on_gpu(&self) -> KvForm {
        match self.kv {
            Some(KvArg::Q8) => KvForm::Q8,
            Some(KvArg::S16 | KvArg::F32) | None => KvForm::Bf16,
        }
    }

    fn quantize(&self) -> Option<Quantize> {
        self.quantize.map(|quantize| match quantize {
            QuantizeArg::Q8 => Quantize::Q8,
            QuantizeArg::Q4 => Quantize::Q4,
        })
    }

    fn options(&self, step: Option<StepLimits>) -> CpuOptions {
        let defaults = CpuOptions::on(self.machine());
        let precision = match self.precision {
            PrecisionArg::Fast => Precision::Fast,
            PrecisionArg::F32 => Precision::F32,
        };
        CpuOptions {
            load: LoadOptions { precision, quantize: self.quantize() },
            kv_format: self.kv.map(|kv| match kv {
                KvArg::S16 => KvFormat::S16,
                KvArg::Q8 => KvFormat::Q8,
                KvArg::F32 => KvFormat::F32,
            }),
            context: self.context,
            rope_scaling: self.rope_scaling,
            step: step.unwrap_or(defaults.step),
            ..defaults
        }
    }
}

/// Layers packed so far, on a terminal; nothing elsewhere.
pub struct LoadBar(Option<ProgressBar>);

impl LoadBar {
    pub fn new() -> LoadBar {
        let bar = io::stderr().is_terminal().then(|| {
            let style = ProgressStyle::with_template("loading     [{bar:30}] {pos}/{len}");
            ProgressBar::new(0).with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()))
        });
        LoadBar(bar)
    }

    /// Shows how far it is.
    pub fn show(&self, done: usize, total: usize) {
        let Some(bar) = &self.0 else { return };
        bar.set_length(total as u64);
        bar.set_position(done as u64);
        if done == total {
            bar.finish_and_clear();
        }
    }
}
