//! Whether the server lives, has started, and takes requests.

use std::sync::atomic::{AtomicU8, Ordering};

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use serde_json::{Value, json};

use crate::app::Shared;

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
    (status, Json(json!({ "status": phase })))
}

/// It answers, so it lives.
pub async fn live(State(app): State<Shared>) -> Answer {
    answer(true, &app)
}

/// Whether a request sent now would be taken.
pub async fn ready(State(app): State<Shared>) -> Answer {
    answer(app.life.phase() == Phase::Ready, &app)
}

/// Whether everything is loaded.
pub async fn startup(State(app): State<Shared>) -> Answer {
    answer(app.life.phase() != Phase::Starting, &app)
}
