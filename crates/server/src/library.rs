//! Models on disk, and their way in and out of memory: by explicit request only.
//!
//! The server knows a [`Library`] by this trait; where files come from and what loads them is its owner's business. One
//! model is loaded at a time, which bounds what loading can take from running requests. A model that leaves is found no
//! more at once, and gives its memory back when the last of its requests is done: whoever runs holds on to it. Models that the
//! operator gave stay the operator's: one that was unloaded and is loaded again by a client stays for good, as before.

mod downloads;

use std::sync::{Arc, Weak};

use tokio::sync::Mutex;

pub use self::downloads::{Download, Fetching, Follower, Line};

use self::downloads::Downloads;
use crate::app::Shared;
use crate::error::{ApiError, Kind};
use crate::model::lease::KeepAlive;
use crate::model::{Model, ModelFacts};

/// What can be done with models. Every call may take long; none is made on a thread that others need.
pub trait Library: Send + Sync + 'static {
    /// The models on disk, and their other names as models of their own.
    fn installed(&self) -> Result<Vec<Installed>, ApiError>;

    /// What brings a model to the disk and loads nothing; it has not begun yet.
    fn download(&self, name: &str) -> Result<Arc<dyn Download>, ApiError>;

    /// Loads a model from the disk and starts its engine.
    fn load(&self, name: &str) -> Result<Arc<Model>, ApiError>;

    /// Gives a model on disk one more name; tells the model's own.
    fn copy(&self, model: &str, name: &str) -> Result<String, ApiError>;

    /// Deletes a model, or one of its other names, from the disk; tells which.
    fn delete(&self, name: &str) -> Result<String, ApiError>;
}

/// A model on disk.
#[derive(Clone, Debug)]
pub struct Installed {
    /// Its name.
    pub name: String,
    /// About its files.
    pub facts: ModelFacts,
}

/// A library, and the order in which it is used.
pub struct Shelf {
    library: Arc<dyn Library>,
    loading: Arc<Mutex<()>>,
    downloads: Downloads,
}

impl Shelf {
    /// Nothing is done with it yet.
    pub fn new(library: Arc<dyn Library>) -> Self {
        Self { library, loading: Arc::default(), downloads: Downloads::default() }
    }

    /// Does something that may take long, elsewhere.
    pub async fn with<T: Send + 'static>(
        &self,
        work: impl FnOnce(&dyn Library) -> Result<T, ApiError> + Send + 'static,
    ) -> Result<T, ApiError> {
        let library = Arc::clone(&self.library);
        tokio::task::spawn_blocking(move || work(&*library)).await.unwrap_or_else(|_| Err(crashed()))
    }

    /// Starts a download, or follows the one of this model that runs already.
    pub async fn fetch(&self, name: String) -> Result<Follower, ApiError> {
        let download = self.with(move |library| library.download(&name)).await?;
        self.downloads.follow(download)
    }

    /// Stops all downloads and begins no more: the server ends. What came so far is kept.
    pub fn close(&self) {
        self.downloads.close();
    }
}

/// Loads a model unless it is served already, and keeps it as long as asked; one that the operator gave stays for good.
pub async fn load(app: &Shared, name: &str, keep: KeepAlive) -> Result<Arc<Model>, ApiError> {
    let shelf = app.shelf()?;
    let turn = Arc::clone(&shelf.loading).lock_owned().await;
    if let Some(model) = app.models.loaded(name) {
        model.lease.keep(keep);
        return Ok(model);
    }
    let asked = name.to_owned();
    // The turn travels with the work: if the client leaves, the next load still waits for this one.
    let (model, turn) = shelf.with(move |library| Ok((library.load(&asked)?, turn))).await?;
    let is_lent = !app.models.is_given(&model.name);
    if is_lent {
        model.lease.lend(keep);
    }
    app.models.add(Arc::clone(&model));
    if is_lent {
        tokio::spawn(leave_when_over(Arc::downgrade(app), Arc::downgrade(&model)));
    }
    drop(turn);
    Ok(model)
}

/// Serves a model no longer. Its running requests finish.
pub fn unload(app: &Shared, model: &Arc<Model>) {
    if app.models.remove(model) {
        tracing::info!(target: "library", model = model.name, "unloaded");
    }
}

/// Unloads a model when its time is over and nobody uses it.
async fn leave_when_over(app: Weak<crate::App>, model: Weak<Model>) {
    loop {
        let Some(lease) = model.upgrade().map(|model| Arc::clone(&model.lease)) else { return };
        lease.over().await;
        let (Some(app), Some(model)) = (app.upgrade(), model.upgrade()) else { return };
        if model.is_busy() {
            model.lease.renew();
        } else {
            unload(&app, &model);
            return;
        }
    }
}

fn crashed() -> ApiError {
    ApiError::new(Kind::Internal, "it failed on a bug of Ropeway; see the server's log")
}
