//! Encoders: one vector per token, pooled into one per text; or a score per pair of texts.

use ropeway_kernels::Compute;
use ropeway_kernels::compute::ComputeSource;
use ropeway_machine::Tenant;
use ropeway_model::encoder::{Encoder, EncoderSpec, EncoderWork, Texts};
use ropeway_model::load::Progress;
use ropeway_weights::Checkpoint;

use super::{Computed, Facts, Job, Pass, PassOptions, Wanted};
use crate::EmbedError;

pub(super) struct EncoderNet {
    encoder: Encoder,
    work: EncoderWork,
}

impl EncoderNet {
    pub(super) fn load(
        checkpoint: &Checkpoint,
        limit: usize,
        options: &PassOptions,
        compute: &mut Compute,
        progress: Progress<'_>,
    ) -> Result<(Self, Facts), EmbedError> {
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
        Ok((Self { encoder, work }, facts))
    }

    /// Tokens of a pass.
    pub(super) fn tokens(&self) -> usize {
        self.work.tokens()
    }

    pub(super) fn layers(&self) -> usize {
        self.encoder.spec.layers.len()
    }

    /// A pooled vector or a score for every text.
    pub(super) fn run(&mut self, tenant: &mut Tenant, pass: &Pass<'_>) -> Computed {
        let Pass { jobs, flat, pooling } = *pass;
        let texts = Texts { tokens: &flat.tokens, types: &flat.types, rows: &flat.rows };
        let mut lease = tenant.lease(pass.lease_request(flat.tokens.len()));
        self.encoder.forward(&mut lease, &texts, &mut self.work);
        let wants_scores = jobs.iter().any(|job| job.wanted == Wanted::Score);
        let scores = wants_scores.then(|| self.encoder.scores(lease.compute(), &texts, &mut self.work));
        let waited = lease.waited();
        drop(lease);
        let scores = scores.flatten().unwrap_or_default();
        let result = |(index, job): (usize, &Job)| match job.wanted {
            Wanted::Score => scores.get(index).copied().into_iter().collect(),
            Wanted::Vector => self.work.pooled(texts.rows[index].clone(), pooling),
        };
        Computed { values: jobs.iter().enumerate().map(result).collect(), waited }
    }
}
