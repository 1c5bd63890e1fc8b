//! A library without files: `here:1b` and `there:1b` can be loaded, `large:70b` has no room.

use std::path::PathBuf;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};

use axum::http::Method;
use ropeway_server::error::{ApiError, Kind};
use ropeway_server::library::{
    BlobDigest, Description, Detail, Download, Fetching, Installed, Library, Shelf,
};
use ropeway_server::model::derived::Derived;
use ropeway_server::model::same_name;
use ropeway_server::{App, Model, ModelFacts, Models};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::support::{model, outcome, post};

/// The models on it.
const ON_DISK: [&str; 3] = ["here:1b", "there:1b", "large:70b"];

/// What the tests look at.
pub struct Disk {
    /// Models that were loaded, in order.
    pub loaded: Mutex<Vec<String>>,
    /// Models made of others, as they are kept.
    pub kept: Mutex<Vec<Derived>>,
    /// Loading waits until this is closed.
    gate: Mutex<Option<Receiver<()>>>,
    folder: TempDir,
}

/// What the server is given.
struct Shelved(Arc<Disk>);

impl Disk {
    fn new() -> Arc<Disk> {
        let folder = TempDir::new().expect("a folder");
        Arc::new(Disk { loaded: Mutex::default(), kept: Mutex::default(), gate: Mutex::default(), folder })
    }

    /// The next loading waits until the result is dropped.
    pub fn hold(&self) -> Sender<()> {
        let (sender, receiver) = channel();
        *self.gate.lock().expect("no panic") = Some(receiver);
        sender
    }

    /// How many models were loaded, or are about to be.
    pub fn loads(&self) -> usize {
        self.loaded.lock().expect("no panic").len()
    }
}

impl Library for Shelved {
    fn installed(&self) -> Result<Vec<Installed>, ApiError> {
        Ok(ON_DISK.map(|name| Installed { name: name.into(), facts: ModelFacts::default() }).into())
    }

    fn download(&self, name: &str) -> Result<Arc<dyn Download>, ApiError> {
        Ok(Arc::new(Done(name.into())))
    }

    fn load(&self, name: &str) -> Result<Arc<Model>, ApiError> {
        let name = self.describe(name, Detail::Brief)?.name;
        self.0.loaded.lock().expect("no panic").push(name.clone());
        let gate = self.0.gate.lock().expect("no panic").take();
        if let Some(gate) = gate {
            let _ = gate.recv();
        }
        match name.as_str() {
            "large:70b" => Err(ApiError::new(Kind::NoRoom, "it needs 40 GiB, and 2 GiB are free")),
            other => Ok(model(other, 64).expect("a tokenizer").0),
        }
    }

    fn copy(&self, model: &str, _: &str) -> Result<String, ApiError> {
        self.describe(model, Detail::Brief).map(|description| description.name)
    }

    fn delete(&self, name: &str) -> Result<String, ApiError> {
        self.describe(name, Detail::Brief).map(|description| description.name)
    }

    fn describe(&self, name: &str, _: Detail) -> Result<Description, ApiError> {
        let is_sent = name.parse().is_ok_and(|digest| self.blob(&digest).is_file());
        let found = ON_DISK.iter().find(|model| same_name(model, name));
        let name = match found {
            Some(name) => (*name).to_owned(),
            None if is_sent => name.to_owned(),
            None => return Err(ApiError::new(Kind::NotFound, format!("model {name:?} not found"))),
        };
        let info = json!({"general.architecture": "llama", "llama.context_length": 512});
        let facts = ModelFacts { family: "llama".into(), ..ModelFacts::default() };
        let info = info.as_object().cloned().expect("an object");
        Ok(Description { name, facts, info, template: "the model's own".into(), ..Description::default() })
    }

    fn keep_derived(&self, model: &Derived) -> Result<(), ApiError> {
        let mut kept = self.0.kept.lock().expect("no panic");
        kept.retain(|other| other.name != model.name);
        kept.push(model.clone());
        Ok(())
    }

    fn forget_derived(&self, name: &str) -> Result<(), ApiError> {
        self.0.kept.lock().expect("no panic").retain(|other| other.name != name);
        Ok(())
    }

    fn blob(&self, digest: &BlobDigest) -> PathBuf {
        self.0.folder.path().join(digest.hex())
    }
}

/// A download with nothing to do.
struct Done(String);

impl Download for Done {
    fn model(&self) -> &str {
        &self.0
    }

    fn run(&self, _: &mut dyn FnMut(Fetching)) -> Result<(), ApiError> {
        Ok(())
    }

    fn stop(&self) {}
}

/// An app that serves nothing yet; `None` without a tokenizer.
pub fn app(loads_on_demand: bool) -> Option<(Arc<App>, Arc<Disk>)> {
    model("probe", 1)?;
    let disk = Disk::new();
    let shelf = Shelf::new(Arc::new(Shelved(Arc::clone(&disk)))).loading_on_demand(loads_on_demand);
    Some((Arc::new(App { shelf: Some(shelf), ..App::new(Models::default()) }), disk))
}

/// Status and answer; of a stream, its last line.
pub async fn ask(app: &Arc<App>, path: &str, body: Value) -> (u16, Value) {
    send(app, Method::POST, path, body).await
}

/// The same with another method.
pub async fn send(app: &Arc<App>, method: Method, path: &str, body: Value) -> (u16, Value) {
    let mut request = post(path, &[], &body);
    *request.method_mut() = method;
    let (status, _, text) = outcome(app, request).await;
    let last = text.lines().last().unwrap_or_default();
    (status, serde_json::from_str(last).unwrap_or_else(|_| Value::String(last.to_owned())))
}
