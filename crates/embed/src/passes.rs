//! The model itself: batches of texts in, a vector or a score per text out. Owned by the worker's thread.
//!
//! [`decoder`] has what is particular to decoders. A batch runs as one pass of ragged texts, or several where it has more tokens than a pass may. Between layers it steps
//! aside for other models on the same cores.

mod decoder;

use std::ops::Range;
use std::sync::Arc;

use ropeway_batcher::Worker;
use ropeway_kernels::kv::BLOCK;
use ropeway_kernels::turnstile::{Turn, Turnstile};
use ropeway_kernels::{Compute, Isa};
use ropeway_model::LoadOptions;
use ropeway_model::encoder::{Encoder, EncoderSpec, EncoderWork, Pooling, Texts};
use ropeway_model::load::Progress;
use ropeway_weights::Checkpoint;

use crate::{EmbedError, Recipe};
use decoder::DecoderNet;

/// One text, ready to compute.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Job {
    /// Its tokens, frame included.
    pub tokens: Vec<u32>,
    /// Their types, or empty where all are of type 0.
    pub types: Vec<u8>,
    /// What is wanted of it.
    pub wanted: Wanted,
}

/// What is wanted of a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wanted {
    /// One vector.
    Vector,
    /// How well its two parts fit.
    Score,
}

/// A pooled vector, or a score as the only value.
pub type Values = Result<Vec<f32>, NotFinite>;

/// A result with NaN or infinity in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NotFinite;

/// How the model runs on this machine.
#[derive(Clone, Debug)]
pub struct PassOptions {
    /// Instruction set.
    pub isa: Isa,
    /// Compute threads.
    pub threads: usize,
    /// How weights are loaded.
    pub load: LoadOptions,
    /// Most tokens of a pass; a longer text has one to itself.
    pub pass_tokens: usize,
    /// The longest text, where that is to be less than the model's own.
    pub max_tokens: usize,
    /// Where passes take turns with other models.
    pub turnstile: Option<Arc<Turnstile>>,
}

/// A loaded model and everything its passes write.
pub struct Passes {
    compute: Compute,
    net: Net,
    pooling: Pooling,
    turnstile: Option<Arc<Turnstile>>,
    flat: Flat,
}

enum Net {
    Encoder(Box<Encoder>, Box<EncoderWork>),
    Decoder(Box<DecoderNet>),
}

/// A pass's texts, one after the other.
#[derive(Default)]
struct Flat {
    tokens: Vec<u32>,
    types: Vec<u8>,
    rows: Vec<Range<usize>>,
}

/// What there is to know about a loaded model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Facts {
    /// The family's name, for people.
    pub family: &'static str,
    /// Values of a vector.
    pub dimensions: usize,
    /// Tokens of the longest text.
    pub max_tokens: usize,
    /// Rows of the vocabulary.
    pub vocab: usize,
    /// Whether it scores pairs.
    pub can_score: bool,
}

impl Passes {
    /// Loads the model of a checkpoint.
    pub fn load(
        checkpoint: &Checkpoint,
        recipe: &Recipe,
        options: &PassOptions,
        progress: Progress<'_>,
    ) -> Result<(Passes, Facts), EmbedError> {
        let mut compute = Compute::new(options.isa, options.threads);
        let limit = recipe.max_tokens.unwrap_or(usize::MAX).min(options.max_tokens).max(1);
        let (net, facts) = if EncoderSpec::describes(checkpoint) {
            encoder_net(checkpoint, limit, options, &mut compute, progress)?
        } else {
            decoder::load_net(checkpoint, recipe, limit, options, &mut compute, progress)?
        };
        let turnstile = options.turnstile.clone();
        Ok((Passes { compute, net, pooling: recipe.pooling, turnstile, flat: Flat::default() }, facts))
    }

