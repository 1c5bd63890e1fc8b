//! The server's library on this machine: the hub's store for files, engines on the CPU for models.
//!
//! Clients can name models of the store only, never paths: what lies elsewhere on the disk is none of their business. Their
//! names are understood without a look at the disk ([`Hub::parse_name`]), so that no answer, and no time it takes, tells whether
//! a path exists.

use std::path::Path;
use std::sync::Arc;

use indicatif::BinaryBytes;
use ropeway_hub::progress::Stage;
use ropeway_hub::{Cancel, Check, Hub, HubError, ModelFiles, ModelRef, Progress, PullOptions, SourceError};
use ropeway_server::error::{ApiError, Kind};
use ropeway_server::library::{Download, Fetching, Installed, Library};
use ropeway_server::{Model, ModelFacts};
use ropeway_weights::Checkpoint;

use super::engines::{self, Recipe};
use super::ledger::Ledger;
use crate::engine_args::EngineArgs;
use crate::facts::Facts;
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
    /// One of the operator's own.
    Own(ModelRef),
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
        let hub = Hub::from_env()?;
        tell_damage(&hub);
        let own = given
            .iter()
            .filter(|given| matches!(hub.parse(given), Ok(ModelRef::Local(_))))
            .map(|given| OwnModel { name: served_name(given), path: given.clone() })
            .collect();
        let ledger = Ledger::new(crate::memory::available());
        Ok(Shelves { hub, engine, options, own, ledger, log_batches })
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
        let recipe = Recipe { engine: self.engine.clone(), options: self.options.clone(), files, name, kv };
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

    /// What a client may name: models of the store, and those the operator gave.
    fn known(&self, name: &str) -> Result<Known, ApiError> {
        match self.own.iter().find(|own| own.name == name) {
            Some(own) => self.hub.parse(&own.path).map(Known::Own),
            None => self.hub.parse_name(name).map(Known::Named),
        }
        .map_err(|error| told(&error))
    }
}

impl Known {
    fn model(&self) -> &ModelRef {
        match self {
            Known::Own(model) | Known::Named(model) => model,
        }
    }

