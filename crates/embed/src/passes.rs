//! The model itself: batches of texts in, a vector or a score per text out. Owned by the worker's thread.
//!
//! `encoder.rs` and `decoder.rs` have what is particular to each kind of model, `device.rs` what runs elsewhere. A batch runs as one pass of ragged texts,
//! or several where it has more tokens than a pass may. Between layers it yields the machine to other models.

mod decoder;
mod device;
mod encoder;

use std::ops::Range;
use std::time::Duration;

use ropeway_batcher::Worker;
use ropeway_executor::Class;
use ropeway_kernels::kv::BLOCK;
use ropeway_machine::{LeaseRequest, Machine, Tenant};
use ropeway_model::LoadOptions;
use ropeway_model::encoder::device::{DeviceEncoder, DeviceFailure};
use ropeway_model::encoder::{EncoderSpec, Pooling};
use ropeway_model::load::Progress;
use ropeway_weights::Checkpoint;

use crate::{EmbedError, Recipe};
use decoder::DecoderNet;
use device::DeviceNet;
use encoder::EncoderNet;

/// One text, ready to compute.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Job {
    /// Its tokens, frame included.
    pub tokens: Vec<u32>,
    /// Their types, or empty where all are of type 0.
    pub types: Vec<u8>,
    /// What is wanted of it.
    pub wanted: Wanted,
    /// How urgent it is.
    pub class: Class,
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
pub type Values = Result<Vec<f32>, NoValues>;

/// Why a text has no result.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NoValues {
    /// NaN or infinity is in it.
    NotFinite,
    /// The device that was to compute it failed, for this reason.
    Device(String),
}

/// How the model runs.
#[derive(Clone, Debug)]
pub struct PassOptions {
    /// The threads that compute it, shared with other models of the process.
    pub machine: Machine,
    /// How weights are loaded.
    pub load: LoadOptions,
    /// Most tokens of a pass; a longer text has one to itself.
    pub pass_tokens: usize,
    /// The longest text, where that is to be less than the model's own.
    pub max_tokens: usize,
}

/// A loaded model and everything its passes write.
pub struct Passes {
    net: Net,
    pooling: Pooling,
    flat: Flat,
    /// Time that passes waited for the machine since it was last asked for.
    waited: Duration,
}

enum Net {
    Encoder(Tenant, Box<EncoderNet>),
    Decoder(Tenant, Box<DecoderNet>),
    Device(DeviceNet),
}

/// What one pass computes.
#[derive(Clone, Copy)]
struct Pass<'a> {
    jobs: &'a [Job],
    /// The jobs' texts.
    flat: &'a Flat,
    pooling: Pooling,
}

/// What came of a pass.
struct Computed {
    /// Per text.
    values: Vec<Vec<f32>>,
    /// Time that it waited for the machine.
    waited: Duration,
}

impl Pass<'_> {
    /// Nobody waits for a single layer, so others may compute in between.
    fn lease_request(&self, size: usize) -> LeaseRequest {
        let class = self.jobs.iter().map(|job| job.class).min().unwrap_or_default();
        LeaseRequest { class, size, yields: true, ..LeaseRequest::default() }
    }
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
        let mut compute = options.machine.loading_compute();
        let limit = longest(recipe, options);
        let (net, facts) = if EncoderSpec::describes(checkpoint) {
            let (net, facts) = EncoderNet::load(checkpoint, limit, options, &mut compute, progress)?;
            let tenant = options.machine.join(net.layers(), compute.scratch_bytes());
            (Net::Encoder(tenant, Box::new(net)), facts)
        } else {
            let (net, facts) = DecoderNet::load(checkpoint, recipe, limit, options, &mut compute, progress)?;
            let tenant = options.machine.join(net.layers(), compute.scratch_bytes());
            (Net::Decoder(tenant, Box::new(net)), facts)
        };
        Ok((Self::of(net, recipe), facts))
    }

    /// A model that is loaded on a device of its own.
    pub fn on_device(
        encoder: Box<dyn DeviceEncoder>,
        recipe: &Recipe,
        options: &PassOptions,
    ) -> Result<(Passes, Facts), EmbedError> {
        if encoder.facts().pooling.is_some_and(|pooling| pooling != recipe.pooling) {
            return Err(EmbedError::Unsupported {
                what: format!("pooling a decoder by {:?}", recipe.pooling),
            });
        }
        let net = DeviceNet(encoder);
        let facts = net.facts(longest(recipe, options));
        Ok((Self::of(Net::Device(net), recipe), facts))
    }

    fn of(net: Net, recipe: &Recipe) -> Self {
        Passes { net, pooling: recipe.pooling, flat: Flat::default(), waited: Duration::ZERO }
    }

    /// Results of one pass.
    fn pass(&mut self, jobs: &[Job]) -> Vec<Values> {
        self.flat.fill(jobs);
        let pass = Pass { jobs, flat: &self.flat, pooling: self.pooling };
        let Computed { values, waited } = match &mut self.net {
            Net::Encoder(tenant, net) => net.run(tenant, &pass),
            Net::Decoder(tenant, net) => net.run(tenant, &pass),
            Net::Device(net) => match net.run(&pass) {
                Ok(values) => Computed { values, waited: Duration::ZERO },
                Err(DeviceFailure(reason)) => {
                    tracing::error!("a pass failed on its device: {reason}");
                    return vec![Err(NoValues::Device(reason)); jobs.len()];
                }
            },
        };
        self.waited += waited;
        values.into_iter().map(finite).collect()
    }

    fn pass_tokens(&self) -> usize {
        match &self.net {
            Net::Encoder(_, net) => net.tokens(),
            Net::Decoder(_, net) => net.tokens(),
            Net::Device(net) => net.0.facts().pass_tokens,
        }
    }

    /// What a text takes of a pass.
    fn room_of(&self, job: &Job) -> usize {
        match &self.net {
            Net::Encoder(..) => job.tokens.len(),
            Net::Device(net) => net.0.room(job.tokens.len()),
            Net::Decoder(..) => job.tokens.len().next_multiple_of(BLOCK),
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

    fn take_wait(&mut self) -> Duration {
        std::mem::take(&mut self.waited)
    }
}

/// The longest text.
fn longest(recipe: &Recipe, options: &PassOptions) -> usize {
    recipe.max_tokens.unwrap_or(usize::MAX).min(options.max_tokens).max(1)
}

fn finite(values: Vec<f32>) -> Values {
    if values.iter().all(|value| value.is_finite()) && !values.is_empty() {
        Ok(values)
    } else {
        Err(NoValues::NotFinite)
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
