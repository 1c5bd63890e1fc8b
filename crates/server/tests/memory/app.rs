//! A server with the default models' tokenizers, and a backend that computes nothing.

use std::sync::Arc;

use ropeway_embed::{Embedder, EmbedderOptions};
use ropeway_engine::{Backend, EventStream, Load, Rejected, Request};
use ropeway_executor::Limits;
use ropeway_server::embedding::{EmbeddingModel, EmbeddingModels, Ready};
use ropeway_server::{App, Model, ModelFacts, Models};
use ropeway_text::{ChatTemplate, Tokenizer};
use ropeway_weights::Checkpoint;

use crate::default_models;

/// Tokens of the largest context that any model has: bodies are read rather than refused.
pub const LARGEST_CONTEXT: usize = 1 << 20;

/// A backend that takes nothing: what is measured comes before.
struct Nobody(Limits);

impl Backend for Nobody {
    fn submit(&self, request: Request) -> Result<EventStream, Rejected> {
        Err(Rejected::TooLong { tokens: request.prompt.len(), room: 0 })
    }

    fn limits(&self) -> Limits {
        self.0
    }

    fn load(&self) -> Load {
        Load::default()
    }

    fn stop(&self) {}
}

/// A server whose model has a context of so many tokens; `None` without the default models.
pub fn app(context: usize) -> Option<Arc<App>> {
    let checkpoint = Checkpoint::open(&default_models::smollm2()?).expect("the default model");
    let tokenizer = Tokenizer::from_checkpoint(&checkpoint).expect("a tokenizer");
    let template = ChatTemplate::from_checkpoint(&checkpoint).expect("readable").expect("a template");
    let vocab = tokenizer.vocab_size();
    let backend = Nobody(Limits { context, blocks: context, vocab, ..Limits::EXAMPLE });
    let models = Models::default().taking_any_name();
    models.add(Arc::new(Model::new("m".into(), tokenizer, template, ModelFacts::default(), backend)));
    Some(Arc::new(App { embeddings: embeddings()?, ..App::new(models) }))
}

fn embeddings() -> Option<EmbeddingModels> {
    let folder = default_models::minilm()?;
    let load = move || {
        let checkpoint = Checkpoint::open(&folder).map_err(|error| error.to_string())?;
        let embedder = Embedder::load(&checkpoint, &EmbedderOptions::default(), &mut |_, _| {});
        let embedder = embedder.map(Arc::new).map_err(|error| error.to_string())?;
        Ok(Ready { embedder, facts: ModelFacts::default() })
    };
    Some(EmbeddingModels::new(vec![EmbeddingModel::new("m".into(), Arc::new(load))]))
}