    /// What it is called when it is served.
    fn served_name(&self, asked: &str) -> Result<String, ApiError> {
        match self {
            Known::Own(_) => Ok(asked.to_owned()),
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

/// What a model takes at least.
#[derive(Clone, Copy, Debug)]
struct Need {
    weights: u64,
    kv: u64,
}

impl Need {
    fn least(self) -> u64 {
        self.weights + self.kv
    }

    /// KV memory when nobody says how much: half of what is left beside the weights.
    fn share(self, free: Option<u64>) -> u64 {
        let left = free.unwrap_or(0).saturating_sub(self.weights);
        self.kv.max(left / 2)
    }

    fn lacking(self, ledger: &Ledger) -> String {
        let free = ledger.free().unwrap_or(0);
        format!(
            "it needs {} ({} of weights, {} for keys and values), and {} are free; unload a model with keep_alive 0, or start \
             the server with a smaller --kv-memory",
            BinaryBytes(self.least()),
            BinaryBytes(self.weights),
            BinaryBytes(self.kv),
            BinaryBytes(free),
        )
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
            .map(|model| Installed {
                name: model.manifest.name.clone(),
                facts: ModelFacts { modified: model.manifest.pulled_at, ..facts(&model.files()) },
            })
            .collect();
        for (name, model) in self.hub.aliases() {
            let facts = all.iter().find(|other| other.name == model).map(|other| other.facts.clone());
            all.extend(facts.map(|facts| Installed { name, facts }));
        }
        let own = self.own.iter().filter_map(|own| {
            Some(Installed { name: own.name.clone(), facts: facts(&self.hub.resolve(&own.path).ok()?) })
        });
        all.extend(own);
        Ok(all)
    }

    fn download(&self, name: &str) -> Result<Arc<dyn Download>, ApiError> {
        let known = self.known(name)?;
        Ok(Arc::new(HubDownload {
            hub: self.hub.clone(),
            name: known.served_name(name)?,
            model: known.model().clone(),
            cancel: interrupt::pulls().child(),
        }))
    }

    fn load(&self, name: &str) -> Result<Arc<Model>, ApiError> {
        let known = self.known(name)?;
        let name = known.served_name(name)?;
        let files = self.hub.resolve_model(known.model()).map_err(|error| told(&error))?;
        self.options.verify(&self.hub, known.model()).map_err(|error| told(&error))?;
        let need = self.need(&files).map_err(|failure| unloadable(&name, &failure))?;
        if !self.ledger.wait_for(need.least()) {
            let what = format!("there is no room for {name}: {}", need.lacking(&self.ledger));
            return Err(ApiError::new(Kind::NoRoom, what));
        }
        self.run(name.clone(), files, need).map_err(|failure| unloadable(&name, &failure))
    }

    fn copy(&self, model: &str, name: &str) -> Result<String, ApiError> {
        match self.known(model)? {
            Known::Own(_) => Err(operators_own(model)),
            Known::Named(model) => self.hub.copy(&model, name).map_err(|error| told(&error)),
        }
    }

    fn delete(&self, name: &str) -> Result<String, ApiError> {
        if self.own.iter().any(|own| own.name == name) {
            return Err(operators_own(name));
        }
        self.hub.remove_name(name).map(|removed| removed.name).map_err(|error| told(&error))
    }
}

/// A download from where the hub gets models.
struct HubDownload {
    hub: Hub,
    name: String,
    model: ModelRef,
    cancel: Cancel,
}

impl Download for HubDownload {
    fn model(&self) -> &str {
        &self.name
    }

    fn run(&self, report: &mut dyn FnMut(Fetching)) -> Result<(), ApiError> {
        let options = PullOptions { check: Check::Checksums, cancel: self.cancel.clone() };
        let pulled = self.hub.pull_model(&self.model, &options, &mut |progress| report(fetching(&progress)));
        pulled.map(drop).map_err(|error| told(&error))
    }

    fn stop(&self) {
        self.cancel.cancel();
    }
}

fn operators_own(name: &str) -> ApiError {
    ApiError::invalid(format!("{name:?} is a file of the operator's own; it can be loaded and unloaded only"))
}

fn fetching(progress: &Progress<'_>) -> Fetching {
    let words = |status: String| Fetching { status, bytes: None };
    match progress {
        Progress::Waiting => words("waiting: someone else is pulling the same model".into()),
        Progress::Trying { source } => words(format!("pulling from {source}")),
        Progress::SourceFailed { source, error } => words(format!("{source} failed: {error}")),
        Progress::Chosen { chosen, .. } => words(format!("pulling {chosen}, one of several quantizations")),
        Progress::Bytes { stage, file, done, total } => {
            let doing = match stage {
                Stage::Download => "pulling",
                Stage::Check => "verifying",
            };
            Fetching { status: format!("{doing} {file}"), bytes: Some((*done, *total)) }
        }
    }
}

/// About files that may be unreadable: what they do not say is left out.
fn facts(files: &ModelFiles) -> ModelFacts {
    match Checkpoint::open(files.checkpoint()) {
        Ok(checkpoint) => Facts::of(files, &checkpoint).for_server(),
        Err(_) => ModelFacts { bytes: files.bytes(), ..ModelFacts::default() },
    }
}

fn missing(message: impl Into<String>) -> ApiError {
    ApiError::new(Kind::NotFound, message).about("model").coded("model_not_found")
}

/// What the hub says, with what to do about it. Where the store is, and what is wrong with its files, is for the log only.
fn told(error: &HubError) -> ApiError {
    match error {
        HubError::NotPulled { name } => missing(format!(
            "{name} is not on this machine yet; fetch it with POST /api/pull, or `ropeway pull {name}`"
        )),
        HubError::UnknownModel { known, .. } => {
            let near = if known.is_empty() {
                String::new()
            } else {
                format!(" (did you mean {}?)", known.join(", "))
            };
            missing(format!(
                "{error}{near}; a model is named as in /api/tags, or as org/repo on Hugging Face; paths are for --model"
            ))
        }
        HubError::Damaged { name, .. } => {
            tracing::error!(target: "library", "{error}; {}", error.hint());
            missing(format!(
                "{name} is damaged; fetch it again with POST /api/pull, or `ropeway pull {name}`"
            ))
        }
        HubError::AllSourcesFailed { attempts, .. } => {
            let kind = attempts.last().map_or(Kind::Overloaded, |attempt| kind_of(&attempt.error));
            ApiError::new(kind, error.to_string())
        }
        HubError::Cancelled => ApiError::new(
            Kind::Overloaded,
            "the download was stopped; ask again, and it goes on where it was",
        ),
        HubError::BadAlias { .. } | HubError::HasOtherNames { .. } => {
            ApiError::invalid(format!("{error}; {}", error.hint()))
        }
        _ => {
            tracing::error!(target: "library", "{error}; {}", error.hint());
            ApiError::new(
                Kind::Internal,
                "the store of models can't be read or written; see the server's log",
            )
        }
    }
}

/// Whose fault it is that a source delivered nothing: the name's, or nobody's that a client knows.
fn kind_of(error: &SourceError) -> Kind {
    match error {
        SourceError::NotFound { .. }
        | SourceError::Moved { .. }
        | SourceError::NoSuchQuant { .. }
        | SourceError::Refused { .. } => Kind::NotFound,
        SourceError::SeveralFiles { .. } | SourceError::NoWeights => Kind::Invalid,
        SourceError::DiskFull { .. } | SourceError::NoSpace { .. } => Kind::NoRoom,
        _ => Kind::Overloaded,
    }
}

fn unloadable(name: &str, failure: &Failure) -> ApiError {
    ApiError::invalid(format!("{name} can't be loaded: {failure}")).about("model")
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

    #[test]
    fn what_is_lacking_is_told_in_figures() {
        let need = Need { weights: 3 << 30, kv: 1 << 30 };
        let told = need.lacking(&Ledger::new(Some(1 << 30)));
        assert!(told.contains("4.00 GiB") && told.contains("1.00 GiB are free"), "{told}");
        assert_eq!(need.share(Some(7 << 30)), 2 << 30);
    }
}
