//! Embedding models of upstreams, as the server knows embedding models.

use std::sync::Arc;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use ropeway_embed::TooLong;
use ropeway_generation::RequestError;
use ropeway_openai::texts::TextInput;
use ropeway_pool::embeddings::{EmbeddingInput, Overlong, Scores, Vectors};
use ropeway_pool::lane::Lane;
use ropeway_pool::vectors::{self, Answered, VectorPool};
use ropeway_server::embedding::remote::{
    Asker, EmbedderFacts, RemoteEmbed, RemoteEmbedder, RemoteRank, RemoteScores, RemoteVectors,
};

/// A model that upstreams compute.
pub struct PoolEmbedder(VectorPool);

impl PoolEmbedder {
    /// A model with these upstreams.
    pub fn new(lane: Arc<Lane>) -> Self {
        Self(VectorPool::new(lane))
    }
}

impl RemoteEmbedder for PoolEmbedder {
    fn embed(&self, ask: RemoteEmbed) -> BoxFuture<'static, Result<RemoteVectors, RequestError>> {
        let pool = self.0.clone();
        async move {
            let overlong = match ask.too_long {
                TooLong::Truncate => Overlong::Cut,
                TooLong::Refuse => Overlong::Refuse,
            };
            let embedded = pool.embed(input(ask.texts)?, overlong, asker(ask.asker)).await?;
            let Answered { answer: Vectors { vectors, tokens }, upstream } = embedded;
            Ok(RemoteVectors { vectors, tokens, upstream: Some(upstream) })
        }
        .boxed()
    }

    fn rank(&self, ask: RemoteRank) -> BoxFuture<'static, Result<RemoteScores, RequestError>> {
        let pool = self.0.clone();
        async move {
            let Answered { answer, upstream } =
                pool.rank(&ask.query, &ask.documents, asker(ask.asker)).await?;
            let Scores { scores, tokens } = answer;
            Ok(RemoteScores { scores, tokens, upstream: Some(upstream) })
        }
        .boxed()
    }

    fn facts(&self) -> EmbedderFacts {
        EmbedderFacts { max_tokens: Some(self.0.context()), dimensions: None, can_score: true }
    }
}

fn asker(asker: Asker) -> vectors::Asker {
    let Asker { client, class, deadline, queue_timeout } = asker;
    vectors::Asker { client, class, deadline, queue_timeout }
}

/// All texts, or all lists of tokens.
fn input(texts: Vec<TextInput>) -> Result<EmbeddingInput, RequestError> {
    let (mut plain, mut tokens) = (Vec::new(), Vec::new());
    for text in texts {
        match text {
            TextInput::Text(text) => plain.push(text),
            TextInput::Tokens(ids) => tokens.push(ids),
        }
    }
    match (plain.is_empty(), tokens.is_empty()) {
        (_, true) => Ok(EmbeddingInput::Texts(plain)),
        (true, false) => Ok(EmbeddingInput::Tokens(tokens)),
        (false, false) => {
            Err(RequestError::invalid("texts and token ids can't be mixed in a request").at("input"))
        }
    }
}
