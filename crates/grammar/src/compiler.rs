//! From a specification to a compiled grammar: within limits, once per specification.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use llguidance::api::ParserLimits;
use llguidance::earley::SlicedBiasComputer;
use llguidance::{Matcher, ParserFactory};
use ropeway_engine::{Grammar, Guide};
use ropeway_text::Tokenizer;
use toktrie::{InferenceCapabilities, TokEnv};

use crate::error::GrammarError;
use crate::guide::{Parser, is_bug, reason};
use crate::landing::Landing;
use crate::spec::{GrammarSpec, Reasoning};
use crate::vocabulary::Vocabulary;

/// Compiled grammars kept. A pipeline uses a dozen schemas again and again; one takes some hundred kilobytes.
const KEPT: usize = 128;

/// What a grammar may cost. Compiling is bounded to some tens of milliseconds, a mask to about ten, and what a sequence's
/// lexer may grow to, to some tens of megabytes; schemas in practical use need a hundredth of each.
fn limits() -> ParserLimits {
    ParserLimits {
        initial_lexer_fuel: 250_000,
        max_grammar_size: 100_000,
        step_lexer_fuel: 100_000,
        step_max_items: 50_000,
        max_lexer_states: 50_000,
        verbose_errors: false,
        ..ParserLimits::default()
    }
}

/// A grammar ready for any number of sequences.
pub struct Compiled {
    /// Never used for anything but to be copied.
    start: Mutex<Matcher>,
    landing: Option<Arc<Landing>>,
}

impl fmt::Debug for Compiled {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Compiled").finish_non_exhaustive()
    }
}

impl Grammar for Compiled {
    fn begin(&self) -> Box<dyn Guide> {
        // A deep copy: lexers that share their states would make one sequence's limits depend on the others.
        Box::new(Parser { matcher: lock(&self.start).deep_clone(), landing: self.landing.clone() })
    }
}

/// What the compiler did since it was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Grammars compiled.
    pub compiled: u64,
    /// Grammars found compiled, or being compiled, already.
    pub hits: u64,
    /// Grammars turned down.
    pub rejected: u64,
    /// Time spent compiling.
    pub compiling: Duration,
    /// The longest time one took.
    pub longest: Duration,
}

type Outcome = Result<Arc<Compiled>, GrammarError>;

/// A grammar that is compiled once, by the first who asks; others wait for that.
struct Entry {
    outcome: Arc<OnceLock<Outcome>>,
    used: u64,
}

#[derive(Default)]
struct Cache {
    entries: HashMap<[u8; 32], Entry>,
    uses: u64,
    stats: Stats,
}

/// Compiles grammars for one tokenizer.
pub struct Compiler {
    tokenizer: Tokenizer,
    /// Made when it is first needed: a trie of a large vocabulary takes a while, and most servers never see a schema.
    factory: OnceLock<Result<ParserFactory, String>>,
    landing: Arc<Landing>,
    cache: Mutex<Cache>,
}

impl fmt::Debug for Compiler {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Compiler").field("stats", &self.stats()).finish_non_exhaustive()
    }
}

impl Compiler {
    /// A compiler for the models that use `tokenizer`.
    pub fn new(tokenizer: &Tokenizer) -> Self {
        Self {
            tokenizer: tokenizer.clone(),
            factory: OnceLock::new(),
            landing: Arc::new(Landing::new(tokenizer)),
            cache: Mutex::default(),
        }
    }

    /// The compiled grammar; after a model's open thoughts, if there are any. Takes up to some tens of milliseconds, and
    /// some hundred the first time.
    pub fn compile(
        &self,
        spec: &GrammarSpec,
        reasoning: Option<&Reasoning>,
    ) -> Result<Arc<Compiled>, GrammarError> {
        spec.check()?;
        let outcome = lock(&self.cache).entry(spec.hash(reasoning));
        outcome.get_or_init(|| self.compile_timed(spec, reasoning)).clone()
    }

    /// What it did so far.
    pub fn stats(&self) -> Stats {
        lock(&self.cache).stats
    }

    fn compile_timed(&self, spec: &GrammarSpec, reasoning: Option<&Reasoning>) -> Outcome {
        // The trie is no part of the time a grammar takes.
        let factory =
            self.factory().map_err(|reason| GrammarError::Invalid { what: "vocabulary", reason })?;
        let began = Instant::now();
        // Thoughts are no JSON: what closes a string would only litter them.
        let landing = (spec.is_json() && reasoning.is_none()).then(|| Arc::clone(&self.landing));
        let outcome = compile(factory, spec, reasoning)
            .map(|matcher| Arc::new(Compiled { start: Mutex::new(matcher), landing }));
        let took = began.elapsed();
        let stats = &mut lock(&self.cache).stats;
        stats.compiled += u64::from(outcome.is_ok());
        stats.rejected += u64::from(outcome.is_err());
        stats.compiling += took;
        stats.longest = stats.longest.max(took);
        outcome
    }

    fn factory(&self) -> Result<&ParserFactory, String> {
        self.factory.get_or_init(|| factory(&self.tokenizer)).as_ref().map_err(Clone::clone)
    }
}

fn factory(tokenizer: &Tokenizer) -> Result<ParserFactory, String> {
    let environment: TokEnv = Arc::new(Vocabulary::new(tokenizer));
    let capabilities = InferenceCapabilities { ff_tokens: true, ..InferenceCapabilities::default() };
    let slices = SlicedBiasComputer::general_slices();
    let mut factory =
        ParserFactory::new(&environment, capabilities, &slices).map_err(|error| error.to_string())?;
    factory.quiet();
    *factory.limits_mut() = limits();
    Ok(factory)
}

fn compile(
    factory: &ParserFactory,
    spec: &GrammarSpec,
    reasoning: Option<&Reasoning>,
) -> Result<Matcher, GrammarError> {
    let what = spec.what();
    let failed = |error: &str| {
        let reason = reason(error).into();
        if is_bug(error) { GrammarError::Bug { what } } else { GrammarError::Invalid { what, reason } }
    };
    let parser = factory.create_parser(spec.grammar(reasoning)?);
    let mut matcher = Matcher::new(parser);
    // The first mask shows what compiling can't, and its lexer states are copied for every sequence.
    matcher.compute_mask_or_eos().map_err(|error| failed(&error.to_string()))?;
    Ok(matcher)
}

impl Cache {
    /// The place of a grammar's outcome, made if it is not there; the one not used for longest makes way.
    fn entry(&mut self, hash: [u8; 32]) -> Arc<OnceLock<Outcome>> {
        self.uses += 1;
        let uses = self.uses;
        if let Some(entry) = self.entries.get_mut(&hash) {
            self.stats.hits += 1;
            entry.used = uses;
            return Arc::clone(&entry.outcome);
        }
        if self.entries.len() >= KEPT
            && let Some(oldest) =
                self.entries.iter().min_by_key(|(_, entry)| entry.used).map(|(hash, _)| *hash)
        {
            self.entries.remove(&oldest);
        }
        let outcome = Arc::new(OnceLock::new());
        self.entries.insert(hash, Entry { outcome: Arc::clone(&outcome), used: uses });
        outcome
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // What panics inside is caught by llguidance; a copy that failed would leave the original as it was.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
