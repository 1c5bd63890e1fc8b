//! The spans of one request.
//!
//! ```text
//! POST /v1/chat/completions  ├──────────────────────────────────┤   when it came .. last byte
//!   queue                       ├────┤                              submitted .. first step
//!   prefill                          ├───────┤                      .. first token
//!   decode                                   ├─────────────────┤    .. last token
//!   upstream NAME                   ├──────────┤                    another server computes it .. the next one does, or the end
//! ```

use std::hash::{BuildHasher, RandomState};
use std::time::{Duration, Instant, UNIX_EPOCH};

use axum::http::HeaderMap;
use serde_json::{Value, json};

use super::super::{Facts, Visit};

/// Span kinds of OTLP.
const INTERNAL: u8 = 1;
const SERVER: u8 = 2;
const CLIENT: u8 = 3;

/// Status codes of OTLP.
const UNSET: u8 = 0;
const ERROR: u8 = 2;

/// The trace a client's request is part of, from its `traceparent` header (W3C Trace Context).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TraceParent {
    /// 32 hexadecimal digits.
    pub trace: String,
    /// 16 hexadecimal digits.
    pub span: String,
}

impl TraceParent {
    /// What the header says, if it is well formed.
    pub fn of(headers: &HeaderMap) -> Option<Self> {
        let mut parts = headers.get("traceparent")?.to_str().ok()?.split('-');
        let hex = |text: &&str, digits: usize| {
            let is_hex = text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
            text.len() == digits && is_hex && text.bytes().any(|byte| byte != b'0')
        };
        parts.next().filter(|version| version.len() == 2)?;
        let trace = parts.next().filter(|trace| hex(trace, 32))?;
        let span = parts.next().filter(|span| hex(span, 16))?;
        Some(Self { trace: trace.into(), span: span.into() })
    }
}

/// All spans of a request, the whole first.
pub fn spans(visit: &Visit, facts: &Facts) -> Vec<Value> {
    let random = RandomState::new();
    let ours = || format!("{:016x}{:016x}", random.hash_one(0), random.hash_one(1));
    let trace = visit.parent.as_ref().map_or_else(ours, |parent| parent.trace.clone());
    let id = |number: u8| format!("{:016x}", random.hash_one(("span", number)));
    let one = |number: u8, name: &str, kind: u8, (from, to): (Instant, Instant)| {
        json!({
            "traceId": trace, "spanId": id(number), "name": name, "kind": kind,
            "startTimeUnixNano": nanoseconds(visit, from), "endTimeUnixNano": nanoseconds(visit, to),
        })
    };
    let mut whole =
        one(0, &format!("{} {}", visit.method, visit.path), SERVER, (visit.began, Instant::now()));
    if let Some(parent) = &visit.parent {
        whole["parentSpanId"] = parent.span.as_str().into();
    }
    whole["attributes"] = attributes(visit, facts);
    let failed = visit.status.is_none_or(|status| status.is_server_error());
    whole["status"] = json!({ "code": if failed { ERROR } else { UNSET } });
    let phases = [
        ("queue", facts.submitted, facts.started),
        ("prefill", facts.started, facts.first_token),
        ("decode", facts.first_token, facts.ended),
    ];
    let mut spans = vec![whole];
    for (name, from, to) in phases {
        let Some(from) = from else { continue };
        let to = to.or(facts.ended).unwrap_or(from);
        spans.push(one(spans.len() as u8, name, INTERNAL, (from, to)));
    }
    for (index, placement) in facts.placements.iter().enumerate() {
        let next = facts.placements.get(index + 1).map(|next| next.since);
        let to = next.or(facts.ended).unwrap_or_else(Instant::now);
        let name = format!("upstream {}", placement.upstream);
        let mut span = one(spans.len() as u8, &name, CLIENT, (placement.since, to));
        span["attributes"] = json!([text("server.address", &placement.upstream)]);
        spans.push(span);
    }
    for child in &mut spans[1..] {
        child["parentSpanId"] = id(0).into();
    }
    spans
}

