//! Models that are served: their generators, what is known about them and what they can do ([`capability`]), how long they
//! stay ([`lease`]), which were promised ([`promised`]) or are made of others ([`derived`]), and for whom they exist
//! ([`Visible`]).

mod alias;
pub mod capability;
pub mod derived;
pub mod lease;
pub mod promised;
mod visible;

pub use alias::Alias;
pub use visible::Visible;

use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::Instant;

use ropeway_engine::board::Board;
use ropeway_engine::{Backend, Device};
use ropeway_executor::SamplingParams;
use ropeway_generation::Generator;
use ropeway_openai::Defaults;
use ropeway_text::{ChatTemplate, Tokenizer};

use self::capability::Capability;
use self::derived::Derived;
use self::lease::Lease;
use self::promised::{Arrival, Promised};
use crate::error::ApiError;
use crate::guard::rights::Rights;

/// What is known about a model's files.
#[derive(Clone, Debug, Default)]
pub struct ModelFacts {
    /// File format, such as `gguf`.
    pub format: String,
    /// Model family, such as `llama`.
    pub family: String,
    /// How its weights are stored, such as `Q4_1`.
    pub quantization: String,
    /// Number of parameters.
    pub parameters: u64,
    /// Bytes of its files.
    pub bytes: u64,
    /// Bytes of memory that its weights and its KV blocks take when it is loaded.
    pub memory: u64,
    /// sha256 of its weights as 64 hexadecimal digits; empty if unknown.
    pub digest: String,
    /// What it can do; empty if unknown.
    pub capabilities: Vec<Capability>,
    /// When its files were fetched, in seconds since 1970.
    pub modified: u64,
}

/// A model that is served.
pub struct Model {
    /// Its full name, such as `smollm2:135m`.
    pub name: String,
    /// The model itself: prompts in, text out.
    pub generator: Arc<Generator>,
    /// About its files.
    pub facts: ModelFacts,
    /// Since when it is served, in seconds since 1970.
    pub created: u64,
    /// How long it stays.
    pub lease: Arc<Lease>,
    /// What it adds to requests, if it is made of another model.
    pub derived: Option<Arc<Derived>>,
    /// What became of its engine, as far as its owner told.
    engine_state: Arc<Mutex<EngineState>>,
}

/// What became of a model's engine.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum EngineState {
    /// It was started.
    #[default]
    Started,
    /// It crashed and is being started again.
    Restarting,
    /// It crashed and could not be started again.
    Failed {
        /// Why not.
        why: String,
    },
}

/// Whether a model could answer a question now, and why not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Condition {
    /// It could.
    Ready,
    /// Its engine crashed and is being started again.
    EngineRestarting,
    /// Its engine crashed and could not be started again.
    EngineFailed {
        /// Why not.
        why: String,
    },
    /// Its device was lost and is being restarted.
    DeviceRestarting,
    /// Its device was lost for good.
    DeviceLost,
}

impl Model {
    /// A model on a running engine, or on another backend.
    pub fn new(
        name: String,
        tokenizer: Tokenizer,
        template: ChatTemplate,
        facts: ModelFacts,
        backend: impl Backend + 'static,
    ) -> Self {
        Self::of_generator(name, Generator::new(tokenizer, template, Arc::new(backend)), facts)
    }

    /// A model by its generator.
    pub fn of_generator(name: String, generator: Generator, facts: ModelFacts) -> Self {
        Self {
            name,
            generator: Arc::new(generator),
            facts,
            created: unix_seconds(),
            lease: Arc::default(),
            derived: None,
            engine_state: Arc::default(),
        }
    }

    /// A model made of this one: on the same engine, for the same time.
    pub fn derive(&self, derived: Arc<Derived>) -> Model {
        Model {
            name: derived.name.clone(),
            generator: self.generator_for(&derived),
            facts: ModelFacts { modified: derived.created, digest: String::new(), ..self.facts.clone() },
            created: derived.created,
            lease: Arc::clone(&self.lease),
            derived: Some(derived),
            engine_state: Arc::clone(&self.engine_state),
        }
    }

    fn generator_for(&self, derived: &Derived) -> Arc<Generator> {
        if derived.template.is_empty() {
            return Arc::clone(&self.generator);
        }
        match self.generator.template.with_source(&derived.template) {
            Ok(template) => Arc::new(self.generator.with_template(template)),
            // It was read when the model was made; someone spoiled the file since.
            Err(error) => {
                tracing::error!(target: "library", model = derived.name, %error, "its template is not used");
                Arc::clone(&self.generator)
            }
        }
    }

    /// How tokens are chosen where a request says nothing; `plain` is what its API says then.
    pub fn defaults(&self, plain: Defaults) -> Defaults {
        Defaults { params: self.sampling(plain.params), ..plain }
    }

