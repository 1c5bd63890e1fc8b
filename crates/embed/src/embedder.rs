//! The service: reads texts on the caller's thread, batches them, computes on one thread of its own.
//!
//! A failed, cancelled or over-long text affects itself only. Dropping a pending result cancels it; dropping the embedder
//! stops its thread.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use ropeway_batcher::{Answer, BatchRecord, Batcher, Failed, Load, Settings, Totals};
use ropeway_executor::Class;
use ropeway_machine::{Machine, Threads};
use ropeway_model::LoadOptions;
use ropeway_model::encoder::device::DeviceEncoder;
use ropeway_model::encoder::pooling::normalise;
use ropeway_model::load::Progress;
use ropeway_text::Tokenizer;
use ropeway_weights::{Checkpoint, Config};
use serde_json::Value;

use crate::passes::{Facts, Job, PassOptions, Passes, Values};
use crate::reader::{EmbedOptions, Input, Read, Reader};
use crate::{EmbedError, Recipe};

/// The longest text, whatever the model can take: a pass's memory grows with it, about 30 KB a token for a base model.
pub const MOST_TOKENS: usize = 8192;

/// How the service runs.
#[derive(Clone, Debug)]
pub struct EmbedderOptions {
    /// The threads that compute it, shared with other models of the process.
    pub machine: Machine,
    /// How weights are loaded; `quantize` packs them as integers.
    pub load: LoadOptions,
    /// How texts are batched.
    pub batching: Settings,
    /// The longest text; at most the model's own and [`MOST_TOKENS`].
    pub max_tokens: usize,
}

impl Default for EmbedderOptions {
    /// A machine of its own, with all threads of this CPU.
    fn default() -> Self {
        Self::on(Machine::with_threads(Threads::available()))
    }
}

impl EmbedderOptions {
    /// The defaults on a machine.
    pub fn on(machine: Machine) -> Self {
        Self { machine, load: LoadOptions::default(), batching: Settings::default(), max_tokens: MOST_TOKENS }
    }

    /// Most tokens of a pass of texts, unless a single one is longer.
    pub fn pass_tokens(&self) -> usize {
        self.batching.max_tokens.clamp(1, MOST_TOKENS)
    }

    fn pass_options(&self) -> PassOptions {
        PassOptions {
            machine: self.machine.clone(),
            load: self.load,
            pass_tokens: self.pass_tokens(),
            max_tokens: self.max_tokens.min(MOST_TOKENS),
        }
    }
}

/// A model that embeds texts. Shared by all callers.
pub struct Embedder {
    batcher: Batcher<Job, Values>,
    reader: Reader,
    facts: Facts,
    squash: Squash,
}

/// One text's vector.
#[derive(Clone, Debug, PartialEq)]
pub struct Embedding {
    /// The vector.
    pub vector: Vec<f32>,
    /// Tokens that were computed, the frame included.
    pub tokens: usize,
    /// Whether the text's end was left out.
    pub truncated: bool,
}

/// How well a document fits a query.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Score {
    /// As the model's files want it shown: between 0 and 1, unless they say otherwise.
    pub relevance: f32,
    /// As the model gives it.
    pub raw: f32,
    /// Tokens that were computed.
    pub tokens: usize,
}

/// What becomes of a raw score.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Squash {
    Sigmoid,
    Nothing,
}

impl Embedder {
    /// Loads a checkpoint's model and starts its thread.
    pub fn load(
        checkpoint: &Checkpoint,
        options: &EmbedderOptions,
        progress: Progress<'_>,
    ) -> Result<Self, EmbedError> {
        let recipe = Recipe::of(checkpoint)?;
        let (passes, facts) = Passes::load(checkpoint, &recipe, &options.pass_options(), progress)?;
        Ok(Self::start(checkpoint, recipe, options, passes, facts))
    }

    /// Starts a checkpoint's model that is loaded on a device of its own.
    pub fn on_device(
        checkpoint: &Checkpoint,
        encoder: Box<dyn DeviceEncoder>,
        options: &EmbedderOptions,
    ) -> Result<Self, EmbedError> {
        let recipe = Recipe::of(checkpoint)?;
        let (passes, facts) = Passes::on_device(encoder, &recipe, &options.pass_options())?;
        Ok(Self::start(checkpoint, recipe, options, passes, facts))
    }

    fn start(
        checkpoint: &Checkpoint,
        recipe: Recipe,
        options: &EmbedderOptions,
        passes: Passes,
        facts: Facts,
    ) -> Self {
        let tokenizer = Tokenizer::from_checkpoint(checkpoint).ok();
        let batcher = Batcher::spawn("embedder", options.batching, passes);
        let reader = Reader { tokenizer, recipe, limit: facts.max_tokens, vocab: facts.vocab };
        Self { batcher, reader, facts, squash: Squash::of(checkpoint) }
    }

