//! The access log: one event per request, written through `tracing` by whatever subscriber the program has.
//!
//! Fields that are not known are left out. Probes of health and metrics are events of level `DEBUG`: there are many of
//! them and they tell nothing.

use std::time::{Duration, Instant};

use super::{Facts, Visit};

/// Target of the access log's events.
pub const ACCESS: &str = "access";

/// Status of a request whose client left before there was one; a custom of proxies.
const CLIENT_LEFT: u16 = 499;

/// Writes a request's line.
pub fn write(visit: &Visit, facts: &Facts) {
    let probe = visit.path.starts_with("/health") || visit.path == "/metrics";
    // A macro's level must be constant.
    macro_rules! line {
        ($level:ident) => {{
            let known = |tokens: usize| facts.submitted.map(|_| tokens);
            let drafted = |tokens: usize| (facts.drafted_tokens > 0).then_some(tokens);
            tracing::$level!(
                target: ACCESS,
                method = visit.method.as_str(),
                path = visit.path.as_str(),
                status = visit.status.map_or(CLIENT_LEFT, |status| status.as_u16()),
                ms = milliseconds(visit.began.elapsed()),
                model = facts.model.as_deref(),
                upstream = facts.upstreams(),
                priority = facts.class.map(|class| class.name()),
                prompt_tokens = known(facts.prompt_tokens),
                cached_tokens = known(facts.cached_tokens),
                disk_tokens = (facts.disk_tokens > 0).then_some(facts.disk_tokens),
                output_tokens = known(facts.output_tokens),
                drafted_tokens = drafted(facts.drafted_tokens),
                accepted_tokens = drafted(facts.accepted_tokens),
                queue_ms = between(facts.submitted, facts.started),
                ttft_ms = between(Some(visit.began), facts.first_token),
                cut_off = (!visit.complete).then_some(true),
                client = facts.client.as_deref(),
                peer = visit.peer.map(|peer| peer.to_string()),
                request_id = visit.id(),
            );
        }};
    }
    if probe { line!(debug) } else { line!(info) }
}

fn between(from: Option<Instant>, to: Option<Instant>) -> Option<f64> {
    Some(milliseconds(to?.saturating_duration_since(from?)))
}

/// Milliseconds, to the tenth.
fn milliseconds(time: Duration) -> f64 {
    (time.as_secs_f64() * 1e4).round() / 10.0
}
