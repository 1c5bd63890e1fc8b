//! Models that are served: their generators, what is known about them and what they can do ([`capability`]), how long they
//! stay ([`lease`]), all of them ([`Models`]), which were promised ([`promised`]) or are made of others ([`derived`]), and for whom they exist
//! ([`Visible`]).

mod alias;
pub mod capability;
pub mod derived;
pub mod lease;
mod models;
pub mod promised;
mod visible;

pub use alias::Alias;
pub use models::Models;
pub use visible::Visible;

use std::sync::{Arc, Mutex, PoisonError};

use ropeway_engine::board::Board;
use ropeway_engine::{Backend, Device};
use ropeway_executor::SamplingParams;
use ropeway_generation::{AnyBackend, Generator};
use ropeway_openai::Defaults;
use ropeway_text::{ChatTemplate, Tokenizer};

use self::capability::Capability;
use self::derived::Derived;
use self::lease::Lease;

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
    DeviceLost {
        /// Why it can't be restarted, or is not any more.
        why: String,
    },
    /// Other servers compute it, and none of them can be reached.
    Unreachable {
        /// What was last heard of one.
        why: String,
    },
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
        let generator = self.generator.token_model().and_then(|model| {
            let template = model.template.with_source(&derived.template)?;
            self.generator.with_template(template)
        });
        match generator {
            Ok(generator) => Arc::new(generator),
            // It was read when the model was made; someone spoiled the file since, or serves the model from elsewhere.
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
        let generator = &self.generator;
        let tools = generator.calls_tools().then_some(Capability::Tools);
        let thinking = generator.thinks().then_some(Capability::Thinking);
        let insert = generator.fills_in().then_some(Capability::Insert);
        [Some(Capability::Completion), tools, thinking, insert].into_iter().flatten().collect()
    }

    /// Whether requests run or wait.
    pub fn is_busy(&self) -> bool {
        !self.engine().load().is_idle()
    }

    /// What computes it.
    pub fn engine(&self) -> AnyBackend {
        self.generator.backend()
    }

    /// A new engine takes over, after the old one crashed. Only engines of this process are replaced.
    pub fn replace_engine(&self, backend: impl Backend + 'static) {
        if let Ok(model) = self.generator.token_model() {
            model.replace_backend(Arc::new(backend));
        }
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
        let engine = self.engine();
        if let Some(why) = engine.outage() {
            return Condition::Unreachable { why };
        }
        let board = engine.board();
        match board.map_or(Device::Working, Board::device) {
            Device::Working => Condition::Ready,
            Device::Restarting => Condition::DeviceRestarting,
            Device::Lost => {
                Condition::DeviceLost { why: board.and_then(Board::loss).unwrap_or_default().to_owned() }
            }
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
