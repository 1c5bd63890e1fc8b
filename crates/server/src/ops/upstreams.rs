//! Other servers that compute models for this one, as operators see them: `GET /upstreams`, and their part of `/metrics`.

use std::fmt::Write;

use axum::Json;
use axum::extract::State;
use ropeway_pool::dispatch::UpstreamStatus;
use ropeway_pool::pools::{Contact, MemberReport, Pools, UpstreamReport};
use serde_json::{Value, json};

use super::metrics::escaped;
use crate::app::Shared;

/// Every upstream, whether it answers, and how each of its models does there.
pub async fn list(State(app): State<Shared>) -> Json<Value> {
    let Some(pools) = app.pools.get() else { return Json(json!({ "upstreams": [], "models": [] })) };
    let members = pools.members();
    let upstreams: Vec<_> = pools.upstreams().iter().map(|upstream| describe(upstream, &members)).collect();
    let models = pools.lanes().into_iter().map(|lane| {
        let mut told = json!({ "id": &*lane.model, "waiting": lane.waiting, "up": lane.outage.is_none() });
        if let Some(why) = lane.outage {
            told["reason"] = why.into();
        }
        told
    });
    Json(json!({ "upstreams": upstreams, "models": models.collect::<Vec<_>>() }))
}

/// Every upstream and whether it answers, by its name.
pub fn health(pools: &Pools) -> Value {
    let state = |upstream: UpstreamReport| {
        let mut told = json!({});
        tell_contact(&mut told, &upstream.contact);
        (upstream.name, told)
    };
    Value::Object(pools.upstreams().into_iter().map(state).collect())
}

fn tell_contact(told: &mut Value, contact: &Contact) {
    match contact {
        Contact::Trying => told["state"] = "trying".into(),
        Contact::Up { kind, version } => {
            (told["state"], told["kind"]) = ("up".into(), kind.name().into());
            told["version"] = version.clone().into();
        }
        Contact::Down { why } => (told["state"], told["reason"]) = ("down".into(), why.to_string().into()),
    }
}

fn describe(upstream: &UpstreamReport, members: &[MemberReport]) -> Value {
    let mut told = json!({ "name": upstream.name, "url": upstream.url });
    tell_contact(&mut told, &upstream.contact);
    let own = members.iter().filter(|report| report.member.upstream.name() == upstream.name);
    told["models"] = own.map(model).collect();
    told
}

fn model(report: &MemberReport) -> Value {
    let UpstreamStatus { totals, .. } = report.status;
    json!({
        "id": &*report.model,
        "speaks": report.speech.name(),
        "up": report.status.is_up,
        "in_flight": report.status.in_flight,
        "limit": report.status.limit,
        "outstanding_tokens": report.status.outstanding_tokens,
        "context": report.member.model.context,
        "requests": totals.requests,
        "tokens": totals.tokens,
        "errors": totals.errors,
        "retries": totals.retries,
        "moved": totals.moved,
        "ejections": totals.ejections,
        "prompt_tokens": totals.prompt_tokens,
        "prefix_hit_tokens": totals.prefix_hit_tokens,
        "mean_first_token_ms": totals.mean_first_token().map(|mean| mean.as_secs_f64() * 1e3),
    })
}

/// What is measured at each upstream, and at each model's queue.
pub fn metrics(pools: &Pools) -> String {
    let members = pools.members();
    let mut page = String::new();
    let mut one = |kind: &str, name: &str, help: &str, value: &dyn Fn(&UpstreamStatus) -> f64| {
        head(&mut page, kind, name, help);
        for report in &members {
            let (upstream, model) = (escaped(report.member.upstream.name()), escaped(&report.model));
            let value = value(&report.status);
            let _ = writeln!(
                page,
                "ropeway_upstream_{name}{{upstream=\"{upstream}\",model_name=\"{model}\"}} {value}"
            );
        }
    };
    one("gauge", "up", "1 while it can be given requests.", &|s| f64::from(u8::from(s.is_up)));
    one("gauge", "ejected", "1 while it is left alone after failures.", &|s| {
        f64::from(u8::from(s.out_until.is_some() && !s.is_resting))
    });
    one("gauge", "in_flight", "Requests that it has now.", &|s| s.in_flight as f64);
    one("gauge", "in_flight_limit", "Most requests it may have now.", &|s| s.limit as f64);
    one("gauge", "outstanding_tokens", "Tokens it has to compute yet, as expected.", &|s| {
        s.outstanding_tokens as f64
    });
    one("counter", "requests_total", "Attempts given to it.", &|s| s.totals.requests as f64);
    one("counter", "tokens_total", "Tokens it generated.", &|s| s.totals.tokens as f64);
    one("counter", "errors_total", "Attempts that failed.", &|s| s.totals.errors as f64);
    one("counter", "retries_total", "Attempts repeated elsewhere before a token.", &|s| {
        s.totals.retries as f64
    });
    one("counter", "moved_total", "Streams that went on elsewhere.", &|s| s.totals.moved as f64);
    one("counter", "ejections_total", "Times it was ejected or down.", &|s| s.totals.ejections as f64);
    one("counter", "prompt_tokens_total", "Tokens of prompts given to it.", &|s| {
        s.totals.prompt_tokens as f64
    });
    one("counter", "prefix_hit_tokens_total", "Of these, those it should have cached.", &|s| {
        s.totals.prefix_hit_tokens as f64
    });
    one("counter", "first_tokens_total", "First tokens.", &|s| s.totals.first_tokens as f64);
    one("counter", "first_token_seconds_total", "Time from dispatch to first tokens.", &|s| {
        s.totals.first_token_time.as_secs_f64()
    });
    page + &queues(pools)
}

fn queues(pools: &Pools) -> String {
    let mut page = String::from(
        "# HELP ropeway_pool_waiting Requests that wait here for an upstream.\n# TYPE ropeway_pool_waiting gauge\n",
    );
    for lane in pools.lanes() {
        let _ = writeln!(
            page,
            "ropeway_pool_waiting{{model_name=\"{}\"}} {}",
            escaped(&lane.model),
            lane.waiting
        );
    }
    page
}

fn head(page: &mut String, kind: &str, name: &str, help: &str) {
    let _ = writeln!(page, "# HELP ropeway_upstream_{name} {help}\n# TYPE ropeway_upstream_{name} {kind}");
}
