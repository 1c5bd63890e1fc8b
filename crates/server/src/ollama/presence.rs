//! Models come and go by requests without a question: `/api/generate` with an empty prompt and `/api/chat` without
//! messages load a model, and unload it with `keep_alive: 0`. Only clients with the right `admin` change anything this way.

use std::time::Instant;

use serde_json::{Value, json};

use crate::app::Shared;
use crate::error::ApiError;
use crate::guard::Client;
use crate::guard::rights::{Right, Rights};
use crate::library;
use crate::model::Model;
use crate::model::lease::KeepAlive;
use crate::time::now_rfc3339;

/// Loads or unloads a model, whichever `keep_alive` means; gives the answer, still without its text.
pub async fn change(
    app: &Shared,
    client: &Client,
    name: &str,
    keep: Option<KeepAlive>,
) -> Result<Value, ApiError> {
    let start = Instant::now();
    let (model, reason) = if keep.is_some_and(KeepAlive::is_over) {
        (leave(app, client, name)?, "unload")
    } else {
        (come(app, client, name, keep).await?, "load")
    };
    let took = start.elapsed().as_nanos() as u64;
    Ok(json!({
        "model": model, "created_at": now_rfc3339(), "done": true, "done_reason": reason,
        "total_duration": took, "load_duration": took,
    }))
}

/// A question says how long its model should stay. Ollama's clients say so with every question: who has no right to
/// decide is not heard, and not turned down.
pub fn keep(rights: &Rights, model: &Model, keep: Option<KeepAlive>) {
    if let Some(keep) = keep.filter(|_| rights.may(Right::Admin)) {
        model.lease.keep(keep);
    }
}

async fn come(
    app: &Shared,
    client: &Client,
    name: &str,
    wish: Option<KeepAlive>,
) -> Result<String, ApiError> {
    let visible = app.models.visible_to(client.rights());
    if let Some(model) = visible.loaded(name) {
        keep(client.rights(), &model, wish);
        return Ok(model.name.clone());
    }
    if !client.may(Right::Admin) {
        let lacking = client.require(Right::Admin).err();
        return visible.find(name).map(|model| model.name.clone()).map_err(|error| lacking.unwrap_or(error));
    }
    if app.shelf.is_none() {
        return app.models.find(name).map(|model| model.name.clone());
    }
    let model = library::load(app, name, wish.unwrap_or_default()).await;
    // A server that takes any name takes it here as well.
    let model = model.or_else(|error| app.models.find(name).map_err(|_| error))?;
    Ok(model.name.clone())
}

fn leave(app: &Shared, client: &Client, name: &str) -> Result<String, ApiError> {
    let model = app.models.visible_to(client.rights()).find(name)?;
    client.require(Right::Admin)?;
    app.shelf()?;
    library::unload(app, &model);
    Ok(model.name.clone())
}
