//! Models on disk, and their way in and out of memory: by explicit request only.
//!
//! The server knows a [`Library`] by this trait; where files come from and what loads them is its owner's business. One
//! model is loaded at a time, which bounds what loading can take from running requests. A model that leaves is found no
//! more at once, and gives its memory back when the last of its requests is done: whoever runs holds on to it.

use std::sync::{Arc, Weak};

use tokio::sync::{Mutex, Semaphore, mpsc};

use crate::app::Shared;
use crate::error::{A_MOMENT, ApiError, Kind};
use crate::model::lease::KeepAlive;
use crate::model::{Model, ModelFacts};

/// Downloads at a time: they share one network and one disk.
const DOWNLOADS: usize = 4;

/// Lines about a download that wait for a slow reader.
const LINES: usize = 64;

/// What can be done with models. Every call may take long; none is made on a thread that others need.
pub trait Library: Send + Sync + 'static {
    /// The models on disk, and their other names as models of their own.
    fn installed(&self) -> Result<Vec<Installed>, ApiError>;

    /// Brings a model to the disk; loads nothing.
    fn fetch(&self, name: &str, report: &mut dyn FnMut(Fetching)) -> Result<(), ApiError>;

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

/// How far a download is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fetching {
    /// What is done now.
    pub status: String,
    /// Bytes done and bytes in all, where it is about bytes.
    pub bytes: Option<(u64, u64)>,
}

/// A library, and the order in which it is used.
pub struct Shelf {
    library: Arc<dyn Library>,
    loading: Arc<Mutex<()>>,
    downloads: Arc<Semaphore>,
}

impl Shelf {
    /// Nothing is done with it yet.
    pub fn new(library: Arc<dyn Library>) -> Self {
        Self { library, loading: Arc::default(), downloads: Arc::new(Semaphore::new(DOWNLOADS)) }
    }

    /// Does something that may take long, elsewhere.
    pub async fn with<T: Send + 'static>(
        &self,
        work: impl FnOnce(&dyn Library) -> Result<T, ApiError> + Send + 'static,
    ) -> Result<T, ApiError> {
        let library = Arc::clone(&self.library);
        tokio::task::spawn_blocking(move || work(&*library)).await.unwrap_or_else(|_| Err(fell()))
    }

    /// Starts a download; what it tells comes line by line, and at the end how it went. It goes on if nobody listens.
    pub fn fetch(&self, name: String) -> Result<mpsc::Receiver<Result<Fetching, ApiError>>, ApiError> {
        let slot = Arc::clone(&self.downloads).try_acquire_owned().map_err(|_| {
            let what = format!("{DOWNLOADS} downloads run already; try again when one is done");
            ApiError::new(Kind::Overloaded, what).retry_after(A_MOMENT)
        })?;
        let library = Arc::clone(&self.library);
        let (lines, told) = mpsc::channel(LINES);
        tokio::task::spawn_blocking(move || {
            // A reader that is too slow misses lines about bytes; the next one says more.
            let done = library.fetch(&name, &mut |line| drop(lines.try_send(Ok(line))));
            let last = done.map(|()| Fetching { status: "success".into(), bytes: None });
            let _ = lines.blocking_send(last);
            drop(slot);
        });
        Ok(told)
    }
}

/// Loads a model unless it is served already, and keeps it as long as asked.
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
    model.lease.lend(keep);
    app.models.add(Arc::clone(&model));
    tokio::spawn(leave_when_over(Arc::downgrade(app), Arc::downgrade(&model)));
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

fn fell() -> ApiError {
    ApiError::new(Kind::Internal, "it failed on a bug of Ropeway; see the server's log")
}
