//! One request: its body, and what its answer was like.

use std::time::{Duration, Instant};

use http_body_util::BodyExt;
use hyper::Method;
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::time::timeout_at;

use super::client::{Client, Fault, Reply, broken};
use super::sse::Events;

/// Which of the two text APIs is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Endpoint {
    Completions,
    Chat,
}

impl Endpoint {
    pub fn name(self) -> &'static str {
        match self {
            Endpoint::Completions => "completions",
            Endpoint::Chat => "chat",
        }
    }

    pub fn route(self) -> &'static str {
        match self {
            Endpoint::Completions => "/v1/completions",
            Endpoint::Chat => "/v1/chat/completions",
        }
    }
}

/// What all requests have in common.
#[derive(Clone, Debug)]
pub struct Manner {
    pub endpoint: Endpoint,
    pub model: String,
    /// Answers go on to their full length.
    pub ignore_eos: bool,
    pub temperature: f32,
}

/// One request to send.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ask {
    pub prompt: String,
    pub new_tokens: usize,
}

impl Manner {
    /// The body of a request.
    pub fn body(&self, ask: &Ask) -> Value {
        let mut body = json!({
            "model": self.model,
            "max_tokens": ask.new_tokens,
            "temperature": self.temperature,
        });
        match self.endpoint {
            Endpoint::Completions => body["prompt"] = ask.prompt.as_str().into(),
            Endpoint::Chat => body["messages"] = json!([{ "role": "user", "content": ask.prompt }]),
        }
        if self.ignore_eos {
            body["ignore_eos"] = true.into();
        }
        body
    }

    fn streamed(&self, ask: &Ask) -> String {
        let mut body = self.body(ask);
        body["stream"] = true.into();
        body["stream_options"] = json!({ "include_usage": true });
        body.to_string()
    }
}

/// How an answer came.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Answer {
    /// From when the request was due to the first text.
    pub first_token: Duration,
    /// To the end.
    pub total: Duration,
    /// Seconds between pieces of text.
    pub gaps: Vec<f64>,
    pub prompt_tokens: Option<usize>,
    pub cached_tokens: Option<usize>,
    /// As the server counts them; pieces of text where it does not.
    pub output_tokens: usize,
}

/// Sends a request that was due at `due`, reads its answer to the end.
pub async fn ask(client: &Client, manner: &Manner, ask: &Ask, due: Instant) -> Result<Answer, Fault> {
    let body = manner.streamed(ask);
    let end = Instant::now() + client.deadline;
    let stream = async {
        let mut reply = client.send(Method::POST, manner.endpoint.route(), body.into()).await?;
        let answer = listen(&mut reply, due).await?;
        client.done(reply);
        Ok(answer)
    };
    timeout_at(end.into(), stream).await.unwrap_or(Err(Fault::Timeout(client.deadline)))
}

async fn listen(reply: &mut Reply, due: Instant) -> Result<Answer, Fault> {
    let mut events = Events::default();
    let mut watch = Watch::default();
    while let Some(frame) = reply.body.frame().await {
        let frame = frame.map_err(|error| broken(&error))?;
        let Some(bytes) = frame.data_ref() else { continue };
        let now = Instant::now();
        events
            .push(bytes, |data| watch.hear(data, now))
            .map_err(|_| Fault::Nonsense("an event without end".into()))?;
    }
    watch.answer(due, Instant::now())
}

/// What is read of a piece of an answer.
#[derive(Default, Deserialize)]
struct Piece {
    #[serde(default)]
    choices: Vec<Choice>,
    usage: Option<Usage>,
    error: Option<Value>,
}

#[derive(Deserialize)]
struct Choice {
    text: Option<String>,
    delta: Option<Delta>,
    finish_reason: Option<String>,
}

#[derive(Deserialize)]
struct Delta {
    content: Option<String>,
    reasoning_content: Option<String>,
    reasoning: Option<String>,
}

/// Token counts in OpenAI's shape.
#[derive(Clone, Copy, Default, Deserialize)]
pub struct Usage {
    pub prompt_tokens: Option<usize>,
    completion_tokens: Option<usize>,
    prompt_tokens_details: Option<Details>,
}

#[derive(Clone, Copy, Default, Deserialize)]
struct Details {
    cached_tokens: Option<usize>,
}

