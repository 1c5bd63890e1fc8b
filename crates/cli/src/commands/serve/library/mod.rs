//! The server's library on this machine: the hub's store for files, engines on the CPU for models.
//!
//! Layout: [`describe`] reads what files say, [`derived`] keeps models that clients made of others, [`download`] fetches, [`need`] counts
//! memory, and [`told`] is what clients hear of mistakes.
//!
//! Clients can name models of the store only, never paths: what lies elsewhere on the disk is none of their business. Their
//! names are understood without a look at the disk ([`Hub::parse_name`]), so that no answer, and no time it takes, tells whether
//! a path exists.

mod derived;
mod describe;
mod download;
mod need;
mod told;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use ropeway_hub::{Hub, ModelFiles, ModelRef};
use ropeway_server::error::{ApiError, Kind};
use ropeway_server::library::{BlobDigest, Description, Detail, Download, Installed, Library};
use ropeway_server::model::capability::Capability;
use ropeway_server::model::derived::Derived;
use ropeway_server::{Model, ModelFacts};
use ropeway_weights::Checkpoint;

use self::derived::DerivedModels;
use self::describe::{FactsCache, describe, noted_in};
use self::download::HubDownload;
use self::need::Need;
use self::told::{embeds_only, missing, operators_own, told, unloadable};
use super::engines::{self, Recipe};
use super::ledger::Ledger;
use crate::engine_args::EngineArgs;
use crate::failure::Failure;
use crate::interrupt;
use crate::model_args::ModelArgs;

/// A model needs KV memory for so many tokens to be of use, or for its window if that is shorter.
const LEAST_KV_TOKENS: usize = 4096;

/// What loads models, and how.
pub struct Shelves {
    hub: Hub,
    engine: EngineArgs,
    options: ModelArgs,
    /// Models of the operator's own: their names and where they are.
    own: Vec<OwnModel>,
    derived: DerivedModels,
    facts: FactsCache,
    ledger: Arc<Ledger>,
    log_batches: bool,
}

/// A file or folder that the operator gave.
struct OwnModel {
    /// What clients call it.
    name: String,
    /// Where it is.
    path: String,
}

/// A model that a client may name.
enum Known {
    /// One of the operator's own, or a file that a client sent.
    Own {
        /// What it is called.
        name: String,
        model: ModelRef,
    },
    /// A name of the store.
    Named(ModelRef),
}

impl Shelves {
    /// A library for a server that was given these models.
    pub fn new(
        engine: EngineArgs,
        options: ModelArgs,
        given: &[String],
        log_batches: bool,
    ) -> Result<Shelves, Failure> {
        let config = ropeway_hub::Config::from_env()?;
        let derived = DerivedModels::new(config.home.clone());
        let hub = Hub::new(config, ropeway_hub::Catalogue::builtin());
        tell_damage(&hub);
        let own = given
            .iter()
            .filter(|given| matches!(hub.parse(given), Ok(ModelRef::Local(_))))
            .map(|given| OwnModel { name: served_name(given), path: given.clone() })
            .collect();
        let ledger = Ledger::new(crate::memory::available());
        let facts = FactsCache::default();
        Ok(Shelves { hub, engine, options, own, derived, facts, ledger, log_batches })
    }

    /// Who has how much memory.
    pub fn ledger(&self) -> &Arc<Ledger> {
        &self.ledger
    }

    /// Other names of models on disk.
    pub fn copies(&self) -> Vec<ropeway_server::Alias> {
        let aliases = self.hub.aliases().into_iter();
        aliases.map(|(pattern, model)| ropeway_server::Alias { pattern, model }).collect()
    }

    /// Models that clients made of others.
    pub fn derived(&self) -> Vec<Derived> {
        self.derived.all()
    }

    /// Loads a model that the operator named, fetching it first if need be. It is loaded even if memory seems short:
    /// the operator may know better.
    pub fn start(&self, given: &str) -> Result<Arc<Model>, Failure> {
        let files = self.options.files(&self.hub, given)?;
        let need = self.need(&files)?;
        if self.ledger.free().is_some_and(|free| free < need.least()) {
            tracing::warn!(target: "library", model = given, "{}", need.lacking(&self.ledger));
        }
        self.run(served_name(given), files, need)
    }

