//! The models that answer a batch: one that generates, and one that embeds once a line asks for it.

use std::cell::OnceCell;
use std::sync::Arc;
use std::time::Duration;

use ropeway_batcher::Settings;
use ropeway_embed::{Embedder, EmbedderOptions};
use ropeway_generation::{ErrorKind, Generator, RequestError};
use ropeway_openai::Defaults;
use ropeway_openai::embeddings::MOST_TEXTS;
use ropeway_text::Tokenizer;

use super::driver::IN_FLIGHT;
use crate::device_args::Device;
use crate::embedder_args;
use crate::engine_args::Started;
use crate::failure::Failure;
use crate::grammar_workers::grammar_workers;
use crate::model_args::ModelArgs;

/// Nobody waits for a single text here, so full batches are all that counts.
const WINDOW: Duration = Duration::ZERO;

/// The models that answer a batch.
pub struct Models {
    /// The name of the model that generates.
    pub name: String,
    /// The model that generates.
    pub generator: Generator,
    /// What holds where a line says nothing.
    pub defaults: Defaults,
    /// The model that embeds.
    pub embedding: EmbeddingModel,
}

impl Models {
    /// The loaded model, and one that embeds and is not loaded yet.
    pub fn new(started: Started, defaults: Defaults, embedding: EmbeddingModel) -> Result<Models, Failure> {
        let tokenizer = Tokenizer::from_checkpoint(&started.checkpoint)?;
        let template = started.chat_template()?;
        let generator = Generator::new(tokenizer, template, Arc::new(started.handle));
        let generator = generator.with_grammar_workers(grammar_workers());
        Ok(Models { name: started.name, generator, defaults, embedding })
    }
}

/// A model that embeds, loaded when it is first asked for, once.
pub struct EmbeddingModel {
    /// Its name.
    pub name: String,
    device: Device,
    options: EmbedderOptions,
    loaded: OnceCell<Result<Embedder, String>>,
}

impl EmbeddingModel {
    /// Not loaded yet.
    pub fn new(name: String, options: &ModelArgs) -> EmbeddingModel {
        // The driver bounds what is in flight, in texts; a line adds at most as many as a request may have.
        let queue = IN_FLIGHT + MOST_TEXTS;
        let device = options.device;
        let options = EmbedderOptions {
            batching: Settings { window: WINDOW, queue, ..Settings::default() },
            ..EmbedderOptions::on(options.machine())
        };
        EmbeddingModel { name, device, options, loaded: OnceCell::new() }
    }

    /// The model, loaded first if need be. One that can't be loaded fails every line that needs it.
    pub fn embedder(&self) -> Result<&Embedder, RequestError> {
        let load = || match embedder_args::load(&self.name, self.device, &self.options) {
            Ok((embedder, _)) => Ok(embedder),
            Err(failure) => Err(format!("{} can't be loaded: {failure}", self.name)),
        };
        let loaded = self.loaded.get_or_init(load).as_ref();
        loaded.map_err(|message| RequestError::new(ErrorKind::Internal, message.as_str()))
    }
}