impl Choice {
    fn has_text(&self) -> bool {
        let delta = self.delta.as_ref();
        let texts = [
            self.text.as_ref(),
            delta.and_then(|delta| delta.content.as_ref()),
            delta.and_then(|delta| delta.reasoning_content.as_ref()),
            delta.and_then(|delta| delta.reasoning.as_ref()),
        ];
        texts.into_iter().flatten().any(|text| !text.is_empty())
    }
}

/// What was heard of a stream so far.
#[derive(Default)]
struct Watch {
    /// When pieces of text arrived.
    pieces: Vec<Instant>,
    usage: Usage,
    ended: bool,
    fault: Option<Fault>,
}

impl Watch {
    fn hear(&mut self, data: &[u8], now: Instant) {
        if data == b"[DONE]" {
            self.ended = true;
            return;
        }
        match serde_json::from_slice::<Piece>(data) {
            Ok(piece) => self.piece(piece, now),
            Err(error) => self.fault = Some(Fault::Nonsense(format!("an event: {error}"))),
        }
    }

    fn piece(&mut self, piece: Piece, now: Instant) {
        if let Some(error) = piece.error.filter(|error| !error.is_null()) {
            let message = error["message"].as_str().map_or_else(|| error.to_string(), str::to_owned);
            self.fault = Some(Fault::Told(message));
        }
        self.usage = piece.usage.unwrap_or(self.usage);
        self.ended |= piece.choices.iter().any(|choice| choice.finish_reason.is_some());
        if piece.choices.iter().any(Choice::has_text) {
            self.pieces.push(now);
        }
    }

    fn answer(self, due: Instant, end: Instant) -> Result<Answer, Fault> {
        if let Some(fault) = self.fault {
            return Err(fault);
        }
        if !self.ended {
            return Err(Fault::Broken("the stream ended in the middle".into()));
        }
        let gap = |pair: &[Instant]| (pair[1] - pair[0]).as_secs_f64();
        Ok(Answer {
            first_token: self.pieces.first().copied().unwrap_or(end) - due,
            total: end - due,
            gaps: self.pieces.windows(2).map(gap).collect(),
            prompt_tokens: self.usage.prompt_tokens,
            cached_tokens: self.usage.prompt_tokens_details.and_then(|details| details.cached_tokens),
            output_tokens: self.usage.completion_tokens.unwrap_or(self.pieces.len()),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn heard(events: &[&str]) -> Result<Answer, Fault> {
        let start = Instant::now();
        let mut watch = Watch::default();
        for (tick, data) in events.iter().enumerate() {
            watch.hear(data.as_bytes(), start + Duration::from_millis(10 * (tick as u64 + 1)));
        }
        watch.answer(start, start + Duration::from_secs(1))
    }

    #[test]
    fn the_first_token_is_the_first_text_not_the_first_event() {
        let answer = heard(&[
            r#"{"choices": [{"index": 0, "delta": {"role": "assistant", "content": ""}}]}"#,
            r#"{"choices": [{"index": 0, "delta": {"content": "a"}}]}"#,
            r#"{"choices": [{"index": 0, "delta": {"reasoning_content": "b"}}], "usage": null}"#,
            r#"{"choices": [{"index": 0, "delta": {}, "finish_reason": "length"}]}"#,
            r#"{"choices": [], "usage": {"prompt_tokens": 9, "completion_tokens": 5, "prompt_tokens_details": {"cached_tokens": 4}}}"#,
            "[DONE]",
        ])
        .unwrap();
        assert_eq!(answer.first_token, Duration::from_millis(20));
        assert_eq!((answer.gaps.len(), answer.output_tokens), (1, 5));
        assert_eq!((answer.prompt_tokens, answer.cached_tokens), (Some(9), Some(4)));
    }

    #[test]
    fn pieces_are_counted_where_the_server_does_not_count_tokens() {
        let text = r#"{"choices": [{"text": "a", "finish_reason": null}]}"#;
        let last = r#"{"choices": [{"text": "b", "finish_reason": "stop"}]}"#;
        assert_eq!(heard(&[text, text, last]).unwrap().output_tokens, 3);
    }

    #[test]
    fn a_stream_that_breaks_off_complains_or_babbles_is_a_fault() {
        let text = r#"{"choices": [{"text": "a"}]}"#;
        assert_eq!(heard(&[text]).unwrap_err().kind(), "broken");
        let told = r#"{"error": {"message": "the engine fell", "type": "server_error"}}"#;
        assert_eq!(heard(&[text, told, "[DONE]"]), Err(Fault::Told("the engine fell".into())));
        assert_eq!(heard(&["{", "[DONE]"]).unwrap_err().kind(), "nonsense");
    }
}
