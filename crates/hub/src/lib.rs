//! From a model name to files on disk.
//!
//! A name is one of the built-in [`Catalogue`], a path, `org/repo[@revision][:file]` on the Hugging Face hub, or `ollama:name:tag` in
//! the Ollama registry. [`Hub`] turns it into [`ModelFiles`]: [`Hub::resolve`] looks on this machine only, [`Hub::pull`] fetches what is missing.
//!
//! Layout: [`reference`] says what a name means, [`catalogue`] which names are built in, [`pull`] brings a model here
//! ([`source`] how its bytes come, [`cancel`] how that is stopped), [`store`] where they stay ([`manifest`], [`lock`],
//! [`staging`] are its parts), [`elsewhere`] what other programs have, `cuda_libraries` what a GPU needs, [`verify`] whether files are still the same, [`aliases`] what
//! else they are called, [`quant`] names of quantizations, [`error`] what can go wrong and what the user does about it.
//!
//! Relies on: the machine's own pip for catalogue packages (so that mirror settings are respected) and the layouts of the
//! Hugging Face cache and of Ollama's store. Reading needs no right to write: a store on a read-only disk is as good as any. Must never: show a
//! model whose files were not checked, write outside the store and the Hugging Face cache, delete a file it did not fetch, or
//! trust a name found inside an archive or a listing.

mod aliases;
pub mod cancel;
pub mod catalogue;
pub mod checksum;
pub mod config;
mod cuda_libraries;
mod elsewhere;
pub mod error;
mod lock;
pub mod manifest;
pub mod model_files;
pub mod progress;
pub mod pull;
pub mod quant;
pub mod reference;
mod source;
mod staging;
pub mod store;
mod tokenizer;
pub mod verify;

pub use cancel::Cancel;
pub use catalogue::Catalogue;
pub use config::Config;
pub use cuda_libraries::CudaMajor;
pub use elsewhere::Elsewhere;
pub use error::{HubError, SourceError};
pub use model_files::ModelFiles;
pub use progress::{Progress, Report};
pub use pull::{Outcome, PullOptions, Pulled};
pub use quant::Quant;
pub use reference::ModelRef;
pub use store::{Listing, Removed, Store};
pub use verify::{Check, Damage, Verified};

use std::collections::BTreeMap;

use aliases::Aliases;
use reference::ModelId;

/// Names, sources and the cache together: what the rest of Ropeway asks for models.
#[derive(Debug, Clone)]
pub struct Hub {
    config: Config,
    catalogue: Catalogue,
    store: Store,
}

impl Hub {
    /// The hub as the environment describes it (see [`Config`]), with the built-in catalogue.
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
        self.resolve_model(&self.parse(name_or_path)?)
    }

    /// The same for a name that is understood already.
    pub fn resolve_model(&self, model: &ModelRef) -> Result<ModelFiles, HubError> {
        if let ModelRef::Local(path) = model {
            return ModelFiles::local(path);
        }
        let id = model.id()?;
        let found = self.store.find(&id)?;
        found.map(|installed| installed.files()).ok_or(HubError::NotPulled { name: id.name })
    }

    /// Compares every byte of a pulled model with the checksums of its manifest.
    pub fn verify(
        &self,
        model: &ModelRef,
        cancel: &Cancel,
        report: Report<'_>,
    ) -> Result<Verified, HubError> {
        if let ModelRef::Local(path) = model {
            return Err(HubError::NoChecksum { path: path.clone() });
        }
        let id = model.id()?;
        let installed = self.store.read(&id)?.ok_or(HubError::NotPulled { name: id.name })?;
        let damage = installed.damage(Check::Checksums, cancel, report).map_err(|_| HubError::Cancelled)?;
        let manifest = installed.manifest;
        Ok(Verified { files: manifest.files.len(), bytes: manifest.bytes(), name: manifest.name, damage })
    }

    /// Every model in the store.
    pub fn list(&self) -> Result<Listing, HubError> {
        self.store.list(|folder| ModelId::name_of_folder(folder, self.catalogue))
    }

    /// Says what a name or path means, also a name that [`Hub::copy`] gave.
    pub fn parse(&self, name_or_path: &str) -> Result<ModelRef, HubError> {
        let known = self.aliases().remove(name_or_path);
        self.catalogue.parse(known.as_deref().unwrap_or(name_or_path))
    }

    /// Says what a name means. No path is looked at, whether it exists or not: this is for names that strangers give.
    pub fn parse_name(&self, name: &str) -> Result<ModelRef, HubError> {
        let known = self.aliases().remove(name);
        self.catalogue.parse_name(known.as_deref().unwrap_or(name))
    }

    /// Other names of models, and what they mean; none if their file can't be used ([`Hub::broken_aliases`]).
    pub fn aliases(&self) -> BTreeMap<String, String> {
        self.names().all().unwrap_or_default()
    }

    /// What is wrong with the file of other names, if anything is.
    pub fn broken_aliases(&self) -> Option<HubError> {
        self.names().all().err()
    }

    /// Gives a pulled model one more name; nothing is copied. Gives the model's own name.
    pub fn copy(&self, model: &ModelRef, name: &str) -> Result<String, HubError> {
        aliases::check_name(name)?;
        let id = model.id()?;
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
        self.remove_as(name, || self.catalogue.parse(name))
    }

    /// The same for a name that a stranger gave: no path is looked at.
    pub fn remove_name(&self, name: &str) -> Result<Removed, HubError> {
        self.remove_as(name, || self.catalogue.parse_name(name))
    }

    fn remove_as(
        &self,
        name: &str,
        parse: impl FnOnce() -> Result<ModelRef, HubError>,
    ) -> Result<Removed, HubError> {
        let aliases = self.aliases();
        if aliases.contains_key(name) {
            self.names().change(|names| {
                names.remove(name);
            })?;
            return Ok(Removed { name: name.into(), freed: 0, kept: 0 });
        }
        let id = parse()?.id()?;
        let others: Vec<_> =
            aliases.into_iter().filter(|(_, model)| *model == id.name).map(|(alias, _)| alias).collect();
        if !others.is_empty() {
            return Err(HubError::HasOtherNames { name: id.name, others });
        }
        let _lock = self.store.lock(&id, &Cancel::default(), &mut |_| ())?;
        self.store.remove(&id)
    }

    fn names(&self) -> Aliases {
        let home = &self.config.home;
        Aliases { file: home.join("aliases.json"), lock: home.join("locks").join("aliases.lock") }
    }
}
