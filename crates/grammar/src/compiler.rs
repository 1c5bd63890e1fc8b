//! From a specification to a compiled grammar: within limits, once per specification.

use std::any::Any;
use std::fmt;
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::task::{Context, Poll, Wake};
use std::thread::{self, Thread};
use std::time::{Duration, Instant};

use llguidance::{ParserFactory, TokenParser};
use ropeway_engine::{Grammar, Guide};
use ropeway_text::Tokenizer;
use tokio::sync::oneshot::Receiver;

use crate::cache::{Cache, Outcome};
use crate::complexity;
use crate::error::GrammarError;
use crate::guide::{Parser, Room};
use crate::landing::Landing;
use crate::parsers::{compile_on_own_stack, factory, refused};
use crate::spec::{GrammarSpec, Reasoning};
use crate::vocabulary::{Vocabulary, Words};
use crate::workers::{self, Account, Trial, Verdict, Workers};

/// A grammar ready for any number of sequences.
pub struct Compiled {
    /// Never used for anything but to be copied.
    start: Mutex<TokenParser>,
    landing: Option<Arc<Landing>>,
    room: Arc<Room>,
    spec: GrammarSpec,
}

impl fmt::Debug for Compiled {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Compiled").finish_non_exhaustive()
    }
}

impl Compiled {
    /// What it was compiled from.
    pub fn spec(&self) -> &GrammarSpec {
        &self.spec
    }

    /// About how much memory it takes.
    pub(crate) fn bytes(&self) -> usize {
        crate::guide::bytes(&lock(&self.start))
    }
}

impl Grammar for Compiled {
    fn begin(&self) -> Box<dyn Guide> {
        // A deep copy: lexers that share their states would make one sequence's limits depend on the others.
        let parser = lock(&self.start).deep_clone();
        Box::new(Parser::new(parser, self.landing.clone(), Arc::clone(&self.room)))
    }

    fn as_any(&self) -> &dyn Any {
        self
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

/// A grammar that is known to compile within the limits.
#[derive(Debug)]
pub struct Admitted {
    hash: [u8; 32],
}

/// Compiles grammars for one tokenizer.
pub struct Compiler {
    shared: Arc<Shared>,
    landing: Arc<Landing>,
    room: Arc<Room>,
    cache: Mutex<Cache>,
    workers: Option<Workers>,
}

/// What is made when it is first needed: a trie of a large vocabulary takes a while, and most servers never see a schema.
struct Shared {
    tokenizer: Tokenizer,
    words: OnceLock<Arc<Words>>,
    factory: OnceLock<Result<ParserFactory, String>>,
}

impl fmt::Debug for Compiler {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Compiler").field("stats", &self.stats()).finish_non_exhaustive()
    }
}

impl Compiler {
    /// A compiler for the models that use `tokenizer`. It trusts its callers' grammars as far as llguidance's own limits go;
    /// whoever takes them from strangers gives it workers.
    pub fn new(tokenizer: &Tokenizer) -> Self {
        let shared =
            Shared { tokenizer: tokenizer.clone(), words: OnceLock::new(), factory: OnceLock::new() };
        Self {
            shared: Arc::new(shared),
            landing: Arc::new(Landing::new(tokenizer)),
            room: Arc::default(),
            cache: Mutex::default(),
            workers: None,
        }
    }

    /// Compiles nothing that these workers have not compiled within their limits.
    #[must_use]
    pub fn with_workers(mut self, workers: Workers) -> Self {
        self.workers = Some(workers);
        self
    }

    /// The compiled grammar; after a model's open thoughts, if there are any. Blocks: for some milliseconds as a rule, some
    /// hundred the first time, and never for long.
    pub fn compile(
        &self,
        spec: &GrammarSpec,
        reasoning: Option<&Reasoning>,
    ) -> Result<Arc<Compiled>, GrammarError> {
        let hash = spec.check().map(|()| spec.hash(reasoning))?;
        if let Some(trial) = self.trial(spec, reasoning, hash, Account::default()) {
            self.judge(spec, wait_for(trial).ok())?;
        }
        self.compile_admitted(spec, reasoning, &Admitted { hash })
    }

    /// Finds out whether a grammar compiles within the limits. Takes as long as [`compile`](Self::compile), without
    /// blocking; dropped before it is done, the trial ends.
    pub async fn admit(
        &self,
        spec: &GrammarSpec,
        reasoning: Option<&Reasoning>,
        account: Account,
    ) -> Result<Admitted, GrammarError> {
        let hash = spec.check().map(|()| spec.hash(reasoning))?;
        if let Some(trial) = self.trial(spec, reasoning, hash, account) {
            self.judge(spec, trial.await.ok())?;
        }
        Ok(Admitted { hash })
    }

