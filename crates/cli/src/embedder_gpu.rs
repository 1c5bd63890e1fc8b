//! The start of an embedding model on a GPU.

use ropeway_batcher::Settings;
use ropeway_cuda::{CudaEncoder, CudaError, CudaOptions, CudaTextDecoder};
use ropeway_embed::{Embedder, EmbedderOptions};
use ropeway_model::encoder::EncoderSpec;
use ropeway_model::encoder::device::DeviceEncoder;
use ropeway_model::{DecoderSpec, LoadError};
use ropeway_weights::Checkpoint;

use crate::device_args::{Device, cache, search};
use crate::failure::Failure;
use crate::model_args::LoadBar;

/// Texts, and their tokens, that are worth computing together at least: a GPU is idle between small passes.
const BATCH: usize = 512;
const TOKENS: usize = 8192;

/// The model on a GPU; `None` where it is to run on the CPU.
pub fn load(
    device: Device,
    checkpoint: &Checkpoint,
    options: &EmbedderOptions,
) -> Result<Option<Embedder>, Failure> {
    let options = &with_large_batches(options);
    let only_cpu = options.load.quantize.map(|_| "--int8 (--embed-int8 of `serve`)");
    let model = device.choose(only_cpu, |ordinal| load_on(ordinal, checkpoint, options))?;
    Ok(model.map(|model| Embedder::on_device(checkpoint, model, options)).transpose()?)
}

fn with_large_batches(options: &EmbedderOptions) -> EmbedderOptions {
    let batching = options.batching;
    let batching = Settings {
        max_batch: batching.max_batch.max(BATCH),
        max_tokens: batching.max_tokens.max(TOKENS),
        ..batching
    };
    EmbedderOptions { batching, ..options.clone() }
}

fn load_on(
    ordinal: usize,
    checkpoint: &Checkpoint,
    options: &EmbedderOptions,
) -> Result<Box<dyn DeviceEncoder>, CudaError> {
    let cuda = CudaOptions { ordinal, search: search(), cache: cache(), ..CudaOptions::default() };
    let bar = LoadBar::new();
    let mut show = |done, total| bar.show(done, total);
    // A pass takes the longest text by itself.
    let tokens = |longest: usize| options.pass_tokens().max(longest.min(options.max_tokens));
    Ok(if EncoderSpec::describes(checkpoint) {
        let spec = EncoderSpec::from_checkpoint(checkpoint).map_err(LoadError::from)?;
        Box::new(CudaEncoder::load(checkpoint, tokens(spec.max_tokens), cuda, &mut show)?)
    } else {
        let spec = DecoderSpec::from_checkpoint(checkpoint).map_err(LoadError::from)?;
        Box::new(CudaTextDecoder::load(checkpoint, tokens(spec.context), cuda, &mut show)?)
    })
}
