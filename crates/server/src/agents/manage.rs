//! `/v1/agents`: make agents, look at them, and send them away.

use axum::Json;
use axum::extract::{Path, State};
use axum::http::{StatusCode, Uri};
use axum::response::{IntoResponse, Response};
use ropeway_generation::AnyBackend;
use serde_json::{Value, json};

use super::agent::{AgentKind, Figures, Listed};
use super::id::{AgentId, AgentKey};
use super::registry::{NewAgent, PinBoard, pin_name};
use super::whereabouts::{Whereabouts, find};
use super::wire::{CreateAgent, describe, extend, figures};
use crate::app::{App, Shared};
use crate::ask::{Ask, Opened};
use crate::error::ApiError;
use crate::guard::Client;
use crate::guard::rights::Right;
use crate::model::unix_seconds;
use crate::openai::OpenAiError;

pub async fn create(ask: Ask) -> Result<Response, OpenAiError> {
    let (app, client) = (Shared::clone(ask.app()), ask.client().clone());
    let Opened::<CreateAgent> { request, model, .. } = ask.open().await?;
    let key = AgentKey { tenant: client.tenant(), id: request.id()? };
    let (name, ttl) = (request.name()?, request.ttl()?);
    let new = NewAgent { name, model: model.name.clone(), messages: request.preamble()?, ttl };
    let registry = &app.agents.registry;
    let agent = registry.create(&key, new, unix_seconds())?;
    // What was a session has blocks already.
    let former = app.models.loaded(&agent.about.model).map(|model| model.engine());
    if let Some(board) = former.as_ref().and_then(AnyBackend::engine).and_then(PinBoard::of) {
        registry.pin(&key, board);
    }
    let agent = registry.get(&key, unix_seconds())?;
    Ok((StatusCode::CREATED, Json(shown(&app, &client, &agent).await)).into_response())
}

pub async fn list(State(app): State<Shared>, client: Client) -> Json<Value> {
    let agents = app.agents.registry.of(client.tenant(), unix_seconds());
    Json(json!({ "object": "list", "data": all_shown(&app, &client, &agents).await }))
}

pub async fn one(
    State(app): State<Shared>,
    client: Client,
    Path(id): Path<String>,
) -> Result<Json<Value>, OpenAiError> {
    let agent = app.agents.registry.get(&key(&client, &id), unix_seconds())?;
    Ok(Json(shown(&app, &client, &agent).await))
}

pub async fn stats(State(app): State<Shared>, client: Client) -> Json<Value> {
    let agents = app.agents.registry.of(client.tenant(), unix_seconds());
    let found = find(&app, app.models.visible_to(client.rights()), &agents).await;
    let kinds = |kind| agents.iter().filter(|agent| agent.about.kind == kind).count();
    let sum = |part: fn(&Whereabouts) -> u64| found.iter().flatten().map(part).sum::<u64>();
    let mut told = json!({
        "object": "agent.stats",
        "agents": kinds(AgentKind::Agent),
        "sessions": kinds(AgentKind::Session),
        "memory_tokens": sum(|found| found.memory_tokens as u64),
        "disk_tokens": sum(|found| found.disk_tokens as u64),
        "bytes": sum(|found| found.bytes),
        "pinned_bytes": agents.iter().map(|agent| agent.about.pinned.bytes).sum::<u64>(),
        "unknown": found.iter().filter(|found| found.is_none()).count(),
    });
    let all = agents.iter().fold(Figures::default(), |sum, agent| sum.plus(agent.about.figures));
    extend(&mut told, figures(&all));
    // The disk is everyone's together.
    if let Some(disk) = app.disk.as_ref().filter(|_| client.may(Right::Metrics)) {
        let status = disk.status();
        told["disk"] = json!({
            "size_bytes": status.size,
            "file_bytes": status.file_bytes,
            "tokens": status.stock.tokens,
            "pinned_bytes": status.pinned_bytes,
            "warning": status.stopped.or(status.read_only),
        });
    }
    Json(told)
}

pub async fn delete(
    State(app): State<Shared>,
    client: Client,
    Path(id): Path<String>,
    uri: Uri,
) -> Result<Json<Value>, OpenAiError> {
    let (key, now) = (key(&client, &id), unix_seconds());
    let registry = &app.agents.registry;
    let is_kept = evict_only(&uri)?;
    let agent = if is_kept { registry.get(&key, now)? } else { registry.remove(&key, now)? };
    let names = registry.own_names(&agent);
    let backend = app.models.loaded(&agent.about.model).map(|model| model.engine());
    if let Some(engine) = backend.as_ref().and_then(AnyBackend::engine) {
        if let Some(tier) = engine.tier().filter(|_| !is_kept) {
            tier.unpin(&pin_name(&key));
        }
        engine.evict(names, !is_kept);
    }
    if is_kept {
        return Ok(Json(shown(&app, &client, &agent).await));
    }
    Ok(Json(json!({ "id": key.id, "object": "agent.deleted", "deleted": true })))
}

/// What the query says; a flag without a value is set.
fn evict_only(uri: &Uri) -> Result<bool, ApiError> {
    let pairs = uri.query().unwrap_or_default().split('&');
    let mut values = pairs.map(|pair| pair.split_once('=').unwrap_or((pair, "true")));
    match values.find(|(name, _)| *name == "evict_only").map_or("false", |(_, value)| value) {
        "true" | "1" | "" => Ok(true),
        "false" | "0" => Ok(false),
        _ => Err(ApiError::invalid("evict_only is true or false").about("evict_only")),
    }
}

/// Any text may name a session.
fn key(client: &Client, id: &str) -> AgentKey {
    AgentKey { tenant: client.tenant(), id: AgentId::of_session(id) }
}

/// An agent and where it is.
pub async fn shown(app: &App, client: &Client, agent: &Listed) -> Value {
    all_shown(app, client, std::slice::from_ref(agent)).await.pop().unwrap_or_default()
}

async fn all_shown(app: &App, client: &Client, agents: &[Listed]) -> Vec<Value> {
    let models = app.models.visible_to(client.rights());
    let found = find(app, models, agents).await;
    let block_tokens = |agent: &Listed| {
        let limits = models.loaded(&agent.about.model).and_then(|model| model.engine().limits());
        limits.map_or(0, |limits| limits.block_tokens)
    };
    agents.iter().zip(found).map(|(agent, found)| describe(agent, found, block_tokens(agent))).collect()
}