    /// The same for APIs with no other defaults.
    pub fn sampling(&self, plain: SamplingParams) -> SamplingParams {
        match &self.derived {
            Some(derived) => derived.sampling(plain, self.context()),
            None => plain,
        }
    }

    /// What it can do.
    pub fn capabilities(&self) -> Vec<Capability> {
        let Generator { template, style, tokenizer, .. } = &*self.generator;
        Capability::of_text_model(template, style, tokenizer)
    }

    /// Whether requests run or wait.
    pub fn is_busy(&self) -> bool {
        !self.engine().load().is_idle()
    }

    /// What computes it.
    pub fn engine(&self) -> Arc<dyn Backend> {
        self.generator.backend()
    }

    /// A new engine takes over, after the old one crashed.
    pub fn replace_engine(&self, backend: impl Backend + 'static) {
        self.generator.replace_backend(Arc::new(backend));
        self.set_engine_state(EngineState::Started);
    }

    /// Whoever looks after the engine tells what became of it.
    pub fn set_engine_state(&self, state: EngineState) {
        *self.engine_state.lock().unwrap_or_else(PoisonError::into_inner) = state;
    }

    /// Whether it could answer a question now.
    pub fn condition(&self) -> Condition {
        match self.engine_state.lock().unwrap_or_else(PoisonError::into_inner).clone() {
            EngineState::Restarting => return Condition::EngineRestarting,
            EngineState::Failed { why } => return Condition::EngineFailed { why },
            EngineState::Started => {}
        }
        match self.engine().board().map_or(Device::Working, Board::device) {
            Device::Working => Condition::Ready,
            Device::Restarting => Condition::DeviceRestarting,
            Device::Lost => Condition::DeviceLost,
        }
    }

    /// Longest prompt and answer together.
    pub fn context(&self) -> usize {
        self.generator.context()
    }
}

/// Seconds since 1970.
pub fn unix_seconds() -> u64 {
    std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).map_or(0, |time| time.as_secs())
}

/// The models that are served. Looking for one never loads or swaps any.
#[derive(Default)]
pub struct Models {
    served: RwLock<Vec<Arc<Model>>>,
    aliases: Vec<Alias>,
    /// Other names that clients gave to models on disk.
    copies: RwLock<Vec<Alias>>,
    /// Models made of others.
    derived: RwLock<Vec<Arc<Derived>>>,
    /// Models that the operator gave, loaded or not: how long they stay is not for clients to say.
    given: Vec<String>,
    /// Whether names that are not known mean the first model.
    takes_any_name: bool,
    /// Those that the operator promised.
    promised: RwLock<Vec<Promised>>,
}

impl Models {
    /// No models yet.
    pub fn new(aliases: Vec<Alias>) -> Self {
        Self { aliases, ..Self::default() }
    }

    /// These are the operator's.
    pub fn giving(mut self, names: impl IntoIterator<Item = String>) -> Self {
        self.given.extend(names);
        self
    }

    /// Whether the operator gave the model of this name.
    pub fn is_given(&self, name: &str) -> bool {
        self.given.iter().any(|given| given == name)
    }

    /// Names that are not known mean the first model.
    pub fn taking_any_name(mut self) -> Self {
        self.takes_any_name = true;
        self
    }

    /// Serves one more model, or a newer one of the same name.
    pub fn add(&self, model: Arc<Model>) {
        let mut served = self.served.write().unwrap_or_else(PoisonError::into_inner);
        served.retain(|other| other.name != model.name);
        let name = model.name.clone();
        served.push(model);
        drop(served);
        self.arrives(&name, Arrival::Arrived);
    }

    /// The operator promised a model; it will be loaded.
    pub fn promise(&self, name: &str) {
        let arrival = Arrival::Waiting { since: Instant::now() };
        let promised = Promised { name: name.to_owned(), arrival };
        self.promised.write().unwrap_or_else(PoisonError::into_inner).push(promised);
    }

    /// A promised model is so far; nothing for others.
    pub fn arrives(&self, name: &str, arrival: Arrival) {
        let mut promised = self.promised.write().unwrap_or_else(PoisonError::into_inner);
        if let Some(promised) = promised.iter_mut().find(|promised| promised.name == name) {
            promised.arrival = arrival;
        }
    }

    /// So much of a promised model is loaded, from 0 to 1.
    pub fn load_progress(&self, name: &str, share: f64) {
        let mut promised = self.promised.write().unwrap_or_else(PoisonError::into_inner);
        let arrival = promised.iter_mut().find(|promised| promised.name == name).map(|one| &mut one.arrival);
        if let Some(Arrival::Loading { done, .. }) = arrival {
            *done = Some(share);
        }
    }

