//! Models of the Ollama registry, and of Ollama's own store on this machine.
//!
//! ```text
//! in Ollama's store     used where it is, after its checksum was compared
//! elsewhere             GET /v2/<namespace>/<name>/manifests/<tag>, then /blobs/<digest> -> downloads/ -> the store
//! ```
//! A blob is named by its sha256, so what comes is what the manifest says. Must never: write to Ollama's store.

mod manifest;
mod store;

pub(crate) use store::OllamaStore;

use std::fs;
use std::path::Path;

use self::manifest::Weights;
use super::cache::create_parent;
use super::http::{Ask, Client};
use super::retry::while_busy;
use super::transfer::{self, Transfer};
use super::{Fetched, Place, Surroundings, space};
use crate::checksum;
use crate::error::SourceError;
use crate::lock::Lock;
use crate::manifest::{FileRecord, Owner, RelativePath};
use crate::progress::Report;
use crate::reference::OllamaName;
use crate::staging::Staging;

/// What the registry calls its manifests.
const MANIFEST_TYPE: &str = "application/vnd.docker.distribution.manifest.v2+json";

/// What the weights are called in our store.
const FILE_NAME: &str = "model.gguf";

/// Ollama's store, in words.
pub(crate) const IN_PLACE: &str = "Ollama's store, where it is";

/// Whether Ollama has the model on this machine.
pub(crate) fn is_here(around: &Surroundings<'_>, name: &OllamaName) -> bool {
    OllamaStore { models: &around.config.ollama.models }.find(name).is_some()
}

/// The model as Ollama has it on this machine, where it is.
pub(crate) fn in_place(
    around: &Surroundings<'_>,
    name: &OllamaName,
    report: Report<'_>,
) -> Result<Fetched, SourceError> {
    let store = OllamaStore { models: &around.config.ollama.models };
    let Some(weights) = store.find(name) else {
        return Err(SourceError::NotFound { what: name.to_string() });
    };
    let blob = store.blobs().join(weights.file_name());
    let record = checked(around, &blob, &weights.file_name(), weights, report)?;
    let files = vec![FileRecord { owner: Owner::Others, ..record }];
    Ok(Fetched { place: Place::Shared(store.blobs()), files, source: IN_PLACE.into() })
}

/// The model from the registry.
pub(crate) fn fetch(
    around: &Surroundings<'_>,
    name: &OllamaName,
    staging: &Staging,
    report: Report<'_>,
) -> Result<Fetched, SourceError> {
    let registry = Registry::new(around, name)?;
    let weights = registry.weights()?;
    let downloaded = around.config.home.join("downloads").join(weights.file_name());
    let target = staging.model().join(FILE_NAME);
    create_parent(&downloaded)?;
    // Whoever pulls the same blob under another name waits until this one has moved away.
    let lock = Lock::acquire(&downloaded.with_extension("lock"), around.cancel, || ())
        .map_err(SourceError::from_lock)?;
    registry.download(weights, &downloaded, report)?;
    fs::rename(&downloaded, &target).map_err(SourceError::io("create", &target))?;
    transfer::settle(&downloaded);
    drop(lock);
    let checked = checked(around, &target, FILE_NAME, weights, report)?;
    Ok(Fetched { place: Place::Staged, files: vec![checked], source: label(name) })
}

/// The registry, in words.
pub(crate) fn label(name: &OllamaName) -> String {
    format!("the Ollama registry's {}", name.to_string().trim_start_matches("ollama:"))
}

/// One model of the registry.
struct Registry<'a> {
    around: &'a Surroundings<'a>,
    client: Client,
    /// `https://host/v2/namespace/name`.
    base: String,
    tag: &'a str,
    shown: String,
}

impl<'a> Registry<'a> {
    fn new(around: &'a Surroundings<'a>, name: &'a OllamaName) -> Result<Registry<'a>, SourceError> {
        if around.config.offline {
            return Err(SourceError::Offline);
        }
        let endpoint = &around.config.ollama.registry;
        let client = Client::new(endpoint, None, around.config.patience, around.cancel);
        let base = format!("{endpoint}/v2/{}/{}", name.namespace, name.name);
        Ok(Registry { around, client, base, tag: &name.tag, shown: name.to_string() })
    }

    fn weights(&self) -> Result<Weights, SourceError> {
        let url = format!("{}/manifests/{}", self.base, self.tag);
        let ask = Ask { url: &url, what: &self.shown, accept: Some(MANIFEST_TYPE), range: None };
        Weights::of_manifest(&while_busy(self.around.cancel, || self.client.read(ask))?)
    }

    /// Brings the blob to a place that outlives this pull, so that the next one can go on.
    fn download(&self, weights: Weights, target: &Path, report: Report<'_>) -> Result<(), SourceError> {
        if fs::metadata(target).is_ok_and(|kind| kind.len() == weights.bytes) {
            // An earlier pull ended before it could be shown.
            return Ok(());
        }
        let needed = weights.bytes.saturating_sub(transfer::bytes_here(target, weights.bytes));
        space::check(target, needed)?;
        let url = format!("{}/blobs/{}", self.base, weights.digest());
        let (client, name, how) = (&self.client, self.shown.as_str(), self.around.config.transfers);
        Transfer { client, url: &url, name, size: weights.bytes, target, how }.run(report)
    }
}

/// Reads the file and compares it with its name.
fn checked(
    around: &Surroundings<'_>,
    path: &Path,
    name: &str,
    weights: Weights,
    report: Report<'_>,
) -> Result<FileRecord, SourceError> {
    let copied = checksum::of_file(path, name, around.cancel, report)?;
    if copied.sha256 != weights.sha256 {
        let (expected, found) = (weights.sha256, copied.sha256);
        return Err(SourceError::WrongChecksum { file: path.display().to_string(), expected, found });
    }
    let path = RelativePath::parse(name)
        .ok_or_else(|| SourceError::BadAnswer { detail: format!("`{name}` is no file name") })?;
    Ok(FileRecord { path, bytes: copied.bytes, sha256: copied.sha256, owner: Owner::Ropeway })
}
