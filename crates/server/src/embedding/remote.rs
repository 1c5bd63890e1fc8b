//! Embedding and ranking at another server, as the local embedder does them.
//!
//! ```text
//! texts ─ RemoteEmbedder::embed ─> vectors ─ shortened, normalised ─> the same as a local embedder's
//! ```
//! It relies on the other server for tokens and their counts. Vectors are shortened here, so that every model can have fewer
//! dimensions, whether its server can shorten them or not. It must never know a wire format.

use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::future::BoxFuture;
use ropeway_embed::{EmbedOptions, Embedder, Embedding, Score, TooLong};
use ropeway_engine::{Class, ClientId};
use ropeway_generation::RequestError;
use ropeway_openai::texts::TextInput;

use crate::caller::Caller;

/// Embeds or ranks at another server.
pub trait RemoteEmbedder: Send + Sync {
    /// The vectors of these texts, whole and in their order. Dropping the future cancels.
    fn embed(&self, ask: RemoteEmbed) -> BoxFuture<'static, Result<RemoteVectors, RequestError>>;

    /// How well each document fits the query. Dropping the future cancels.
    fn rank(&self, ask: RemoteRank) -> BoxFuture<'static, Result<RemoteScores, RequestError>>;

    /// What is known about the model.
    fn facts(&self) -> EmbedderFacts;
}

/// Texts to be embedded.
#[derive(Clone, Debug)]
pub struct RemoteEmbed {
    /// At least one.
    pub texts: Vec<TextInput>,
    /// What happens to those that are too long.
    pub too_long: TooLong,
    /// For whom.
    pub asker: Asker,
}

/// Documents to be ranked.
#[derive(Clone, Debug)]
pub struct RemoteRank {
    /// What they are to fit.
    pub query: String,
    /// At least one.
    pub documents: Vec<String>,
    /// For whom.
    pub asker: Asker,
}

/// Who asks, and how long it may take.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Asker {
    /// For fairness.
    pub client: ClientId,
    /// How urgent it is.
    pub class: Class,
    /// Longest time to answer.
    pub deadline: Option<Duration>,
    /// Longest time in a queue.
    pub queue_timeout: Option<Duration>,
}

impl From<&Caller> for Asker {
    fn from(caller: &Caller) -> Self {
        let Caller { client, class, deadline, queue_timeout, .. } = caller;
        Self { client: *client, class: *class, deadline: *deadline, queue_timeout: *queue_timeout }
    }
}

/// Vectors as the other server gave them.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RemoteVectors {
    /// One per text.
    pub vectors: Vec<Vec<f32>>,
    /// Tokens of all texts.
    pub tokens: usize,
    /// The server that computed them.
    pub upstream: Option<Arc<str>>,
}

/// Scores as the other server gave them.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RemoteScores {
    /// One per document.
    pub scores: Vec<f32>,
    /// Tokens of all pairs.
    pub tokens: usize,
    /// The server that computed them.
    pub upstream: Option<Arc<str>>,
}

/// What is known about a model that embeds or ranks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EmbedderFacts {
    /// The longest text.
    pub max_tokens: Option<usize>,
    /// Numbers of a vector.
    pub dimensions: Option<usize>,
    /// Whether it ranks documents.
    pub can_score: bool,
}

/// What embeds: a model of this process, or one of another server.
#[derive(Clone)]
pub enum AnyEmbedder {
    /// A model of this process.
    Local(Arc<Embedder>),
    /// A model of another server.
    Remote(Arc<dyn RemoteEmbedder>),
}

impl AnyEmbedder {
    /// What is known about the model.
    pub fn facts(&self) -> EmbedderFacts {
        match self {
            Self::Local(embedder) => {
                let facts = embedder.facts();
                EmbedderFacts {
                    max_tokens: Some(facts.max_tokens),
                    dimensions: Some(facts.dimensions),
                    can_score: facts.can_score,
                }
            }
            Self::Remote(embedder) => embedder.facts(),
        }
    }
}

