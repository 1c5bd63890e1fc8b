//! Models that are loaded because someone asks them a question, where the operator allows it.
//!
//! ```text
//! first question for a model on disk    its loading begins, and goes on whether or not the client stays
//! further questions for it              wait for the same loading
//! too many wait, or for too long        503, and when to come again
//! ```
//! Other models answer meanwhile. Nothing is ever fetched from elsewhere, and no model leaves memory to make room: where
//! there is none, the question is turned down with what to do.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::watch;

use crate::app::Shared;
use crate::error::{ApiError, Kind};
use crate::guard::rights::Rights;
use crate::library::Detail;

/// Longest time that a question waits for its model: as long as Ollama waits. Clients have given up by then as a rule.
const LONGEST_WAIT: Duration = Duration::from_secs(300);

/// Models that are being loaded or stand in line for it.
const MOST_LOADING: usize = 16;

/// Questions that wait for one model. Each holds its body and a connection.
const MOST_WAITING: usize = 256;

/// When to come again if waiting was in vain.
const COME_AGAIN: Duration = Duration::from_secs(10);

/// How a loading ended; nothing while it goes on.
type Outcome = Option<Result<(), ApiError>>;

/// The models that are being loaded on demand, by the name of the model on disk.
#[derive(Clone, Default)]
pub(super) struct Demands(Arc<Mutex<HashMap<String, Arc<watch::Sender<Outcome>>>>>);

/// Loads the model on disk that a client with these rights means, and waits for it.
pub async fn bring(app: &Shared, rights: &Rights, name: &str) -> Result<(), ApiError> {
    let shelf = app.shelf()?;
    let base = app.models.base_of(name);
    let derived = app.models.derived_named(name);
    if !rights.may_use(derived.as_ref().map_or(&base, |derived| &derived.name)) {
        return Err(ApiError::new(Kind::NotFound, format!("model {name:?} not found")).about("model"));
    }
    // What is not on disk does not stand in line with what is.
    let known = base.clone();
    shelf.with(move |library| library.describe(&known, Detail::Brief).map(drop)).await?;
    let mut outcome = shelf.demands.join(app, base)?;
    let ended = tokio::time::timeout(LONGEST_WAIT, outcome.wait_for(Option::is_some)).await;
    match ended {
        Ok(Ok(outcome)) => outcome.clone().unwrap_or(Ok(())),
        Ok(Err(_)) => Err(super::crashed()),
        Err(_) => Err(still_loading(name)),
    }
}

impl Demands {
    /// Joins those who wait for a model, the first of whom has it loaded.
    fn join(&self, app: &Shared, model: String) -> Result<watch::Receiver<Outcome>, ApiError> {
        let mut loading = self.loading();
        if let Some(end) = loading.get(&model) {
            let is_full = end.receiver_count() >= MOST_WAITING;
            return if is_full { Err(still_loading(&model)) } else { Ok(end.subscribe()) };
        }
        if loading.len() >= MOST_LOADING {
            return Err(still_loading(&model));
        }
        let (end, outcome) = watch::channel(None);
        let end = Arc::new(end);
        loading.insert(model.clone(), Arc::clone(&end));
        drop(loading);
        let (demands, app) = (self.clone(), Shared::clone(app));
        tokio::spawn(async move {
            let keep = app.shelf().map(super::Shelf::keep_alive).unwrap_or_default();
            let loaded = super::load(&app, &model, keep).await.map(drop);
            demands.loading().remove(&model);
            end.send_replace(Some(loaded));
        });
        Ok(outcome)
    }

    fn loading(&self) -> MutexGuard<'_, HashMap<String, Arc<watch::Sender<Outcome>>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn still_loading(name: &str) -> ApiError {
    let what = format!("{name} is still being loaded; try again in {} seconds", COME_AGAIN.as_secs());
    ApiError::new(Kind::Overloaded, what).coded("model_loading").retry_after(COME_AGAIN)
}
