//! Whether the server lives, has started, and could answer a question now; which models could, and why others could not.
//!
//! ```text
//! /health/live      the process answers
//! /health/startup   every promised model was loaded once
//! /health/ready     a promised model can answer now; without promises a loaded one, or one that can be loaded
//! ```
//! Models are named to clients for whom they exist, so that a probe without a key learns the status only.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::{Duration, Instant};

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use axum::http::header::RETRY_AFTER;
use axum::response::{IntoResponse, Response};
use serde_json::{Map, Value, json};

use super::upstreams;
use crate::app::{App, Shared};
use crate::embedding::EmbeddingModel;
use crate::guard::Client;
use crate::guard::rights::{Right, Rights};
use crate::model::promised::{Arrival, Promised};
use crate::model::{Condition, Model};

/// Where the server is in its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// Models are being loaded.
    Starting,
    /// Requests are taken.
    Ready,
    /// Requests are finished, no new ones are taken.
    Draining,
}

/// The phase, shared by all.
#[derive(Debug, Default)]
pub struct Life(AtomicU8);

impl Life {
    /// Goes on to a later phase; never back.
    pub fn enter(&self, phase: Phase) {
        self.0.fetch_max(phase as u8, Ordering::Relaxed);
    }

    /// The phase now.
    pub fn phase(&self) -> Phase {
        match self.0.load(Ordering::Relaxed) {
            0 => Phase::Starting,
            1 => Phase::Ready,
            _ => Phase::Draining,
        }
    }
}

/// How long an engine or a device takes to be there again, about.
const RESTART: Duration = Duration::from_secs(5);

/// A model, and whether it could answer a question now.
#[derive(Clone, Debug, PartialEq)]
struct ModelHealth {
    name: String,
    state: ModelState,
}

/// Whether a model could answer a question now.
#[derive(Clone, Debug, PartialEq)]
enum ModelState {
    /// It is in memory.
    Loaded(Condition),
    /// It was promised and is not in memory.
    Absent(Arrival),
    /// It embeds texts, and is loaded when it is first asked for.
    OnDemand,
}

impl ModelState {
    fn of(model: &Model) -> Self {
        ModelState::Loaded(model.condition())
    }

    fn can_answer(&self) -> bool {
        matches!(self, ModelState::Loaded(Condition::Ready) | ModelState::OnDemand)
    }

    /// Its name in the answer.
    fn name(&self) -> &'static str {
        match self {
            ModelState::Loaded(Condition::Ready) => "ready",
            ModelState::Loaded(Condition::EngineRestarting) => "engine restarting",
            ModelState::Loaded(Condition::EngineFailed { .. }) => "engine failed",
            ModelState::Loaded(Condition::DeviceRestarting) => "device restarting",
            ModelState::Loaded(Condition::DeviceLost { .. }) => "device lost",
            ModelState::Loaded(Condition::Unreachable { .. }) => "unreachable",
            ModelState::Absent(Arrival::Waiting { .. }) => "waiting to be loaded",
            ModelState::Absent(Arrival::Loading { .. }) => "loading",
            ModelState::Absent(Arrival::Failed { .. }) => "failed to load",
            ModelState::Absent(Arrival::Arrived) => "unloaded",
            ModelState::OnDemand => "loaded on demand",
        }
    }

    fn describe(&self) -> Value {
        let mut told = json!({ "state": self.name() });
        match self {
            ModelState::Loaded(Condition::EngineFailed { why } | Condition::DeviceLost { why })
            | ModelState::Absent(Arrival::Failed { why }) => {
                told["reason"] = why.as_str().into();
            }
            ModelState::Absent(Arrival::Loading { done: Some(done), .. }) => {
                told["progress"] = ((done * 100.0).round() / 100.0).into();
            }
            _ => {}
        }
        told
    }

    /// When it may be able to answer, if it will be by itself.
    fn wait(&self) -> Option<Duration> {
        match self {
            ModelState::Absent(arrival) => arrival.wait(Instant::now()),
            ModelState::Loaded(
                Condition::EngineRestarting | Condition::DeviceRestarting | Condition::Unreachable { .. },
            ) => Some(RESTART),
            ModelState::Loaded(_) | ModelState::OnDemand => None,
        }
    }
}