    fn run(&self, name: String, files: ModelFiles, need: Need) -> Result<Arc<Model>, Failure> {
        let kv = self.engine.kv_memory().unwrap_or_else(|| need.share(self.ledger.free()));
        let digest = self.digest(&name);
        let (engine, options) = (self.engine.clone(), self.options.clone());
        let recipe = Recipe { engine, options, files, name, digest, kv };
        let promise = self.ledger.promise(need.weights + kv);
        let model = engines::start(recipe, promise)?;
        if self.log_batches {
            engines::log_batches(&model);
        }
        Ok(model)
    }

    fn need(&self, files: &ModelFiles) -> Result<Need, Failure> {
        let checkpoint = Checkpoint::open(files.checkpoint())?;
        let least_kv = self.options.kv_bytes(LEAST_KV_TOKENS, &checkpoint)?;
        Ok(Need { weights: files.bytes(), kv: self.engine.kv_memory().unwrap_or(least_kv) })
    }

    /// What the store, or a file's name, tells about a model's weights without reading them.
    fn noted(&self, name: &str, facts: ModelFacts) -> ModelFacts {
        if let Ok(digest) = name.parse::<BlobDigest>() {
            return ModelFacts { digest: digest.hex().to_owned(), ..facts };
        }
        let listing = self.hub.list().map(|listing| listing.models).unwrap_or_default();
        match listing.iter().find(|model| model.manifest.name == name) {
            Some(model) => noted_in(&model.manifest, facts),
            None => facts,
        }
    }

    /// The sha256 of a model's weights; empty if unknown.
    pub fn digest(&self, name: &str) -> String {
        self.noted(name, ModelFacts::default()).digest
    }

    /// What a client may name: models of the store, those the operator gave, and files that clients sent.
    fn known(&self, name: &str) -> Result<Known, ApiError> {
        if let Ok(digest) = name.parse::<BlobDigest>() {
            return self.sent(&digest);
        }
        // What Ollama's clients add to names without a tag.
        let plain = name.strip_suffix(":latest").unwrap_or(name);
        match self.own.iter().find(|own| own.name == name || own.name == plain) {
            Some(own) => self.hub.parse(&own.path).map(|model| Known::Own { name: own.name.clone(), model }),
            None if self.hub.aliases().contains_key(name) => self.hub.parse_name(name).map(Known::Named),
            None => self.hub.parse_name(plain).map(Known::Named),
        }
        .map_err(|error| told(&error))
    }

    fn sent(&self, digest: &BlobDigest) -> Result<Known, ApiError> {
        let path = self.derived.blob(digest);
        if !path.is_file() {
            return Err(missing(format!("blob {digest} not found; send it with POST /api/blobs/{digest}")));
        }
        Ok(Known::Own { name: digest.to_string(), model: ModelRef::Local(path) })
    }
}

impl Known {
    fn model(&self) -> &ModelRef {
        match self {
            Known::Own { model, .. } | Known::Named(model) => model,
        }
    }

    /// What it is called when it is served.
    fn served_name(&self) -> Result<String, ApiError> {
        match self {
            Known::Own { name, .. } => Ok(name.clone()),
            Known::Named(model) => model.id().map(|id| id.name).map_err(|error| told(&error)),
        }
    }
}

/// Logs what is wrong with the store, once.
fn tell_damage(hub: &Hub) {
    crate::pulling::tell_broken_aliases(hub, |error| {
        tracing::warn!(target: "library", "{error}; {}", error.hint());
    });
    for error in hub.list().map(|listing| listing.broken).unwrap_or_default() {
        tracing::warn!(target: "library", "{error}; {}", error.hint());
    }
}

/// What a model is called that was given as a path: its file's name without the ending, or its folder's.
pub fn served_name(given: &str) -> String {
    let path = Path::new(given);
    let by_name = match ropeway_hub::Catalogue::builtin().parse_name(given) {
        Ok(model @ (ModelRef::Catalogue(_) | ModelRef::Ollama(_))) => model.id().ok().map(|id| id.name),
        _ => None,
    };
    let whole = || std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    let own = || {
        let whole = whole();
        let name = if path.is_dir() { whole.file_name() } else { whole.file_stem() };
        name.map(|name| name.to_string_lossy().into_owned())
    };
    let local = || path.exists().then(own).flatten();
    by_name.or_else(local).unwrap_or_else(|| given.to_owned())
}

