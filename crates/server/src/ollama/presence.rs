//! Models come and go by requests without a question: `/api/generate` with an empty prompt and `/api/chat` without
//! messages load a model, and unload it with `keep_alive: 0`.
//!
//! The operator's models are unloaded only for those who may administer the server; others get the answer their client
//! expects, and the model stays.

use std::time::Instant;

use serde_json::{Value, json};

use crate::app::Shared;
use crate::ask::Ask;
use crate::error::ApiError;
use crate::library;
use crate::model::Model;
use crate::model::lease::KeepAlive;
use crate::time::now_rfc3339;

/// Loads or unloads a model, whichever `keep_alive` means; gives the answer, still without its text.
pub async fn change(ask: &Ask, name: &str, keep: Option<KeepAlive>) -> Result<Value, ApiError> {
    let start = Instant::now();
    let (model, reason) = if keep.is_some_and(KeepAlive::is_over) {
        (leave(ask, name)?, "unload")
    } else {
        (come(ask.app(), name, keep).await?, "load")
    };
    let took = start.elapsed().as_nanos() as u64;
    Ok(json!({
        "model": model, "created_at": now_rfc3339(), "done": true, "done_reason": reason,
        "total_duration": took, "load_duration": took,
    }))
}

/// A question says how long its model should stay.
pub fn keep(model: &Model, keep: Option<KeepAlive>) {
    if let Some(keep) = keep {
        model.lease.keep(keep);
    }
}

async fn come(app: &Shared, name: &str, wish: Option<KeepAlive>) -> Result<String, ApiError> {
    if let Some(model) = app.models.loaded(name) {
        keep(&model, wish);
        return Ok(model.name.clone());
    }
    if app.shelf.is_none() {
        return app.models.find(name).map(|model| model.name.clone());
    }
    let model = library::load(app, name, wish.unwrap_or_default()).await;
    // A server that takes any name takes it here as well.
    let model = model.or_else(|error| app.models.find(name).map_err(|_| error))?;
    Ok(model.name.clone())
}

fn leave(ask: &Ask, name: &str) -> Result<String, ApiError> {
    let app = ask.app();
    let model = app.models.find(name)?;
    app.shelf()?;
    if ask.may_administer() || !app.models.is_given(&model.name) {
        library::unload(app, &model);
    }
    Ok(model.name.clone())
}
