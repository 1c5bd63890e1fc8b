//! Models on a device of their own: no machine's threads are leased, and a failing device fails the texts of its pass.

use ropeway_model::encoder::Texts;
use ropeway_model::encoder::device::{Asked, DeviceEncoder, DeviceFailure};

use super::{Facts, Job, Pass, Wanted};

pub(super) struct DeviceNet(pub(super) Box<dyn DeviceEncoder>);

impl DeviceNet {
    /// What there is to know about the model, for texts of at most `limit` tokens.
    pub(super) fn facts(&self, limit: usize) -> Facts {
        let facts = self.0.facts();
        Facts {
            family: facts.family,
            dimensions: facts.dimensions,
            max_tokens: facts.max_tokens.min(facts.pass_tokens).min(limit),
            vocab: facts.vocab,
            can_score: facts.can_score,
        }
    }

    /// A pooled vector or a score for every text.
    pub(super) fn run(&mut self, pass: &Pass<'_>) -> Result<Vec<Vec<f32>>, DeviceFailure> {
        let Pass { jobs, flat, pooling } = *pass;
        let wants = |wanted| jobs.iter().any(|job| job.wanted == wanted);
        let texts = Texts { tokens: &flat.tokens, types: &flat.types, rows: &flat.rows };
        let asked = Asked { vectors: wants(Wanted::Vector).then_some(pooling), scores: wants(Wanted::Score) };
        let mut encoded = self.0.encode(&texts, asked)?;
        let result = |(index, job): (usize, &Job)| match job.wanted {
            Wanted::Score => encoded.scores.get(index).copied().into_iter().collect(),
            Wanted::Vector => encoded.vectors.get_mut(index).map(std::mem::take).unwrap_or_default(),
        };
        Ok(jobs.iter().enumerate().map(result).collect())
    }
}