impl Library for Shelves {
    fn installed(&self) -> Result<Vec<Installed>, ApiError> {
        let listing = self.hub.list().map_err(|error| told(&error))?;
        let models = listing.models.iter();
        let mut all: Vec<_> = models
            .map(|model| {
                let facts = noted_in(&model.manifest, self.facts.of(&model.files()));
                Installed { name: model.manifest.name.clone(), facts }
            })
            .collect();
        for (name, model) in self.hub.aliases() {
            let facts = all.iter().find(|other| other.name == model).map(|other| other.facts.clone());
            all.extend(facts.map(|facts| Installed { name, facts }));
        }
        let own = self.own.iter().filter_map(|own| {
            let files = self.hub.resolve(&own.path).ok()?;
            Some(Installed { name: own.name.clone(), facts: self.facts.of(&files) })
        });
        all.extend(own);
        Ok(all)
    }

    fn download(&self, name: &str) -> Result<Arc<dyn Download>, ApiError> {
        let known = self.known(name)?;
        Ok(Arc::new(HubDownload {
            hub: self.hub.clone(),
            name: known.served_name()?,
            model: known.model().clone(),
            cancel: interrupt::pulls().child(),
        }))
    }

    fn load(&self, name: &str) -> Result<Arc<Model>, ApiError> {
        let known = self.known(name)?;
        let name = known.served_name()?;
        let files = self.hub.resolve_model(known.model()).map_err(|error| told(&error))?;
        self.options.verify(&self.hub, known.model()).map_err(|error| told(&error))?;
        if self.facts.of(&files).capabilities.contains(&Capability::Embedding) {
            return Err(embeds_only(&name));
        }
        let need = self.need(&files).map_err(|failure| unloadable(&name, &failure))?;
        if !self.ledger.wait_for(need.least()) {
            let what = format!("there is no room for {name}: {}", need.lacking(&self.ledger));
            return Err(ApiError::new(Kind::NoRoom, what));
        }
        self.run(name.clone(), files, need).map_err(|failure| unloadable(&name, &failure))
    }

    fn copy(&self, model: &str, name: &str) -> Result<String, ApiError> {
        match self.known(model)? {
            Known::Own { .. } => Err(operators_own(model)),
            Known::Named(model) => self.hub.copy(&model, name).map_err(|error| told(&error)),
        }
    }

    fn delete(&self, name: &str) -> Result<String, ApiError> {
        if let Known::Own { .. } = self.known(name)? {
            return Err(operators_own(name));
        }
        let removed = self.hub.remove_name(name).or_else(|error| {
            let plain = name.strip_suffix(":latest").ok_or(error)?;
            self.hub.remove_name(plain)
        });
        removed.map(|removed| removed.name).map_err(|error| told(&error))
    }

    fn describe(&self, name: &str, detail: Detail) -> Result<Description, ApiError> {
        let known = self.known(name)?;
        let files = self.hub.resolve_model(known.model()).map_err(|error| told(&error))?;
        let name = known.served_name()?;
        let mut description = describe(name.clone(), &files, detail)
            .map_err(|error| unloadable(&name, &Failure::from(error)))?;
        description.facts = self.noted(&name, description.facts);
        Ok(description)
    }

    fn keep_derived(&self, model: &Derived) -> Result<(), ApiError> {
        self.derived.keep(model)
    }

    fn forget_derived(&self, name: &str) -> Result<(), ApiError> {
        self.derived.forget(name)
    }

    fn blob(&self, digest: &BlobDigest) -> PathBuf {
        self.derived.blob(digest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_served_by_the_name_of_its_file_or_folder() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("Tiny-1B.Q4_1.gguf");
        std::fs::write(&file, "").expect("written");
        assert_eq!(served_name(&file.display().to_string()), "Tiny-1B.Q4_1");
        let name = folder.path().file_name().expect("a name").to_string_lossy().into_owned();
        assert_eq!(served_name(&folder.path().display().to_string()), name);
        assert_eq!(served_name("smollm2"), "smollm2:135m");
        assert_eq!(served_name("llama3.2:1b-instruct-q8_0"), "llama3.2:1b-q8_0");
        assert_eq!(served_name("ollama:llama3.2"), "ollama:llama3.2:latest");
        assert_eq!(served_name("org/repo:Q4_K_M"), "org/repo:Q4_K_M");
    }
}