    /// The compiled grammar. Blocks for as long as the trial took.
    pub fn compile_admitted(
        &self,
        spec: &GrammarSpec,
        reasoning: Option<&Reasoning>,
        admitted: &Admitted,
    ) -> Result<Arc<Compiled>, GrammarError> {
        let outcome = lock(&self.cache).entry(admitted.hash);
        let outcome = outcome.get_or_init(|| self.compile_timed(spec, reasoning)).clone();
        lock(&self.cache).shrink();
        outcome
    }

    /// What it did so far.
    pub fn stats(&self) -> Stats {
        lock(&self.cache).stats
    }

    /// Hands a grammar to the workers, unless there are none or it is known to compile.
    fn trial(
        &self,
        spec: &GrammarSpec,
        reasoning: Option<&Reasoning>,
        hash: [u8; 32],
        account: Account,
    ) -> Option<Receiver<workers::Outcome>> {
        let workers = self.workers.as_ref()?;
        if lock(&self.cache).holds(&hash) {
            return None;
        }
        let trial = Trial { spec: spec.clone(), reasoning: reasoning.cloned() };
        let outcome = workers.submit(account, self.shared.words(), hash, &trial);
        self.shared.prepare();
        Some(outcome)
    }

    fn judge(&self, spec: &GrammarSpec, outcome: Option<workers::Outcome>) -> Result<(), GrammarError> {
        let what = spec.what();
        let error = match outcome {
            Some(workers::Outcome::Tried(Verdict::Fits { .. })) => return Ok(()),
            Some(workers::Outcome::Tried(Verdict::Refused { reason })) => refused(what, &reason),
            Some(workers::Outcome::Tried(Verdict::Exceeded(limit))) => {
                GrammarError::TooCostly { what, limit: limit.to_string(), part: complexity::costliest(spec) }
            }
            Some(workers::Outcome::Unavailable(reason)) => GrammarError::Busy { what, reason },
            None => GrammarError::Busy { what, reason: "the server is ending".into() },
        };
        lock(&self.cache).stats.rejected += 1;
        Err(error)
    }

    fn compile_timed(&self, spec: &GrammarSpec, reasoning: Option<&Reasoning>) -> Outcome {
        // The trie is no part of the time a grammar takes.
        let factory =
            self.shared.factory().map_err(|reason| GrammarError::Invalid { what: "vocabulary", reason })?;
        let began = Instant::now();
        // Thoughts are no JSON: what closes a string would only litter them.
        let landing = (spec.is_json() && reasoning.is_none()).then(|| Arc::clone(&self.landing));
        let outcome = compile_on_own_stack(factory, spec, reasoning).map(|parser| {
            let (start, room) = (Mutex::new(parser), Arc::clone(&self.room));
            Arc::new(Compiled { start, landing, room, spec: spec.clone() })
        });
        let took = began.elapsed();
        let stats = &mut lock(&self.cache).stats;
        stats.compiled += u64::from(outcome.is_ok());
        stats.rejected += u64::from(outcome.is_err());
        stats.compiling += took;
        stats.longest = stats.longest.max(took);
        outcome
    }
}

impl Shared {
    fn words(&self) -> &Arc<Words> {
        self.words.get_or_init(|| Arc::new(Words::of(&self.tokenizer)))
    }

    fn factory(&self) -> Result<&ParserFactory, String> {
        let made = self.factory.get_or_init(|| factory(Vocabulary::new(self.words(), Some(&self.tokenizer))));
        made.as_ref().map_err(Clone::clone)
    }

    /// Makes the factory while the first grammar is on trial.
    fn prepare(self: &Arc<Self>) {
        if self.factory.get().is_none() {
            let shared = Arc::clone(self);
            // Without the thread, whoever needs the factory makes it.
            let _ =
                thread::Builder::new().name("grammar-factory".into()).spawn(move || shared.factory().is_ok());
        }
    }
}

/// Blocks until a future is done, on any thread. One of an async runtime must not call what blocks.
fn wait_for<F: Future>(future: F) -> F::Output {
    struct Unpark(Thread);
    impl Wake for Unpark {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }
    let waker = Arc::new(Unpark(thread::current())).into();
    let (mut future, mut context) = (pin!(future), Context::from_waker(&waker));
    loop {
        match future.as_mut().poll(&mut context) {
            Poll::Ready(done) => return done,
            Poll::Pending => thread::park(),
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // What panics inside is caught by llguidance; a copy that failed would leave the original as it was.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
