//! The shared middle of every embedding API: models that turn texts into vectors or pairs into scores, and what can go
//! wrong.
//!
//! A model is loaded when it is first asked for, once, however many ask at the same time. Texts of all requests meet in
//! the embedder's batcher; a bad text fails its own request only. It must never know a wire format.

use std::sync::Arc;

use ropeway_embed::{EmbedError, EmbedOptions, Embedder, Embedding, Score};
use ropeway_generation::RequestError;
use ropeway_openai::embeddings::failed;
use ropeway_openai::texts::TextInput;
use ropeway_text::Interrupt;
use tokio::sync::OnceCell;

use crate::caller::Caller;
use crate::error::{ApiError, Kind};
use crate::model::{ModelFacts, Visible, same_name, unix_seconds};
use crate::offload::{Effort, Served, offload};

/// Bytes of all pairs that one request may have ranked: some seconds of tokenising.
const MOST_PAIR_BYTES: usize = 32 << 20;

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

/// A model that embeds or ranks, loaded or not yet.
pub struct EmbeddingModel {
    /// Its full name, such as `all-minilm:l6-v2`.
    pub name: String,
    /// Since when it is served, in seconds since 1970.
    pub created: u64,
    loader: Loader,
    ready: OnceCell<Ready>,
}

impl EmbeddingModel {
    /// A model that will be loaded when it is first asked for.
    pub fn new(name: String, loader: Loader) -> Self {
        Self { name, created: unix_seconds(), loader, ready: OnceCell::new() }
    }

    /// The model, if it is loaded.
    pub fn loaded(&self) -> Option<&Ready> {
        self.ready.get()
    }

    /// The model, loaded first if need be.
    pub async fn embedder(&self) -> Result<Arc<Embedder>, ApiError> {
        self.ready().await.map(|ready| Arc::clone(&ready.embedder))
    }

    /// The model and what is known about it, loaded first if need be.
    pub async fn ready(&self) -> Result<&Ready, ApiError> {
        let load = || async {
            let (loader, name) = (Arc::clone(&self.loader), &self.name);
            let loaded = tokio::task::spawn_blocking(move || loader()).await;
            let loaded = loaded.unwrap_or_else(|_| Err("loading it failed on a bug of Ropeway".into()));
            loaded.map_err(|why| {
                tracing::error!(target: "embed", model = name, why, "the model can't be loaded");
                ApiError::new(Kind::Internal, format!("{name} can't be loaded: {why}"))
            })
        };
        self.ready.get_or_try_init(load).await
    }
}

/// The models that embed and rank.
#[derive(Default)]
pub struct EmbeddingModels(Vec<Arc<EmbeddingModel>>);

impl EmbeddingModels {
    /// These; the first is meant when none is named.
    pub fn new(models: Vec<EmbeddingModel>) -> Self {
        Self(models.into_iter().map(Arc::new).collect())
    }

    /// All of them.
    pub fn all(&self) -> &[Arc<EmbeddingModel>] {
        &self.0
    }

    /// The model of this very name, give or take its tag.
    pub fn named(&self, name: &str) -> Option<&Arc<EmbeddingModel>> {
        self.0.iter().find(|model| same_name(&model.name, name))
    }

    /// The model a client means. Aliases, the taking of any name and what exists for the client are those of the models
    /// that chat.
    pub fn find(&self, name: Option<&str>, names: &Visible<'_>) -> Result<Arc<EmbeddingModel>, ApiError> {
        let by_name = |name: &str| self.named(name).filter(|model| names.has(&model.name)).cloned();
        let first = || self.0.iter().find(|model| names.has(&model.name)).cloned();
        let found = match name {
            None => first(),
            Some(name) => by_name(name)
                .or_else(|| by_name(&names.alias_of(name)?))
                .or_else(|| first().filter(|_| names.takes_any_name())),
        };
        found.ok_or_else(|| self.not_served(name.unwrap_or_default(), names))
    }

    fn not_served(&self, name: &str, visible: &Visible<'_>) -> ApiError {
        let names = self.0.iter().map(|model| model.name.as_str());
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

/// The vectors of these texts, in their order. One bad text fails the request, and no other.
pub async fn embed(
    embedder: &Arc<Embedder>,
    texts: Vec<TextInput>,
    mut options: EmbedOptions,
    caller: &Caller,
) -> Result<Vec<Embedding>, ApiError> {
    options.class = caller.class;
    let here = Arc::clone(embedder);
    let bytes = texts.iter().map(TextInput::bytes).sum();
    let pending = offload(&caller.intake, Effort::Bytes(bytes), move |interrupt| {
        let submit = |(index, text): (usize, &TextInput)| {
            given_up(interrupt)?;
            here.embed(text.as_input(), &options).map_err(|error| failed(&error, index))
        };
        texts.iter().enumerate().map(submit).collect::<Result<Vec<_>, _>>()
    })
    .await?;
    caller.intake.release();
    let embeddings = collect(pending, caller).await?;
    book(caller, embeddings.iter().map(|embedding| embedding.tokens).sum());
    Ok(embeddings)
}

/// How well each document fits the query.
pub async fn rank(
    embedder: &Arc<Embedder>,
    query: String,
    documents: Vec<String>,
    caller: &Caller,
) -> Result<Vec<Score>, ApiError> {
    let (here, class) = (Arc::clone(embedder), caller.class);
    let bytes = pairs_bytes(&query, &documents);
    if bytes > MOST_PAIR_BYTES {
        let what = format!(
            "the query is read once for every document, which makes {bytes} bytes; at most {MOST_PAIR_BYTES} are read, so \
             shorten the query or send fewer documents"
        );
        return Err(ApiError::invalid(what).about("query"));
    }
    let pending = offload(&caller.intake, Effort::Bytes(bytes), move |interrupt| {
        let submit = |(index, document): (usize, &String)| {
            given_up(interrupt)?;
            here.score(&query, document, class).map_err(|error| failed(&error, index))
        };
        documents.iter().enumerate().map(submit).collect::<Result<Vec<_>, _>>()
    })
    .await?;
    let scores = collect(pending, caller).await?;
    book(caller, scores.iter().map(|score| score.tokens).sum());
    Ok(scores)
}

/// Bytes of all pairs of a query and a document.
fn pairs_bytes(query: &str, documents: &[String]) -> usize {
    query.len().saturating_mul(documents.len()) + documents.iter().map(String::len).sum::<usize>()
}

/// Stops work that nobody waits for.
fn given_up(interrupt: &Interrupt) -> Result<(), RequestError> {
    Ok(interrupt.check()?)
}

/// Waits for all results, as long as the request may take.
async fn collect<T>(
    pending: Vec<impl Future<Output = Result<T, EmbedError>>>,
    caller: &Caller,
) -> Result<Vec<T>, ApiError> {
    let _served = Served::begin();
    let all = async {
        let mut results = Vec::with_capacity(pending.len());
        for (index, pending) in pending.into_iter().enumerate() {
            results.push(pending.await.map_err(|error| failed(&error, index))?);
        }
        Ok(results)
    };
    let Some(deadline) = caller.deadline else { return all.await };
    tokio::time::timeout(deadline, all).await.unwrap_or_else(|_| {
        let what = format!("it took longer than the {} seconds a request may", deadline.as_secs());
        Err(ApiError::new(Kind::TimedOut, what).coded("timeout"))
    })
}

/// Takes what was computed off the client's allowance.
fn book(caller: &Caller, tokens: usize) {
    caller.progress.submitted(caller.class, tokens);
    caller.spend(tokens);
}