/// Another server's vectors of these texts, as `options` want them.
pub(super) async fn embed(
    embedder: &Arc<dyn RemoteEmbedder>,
    texts: Vec<TextInput>,
    options: EmbedOptions,
    caller: &Caller,
) -> Result<Vec<Embedding>, RequestError> {
    let since = Instant::now();
    let ask = RemoteEmbed { texts, too_long: options.too_long, asker: caller.into() };
    let RemoteVectors { vectors, tokens, upstream } = embedder.embed(ask).await?;
    note(upstream.as_ref(), since, caller);
    let counts = shares(tokens, vectors.len());
    let shape =
        |(vector, tokens)| Ok(Embedding { vector: shaped(vector, options)?, tokens, truncated: false });
    vectors.into_iter().zip(counts).map(shape).collect()
}

/// Another server's scores of these documents.
pub(super) async fn rank(
    embedder: &Arc<dyn RemoteEmbedder>,
    query: String,
    documents: Vec<String>,
    caller: &Caller,
) -> Result<Vec<Score>, RequestError> {
    let since = Instant::now();
    let ask = RemoteRank { query, documents, asker: caller.into() };
    let RemoteScores { scores, tokens, upstream } = embedder.rank(ask).await?;
    note(upstream.as_ref(), since, caller);
    let counts = shares(tokens, scores.len());
    let score = |(relevance, tokens)| Score { relevance, raw: relevance, tokens };
    Ok(scores.into_iter().zip(counts).map(score).collect())
}

/// The log and the traces tell which server it was.
fn note(upstream: Option<&Arc<str>>, since: Instant, caller: &Caller) {
    if let Some(upstream) = upstream {
        caller.progress.placed(upstream, since);
    }
}

/// The vector with as many dimensions as are asked for, and of length 1 where that is wished or it was shortened.
fn shaped(mut vector: Vec<f32>, options: EmbedOptions) -> Result<Vec<f32>, RequestError> {
    let most = vector.len();
    if let Some(asked) = options.dimensions.filter(|asked| !(1..=most).contains(asked)) {
        let message = format!("dimensions must be between 1 and {most}, not {asked}");
        return Err(RequestError::invalid(message).at("dimensions"));
    }
    vector.truncate(options.dimensions.unwrap_or(most));
    if options.normalise.unwrap_or(options.dimensions.is_some()) {
        let length = vector.iter().map(|x| x * x).sum::<f32>().sqrt();
        if length > 0.0 {
            for x in &mut vector {
                *x /= length;
            }
        }
    }
    Ok(vector)
}

/// A count as so many that are about alike and add up to it.
fn shares(total: usize, parts: usize) -> impl Iterator<Item = usize> {
    (0..parts).map(move |index| total / parts + usize::from(index < total % parts))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_of_a_count_add_up_to_it() {
        for (total, parts) in [(0, 1), (7, 3), (2, 5), (100, 7)] {
            assert_eq!(shares(total, parts).count(), parts);
            assert_eq!(shares(total, parts).sum::<usize>(), total);
        }
        assert_eq!(shares(5, 0).count(), 0);
    }

    #[test]
    fn a_vector_is_shortened_and_then_of_length_one() {
        let options =
            |dimensions, normalise| EmbedOptions { dimensions, normalise, ..EmbedOptions::default() };
        let vector = || vec![3.0, 4.0, 5.0];
        assert_eq!(shaped(vector(), options(None, None)), Ok(vector()));
        assert_eq!(shaped(vector(), options(Some(2), None)), Ok(vec![0.6, 0.8]));
        assert_eq!(shaped(vector(), options(Some(2), Some(false))), Ok(vec![3.0, 4.0]));
        assert_eq!(shaped(vec![0.0], options(None, Some(true))), Ok(vec![0.0]));
        for wrong in [0, 4] {
            let error = shaped(vector(), options(Some(wrong), None)).unwrap_err();
            assert_eq!(error.field.as_deref(), Some("dimensions"));
        }
    }
}
