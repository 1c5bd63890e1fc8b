//! Traces for an OpenTelemetry collector: per request a span for the whole, and below it its time in the queue, reading
//! the prompt and writing the answer.
//!
//! OTLP over HTTP in its JSON form, written by hand: a span is a dozen fields and all of them are known when a request is
//! over. The `opentelemetry` crates would bring 18 crates more (`reqwest` and `prost` among them) and a tracer of their own,
//! for what is a JSON object and a POST here.
//! Spans wait in a bounded queue and go out in batches; what does not fit or can't be delivered is counted and dropped.
//!
//! Must never: wait for the collector where a request is answered.

mod collector;
mod span;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use serde_json::{Value, json};
use tokio::sync::{mpsc, oneshot};
use tokio::time::{Instant, timeout, timeout_at};

pub use collector::Collector;
pub use span::TraceParent;

use super::{Facts, Visit};

/// Requests whose spans may wait: some seconds of a busy server.
const ROOM: usize = 4096;

/// Requests whose spans go out together at most.
const MOST: usize = 256;

/// How long spans wait for others.
const PATIENCE: Duration = Duration::from_secs(1);

/// How long the last spans may take when the server ends.
const FAREWELL: Duration = Duration::from_secs(2);

enum Message {
    Spans(Vec<Value>),
    Flush(oneshot::Sender<()>),
}

/// The way to the collector.
#[derive(Clone)]
pub struct Exporter {
    queue: mpsc::Sender<Message>,
    dropped: Arc<AtomicU64>,
}

impl Exporter {
    /// Sends to this collector from now on. Needs a runtime.
    pub fn start(collector: Collector) -> Self {
        let (queue, messages) = mpsc::channel(ROOM);
        let dropped = Arc::new(AtomicU64::new(0));
        tokio::spawn(run(collector, messages, Arc::clone(&dropped)));
        Self { queue, dropped }
    }

    /// Spans that never reached the collector, in requests.
    pub fn dropped(&self) -> u64 {
        self.dropped.load(Ordering::Relaxed)
    }

    /// Hands over a request that is over.
    pub(super) fn send(&self, visit: &Visit, facts: &Facts) {
        if self.queue.try_send(Message::Spans(span::spans(visit, facts))).is_err() {
            self.dropped.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Sends what waits, within a moment.
    pub async fn finish(&self) {
        let (done, sent) = oneshot::channel();
        let flush = async {
            if self.queue.send(Message::Flush(done)).await.is_ok() {
                let _ = sent.await;
            }
        };
        let _ = timeout(FAREWELL, flush).await;
    }
}

/// Collects spans and sends them until nobody can hand over any more.
async fn run(collector: Collector, mut messages: mpsc::Receiver<Message>, dropped: Arc<AtomicU64>) {
    let mut failing = false;
    while let Some(first) = messages.recv().await {
        let (mut batch, mut waiting) = (Vec::new(), Vec::new());
        let mut next = Some(first);
        let end = Instant::now() + PATIENCE;
        while let Some(message) = next {
            match message {
                Message::Spans(spans) => batch.push(spans),
                Message::Flush(done) => waiting.push(done),
            }
            let full = batch.len() == MOST || !waiting.is_empty();
            next = if full { None } else { timeout_at(end, messages.recv()).await.ok().flatten() };
        }
        let requests = batch.len() as u64;
        let sent = if batch.is_empty() { Ok(()) } else { collector.send(&envelope(batch)).await };
        if let Err(reason) = &sent {
            dropped.fetch_add(requests, Ordering::Relaxed);
            if !failing {
                tracing::warn!(target: "otlp", %reason, "traces can't be delivered and are dropped");
            }
        }
        failing = sent.is_err();
        for done in waiting {
            let _ = done.send(());
        }
    }
}

fn envelope(batch: Vec<Vec<Value>>) -> Value {
    let spans: Vec<_> = batch.into_iter().flatten().collect();
    let service = span::text("service.name", "ropeway");
    let version = env!("CARGO_PKG_VERSION");
    json!({ "resourceSpans": [{
        "resource": { "attributes": [service, span::text("service.version", version)] },
        "scopeSpans": [{ "scope": { "name": "ropeway", "version": version }, "spans": spans }],
    }] })
}