    /// Those that the operator promised.
    pub fn promised(&self) -> Vec<Promised> {
        self.promised.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The models that exist for a client.
    pub fn visible_to<'a>(&'a self, rights: &'a Rights) -> Visible<'a> {
        Visible::new(self, rights)
    }

    /// Serves it no longer; whether it was served.
    pub fn remove(&self, model: &Arc<Model>) -> bool {
        let mut served = self.served.write().unwrap_or_else(PoisonError::into_inner);
        let before = served.len();
        served.retain(|other| !Arc::ptr_eq(other, model));
        served.len() < before
    }

    /// All of them, in the order they were added.
    pub fn all(&self) -> Vec<Arc<Model>> {
        self.served.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// One more name for a model.
    pub fn add_copy(&self, copy: Alias) {
        self.remove_copy(&copy.pattern);
        self.copies.write().unwrap_or_else(PoisonError::into_inner).push(copy);
    }

    /// The name means nothing any more.
    pub fn remove_copy(&self, name: &str) {
        self.copies.write().unwrap_or_else(PoisonError::into_inner).retain(|copy| copy.pattern != name);
    }

    /// One more model made of another, or a newer one of the same name.
    pub fn add_derived(&self, model: Derived) {
        self.remove_derived(&model.name);
        self.derived.write().unwrap_or_else(PoisonError::into_inner).push(Arc::new(model));
    }

    /// The name means nothing any more; whether it did.
    pub fn remove_derived(&self, name: &str) -> bool {
        let mut derived = self.derived.write().unwrap_or_else(PoisonError::into_inner);
        let before = derived.len();
        derived.retain(|model| model.name != name);
        derived.len() < before
    }

    /// All models made of others, in the order they were made.
    pub fn derived(&self) -> Vec<Arc<Derived>> {
        self.derived.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The derived model of this name, which may leave out its tag.
    pub fn derived_named(&self, name: &str) -> Option<Arc<Derived>> {
        let all = self.derived();
        let exact = all.iter().find(|model| model.name == name);
        exact.or_else(|| all.iter().find(|model| same_name(&model.name, name))).cloned()
    }

    /// The model on disk that a name, an alias or a derived model's name stands for in the end.
    pub fn base_of(&self, name: &str) -> String {
        let meant = self.derived_named(name).map(|derived| derived.from.clone());
        let aliased = || {
            let model = self.aliased(name)?;
            Some(self.derived_named(&model).map_or(model, |derived| derived.from.clone()))
        };
        meant.or_else(aliased).unwrap_or_else(|| name.to_owned())
    }

    /// The operator's aliases.
    pub fn aliases(&self) -> &[Alias] {
        &self.aliases
    }

    /// The model that an alias of the operator's stands for.
    pub fn alias_of(&self, name: &str) -> Option<String> {
        self.aliases.iter().find(|alias| alias.covers(name)).map(|alias| alias.model.clone())
    }

    /// Whether names that are not known mean the first model.
    pub fn takes_any_name(&self) -> bool {
        self.takes_any_name
    }

    /// The full name that an alias, of the operator's or of a client's, stands for.
    fn aliased(&self, name: &str) -> Option<String> {
        let copies = || self.copies.read().unwrap_or_else(PoisonError::into_inner);
        let of_client =
            |name: &str| copies().iter().find(|copy| copy.covers(name)).map(|copy| copy.model.clone());
        let meant = |name: &str| self.alias_of(name).or_else(|| of_client(name));
        meant(name).or_else(|| meant(name.strip_suffix(":latest")?))
    }

    /// The model of this name or alias, if it is served.
    pub fn loaded(&self, name: &str) -> Option<Arc<Model>> {
        self.visible_to(&Rights::everything()).loaded(name)
    }

    /// The model that someone with all rights means.
    pub fn find(&self, name: &str) -> Result<Arc<Model>, ApiError> {
        self.visible_to(&Rights::everything()).find(name)
    }

    /// The model to use when none is named.
    pub fn first(&self) -> Result<Arc<Model>, ApiError> {
        self.visible_to(&Rights::everything()).first()
    }
}

/// `smollm2` means `smollm2:135m` if that is served, as does `smollm2:latest`.
pub fn same_name(served: &str, asked: &str) -> bool {
    let base = |name: &str| name.split(':').next().unwrap_or(name).to_owned();
    let untagged = !asked.contains(':') || asked.ends_with(":latest");
    served == asked || (untagged && base(served) == base(asked))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_may_leave_out_its_tag() {
        assert!(same_name("smollm2:135m", "smollm2:135m"));
        assert!(same_name("smollm2:135m", "smollm2"));
        assert!(same_name("smollm2:135m", "smollm2:latest"));
        assert!(!same_name("smollm2:135m", "smollm2:360m"));
        assert!(!same_name("smollm2:135m", "smollm"));
    }
}