    /// Results of one pass.
    fn pass(&mut self, jobs: &[Job]) -> Vec<Values> {
        let turnstile = self.turnstile.clone();
        let mut turn = turnstile.as_deref().map(Turnstile::enter);
        self.flat.fill(jobs);
        let results = match &mut self.net {
            Net::Encoder(encoder, work) => {
                let texts =
                    Texts { tokens: &self.flat.tokens, types: &self.flat.types, rows: &self.flat.rows };
                encode(encoder, work, &mut self.compute, &texts, jobs, self.pooling, turn.as_mut())
            }
            Net::Decoder(net) => net.decode(&mut self.compute, &self.flat, turn.as_mut()),
        };
        results.into_iter().map(finite).collect()
    }

    fn pass_tokens(&self) -> usize {
        match &self.net {
            Net::Encoder(_, work) => work.tokens(),
            Net::Decoder(net) => net.tokens(),
        }
    }

    /// What a text takes of a pass.
    fn room_of(&self, job: &Job) -> usize {
        match self.net {
            Net::Encoder(..) => job.tokens.len(),
            Net::Decoder(_) => job.tokens.len().next_multiple_of(BLOCK),
        }
    }
}

impl Worker<Job, Values> for Passes {
    fn run(&mut self, jobs: &[Job]) -> Vec<Values> {
        let mut results = Vec::with_capacity(jobs.len());
        let mut first = 0;
        while first < jobs.len() {
            let (mut end, mut tokens) = (first + 1, self.room_of(&jobs[first]));
            while end < jobs.len() && tokens + self.room_of(&jobs[end]) <= self.pass_tokens() {
                tokens += self.room_of(&jobs[end]);
                end += 1;
            }
            results.extend(self.pass(&jobs[first..end]));
            first = end;
        }
        results
    }
}

fn encoder_net(
    checkpoint: &Checkpoint,
    limit: usize,
    options: &PassOptions,
    compute: &mut Compute,
    progress: Progress<'_>,
) -> Result<(Net, Facts), EmbedError> {
    let spec = EncoderSpec::from_checkpoint(checkpoint)?;
    let encoder = Encoder::load(checkpoint, spec, options.load, compute, progress)?;
    let max_tokens = encoder.spec.max_tokens.min(limit);
    let facts = Facts {
        family: encoder.spec.family,
        dimensions: encoder.spec.hidden,
        max_tokens,
        vocab: encoder.spec.vocab,
        can_score: encoder.can_score(),
    };
    let work = EncoderWork::new(&encoder, options.pass_tokens.max(max_tokens), compute);
    Ok((Net::Encoder(Box::new(encoder), Box::new(work)), facts))
}

fn encode(
    encoder: &Encoder,
    work: &mut EncoderWork,
    compute: &mut Compute,
    texts: &Texts<'_>,
    jobs: &[Job],
    pooling: Pooling,
    turn: Option<&mut Turn<'_>>,
) -> Vec<Vec<f32>> {
    encoder.forward(compute, texts, work);
    if let Some(turn) = turn {
        turn.step_aside();
    }
    let scores =
        jobs.iter().any(|job| job.wanted == Wanted::Score).then(|| encoder.scores(compute, texts, work));
    let scores = scores.flatten().unwrap_or_default();
    let result = |(index, job): (usize, &Job)| match job.wanted {
        Wanted::Score => scores.get(index).copied().into_iter().collect(),
        Wanted::Vector => work.pooled(texts.rows[index].clone(), pooling),
    };
    jobs.iter().enumerate().map(result).collect()
}

fn finite(values: Vec<f32>) -> Values {
    if values.iter().all(|value| value.is_finite()) && !values.is_empty() {
        Ok(values)
    } else {
        Err(NotFinite)
    }
}

impl Flat {
    fn fill(&mut self, jobs: &[Job]) {
        self.tokens.clear();
        self.types.clear();
        self.rows.clear();
        let typed = jobs.iter().any(|job| !job.types.is_empty());
        for job in jobs {
            let start = self.tokens.len();
            self.tokens.extend_from_slice(&job.tokens);
            self.rows.push(start..self.tokens.len());
            if typed {
                self.types.extend_from_slice(&job.types);
                self.types.resize(self.tokens.len(), 0);
            }
        }
    }
}
