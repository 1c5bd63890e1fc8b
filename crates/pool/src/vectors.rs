//! A model whose upstreams embed texts or rank documents.
//!
//! A request is one call, answered whole: one that fails is tried elsewhere, within the same budget as everything else.

use std::sync::Arc;
use std::time::Duration;

use ropeway_engine::{Class, ClientId};
use ropeway_generation::{ErrorKind, RequestError};
use serde_json::Value;

use crate::dispatch::{Ask, Ended};
use crate::embeddings::{self, BadAnswer, EMBEDDINGS, EmbeddingInput, Overlong, RERANK, Scores, Vectors};
use crate::error::UpstreamError;
use crate::lane::{Lane, Member, how_it_ended, missed_place, overloaded, timed_out};
use crate::prefix::session_of;
use crate::settings::Kind;

/// Bytes of a text that stand for a token where nobody counts them.
const TOKEN_BYTES: usize = 4;

/// Who asks, and how long it may take.
#[derive(Clone, Copy, Debug, Default)]
pub struct Asker {
    /// For fairness.
    pub client: ClientId,
    /// How urgent it is.
    pub class: Class,
    /// Longest time to answer.
    pub deadline: Option<Duration>,
    /// Longest time in the queue.
    pub queue_timeout: Option<Duration>,
}

/// An answer, and who gave it.
#[derive(Clone, Debug)]
pub struct Answered<T> {
    /// The answer.
    pub answer: T,
    /// The upstream's name.
    pub upstream: Arc<str>,
}

/// A model that embeds or ranks.
#[derive(Clone, Debug)]
pub struct VectorPool {
    lane: Arc<Lane>,
}

impl VectorPool {
    /// A model with these upstreams.
    pub fn new(lane: Arc<Lane>) -> Self {
        Self { lane }
    }

    /// The longest text, in tokens.
    pub fn context(&self) -> usize {
        self.lane.context()
    }

    /// The vectors of texts. Dropping the future cancels.
    pub async fn embed(
        &self,
        input: EmbeddingInput,
        overlong: Overlong,
        asker: Asker,
    ) -> Result<Answered<Vectors>, RequestError> {
        let texts = input.len();
        let call = Call {
            path: EMBEDDINGS,
            tokens: input.bytes() / TOKEN_BYTES + 1,
            asker,
            body: &|kind, model| embeddings::body(&input, overlong, kind, model),
        };
        self.call(call, |answer| embeddings::vectors(answer, texts)).await
    }

    /// How well each document fits a query. Dropping the future cancels.
    pub async fn rank(
        &self,
        query: &str,
        documents: &[String],
        asker: Asker,
    ) -> Result<Answered<Scores>, RequestError> {
        let bytes = query.len() * documents.len() + documents.iter().map(String::len).sum::<usize>();
        let call = Call {
            path: RERANK,
            tokens: bytes / TOKEN_BYTES + 1,
            asker,
            body: &|kind, model| embeddings::rerank_body(query, documents, kind, model),
        };
        self.call(call, |answer| embeddings::scores(answer, documents.len())).await
    }

    async fn call<T>(
        &self,
        call: Call<'_>,
        read: impl Fn(&Value) -> Result<T, BadAnswer>,
    ) -> Result<Answered<T>, RequestError> {
        let deadline = call.asker.deadline;
        let answered = self.try_all(&call, read);
        match deadline {
            Some(deadline) => {
                tokio::time::timeout(deadline, answered).await.unwrap_or_else(|_| Err(timed_out()))
            }
            None => answered.await,
        }
    }

    /// Asks one upstream after another until one answers.
    async fn try_all<T>(
        &self,
        call: &Call<'_>,
        read: impl Fn(&Value) -> Result<T, BadAnswer>,
    ) -> Result<Answered<T>, RequestError> {
        let mut boarding = self.lane.board(call.place(), Some(1))?;
        loop {
            let member = boarding.placed().await.map_err(missed_place)?.member;
            let error = match call.ask(&member, &read).await {
                Ok(answer) => {
                    boarding.tokens(1);
                    boarding.end(Ended::Done);
                    return Ok(Answered { answer, upstream: Arc::clone(member.upstream.shared_name()) });
                }
                Err(error) => error,
            };
            if error.is_the_requests() {
                boarding.end(Ended::Refused);
                return Err(RequestError::new(ErrorKind::InvalidRequest, error.to_string()));
            }
            let (upstream, model) = (member.upstream.name(), member.model.id.as_str());
            tracing::warn!(target: "pool", upstream, model, %error, "an attempt failed");
            boarding.again(how_it_ended(&error), error.to_string()).map_err(|spent| {
                overloaded(format!("the server of this model failed; {spent}, send it again later"))
            })?;
        }
    }
}

/// One call of whichever upstream.
struct Call<'a> {
    path: &'static str,
    /// About how many tokens it has.
    tokens: usize,
    asker: Asker,
    body: &'a (dyn Fn(Kind, &str) -> Result<Value, RequestError> + Sync),
}

impl Call<'_> {
    fn place(&self) -> Ask {
        let Asker { client, class, queue_timeout, .. } = self.asker;
        Ask {
            client,
            class,
            session: session_of(client),
            prefix: Arc::new([]),
            prompt_tokens: self.tokens,
            answer_tokens: 1,
            queue_timeout,
        }
    }

    async fn ask<T>(
        &self,
        member: &Member,
        read: impl Fn(&Value) -> Result<T, BadAnswer>,
    ) -> Result<T, UpstreamError> {
        let upstream = &member.upstream;
        let kind = upstream.kind().unwrap_or(Kind::Openai);
        let body = (self.body)(kind, &member.model.id)
            .map_err(|error| UpstreamError::Unsupported(error.to_string()))?;
        let answer = upstream.post(self.path, &body).await?;
        read(&answer).map_err(|why| UpstreamError::Foreign {
            upstream: upstream.name().into(),
            expected: kind.name().into(),
            why: why.to_string(),
        })
    }
}
