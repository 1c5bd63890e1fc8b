//! The models that embed and rank: loaded when they are first asked for, or of another server.

use std::sync::{Arc, PoisonError, RwLock};

use ropeway_embed::Embedder;
use tokio::sync::OnceCell;

use super::remote::{AnyEmbedder, EmbedderFacts, RemoteEmbedder};
use crate::error::{ApiError, Kind};
use crate::model::{ModelFacts, Visible, same_name, unix_seconds};

/// What makes an embedder; may take long.
pub type Loader = Arc<dyn Fn() -> Result<Ready, String> + Send + Sync>;

/// A loaded model.
#[derive(Clone)]
pub struct Ready {
    /// The model itself.
    pub embedder: Arc<Embedder>,
    /// About its files.
    pub facts: ModelFacts,
}

impl Ready {
    fn known(&self) -> Known {
        let embedder = AnyEmbedder::Local(Arc::clone(&self.embedder)).facts();
        Known { files: self.facts.clone(), embedder }
    }
}

/// A model that embeds or ranks, loaded or not yet.
pub struct EmbeddingModel {
    /// Its full name, such as `all-minilm:l6-v2`.
    pub name: String,
    /// Since when it is served, in seconds since 1970.
    pub created: u64,
    source: Source,
}

/// Where a model is.
enum Source {
    Local { loader: Loader, ready: OnceCell<Ready> },
    Remote { embedder: Arc<dyn RemoteEmbedder>, facts: ModelFacts },
}

/// What is known about a model that can be asked.
#[derive(Clone, Debug)]
pub struct Known {
    /// About its files.
    pub files: ModelFacts,
    /// About its vectors.
    pub embedder: EmbedderFacts,
}

impl EmbeddingModel {
    /// A model that will be loaded when it is first asked for.
    pub fn new(name: String, loader: Loader) -> Self {
        Self::of(name, Source::Local { loader, ready: OnceCell::new() })
    }

    /// A model of another server.
    pub fn of_remote(name: String, embedder: Arc<dyn RemoteEmbedder>, facts: ModelFacts) -> Self {
        Self::of(name, Source::Remote { embedder, facts })
    }

    fn of(name: String, source: Source) -> Self {
        Self { name, created: unix_seconds(), source }
    }

    /// The model, if it is one of this process and loaded.
    pub fn loaded(&self) -> Option<&Ready> {
        match &self.source {
            Source::Local { ready, .. } => ready.get(),
            Source::Remote { .. } => None,
        }
    }

    /// What is known about it, unless it has to be loaded first.
    pub fn known(&self) -> Option<Known> {
        match &self.source {
            Source::Local { ready, .. } => ready.get().map(Ready::known),
            Source::Remote { embedder, facts } => {
                Some(Known { files: facts.clone(), embedder: embedder.facts() })
            }
        }
    }

    /// What is known about it, loaded first if need be.
    pub async fn describe(&self) -> Result<Known, ApiError> {
        match &self.source {
            Source::Local { loader, ready } => Ok(self.ready(loader, ready).await?.known()),
            Source::Remote { embedder, facts } => {
                Ok(Known { files: facts.clone(), embedder: embedder.facts() })
            }
        }
    }

    /// What embeds, loaded first if need be.
    pub async fn embedder(&self) -> Result<AnyEmbedder, ApiError> {
        match &self.source {
            Source::Local { loader, ready } => {
                let ready = self.ready(loader, ready).await?;
                Ok(AnyEmbedder::Local(Arc::clone(&ready.embedder)))
            }
            Source::Remote { embedder, .. } => Ok(AnyEmbedder::Remote(Arc::clone(embedder))),
        }
    }

    async fn ready<'a>(&self, loader: &Loader, ready: &'a OnceCell<Ready>) -> Result<&'a Ready, ApiError> {
        let load = || async {
            let (loader, name) = (Arc::clone(loader), &self.name);
            let loaded = tokio::task::spawn_blocking(move || loader()).await;
            let loaded = loaded.unwrap_or_else(|_| Err("loading it failed on a bug of Ropeway".into()));
            loaded.map_err(|why| {
                tracing::error!(target: "embed", model = name, why, "the model can't be loaded");
                ApiError::new(Kind::Internal, format!("{name} can't be loaded: {why}"))
            })
        };
        ready.get_or_try_init(load).await
    }
}

/// The models that embed and rank.
#[derive(Default)]
pub struct EmbeddingModels(RwLock<Vec<Arc<EmbeddingModel>>>);

impl EmbeddingModels {
    /// These; the first is meant when none is named.
    pub fn new(models: Vec<EmbeddingModel>) -> Self {
        Self(RwLock::new(models.into_iter().map(Arc::new).collect()))
    }

    /// Serves one more model, or a newer one of the same name.
    pub fn add(&self, model: EmbeddingModel) {
        let mut models = self.0.write().unwrap_or_else(PoisonError::into_inner);
        models.retain(|other| other.name != model.name);
        models.push(Arc::new(model));
    }

    /// Serves it no longer.
    pub fn remove(&self, name: &str) {
        self.0.write().unwrap_or_else(PoisonError::into_inner).retain(|model| model.name != name);
    }

    /// All of them.
    pub fn all(&self) -> Vec<Arc<EmbeddingModel>> {
        self.0.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The model of this very name, give or take its tag.
    pub fn named(&self, name: &str) -> Option<Arc<EmbeddingModel>> {
        self.all().into_iter().find(|model| same_name(&model.name, name))
    }

    /// The model a client means. Aliases, the taking of any name and what exists for the client are those of the models
    /// that chat.
    pub fn find(&self, name: Option<&str>, names: &Visible<'_>) -> Result<Arc<EmbeddingModel>, ApiError> {
        let by_name = |name: &str| self.named(name).filter(|model| names.has(&model.name));
        let first = || self.all().into_iter().find(|model| names.has(&model.name));
        let found = match name {
            None => first(),
            Some(name) => by_name(name)
                .or_else(|| by_name(&names.alias_of(name)?))
                .or_else(|| first().filter(|_| names.takes_any_name())),
        };
        found.ok_or_else(|| self.not_served(name.unwrap_or_default(), names))
    }

    fn not_served(&self, name: &str, visible: &Visible<'_>) -> ApiError {
        let names = self.all().into_iter().map(|model| model.name.clone());
        let names: Vec<_> = names.filter(|name| visible.has(name)).collect();
        let known = if names.is_empty() {
            "none; start the server without --no-embeddings".into()
        } else {
            names.join(", ")
        };
        ApiError::new(
            Kind::NotFound,
            format!(
                "no embedding model {name:?} is served here; served: {known}. --embed-model serves another, --alias \
                 gives one other names"
            ),
        )
        .about("model")
        .coded("model_not_found")
    }
}
