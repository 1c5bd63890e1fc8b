//! Serves the models that upstreams offer, as tokens where their tokenizer can be found here.

use std::sync::{Arc, Weak};

use ropeway_generation::Generator;
use ropeway_pool::pools::{Found, Host, Speech};
use ropeway_pool::text::TextPool;
use ropeway_pool::tokens::TokenPool;
use ropeway_server::embedding::EmbeddingModel;
use ropeway_server::model::promised::Arrival;
use ropeway_server::{App, Model, ModelFacts};
use tokio::runtime::Handle;

use super::embedder::PoolEmbedder;
use super::tokenizer;
use crate::grammar_workers::grammar_workers;

/// The server whose models they become.
pub struct AppHost {
    app: Weak<App>,
    /// Pools live in the server's runtime.
    runtime: Handle,
}

impl AppHost {
    /// For this server. Must be called within its runtime.
    pub fn new(app: &Arc<App>) -> Self {
        Self { app: Arc::downgrade(app), runtime: Handle::current() }
    }

    /// The model in tokens, or as text where there is no tokenizer for it.
    fn generator(&self, found: &Found) -> (Generator, Speech) {
        let _runtime = self.runtime.enter();
        let words = if found.kind.speaks_tokens() {
            tokenizer::find(found)
        } else {
            Err(format!("{} answers as text", found.kind.name()))
        };
        match words {
            Ok(words) => {
                let pool = TokenPool::new(Arc::clone(&found.lane), &words.tokenizer);
                let generator = Generator::new(words.tokenizer, words.template, Arc::new(pool));
                (generator.with_grammar_workers(grammar_workers()), Speech::Tokens)
            }
            Err(why) => {
                let (upstream, model) = (found.upstream.name(), found.model.id.as_str());
                tracing::info!(target: "pool", upstream, model, why, "served as text, without a tokenizer");
                let pool = TextPool::new(Arc::clone(&found.lane));
                (Generator::of_chat(Arc::new(pool)), Speech::Text)
            }
        }
    }
}

impl Host for AppHost {
    fn introduce(&self, found: &Found) -> Result<Speech, String> {
        let app = self.app.upgrade().ok_or("the server ends")?;
        let name = &found.lane.model().to_string();
        if app.models.all().iter().any(|model| model.name == *name) {
            return Err("a local model has this name; give that one another file name".into());
        }
        // Who does not say whether a model embeds may be asked for both.
        if found.model.embeds != Some(false) {
            let embedder = Arc::new(PoolEmbedder::new(Arc::clone(&found.lane)));
            app.embeddings.add(EmbeddingModel::of_remote(name.clone(), embedder, facts(found)));
        }
        if found.model.embeds == Some(true) {
            app.models.arrives(name, Arrival::Arrived);
            return Ok(Speech::Vectors);
        }
        let (generator, speech) = self.generator(found);
        app.models.add(Arc::new(Model::of_generator(name.clone(), generator, facts(found))));
        Ok(speech)
    }

    fn awaits(&self, upstreams: usize) {
        if let Some(app) = self.app.upgrade() {
            app.models.await_sources(upstreams);
        }
    }

    fn withdraw(&self, name: &str) {
        let Some(app) = self.app.upgrade() else { return };
        if let Some(model) = app.models.all().iter().find(|served| served.name == name) {
            app.models.remove(model);
        }
        app.embeddings.remove(name);
    }
}

/// What can be told about a model whose files are elsewhere.
fn facts(found: &Found) -> ModelFacts {
    ModelFacts { family: found.kind.name().into(), ..ModelFacts::default() }
}
