//! The shared middle of every embedding API: models that turn texts into vectors or pairs into scores, and what can go
//! wrong.
//!
//! A model of this process is loaded when it is first asked for, once, however many ask at the same time. Texts of all requests meet in
//! the embedder's batcher; a bad text fails its own request only. A model of another server ([`remote`]) is asked over there. It
//! must never know a wire format.

mod models;
pub mod remote;

pub use models::{EmbeddingModel, EmbeddingModels, Known, Loader, Ready};

use std::sync::Arc;

use ropeway_embed::{EmbedError, EmbedOptions, Embedder, Embedding, Score};
use ropeway_generation::RequestError;
use ropeway_openai::embeddings::failed;
use ropeway_openai::texts::TextInput;
use ropeway_text::Interrupt;

use self::remote::AnyEmbedder;
use crate::caller::Caller;
use crate::error::{ApiError, Kind};
use crate::offload::{Effort, Served, offload};

/// Bytes of all pairs that one request may have ranked: some seconds of tokenising.
const MOST_PAIR_BYTES: usize = 32 << 20;

/// The vectors of these texts, in their order. One bad text fails the request, and no other.
pub async fn embed(
    embedder: &AnyEmbedder,
    texts: Vec<TextInput>,
    mut options: EmbedOptions,
    caller: &Caller,
) -> Result<Vec<Embedding>, ApiError> {
    options.class = caller.class;
    let embeddings = match embedder {
        AnyEmbedder::Local(embedder) => embed_here(embedder, texts, options, caller).await?,
        AnyEmbedder::Remote(embedder) => {
            let there = remote::embed(embedder, texts, options, caller);
            in_time(async { Ok(there.await?) }, caller).await?
        }
    };
    book(caller, embeddings.iter().map(|embedding| embedding.tokens).sum());
    Ok(embeddings)
}

async fn embed_here(
    embedder: &Arc<Embedder>,
    texts: Vec<TextInput>,
    options: EmbedOptions,
    caller: &Caller,
) -> Result<Vec<Embedding>, ApiError> {
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
    collect(pending, caller).await
}

/// How well each document fits the query.
pub async fn rank(
    embedder: &AnyEmbedder,
    query: String,
    documents: Vec<String>,
    caller: &Caller,
) -> Result<Vec<Score>, ApiError> {
    let bytes = pairs_bytes(&query, &documents);
    if bytes > MOST_PAIR_BYTES {
        let what = format!(
            "the query is read once for every document, which makes {bytes} bytes; at most {MOST_PAIR_BYTES} are read, so \
             shorten the query or send fewer documents"
        );
        return Err(ApiError::invalid(what).about("query"));
    }
    let scores = match embedder {
        AnyEmbedder::Local(embedder) => rank_here(embedder, query, documents, caller).await?,
        AnyEmbedder::Remote(embedder) => {
            let there = remote::rank(embedder, query, documents, caller);
            in_time(async { Ok(there.await?) }, caller).await?
        }
    };
    book(caller, scores.iter().map(|score| score.tokens).sum());
    Ok(scores)
}

async fn rank_here(
    embedder: &Arc<Embedder>,
    query: String,
    documents: Vec<String>,
    caller: &Caller,
) -> Result<Vec<Score>, ApiError> {
    let (here, class) = (Arc::clone(embedder), caller.class);
    let bytes = pairs_bytes(&query, &documents);
    let pending = offload(&caller.intake, Effort::Bytes(bytes), move |interrupt| {
        let submit = |(index, document): (usize, &String)| {
            given_up(interrupt)?;
            here.score(&query, document, class).map_err(|error| failed(&error, index))
        };
        documents.iter().enumerate().map(submit).collect::<Result<Vec<_>, _>>()
    })
    .await?;
    collect(pending, caller).await
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
    let all = async {
        let mut results = Vec::with_capacity(pending.len());
        for (index, pending) in pending.into_iter().enumerate() {
            results.push(pending.await.map_err(|error| failed(&error, index))?);
        }
        Ok(results)
    };
    in_time(all, caller).await
}

/// Waits for a result as long as the request may take.
async fn in_time<T>(
    result: impl Future<Output = Result<T, ApiError>>,
    caller: &Caller,
) -> Result<T, ApiError> {
    let _served = Served::begin();
    let Some(deadline) = caller.deadline else { return result.await };
    tokio::time::timeout(deadline, result).await.unwrap_or_else(|_| {
        let what = format!("it took longer than the {} seconds a request may", deadline.as_secs());
        Err(ApiError::new(Kind::TimedOut, what).coded("timeout"))
    })
}

/// Takes what was computed off the client's allowance.
fn book(caller: &Caller, tokens: usize) {
    caller.progress.submitted(caller.class, tokens);
    caller.spend(tokens);
}