fn attributes(visit: &Visit, facts: &Facts) -> Value {
    let mut attributes = vec![
        text("http.request.method", visit.method.as_str()),
        text("url.path", &visit.path),
        text("ropeway.request_id", visit.id()),
        number("gen_ai.usage.input_tokens", facts.prompt_tokens),
        number("gen_ai.usage.output_tokens", facts.output_tokens),
        number("ropeway.cached_tokens", facts.cached_tokens),
    ];
    if facts.disk_tokens > 0 {
        attributes.push(number("ropeway.disk_tokens", facts.disk_tokens));
    }
    if facts.drafted_tokens > 0 {
        attributes.push(number("ropeway.drafted_tokens", facts.drafted_tokens));
        attributes.push(number("ropeway.accepted_tokens", facts.accepted_tokens));
    }
    attributes.extend(visit.status.map(|status| number("http.response.status_code", status.as_u16().into())));
    attributes.extend(facts.model.as_deref().map(|model| text("gen_ai.request.model", model)));
    attributes.extend(facts.upstreams().map(|names| text("ropeway.upstream", &names)));
    attributes.extend(facts.class.map(|class| text("ropeway.priority", class.name())));
    attributes.extend(facts.client.as_deref().map(|client| text("ropeway.client", client)));
    attributes.into()
}

/// A text attribute.
pub fn text(key: &str, value: &str) -> Value {
    json!({ "key": key, "value": { "stringValue": value } })
}

/// A whole number, which OTLP's JSON writes as text.
fn number(key: &str, value: usize) -> Value {
    json!({ "key": key, "value": { "intValue": value.to_string() } })
}

/// A moment as nanoseconds since 1970.
fn nanoseconds(visit: &Visit, moment: Instant) -> String {
    let at = visit.at.duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO);
    (at + moment.saturating_duration_since(visit.began)).as_nanos().to_string()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::SystemTime;

    use axum::http::{HeaderValue, Method};

    use super::super::super::{Placement, Progress};
    use super::*;
    use crate::{App, Models};

    fn visit() -> Visit {
        Visit {
            app: Arc::new(App::new(Models::default())),
            id: HeaderValue::from_static("r"),
            method: Method::POST,
            path: "/v1/chat/completions".into(),
            peer: None,
            parent: None,
            began: Instant::now(),
            at: SystemTime::now(),
            status: None,
            complete: true,
            progress: Progress::default(),
        }
    }

    #[test]
    fn every_server_that_computed_a_request_has_a_span_until_the_next_one_or_the_end() {
        let visit = visit();
        let after = |seconds| visit.began + Duration::from_secs(seconds);
        let placed = |upstream: &str, seconds| Placement { upstream: upstream.into(), since: after(seconds) };
        let facts = Facts {
            submitted: Some(after(0)),
            ended: Some(after(9)),
            placements: vec![placed("gpu1", 1), placed("gpu2", 4)],
            ..Facts::default()
        };
        let spans = spans(&visit, &facts);
        let named = |name: &str| spans.iter().find(|span| span["name"] == name).expect("a span");
        let (first, second) = (named("upstream gpu1"), named("upstream gpu2"));
        assert_eq!(first["endTimeUnixNano"], second["startTimeUnixNano"]);
        assert_eq!(second["endTimeUnixNano"], nanoseconds(&visit, after(9)));
        assert_eq!(first["attributes"], json!([text("server.address", "gpu1")]));
        assert_eq!((&first["parentSpanId"], &first["kind"]), (&spans[0]["spanId"], &json!(CLIENT)));
        assert!(spans[0]["attributes"].to_string().contains("gpu1,gpu2"));
        let mut ids: Vec<_> = spans.iter().map(|span| span["spanId"].to_string()).collect();
        ids.sort_unstable();
        ids.dedup();
        assert_eq!(ids.len(), spans.len(), "every span has an id of its own");
    }

    #[test]
    fn a_well_formed_traceparent_is_followed_and_no_other() {
        let parent = |text: &str| {
            TraceParent::of(&HeaderMap::from_iter([(
                axum::http::HeaderName::from_static("traceparent"),
                text.parse().unwrap(),
            )]))
        };
        let (trace, span) = ("4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7");
        let good = parent(&format!("00-{trace}-{span}-01")).unwrap();
        assert_eq!((good.trace.as_str(), good.span.as_str()), (trace, span));
        for bad in ["", "00", "00-x-y-01", "00-00000000000000000000000000000000-00f067aa0ba902b7-01"] {
            assert_eq!(parent(bad), None, "{bad}");
        }
    }
}