/// All that is known about whether questions can be answered.
#[derive(Default)]
struct Health {
    /// Models that the operator promised.
    promised: Vec<ModelHealth>,
    /// Others that are loaded, and those that embed.
    others: Vec<ModelHealth>,
    /// Whether clients can have models loaded.
    can_load: bool,
}

impl Health {
    fn of(app: &App) -> Self {
        let served = app.models.all();
        let state = |promised: Promised| {
            let loaded = served.iter().find(|model| model.name == promised.name);
            let state = loaded.map_or(ModelState::Absent(promised.arrival), |model| ModelState::of(model));
            ModelHealth { name: promised.name, state }
        };
        let promised: Vec<_> = app.models.promised().into_iter().map(state).collect();
        let is_other = |model: &&Arc<Model>| promised.iter().all(|promised| promised.name != model.name);
        let other =
            |model: &Arc<Model>| ModelHealth { name: model.name.clone(), state: ModelState::of(model) };
        let mut others: Vec<_> = served.iter().filter(is_other).map(other).collect();
        others.extend(app.embeddings.all().iter().map(|model| embedding(model)));
        Self { promised, others, can_load: app.shelf.is_some() }
    }

    fn is_ready(&self) -> bool {
        let answers = |models: &[ModelHealth]| models.iter().any(|model| model.state.can_answer());
        if self.promised.is_empty() {
            answers(&self.others) || self.can_load
        } else {
            answers(&self.promised)
        }
    }

    fn models(&self) -> impl Iterator<Item = &ModelHealth> {
        self.promised.iter().chain(&self.others)
    }

    /// When to look again, if something is on its way.
    fn wait(&self) -> Option<Duration> {
        self.promised.iter().filter_map(|model| model.state.wait()).min()
    }

    /// What may be told to a client with these rights.
    fn describe(&self, rights: &Rights) -> Map<String, Value> {
        let visible = self.models().filter(|model| rights.may_use(&model.name));
        visible.map(|model| (model.name.clone(), model.state.describe())).collect()
    }
}

fn embedding(model: &EmbeddingModel) -> ModelHealth {
    let loaded = model.known().map(|_| ModelState::Loaded(Condition::Ready));
    ModelHealth { name: model.name.clone(), state: loaded.unwrap_or(ModelState::OnDemand) }
}

/// The answer to a probe: the status, which models could answer, and when to look again.
fn answer(app: &App, client: &Client, is_healthy: bool) -> Response {
    let health = Health::of(app);
    let status = match app.life.phase() {
        Phase::Starting => "starting",
        Phase::Ready if health.is_ready() => "ready",
        Phase::Ready => "unavailable",
        Phase::Draining => "draining",
    };
    let mut body = json!({ "status": status });
    let models = health.describe(client.rights());
    if !models.is_empty() {
        body["models"] = models.into();
    }
    let warning = disk_warning(app).filter(|_| client.may(Right::Metrics));
    if let Some(warning) = warning {
        body["warnings"] = json!([warning]);
    }
    if let Some(pools) = app.pools.get().filter(|_| client.may(Right::Metrics)) {
        body["upstreams"] = upstreams::health(pools);
    }
    if is_healthy {
        return Json(body).into_response();
    }
    let mut response = (StatusCode::SERVICE_UNAVAILABLE, Json(body)).into_response();
    if let Some(wait) = health.wait().filter(|_| app.life.phase() != Phase::Draining) {
        response.headers_mut().insert(RETRY_AFTER, wait.as_secs().max(1).into());
    }
    response
}

/// What keeps the disk below the models' memory from working as it should; answers only take longer.
fn disk_warning(app: &App) -> Option<String> {
    let status = app.disk.as_ref()?.status();
    let stopped = status.stopped.map(|why| format!("nothing is written to the KV disk: {why}"));
    stopped.or_else(|| status.read_only.map(|why| format!("the KV disk is only read: {why}")))
}

/// It answers, so it lives.
pub async fn live(State(app): State<Shared>, client: Client) -> Response {
    answer(&app, &client, true)
}

/// Whether a question asked now could be answered.
pub async fn ready(State(app): State<Shared>, client: Client) -> Response {
    let is_ready = app.life.phase() == Phase::Ready && Health::of(&app).is_ready();
    answer(&app, &client, is_ready)
}

/// Whether everything was loaded.
pub async fn startup(State(app): State<Shared>, client: Client) -> Response {
    answer(&app, &client, app.life.phase() != Phase::Starting)
}
