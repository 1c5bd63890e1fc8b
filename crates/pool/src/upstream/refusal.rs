//! Answers that are no success: which error they are, and the server's own words out of its JSON.
//!
//! | shape | of |
//! |---|---|
//! | `{"error": {"message": "..", "code": 400}}` | OpenAI, vLLM, SGLang in a stream, llama-server, Ropeway |
//! | `{"error": ".."}` | Ollama, vLLM for a wrong key |
//! | `{"object": "error", "message": ".."}` | SGLang, older vLLM |
//! | `{"detail": ".."}`, `{"detail": [{"msg": "..", "loc": [..]}]}` | FastAPI's own |

use std::time::Duration;

use hyper::StatusCode;
use hyper::header::RETRY_AFTER;
use serde_json::Value;

use super::http::Answer;
use crate::error::UpstreamError;
use crate::settings::Kind;

/// Bytes of an error that are read; messages are shorter.
const MOST_ERROR: usize = 64 << 10;

/// Characters of a foreign answer that are shown.
const EXCERPT: usize = 120;

/// Passes on a success in the expected format, and turns everything else into its error.
pub(super) async fn check(answer: Answer, kind: Option<Kind>) -> Result<Answer, UpstreamError> {
    let expected = || kind.map_or("a model server", Kind::name).to_owned();
    if answer.status().is_success() {
        if answer.is_of_type("text/html") {
            let upstream = answer.upstream().to_string();
            return Err(UpstreamError::Foreign {
                upstream,
                expected: expected(),
                why: "it sent a web page".into(),
            });
        }
        return Ok(answer);
    }
    let (status, upstream) = (answer.status(), answer.upstream().to_string());
    let retry_after = retry_after(&answer);
    let body = answer.beginning(MOST_ERROR).await;
    let message = serde_json::from_slice(&body).ok().and_then(|body| message(&body));
    let code = status.as_u16();
    Err(match (status, message) {
        (StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN, _) => {
            UpstreamError::Unauthorized { upstream, status: code }
        }
        (StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE, _) => {
            UpstreamError::Busy { upstream, status: code, retry_after }
        }
        (StatusCode::NOT_IMPLEMENTED, Some(message)) => {
            UpstreamError::Unsupported(format!("{upstream} can't do this: {message}"))
        }
        (status, Some(message)) if status.is_client_error() => {
            UpstreamError::Refused { upstream, status: code, message }
        }
        (status, message) if status.is_server_error() => {
            let said = message.unwrap_or_else(|| excerpt(&body));
            UpstreamError::Failed { upstream, why: format!("status {code}: {said}") }
        }
        (_, _) => {
            let why = format!("status {code}: {}", excerpt(&body));
            UpstreamError::Foreign { upstream, expected: expected(), why }
        }
    })
}

/// An error in the middle of a stream.
pub(super) fn in_stream(upstream: &str, body: &Value) -> UpstreamError {
    let upstream = upstream.to_owned();
    let message = message(body).unwrap_or_else(|| excerpt(body.to_string().as_bytes()));
    match code(body) {
        Some(status @ (429 | 503)) => UpstreamError::Busy { upstream, status, retry_after: None },
        Some(status @ 400..=499) => UpstreamError::Refused { upstream, status, message },
        _ => UpstreamError::Failed { upstream, why: message },
    }
}

/// The status that an error in a stream names.
fn code(body: &Value) -> Option<u16> {
    let inner = body.get("error").filter(|error| error.is_object()).unwrap_or(body);
    let named = inner.get("code").or_else(|| inner.get("status_code"))?;
    u16::try_from(named.as_u64()?).ok()
}

/// The words of an error's JSON.
pub(super) fn message(body: &Value) -> Option<String> {
    let text = |value: &Value| value.as_str().filter(|text| !text.is_empty()).map(str::to_owned);
    let error = body.get("error");
    let places = [
        error.and_then(|error| error.get("message")),
        error,
        body.get("message"),
        body.get("detail"),
        body.get("detail").and_then(|detail| detail.get(0)).and_then(|first| first.get("msg")),
    ];
    places.into_iter().flatten().find_map(text)
}

/// The beginning of an answer that is none of the known shapes, on one line.
fn excerpt(body: &[u8]) -> String {
    let text = String::from_utf8_lossy(body);
    let line = text.split_whitespace().collect::<Vec<_>>().join(" ");
    match line.char_indices().nth(EXCERPT) {
        Some((end, _)) => format!("`{}...`", &line[..end]),
        None if line.is_empty() => "nothing else is said".into(),
        None => format!("`{line}`"),
    }
}

fn retry_after(answer: &Answer) -> Option<Duration> {
    let seconds = answer.headers().get(RETRY_AFTER)?.to_str().ok()?.trim().parse().ok()?;
    Some(Duration::from_secs(seconds))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn every_servers_words_are_found() {
        for shape in [
            json!({"error": {"message": "too long", "type": "BadRequestError", "code": 400}}),
            json!({"error": "too long"}),
            json!({"object": "error", "message": "too long", "code": 400}),
            json!({"detail": "too long"}),
            json!({"detail": [{"loc": ["body", "prompt"], "msg": "too long"}]}),
        ] {
            assert_eq!(message(&shape).as_deref(), Some("too long"), "{shape}");
        }
        assert_eq!(message(&json!({"choices": []})), None);
    }

    #[test]
    fn an_error_in_a_stream_is_the_requests_or_the_servers_by_its_code() {
        let refused = in_stream("gpu", &json!({"error": {"message": "bad", "code": 400}}));
        assert!(refused.is_the_requests());
        let failed = in_stream("gpu", &json!({"error": {"message": "died", "code": 500}}));
        assert_eq!(failed, UpstreamError::Failed { upstream: "gpu".into(), why: "died".into() });
    }
}