    /// What there is to know about the model.
    pub fn facts(&self) -> Facts {
        self.facts
    }

    /// What its files say about pooling, length and prompts.
    pub fn recipe(&self) -> &Recipe {
        &self.reader.recipe
    }

    /// Asks for one text's vector.
    pub fn embed(&self, input: Input<'_>, options: &EmbedOptions) -> Result<PendingEmbedding, EmbedError> {
        let most = self.facts.dimensions;
        if let Some(asked) = options.dimensions.filter(|asked| !(1..=most).contains(asked)) {
            return Err(EmbedError::BadDimensions { asked, most });
        }
        let Read { job, truncated } = self.reader.single(input, options)?;
        let tokens = job.tokens.len();
        let answer = self.submit(job)?;
        let finish = Finish {
            dimensions: options.dimensions.unwrap_or(most),
            normalise: options
                .normalise
                .unwrap_or(self.reader.recipe.normalise || options.dimensions.is_some()),
            tokens,
            truncated,
        };
        Ok(PendingEmbedding { answer, finish })
    }

    /// Asks how well a document fits a query.
    pub fn score(&self, query: &str, document: &str, class: Class) -> Result<PendingScore, EmbedError> {
        if !self.facts.can_score {
            return Err(EmbedError::NotARanker);
        }
        let Read { job, .. } = self.reader.pair(query, document, class)?;
        let tokens = job.tokens.len();
        Ok(PendingScore { answer: self.submit(job)?, tokens, squash: self.squash })
    }

    /// What the batches so far came to.
    pub fn totals(&self) -> Totals {
        self.batcher.totals()
    }

    /// The records after number `batch`, as far as they are kept.
    pub fn records_after(&self, batch: u64) -> Vec<BatchRecord> {
        self.batcher.records_after(batch)
    }

    fn submit(&self, job: Job) -> Result<Answer<Values>, EmbedError> {
        let load = Load { tokens: job.tokens.len(), class: job.class };
        Ok(self.batcher.submit(job, load)?)
    }
}

/// A vector to come. Await it, or wait on a thread; dropping it cancels.
#[derive(Debug)]
pub struct PendingEmbedding {
    answer: Answer<Values>,
    finish: Finish,
}

#[derive(Clone, Copy, Debug)]
struct Finish {
    dimensions: usize,
    normalise: bool,
    tokens: usize,
    truncated: bool,
}

impl Finish {
    fn apply(self, answer: Result<Values, Failed>) -> Result<Embedding, EmbedError> {
        let mut vector = answer?.map_err(EmbedError::from)?;
        vector.truncate(self.dimensions);
        if self.normalise {
            normalise(&mut vector);
        }
        Ok(Embedding { vector, tokens: self.tokens, truncated: self.truncated })
    }
}

impl PendingEmbedding {
    /// Blocks until it is there. Not for threads of an async runtime.
    pub fn wait(self) -> Result<Embedding, EmbedError> {
        self.finish.apply(self.answer.wait())
    }
}

impl Future for PendingEmbedding {
    type Output = Result<Embedding, EmbedError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let finish = self.finish;
        Pin::new(&mut self.answer).poll(context).map(|answer| finish.apply(answer))
    }
}

/// A score to come. Await it, or wait on a thread; dropping it cancels.
#[derive(Debug)]
pub struct PendingScore {
    answer: Answer<Values>,
    tokens: usize,
    squash: Squash,
}

impl PendingScore {
    /// Blocks until it is there. Not for threads of an async runtime.
    pub fn wait(self) -> Result<Score, EmbedError> {
        self.squash.apply(self.answer.wait(), self.tokens)
    }
}

impl Future for PendingScore {
    type Output = Result<Score, EmbedError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let (squash, tokens) = (self.squash, self.tokens);
        Pin::new(&mut self.answer).poll(context).map(|answer| squash.apply(answer, tokens))
    }
}

impl Squash {
    /// Files written by sentence-transformers name the function; without one it is the sigmoid.
    fn of(checkpoint: &Checkpoint) -> Self {
        let Config::HuggingFace(config) = checkpoint.config() else { return Self::Sigmoid };
        let named = config
            .pointer("/sentence_transformers/activation_fn")
            .or_else(|| config.get("sbert_ce_default_activation_function"));
        match named.and_then(Value::as_str) {
            Some(name) if name.ends_with("Identity") => Self::Nothing,
            _ => Self::Sigmoid,
        }
    }

    fn apply(self, answer: Result<Values, Failed>, tokens: usize) -> Result<Score, EmbedError> {
        let values = answer?.map_err(EmbedError::from)?;
        let raw = values.first().copied().ok_or(EmbedError::NotFinite)?;
        let relevance = match self {
            Self::Sigmoid => 1.0 / (1.0 + (-raw).exp()),
            Self::Nothing => raw,
        };
        Ok(Score { relevance, raw, tokens })
    }
}
