//! A model that is served: its generator, what is known about it, and how long it stays ([`lease`]).

pub mod lease;

use std::sync::{Arc, PoisonError, RwLock};

use ropeway_engine::Backend;
use ropeway_generation::Generator;
use ropeway_grammar::Workers;
use ropeway_text::{ChatTemplate, Tokenizer};

use self::lease::Lease;
use crate::error::{ApiError, Kind};

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
    /// sha256 of its main file, if known.
    pub digest: String,
    /// When its files were fetched, in seconds since 1970.
    pub modified: u64,
}

/// A model that is served.
pub struct Model {
    /// Its full name, such as `smollm2:135m`.
    pub name: String,
    /// The model itself: prompts in, text out.
    pub generator: Generator,
    /// About its files.
    pub facts: ModelFacts,
    /// Since when it is served, in seconds since 1970.
    pub created: u64,
    /// How long it stays.
    pub lease: Arc<Lease>,
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
        let generator = Generator::new(tokenizer, template, Arc::new(backend));
        Self { name, generator, facts, created: unix_seconds(), lease: Arc::default() }
    }

    /// Grammars of clients are tried by these workers before this process compiles them.
    #[must_use]
    pub fn with_grammar_workers(mut self, workers: Workers) -> Self {
        self.generator = self.generator.with_grammar_workers(workers);
        self
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

/// Another name for a served model; `*` at the end stands for anything.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Alias {
    /// What clients say.
    pub pattern: String,
    /// What they get.
    pub model: String,
}

impl Alias {
    fn covers(&self, name: &str) -> bool {
        match self.pattern.strip_suffix('*') {
            Some(start) => name.starts_with(start),
            None => self.pattern == name,
        }
    }
}

impl std::str::FromStr for Alias {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.split_once('=') {
            Some((pattern, model)) if !pattern.is_empty() && !model.is_empty() => {
                Ok(Self { pattern: pattern.into(), model: model.into() })
            }
            _ => Err(format!("{text:?} is no alias; write it as 'claude-*=smollm2:135m'")),
        }
    }
}

/// The models that are served. A client's word never loads or swaps one.
#[derive(Default)]
pub struct Models {
    served: RwLock<Vec<Arc<Model>>>,
    aliases: Vec<Alias>,
    /// Other names that clients gave to models on disk.
    copies: RwLock<Vec<Alias>>,
    /// Whether names that are not known mean the first model.
    takes_any_name: bool,
}

impl Models {
    /// No models yet.
    pub fn new(aliases: Vec<Alias>) -> Self {
        Self { aliases, ..Self::default() }
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
        served.push(model);
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

    /// The model that an alias of the operator's stands for.
    pub fn alias_of(&self, name: &str) -> Option<String> {
        self.aliases.iter().find(|alias| alias.covers(name)).map(|alias| alias.model.clone())
    }

    /// Whether names that are not known mean the first model.
    pub fn takes_any_name(&self) -> bool {
        self.takes_any_name
    }

    /// The model of this name or alias, if it is served.
    pub fn loaded(&self, name: &str) -> Option<Arc<Model>> {
        let served = self.all();
        let by_name = |name: &str| {
            let exact = served.iter().find(|model| model.name == name);
            exact.or_else(|| served.iter().find(|model| same_name(&model.name, name))).cloned()
        };
        let aliased = |aliases: &[Alias]| {
            aliases.iter().find(|alias| alias.covers(name)).and_then(|alias| by_name(&alias.model))
        };
        let copies = || self.copies.read().unwrap_or_else(PoisonError::into_inner);
        by_name(name).or_else(|| aliased(&self.aliases)).or_else(|| aliased(&copies()))
    }

    /// The model a client means.
    pub fn find(&self, name: &str) -> Result<Arc<Model>, ApiError> {
        let any = || self.all().first().filter(|_| self.takes_any_name).cloned();
        self.loaded(name).or_else(any).ok_or_else(|| not_served(name, &self.all()))
    }

    /// The model of this name, or the one to use when a client names none.
    pub fn named(&self, name: Option<&str>) -> Result<Arc<Model>, ApiError> {
        match name {
            Some(name) => self.find(name),
            None => self.first(),
        }
    }

    /// The model to use when a client names none.
    pub fn first(&self) -> Result<Arc<Model>, ApiError> {
        self.all().first().cloned().ok_or_else(|| {
            ApiError::new(Kind::Overloaded, "no model is loaded yet; try again in a moment")
                .retry_after(std::time::Duration::from_secs(1))
        })
    }
}

fn not_served(name: &str, served: &[Arc<Model>]) -> ApiError {
    let names: Vec<_> = served.iter().map(|model| model.name.as_str()).collect();
    let known = if names.is_empty() { "none is loaded yet".into() } else { names.join(", ") };
    ApiError::new(
        Kind::NotFound,
        format!(
            "the model {name:?} is not served here; served: {known}. POST /api/generate with only its name loads a \
             model that is on disk; --alias gives a model other names, --any-model all of them"
        ),
    )
    .about("model")
    .coded("model_not_found")
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

    #[test]
    fn an_alias_covers_a_name_or_a_beginning() {
        let alias: Alias = "claude-*=smollm2:135m".parse().unwrap();
        assert!(alias.covers("claude-sonnet-4-5") && !alias.covers("gpt-4o"));
        assert!("gpt-4o=m".parse::<Alias>().unwrap().covers("gpt-4o"));
        assert!("gpt-4o".parse::<Alias>().is_err());
    }
}
