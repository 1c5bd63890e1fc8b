//! All rows of a step, spread over the compute workers: a sampler each, and a failure stays in its row.

use std::panic::{AssertUnwindSafe, catch_unwind};

use ropeway_executor::{Ask, Batch, RowError, RowResult, Sampled, StepOutput};
use ropeway_kernels::Compute;
use ropeway_kernels::compute::RowsInto;

use super::Sampler;

/// One sampler per worker.
#[derive(Debug)]
pub struct Samplers(Vec<Sampler>);

impl Samplers {
    /// Samplers for every worker of `compute`.
    pub fn new(compute: &Compute) -> Self {
        Self((0..compute.threads()).map(|_| Sampler::new(compute.isa())).collect())
    }

    /// Fills `output` with what comes of each row of `batch`; `logits` holds them one after another, and is overwritten.
    pub fn run(&mut self, compute: &mut Compute, batch: &Batch, logits: &mut [f32], output: &mut StepOutput) {
        let count = batch.rows.len();
        output.rows.clear();
        output.rows.resize(count, Ok(Sampled::default()));
        let width = logits.len() / count.max(1);
        let rows = RowsInto { data: logits, width, results: &mut output.rows };
        compute.map_rows(rows, &mut self.0, &|row, logits, sampler| {
            confined(sampler, |sampler| one(sampler, batch, row, logits))
        });
    }
}

fn one(sampler: &mut Sampler, batch: &Batch, row: usize, logits: &mut [f32]) -> RowResult {
    let row = &batch.rows[row];
    match row.ask {
        Ask::Sample => sampler.sample(logits, &row.params, &batch.history[row.history.clone()], row.position),
        Ask::Score(token) => sampler.score(logits, token, row.params.logprobs.unwrap_or(0)),
    }
}

/// Runs `choose`; should it panic, only this row fails, and the scratch it left in disorder is replaced.
fn confined(sampler: &mut Sampler, choose: impl FnOnce(&mut Sampler) -> RowResult) -> RowResult {
    catch_unwind(AssertUnwindSafe(|| choose(sampler))).unwrap_or_else(|_| {
        *sampler = Sampler::new(sampler.isa);
        Err(RowError::Panicked)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use ropeway_executor::{BlockId, SamplingParams};
    use ropeway_kernels::Isa;

    const VOCAB: usize = 3000;

    /// Rows of every kind, and their logits.
    fn step() -> (Batch, Vec<f32>) {
        let mut batch = Batch::default();
        let default = SamplingParams::default;
        for row in 0..40u32 {
            batch.push_chunk(&[row], 7, &[BlockId(row)]);
            let params = match row % 4 {
                0 => SamplingParams::greedy(),
                1 => SamplingParams { logprobs: Some(3), ..default() },
                2 => SamplingParams { repetition_penalty: 1.3, top_p: 0.9, logprobs: Some(2), ..default() },
                _ => SamplingParams { min_p: 0.05, top_k: 50, ..default() },
            };
            batch.sample_last(&params, &[row, 5, 5]);
        }
        batch.rows[8].ask = Ask::Score(17);
        let logits = (0..40 * VOCAB).map(|i| ((i * 7919) % 4999) as f32 / 400.0).collect();
        (batch, logits)
    }

    fn run(isa: Isa, threads: usize, batch: &Batch, mut logits: Vec<f32>) -> Vec<RowResult> {
        let mut compute = Compute::new(isa, threads);
        let mut output = StepOutput::default();
        Samplers::new(&compute).run(&mut compute, batch, &mut logits, &mut output);
        output.rows
    }

    #[test]
    fn every_thread_count_and_instruction_set_gives_the_same_bits() {
        let (batch, logits) = step();
        let bits = |rows: Vec<RowResult>| -> Vec<_> {
            let bits = |row: Sampled| {
                let top: Vec<_> =
                    row.top.iter().map(|(token, logprob)| (*token, logprob.to_bits())).collect();
                (row.token, row.logprob.to_bits(), top)
            };
            rows.into_iter().map(|row| bits(row.expect("a token"))).collect()
        };
        let alone = bits(run(Isa::reference(), 1, &batch, logits.clone()));
        assert_eq!(alone.len(), 40);
        for isa in Isa::available() {
            for threads in [1, 2, 3] {
                assert_eq!(
                    bits(run(isa, threads, &batch, logits.clone())),
                    alone,
                    "{isa}, {threads} threads"
                );
            }
        }
    }

    #[test]
    fn a_panic_ends_its_own_row_and_no_other() {
        let (mut batch, mut logits) = step();
        let good = run(Isa::best(), 2, &batch, logits.clone());
        // No checked batch is like this: a bug, as far as sampling is concerned.
        batch.rows[6].history = 0..usize::MAX;
        logits[11 * VOCAB] = f32::NAN;
        let rows = run(Isa::best(), 2, &batch, logits);
        for (index, (row, good)) in rows.iter().zip(&good).enumerate() {
            match index {
                6 => assert_eq!(*row, Err(RowError::Panicked)),
                11 => assert_eq!(*row, Err(RowError::NotFinite)),
                _ => assert_eq!(row, good, "row {index}"),
            }
        }
    }

    #[test]
    fn a_panic_leaves_no_disorder_to_the_rows_after_it() {
        let mut sampler = Sampler::new(Isa::best());
        let fallen = confined(&mut sampler, |sampler| {
            sampler.raw.push(1.0);
            panic!("half way through a row")
        });
        assert_eq!(fallen, Err(RowError::Panicked));
        assert!(sampler.raw.is_empty());
    }
}
