//! One server as it is spoken to: connections, dialects, probes.
//!
//! ```text
//! generate ─> dialect: words ─> http: connection, head ─> refusal: is it a success? ─> sse: lines ─> dialect: events ─> TokenStream
//! describe ─> what it is, which models it has        healthy, reported_load ─> probes with a short time limit
//! ```
//! Nothing here waits for longer than the operator's limits, tries twice (but for a kept connection that was closed meanwhile) or decides
//! whether another upstream is asked: that is the flight's to know. No error holds a key.

mod ask;
mod description;
mod dialect;
mod http;
mod load;
mod refusal;
mod silence;
mod sse;
mod tokens;
mod values;
mod version;

use std::fmt;
use std::future::Future;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use tokio::time::timeout;

pub use ask::{Ending, Spelling, TokenAsk, TokenEvent};
pub use description::{Description, OfferedModel};
pub use load::ReportedLoad;
pub use tokens::TokenStream;
pub use values::SseStream;

use dialect::{Form, Speech, Worded};
use http::{Answer, Call, Client};
use silence::Silence;
use sse::SseLines;

use crate::error::UpstreamError;
use crate::settings::{Kind, UpstreamSettings};

/// How long a probe may take, connecting included: a server that is too busy for that is not healthy.
const PROBE: Duration = Duration::from_secs(5);

/// One server. Cheap to clone.
#[derive(Clone)]
pub struct Upstream {
    inner: Arc<Inner>,
}

struct Inner {
    settings: UpstreamSettings,
    /// Its name once more, for all who tell it.
    name: Arc<str>,
    client: Client,
    /// What it is, once that was found out.
    speech: RwLock<Option<Speech>>,
}

impl fmt::Debug for Upstream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Upstream").field("settings", &self.inner.settings).finish_non_exhaustive()
    }
}

impl Upstream {
    /// Prepares to speak to it; reads its certificate authorities, and sends nothing.
    pub fn new(settings: UpstreamSettings) -> Result<Self, UpstreamError> {
        let client = Client::new(&settings)?;
        let name = settings.name.as_str().into();
        Ok(Self { inner: Arc::new(Inner { settings, name, client, speech: RwLock::default() }) })
    }

    /// What the operator says about it.
    pub fn settings(&self) -> &UpstreamSettings {
        &self.inner.settings
    }

    /// What it is called.
    pub fn name(&self) -> &str {
        &self.inner.settings.name
    }

    /// The same, to be kept.
    pub fn shared_name(&self) -> &Arc<str> {
        &self.inner.name
    }

    /// Keeps no connection for later: it does not answer, and connections may be dead without a word.
    pub fn forget_connections(&self) {
        self.inner.client.forget_connections();
    }

    /// What it is, as far as it was said or found out.
    pub fn kind(&self) -> Option<Kind> {
        self.speech().map(|speech| speech.kind).or(self.inner.settings.kind)
    }

    /// Finds out what it is, unless the operator said so, and which models it has.
    pub async fn describe(&self) -> Result<Description, UpstreamError> {
        let description = description::of(self).await?;
        let version = description.version.as_deref().and_then(version::Version::parse);
        let speech = Speech { kind: description.kind, version };
        *self.inner.speech.write().unwrap_or_else(PoisonError::into_inner) = Some(speech);
        Ok(description)
    }

    /// Whether it lives; takes no part in its work.
    pub async fn healthy(&self) -> Result<(), UpstreamError> {
        let path = match self.kind() {
            Some(Kind::Vllm | Kind::Sglang | Kind::LlamaServer | Kind::Ropeway) => "/health",
            Some(Kind::Ollama) => "/api/version",
            Some(Kind::Openai) | None => "/v1/models",
        };
        self.within(PROBE, "a probe", async {
            let answer = self.send(&Call::get(path)).await?;
            answer.whole().await.map(drop)
        })
        .await
    }

    /// What it says about its own queue; `None` if it says nothing.
    pub async fn reported_load(&self) -> Option<ReportedLoad> {
        let kind = self.kind()?;
        let page = self.within(PROBE, "metrics", async {
            let answer = self.send(&Call::get("/metrics")).await?;
            answer.whole().await
        });
        load::read(kind, &page.await.ok()?)
    }

    /// Whether it has words for what is asked, as far as it is known what it is. Sends nothing.
    pub fn check(&self, ask: &TokenAsk<'_>) -> Result<(), UpstreamError> {
        self.speech().map_or(Ok(()), |speech| dialect::word(speech, ask).map(drop))
    }

