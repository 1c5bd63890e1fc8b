//! Models come and go by requests without a question: `/api/generate` with an empty prompt and `/api/chat` without
//! messages load a model, and unload it with `keep_alive: 0`. Only clients with the right `admin` change anything this way.

use std::sync::Arc;
use std::time::Instant;

use serde_json::{Value, json};

use super::stats::nanoseconds;
use super::think::Think;
use crate::app::Shared;
use crate::error::{ApiError, Kind};
use crate::guard::Client;
use crate::guard::rights::{Right, Rights};
use crate::library::{self, Detail, Shelf, demand};
use crate::model::Model;
use crate::model::lease::KeepAlive;
use crate::time::now_rfc3339;

/// What a request without a question asks for.
#[derive(Clone, Copy, Debug)]
pub struct Wish<'a> {
    /// For which model.
    pub model: &'a str,
    /// How long it should stay.
    pub keep_alive: Option<KeepAlive>,
    /// Whether it should be able to think: clients find out this way.
    pub think: Option<Think>,
}

/// Loads or unloads a model, whichever `keep_alive` means; gives the answer, still without its text.
pub async fn change(app: &Shared, client: &Client, wish: Wish<'_>) -> Result<Value, ApiError> {
    let start = Instant::now();
    let (model, reason) = if wish.keep_alive.is_some_and(KeepAlive::is_over) {
        (leave(app, client, wish.model).await?, "unload")
    } else {
        let model = come(app, client, wish).await?;
        Think::check(wish.think, &model)?;
        (model.name.clone(), "load")
    };
    let took = nanoseconds(start.elapsed());
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

async fn come(app: &Shared, client: &Client, wish: Wish<'_>) -> Result<Arc<Model>, ApiError> {
    let visible = app.models.visible_to(client.rights());
    if let Some(model) = visible.loaded(wish.model) {
        keep(client.rights(), &model, wish.keep_alive);
        return Ok(model);
    }
    if app.shelf.as_ref().is_some_and(Shelf::loads_on_demand) && !client.may(Right::Admin) {
        demand::bring(app, client.rights(), wish.model).await?;
        return visible.find(wish.model);
    }
    if !client.may(Right::Admin) {
        let lacking = client.require(Right::Admin).err();
        return visible.find(wish.model).map_err(|error| lacking.unwrap_or(error));
    }
    let Ok(shelf) = app.shelf() else { return app.models.find(wish.model) };
    let loaded = library::load(app, wish.model, wish.keep_alive.unwrap_or(shelf.keep_alive())).await;
    // A server that takes any name takes it here as well; a derived model is found by its own name.
    match loaded {
        Ok(model) => Ok(app.models.loaded(wish.model).unwrap_or(model)),
        Err(error) => app.models.find(wish.model).map_err(|_| error),
    }
}

/// Unloads a model. One that is on disk and not loaded is where it should be already.
async fn leave(app: &Shared, client: &Client, name: &str) -> Result<String, ApiError> {
    let found = app.models.visible_to(client.rights()).find(name);
    let absent = match found {
        Ok(model) => {
            client.require(Right::Admin)?;
            app.shelf()?;
            library::unload(app, &model);
            return Ok(model.name.clone());
        }
        Err(error) if error.kind == Kind::NotFound && client.may(Right::Admin) => error,
        Err(error) => return Err(error),
    };
    let Ok(shelf) = app.shelf() else { return Err(absent) };
    let base = app.models.base_of(name);
    let described = shelf.with(move |library| library.describe(&base, Detail::Brief)).await;
    described.map(|_| name.to_owned()).map_err(|_| absent)
}
