//! The arguments of every command that loads an embedding model, and the loading itself.

use clap::Args;
use ropeway_embed::{Embedder, EmbedderOptions};
use ropeway_hub::Check;
use ropeway_hub::catalogue::DEFAULT_EMBEDDING_MODEL;
use ropeway_model::{LoadOptions, Precision, Quantize};
use ropeway_weights::Checkpoint;

use crate::device_args::Device;
use crate::embedder_gpu;
use crate::facts::Facts;
use crate::failure::Failure;
use crate::machine_args::MachineArgs;
use crate::model_args::LoadBar;
use crate::pulling;

/// How an embedding model is run.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Model options")]
pub struct EmbedderArgs {
    /// A name from `ropeway search`, or a path
    #[arg(short, long, default_value = DEFAULT_EMBEDDING_MODEL)]
    pub model: String,
    /// Pack weights as bytes while loading: about three times as fast, and
    /// close to the same vectors
    #[arg(long)]
    int8: bool,
    /// What computes: auto (a GPU if there is one), cpu, cuda, or cuda:N
    #[arg(long, value_name = "DEVICE", default_value = "auto")]
    device: Device,
    #[command(flatten)]
    machine: MachineArgs,
}

impl EmbedderArgs {
    /// Fetches the model if it is not here yet, and loads it.
    pub fn load(&self, batching: ropeway_batcher::Settings) -> Result<Embedder, Failure> {
        let options = EmbedderOptions {
            load: LoadOptions { precision: Precision::Fast, quantize: self.int8.then_some(Quantize::Q8) },
            batching,
            ..EmbedderOptions::on(self.machine.machine())
        };
        Ok(load(&self.model, self.device, &options)?.0)
    }
}

/// Fetches the model if it is not here yet, and loads it; also tells about its files.
pub fn load(model: &str, device: Device, options: &EmbedderOptions) -> Result<(Embedder, Facts), Failure> {
    let files = pulling::pull(&pulling::open_hub()?, model, Check::Sizes)?.files;
    let checkpoint = Checkpoint::open(files.checkpoint())?;
    let facts = Facts::of(&files, &checkpoint);
    if let Some(embedder) = embedder_gpu::load(device, &checkpoint, options)? {
        return Ok((embedder, facts));
    }
    let bar = LoadBar::new();
    let embedder = Embedder::load(&checkpoint, options, &mut |done, total| bar.show(done, total))?;
    Ok((embedder, facts))
}