    /// Asks for the tokens of a sequence. The head of the answer is there when this returns; the first token need not be.
    pub async fn generate(&self, ask: &TokenAsk<'_>) -> Result<TokenStream, UpstreamError> {
        let speech = self.find_out().await?;
        let Worded { path, body, answer } = dialect::word(speech, ask)?;
        let call = Call::post(path, body).named(ask.request_id);
        let silence = Silence::before_the_first_token(&self.inner.settings.timeouts);
        match answer {
            Form::Stream(reader) => {
                let answer = silence.bound(self.name(), self.send(&call)).await?;
                Ok(TokenStream::of(SseLines::new(answer), reader, silence))
            }
            Form::Whole(mut reader) => {
                let body = self.whole(&call, self.longest(ask)).await?;
                let events = reader.read(&body).map_err(|fault| fault.of(self.name()))?;
                Ok(TokenStream::whole(events))
            }
        }
    }

    /// Sends JSON and reads an answer that is streamed as JSON, such as `/v1/chat/completions` with `stream`.
    pub async fn post_stream(
        &self,
        path: &str,
        body: &impl Serialize,
    ) -> Result<SseStream<Value>, UpstreamError> {
        self.post_stream_of(path, body).await
    }

    /// The same for events of another type.
    pub async fn post_stream_of<T: DeserializeOwned>(
        &self,
        path: &str,
        body: &impl Serialize,
    ) -> Result<SseStream<T>, UpstreamError> {
        let call = Call::post(path, self.bytes(body)?);
        let silence = Silence::before_the_first_token(&self.inner.settings.timeouts);
        let answer = silence.bound(self.name(), self.send(&call)).await?;
        Ok(SseStream::new(SseLines::new(answer), silence, self.expected()))
    }

    /// Sends JSON and reads JSON, such as embeddings.
    pub async fn post(&self, path: &str, body: &impl Serialize) -> Result<Value, UpstreamError> {
        let call = Call::post(path, self.bytes(body)?);
        let answer = self.whole(&call, self.inner.settings.timeouts.first_token).await?;
        self.parse(&answer)
    }

    /// Reads JSON, within the time for a probe.
    pub async fn get(&self, path: &str) -> Result<Value, UpstreamError> {
        let answer = self.whole(&Call::get(path), PROBE).await?;
        self.parse(&answer)
    }

    async fn whole(&self, call: &Call, limit: Duration) -> Result<bytes::Bytes, UpstreamError> {
        self.within(limit, "an answer", async { self.send(call).await?.whole().await }).await
    }

    /// The head of a successful answer.
    async fn send(&self, call: &Call) -> Result<Answer, UpstreamError> {
        refusal::check(self.inner.client.send(call).await?, self.kind()).await
    }

    async fn within<T>(
        &self,
        after: Duration,
        waited_for: &'static str,
        work: impl Future<Output = Result<T, UpstreamError>>,
    ) -> Result<T, UpstreamError> {
        let silent = || UpstreamError::Silent { upstream: self.name().into(), waited_for, after };
        timeout(after, work).await.unwrap_or_else(|_| Err(silent()))
    }

    /// How long an answer in one piece may take.
    fn longest(&self, ask: &TokenAsk<'_>) -> Duration {
        let limits = self.inner.settings.timeouts;
        limits.first_token
            + limits.between_tokens.saturating_mul(ask.max_tokens.try_into().unwrap_or(u32::MAX))
    }

    fn speech(&self) -> Option<Speech> {
        *self.inner.speech.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// What it is; asked for if it is not known yet.
    async fn find_out(&self) -> Result<Speech, UpstreamError> {
        if let Some(known) = self.speech() {
            return Ok(known);
        }
        let kind = self.describe().await?.kind;
        Ok(self.speech().unwrap_or(Speech { kind, version: None }))
    }

    fn expected(&self) -> String {
        self.kind().map_or("a model server", Kind::name).to_owned()
    }

    fn bytes(&self, body: &impl Serialize) -> Result<Vec<u8>, UpstreamError> {
        serde_json::to_vec(body).map_err(|error| {
            UpstreamError::Unsupported(format!("this can't be written as JSON for {}: {error}", self.name()))
        })
    }

    fn parse(&self, body: &[u8]) -> Result<Value, UpstreamError> {
        serde_json::from_slice(body).map_err(|error| UpstreamError::Foreign {
            upstream: self.name().into(),
            expected: self.expected(),
            why: format!("its answer is no JSON ({error})"),
        })
    }
}
