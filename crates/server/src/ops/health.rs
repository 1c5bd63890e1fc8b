//! Whether the server lives, has started, and takes requests.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use ropeway_engine::Device;
use serde_json::{Value, json};

use crate::app::Shared;
use crate::model::Model;

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

type Answer = (StatusCode, Json<Value>);

fn answer(healthy: bool, app: &Shared) -> Answer {
    let status = if healthy { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    let phase = match app.life.phase() {
        Phase::Starting => "starting",
        Phase::Ready => "ready",
        Phase::Draining => "draining",
    };
    let mut body = json!({ "status": phase });
    let disturbed = disturbed(app);
    if !disturbed.is_empty() {
        body["devices"] = disturbed.into_iter().map(|(model, device)| (model, device.name())).collect();
    }
    (status, Json(body))
}

/// The models whose device does not compute, and what became of it.
fn disturbed(app: &Shared) -> Vec<(String, Device)> {
    let device = |model: &Arc<Model>| Some((model.name.clone(), model.engine().board()?.device()));
    let devices = app.models.all().iter().filter_map(device).collect::<Vec<_>>();
    devices.into_iter().filter(|(_, device)| *device != Device::Working).collect()
}

/// Whether there are models, and none of them computes.
fn is_disabled(app: &Shared) -> bool {
    let models = app.models.all().len();
    models > 0 && disturbed(app).len() == models
}

/// It answers, so it lives.
pub async fn live(State(app): State<Shared>) -> Answer {
    answer(true, &app)
}

/// Whether a request sent now would be taken, and could be answered.
pub async fn ready(State(app): State<Shared>) -> Answer {
    answer(app.life.phase() == Phase::Ready && !is_disabled(&app), &app)
}

/// Whether everything is loaded.
pub async fn startup(State(app): State<Shared>) -> Answer {
    answer(app.life.phase() != Phase::Starting, &app)
}
