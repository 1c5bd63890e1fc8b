//! The models that embed and rank beside those that chat: loaded when first asked for.

use std::sync::Arc;
use std::time::Duration;

use clap::{Args, ValueEnum};
use ropeway_batcher::Settings;
use ropeway_embed::{Embedder, EmbedderOptions};
use ropeway_model::{LoadOptions, Precision, Quantize};
use ropeway_openai::foreign_ids::IdsOf;
use ropeway_server::ModelFacts;
use ropeway_server::embedding::{EmbeddingModel, EmbeddingModels, Loader, Ready};

use super::library::{Shelves, served_name};
use crate::embedder_args;
use crate::model_args::ModelArgs;

/// Time between two looks for new batches to log.
const GLANCE: Duration = Duration::from_millis(250);

/// How texts are embedded.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Embedding options")]
pub struct EmbedArgs {
    /// Embed no texts
    #[arg(long)]
    no_embeddings: bool,
    /// A model that embeds or ranks, loaded when it is first asked for; may be
    /// given several times (default: all-minilm:l6-v2, or none with --upstream
    /// alone)
    #[arg(long = "embed-model", value_name = "MODEL")]
    embed_models: Vec<String>,
    /// Whose token ids clients send: the model's, OpenAI's (cl100k) as
    /// LangChain does, or OpenAI's where the client is OpenAI's library
    #[arg(long, value_name = "WHOSE", default_value = "auto")]
    embed_ids: Whose,
    /// Longest time a text waits for company, in milliseconds; 0 never waits
    #[arg(long, value_name = "MS", default_value_t = Settings::default().window.as_millis() as u16)]
    embed_window: u16,
    /// Most texts computed together; 1 switches batching off
    #[arg(long, value_name = "TEXTS", default_value_t = Settings::default().max_batch as u16,
          value_parser = clap::value_parser!(u16).range(1..=1024))]
    embed_max_batch: u16,
    /// Most tokens computed together
    #[arg(long, value_name = "TOKENS", default_value_t = Settings::default().max_tokens as u16,
          value_parser = clap::value_parser!(u16).range(1..=8192))]
    embed_max_tokens: u16,
    /// Texts that may wait before more are turned down
    #[arg(long, value_name = "TEXTS", default_value_t = Settings::default().queue as u32,
          value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    embed_queue: u32,
    /// Pack weights as bytes while loading: about three times as fast, and
    /// close to the same vectors
    #[arg(long)]
    embed_int8: bool,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Whose {
    Auto,
    Model,
    Openai,
}

impl EmbedArgs {
    /// Whose token ids clients send.
    pub fn ids_of(&self) -> IdsOf {
        match self.embed_ids {
            Whose::Auto => IdsOf::Guess,
            Whose::Model => IdsOf::Model,
            Whose::Openai => IdsOf::OpenAi,
        }
    }

    /// The models, or the default one if none is given; none of them loaded yet.
    pub fn models(
        &self,
        default: Option<&str>,
        options: &ModelArgs,
        shelves: &Arc<Shelves>,
        log_batches: bool,
    ) -> EmbeddingModels {
        let names = self.names(default);
        let (device, options) = (options.device, self.options(options));
        let model = |given: &String| {
            let (name, options, given) = (served_name(given), options.clone(), given.clone());
            let logged = log_batches.then(|| name.clone());
            let shelves = Arc::clone(shelves);
            let served = name.clone();
            let loader: Loader = Arc::new(move || {
                let (embedder, facts) =
                    embedder_args::load(&given, device, &options).map_err(|failure| failure.to_string())?;
                let embedder = Arc::new(embedder);
                if let Some(name) = logged.clone() {
                    log_all(name, &embedder);
                }
                // Once loaded, it stays.
                shelves.ledger().take(facts.bytes);
                let (memory, digest) = (facts.bytes, shelves.digest(&served));
                Ok(Ready { embedder, facts: ModelFacts { memory, digest, ..facts.for_server() } })
            });
            EmbeddingModel::new(name, loader)
        };
        EmbeddingModels::new(names.iter().map(model).collect())
    }

    fn names(&self, default: Option<&str>) -> Vec<String> {
        if self.no_embeddings {
            return Vec::new();
        }
        let default = default.filter(|_| self.embed_models.is_empty()).map(str::to_owned);
        self.embed_models.iter().cloned().chain(default).collect()
    }

    fn options(&self, options: &ModelArgs) -> EmbedderOptions {
        EmbedderOptions {
            load: LoadOptions {
                precision: Precision::Fast,
                quantize: self.embed_int8.then_some(Quantize::Q8),
            },
            batching: Settings {
                window: Duration::from_millis(self.embed_window.into()),
                max_batch: self.embed_max_batch.into(),
                max_tokens: self.embed_max_tokens.into(),
                queue: self.embed_queue as usize,
            },
            ..EmbedderOptions::on(options.machine())
        }
    }
}

/// Logs every batch, until the embedder is gone.
fn log_all(model: String, embedder: &Arc<Embedder>) {
    let embedder = Arc::downgrade(embedder);
    std::thread::spawn(move || {
        let mut seen = 0;
        loop {
            std::thread::sleep(GLANCE);
            let Some(embedder) = embedder.upgrade() else { return };
            for record in embedder.records_after(seen) {
                seen = record.batch;
                tracing::info!(target: "embed", model, "{record}");
            }
        }
    });
}
