//! How a response gets to its client: whole, as a stream, or later.

use std::convert::Infallible;

use axum::Json;
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use futures_util::{Stream, StreamExt, stream};
use ropeway_engine::Usage;
use ropeway_generation::{ErrorKind, Finish, GenerationEvent, RequestError, StopReason};
use serde_json::Value;
use tokio::sync::mpsc::{Sender, channel};

use super::request::Delivery;
use super::turn::{Keeping, Running};
use super::writer::{Ended, Writer};
use crate::error::ApiError;
use crate::generation::ObservedStream;
use crate::openai::sse::KEEP_ALIVE;
use crate::openai::store::Cancel;

/// Events that wait for whoever looks on at a response in the background; who is slower than that has to ask for the whole.
const WATCHED: usize = 1024;

/// A response that is being written, and what is kept of it.
pub struct Delivering {
    /// Writes it.
    pub writer: Writer,
    /// What is generated.
    pub events: ObservedStream,
    /// What is kept.
    pub keeping: Option<Keeping>,
}

impl Delivering {
    /// The answer to the request.
    pub async fn answer(self, delivery: Delivery) -> Result<Response, ApiError> {
        match self {
            Self { writer, events, keeping: Some(keeping) } if delivery.is_background => {
                in_background(writer, events, keeping, delivery.streams)
            }
            delivering if delivery.streams => Ok(respond(delivering.streamed())),
            delivering => delivering.whole().await,
        }
    }

    async fn whole(mut self) -> Result<Response, ApiError> {
        while self.writer.ended.is_none() {
            self.next().await;
        }
        match self.writer.ended {
            Some(Ended { error: Some(error), .. }) => Err(error.into()),
            ended => Ok(Json(ended.map(|ended| ended.response)).into_response()),
        }
    }

    fn streamed(mut self) -> impl Stream<Item = Value> + Send + 'static {
        let hello = self.writer.hello();
        let rest = stream::unfold(self, |mut delivering| async move {
            if delivering.writer.ended.is_some() {
                return None;
            }
            let events = delivering.next().await;
            Some((stream::iter(events), delivering))
        });
        stream::iter(hello).chain(rest.flatten())
    }

    /// The next events. A response is kept before its client learns that it is over.
    async fn next(&mut self) -> Vec<Value> {
        let event = self.events.next().await.unwrap_or_else(no_end);
        let events = self.writer.take(event);
        if let (Some(ended), Some(keeping)) = (&self.writer.ended, &self.keeping) {
            keeping.keep(&ended.response);
        }
        events
    }
}

/// The end of an answer that has none.
fn no_end() -> GenerationEvent {
    let error = RequestError::new(ErrorKind::Internal, "the engine gave no answer");
    let finish = Finish {
        reason: StopReason::Failed(error),
        end_token: None,
        called_tools: false,
        reasoning_tokens: 0,
        usage: Usage::default(),
    };
    GenerationEvent::Finished { choice: 0, finish }
}

/// Lets a response run on without its client, which may look on.
fn in_background(
    mut writer: Writer,
    events: ObservedStream,
    keeping: Keeping,
    streams: bool,
) -> Result<Response, ApiError> {
    let (cancel, begun) = (Cancel::default(), writer.begun());
    let running = keeping.list(&begun, Cancel::clone(&cancel))?;
    let (sender, mut receiver) = channel(WATCHED);
    let watcher = streams.then_some(sender);
    if let Some(watcher) = &watcher {
        // Whoever looks on is here: the channel's other end is below.
        writer.hello().into_iter().for_each(|event| drop(watcher.try_send(event)));
    }
    let mut delivering = Delivering { writer, events, keeping: Some(keeping) };
    tokio::spawn(async move {
        tokio::select! {
            () = cancel.notified() => {}
            () = run(&mut delivering, &running, watcher) => {}
        }
        log(&running, delivering.writer.ended.as_ref());
    });
    if !streams {
        return Ok(Json(begun).into_response());
    }
    let events = stream::poll_fn(move |context| receiver.poll_recv(context));
    Ok(respond(events))
}

async fn run(delivering: &mut Delivering, running: &Running, mut watcher: Option<Sender<Value>>) {
    let mut has_begun = false;
    while delivering.writer.ended.is_none() {
        let events = delivering.next().await;
        if !has_begun {
            running.begin();
            has_begun = true;
        }
        for event in events {
            // A watcher that left, or is too slow, gets no more.
            watcher = watcher.filter(|watcher| watcher.try_send(event).is_ok());
        }
    }
}

/// A line in the log: that of the request was written long before.
fn log(running: &Running, ended: Option<&Ended>) {
    let response = ended.map(|ended| &ended.response);
    let status = response.and_then(|response| response["status"].as_str()).unwrap_or("cancelled");
    let tokens = |name: &str| response.and_then(|response| response["usage"][name].as_u64());
    tracing::info!(
        target: "background",
        response = running.id(),
        status,
        input_tokens = tokens("input_tokens"),
        output_tokens = tokens("output_tokens"),
        "a response in the background is over"
    );
}

/// Server-sent events, each named by its type.
fn respond(events: impl Stream<Item = Value> + Send + 'static) -> Response {
    let events = events.map(|event| {
        let kind = event["type"].as_str().unwrap_or("error").to_owned();
        Ok::<_, Infallible>(Event::default().event(kind).data(event.to_string()))
    });
    Sse::new(events).keep_alive(KeepAlive::new().interval(KEEP_ALIVE)).into_response()
}
