//! Models on disk, and their way in and out of memory: by explicit request, or by a question where the operator allows it
//! ([`demand`]).
//!
//! The server knows a [`Library`] by this trait; where files come from and what loads them is its owner's business. One
//! model is loaded at a time, which bounds what loading can take from running requests. A model that leaves is found no
//! more at once, and gives its memory back when the last of its requests is done: whoever runs holds on to it. Models that the
//! operator gave stay the operator's: one that was unloaded and is loaded again by a client stays for good, as before.

mod blob;
pub mod demand;
mod downloads;

use std::path::PathBuf;
use std::sync::{Arc, Weak};

use serde_json::{Map, Value};
use tokio::sync::Mutex;

pub use self::blob::BlobDigest;
pub use self::downloads::{Download, Fetching, FileProgress, Follower, Line};

use self::demand::Demands;
use self::downloads::Downloads;
use crate::app::Shared;
use crate::error::{ApiError, Kind};
use crate::model::derived::Derived;
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

    /// What the files of a model on disk say, without loading it.
    fn describe(&self, name: &str, detail: Detail) -> Result<Description, ApiError>;

    /// Keeps a model made of another one, in the place of one of the same name.
    fn keep_derived(&self, model: &Derived) -> Result<(), ApiError>;

    /// Forgets a model made of another one.
    fn forget_derived(&self, name: &str) -> Result<(), ApiError>;

    /// Where a file that a client sends is kept; it need not be there yet. It is a model of the name that the digest is
    /// written as.
    fn blob(&self, digest: &BlobDigest) -> PathBuf;
}

/// How much is told of a model's files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Detail {
    /// No long lists.
    Brief,
    /// Lists such as the vocabulary, and every tensor.
    Full,
}

/// What the files of a model say.
#[derive(Clone, Debug, Default)]
pub struct Description {
    /// Its full name.
    pub name: String,
    /// About its files.
    pub facts: ModelFacts,
    /// Its chat template; empty if it has none.
    pub template: String,
    /// Its metadata, under GGUF's names; lists are `null` unless they were asked for.
    pub info: Map<String, Value>,
    /// Its licence, as far as the files hold it.
    pub license: String,
    /// Name, type and shape of every tensor, if they were asked for.
    pub tensors: Vec<Value>,
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
    demands: Demands,
    /// How long models stay where clients do not say.
    keep_alive: KeepAlive,
    loads_on_demand: bool,
}

impl Shelf {
    /// Nothing is done with it yet.
    pub fn new(library: Arc<dyn Library>) -> Self {
        Self {
            library,
            loading: Arc::default(),
            downloads: Downloads::default(),
            demands: Demands::default(),
            keep_alive: KeepAlive::default(),
            loads_on_demand: false,
        }
    }

    /// Models stay so long after their last request where clients do not say.
    #[must_use]
    pub fn keeping(self, keep_alive: KeepAlive) -> Self {
        Self { keep_alive, ..self }
    }

    /// Whether a question for a model on disk loads it.
    #[must_use]
    pub fn loading_on_demand(self, loads_on_demand: bool) -> Self {
        Self { loads_on_demand, ..self }
    }

    /// How long models stay where clients do not say.
    pub fn keep_alive(&self) -> KeepAlive {
        self.keep_alive
    }

    /// Whether a question for a model on disk loads it.
    pub fn loads_on_demand(&self) -> bool {
        self.loads_on_demand
    }

    /// Does something that may take long, elsewhere.
    pub async fn with<T: Send + 'static>(
        &self,
        work: impl FnOnce(&dyn Library) -> Result<T, ApiError> + Send + 'static,
    ) -> Result<T, ApiError> {
        let library = Arc::clone(&self.library);
        tokio::task::spawn_blocking(move || work(&*library)).await.unwrap_or_else(|_| Err(crashed()))
    }

    /// Where a file that a client sends is kept.
    pub fn blob(&self, digest: &BlobDigest) -> PathBuf {
        self.library.blob(digest)
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
    let asked = app.models.base_of(name);
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

/// Serves a model no longer, or the one that it is made of. Its running requests finish.
pub fn unload(app: &Shared, model: &Arc<Model>) {
    let base = model.derived.as_ref().map(|derived| derived.from.as_str());
    let served = base.and_then(|base| app.models.all().into_iter().find(|served| served.name == base));
    let gone = served.as_ref().unwrap_or(model);
    // What other servers compute takes no memory here.
    if app.pools.get().is_some_and(|pools| pools.serves(&gone.name)) {
        return;
    }
    if app.models.remove(gone) {
        tracing::info!(target: "library", model = gone.name, "unloaded");
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
