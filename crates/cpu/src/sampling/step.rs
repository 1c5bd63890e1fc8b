//! All rows of a step, spread over the compute workers: a sampler each, and a failure stays in its row.

use std::panic::{AssertUnwindSafe, catch_unwind};

use ropeway_executor::guides::mask_words;
use ropeway_executor::{Ask, Batch, GuideId, Guides, Row, RowError, RowResult, Sampled, StepOutput};
use ropeway_kernels::Compute;
use ropeway_kernels::compute::RowsInto;

use super::{Sampler, Tokens};

/// One sampler per worker.
#[derive(Debug)]
pub struct Samplers(Vec<Sampler>);

/// What the rows of a step want, and whom they ask what they may have.
#[derive(Clone, Copy)]
pub struct Asked<'a> {
    /// The rows.
    pub batch: &'a Batch,
    /// Whom those with a guide ask.
    pub guides: &'a dyn Guides,
}

impl Samplers {
    /// Samplers for every worker of `compute`.
    pub fn new(compute: &Compute) -> Self {
        Self((0..compute.most_threads()).map(|_| Sampler::new(compute.isa())).collect())
    }

    /// Fills `output` with what comes of each row asked for; `logits` holds them one after another, and is overwritten.
    pub fn run(
        &mut self,
        compute: &mut Compute,
        asked: Asked<'_>,
        logits: &mut [f32],
        output: &mut StepOutput,
    ) {
        let count = asked.batch.rows.len();
        output.rows.clear();
        output.rows.resize(count, Ok(Sampled::default()));
        let width = logits.len() / count.max(1);
        let rows = RowsInto { data: logits, width, results: &mut output.rows };
        compute.map_rows(rows, &mut self.0, &|row, logits, sampler| {
            confined(sampler, |sampler| one(sampler, asked, row, logits))
        });
    }
}

fn one(sampler: &mut Sampler, asked: Asked<'_>, row: usize, logits: &mut [f32]) -> RowResult {
    let Asked { batch, guides } = asked;
    let row = &batch.rows[row];
    let history = || Tokens { all: &batch.history[row.history.clone()], prompt: row.prompt };
    match (row.ask, row.guide) {
        (Ask::Score(token), _) => sampler.score(logits, token, row.params.logprobs.unwrap_or(0)),
        (Ask::Sample, None) => sampler.sample(logits, &row.params, history(), row.position),
        (Ask::Sample, Some(guide)) => guided(sampler, (guides, guide), row, history(), logits),
    }
}

/// Chooses among what the row's guide allows, and tells the guide.
fn guided(
    sampler: &mut Sampler,
    (guides, guide): (&dyn Guides, GuideId),
    row: &Row,
    history: Tokens<'_>,
    logits: &mut [f32],
) -> RowResult {
    let mut mask = std::mem::take(&mut sampler.mask);
    mask.clear();
    mask.resize(mask_words(logits.len()), 0);
    let chosen = guides.allow(guide, &mut mask).and_then(|()| {
        let chosen = sampler.sample_among(logits, &mask, &row.params, (history, row.position))?;
        guides.chose(guide, chosen.token)?;
        Ok(chosen)
    });
    sampler.mask = mask;
    chosen
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
    use ropeway_executor::{BlockId, History, SamplingParams};
    use ropeway_kernels::Isa;

    const VOCAB: usize = 3000;

    /// Allows tokens with even numbers; guide 7 regrets it afterwards.
    struct Evens;

    impl Guides for Evens {
        fn allow(&self, _: GuideId, mask: &mut [u32]) -> Result<(), RowError> {
            mask.fill(0x5555_5555);
            Ok(())
        }

        fn chose(&self, guide: GuideId, token: u32) -> Result<(), RowError> {
            assert_eq!(token % 2, 0);
            if guide.0 == 7 { Err(RowError::Grammar("never again".into())) } else { Ok(()) }
        }
    }

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
            batch.sample_last(&params, History { prompt: &[row, 5, 5], ..History::default() });
        }
        batch.rows[8].ask = Ask::Score(17);
        let logits = (0..40 * VOCAB).map(|i| ((i * 7919) % 4999) as f32 / 400.0).collect();
        (batch, logits)
    }

    fn run(isa: Isa, threads: usize, batch: &Batch, mut logits: Vec<f32>) -> Vec<RowResult> {
        let mut compute = Compute::new(isa, threads);
        let mut output = StepOutput::default();
        Samplers::new(&compute).run(&mut compute, Asked { batch, guides: &Evens }, &mut logits, &mut output);
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
    fn guided_rows_choose_among_what_is_allowed_and_free_rows_do_not_notice() {
        let (mut batch, logits) = step();
        let free = run(Isa::best(), 2, &batch, logits.clone());
        for row in (0..40).step_by(3) {
            batch.rows[row].guide = Some(GuideId(if row == 9 { 7 } else { 0 }));
        }
        let mixed = run(Isa::best(), 2, &batch, logits);
        assert!(free.iter().step_by(3).any(|row| row.as_ref().is_ok_and(|row| row.token % 2 == 1)));
        for (index, (row, free)) in mixed.iter().zip(&free).enumerate() {
            match (index, row) {
                (9, row) => assert_eq!(*row, Err(RowError::Grammar("never again".into()))),
                (_, Ok(row)) if index % 3 == 0 => {
                    assert_eq!(row.token % 2, 0, "row {index}");
                    // What is reported is the model's own opinion of all tokens.
                    assert_eq!(row.top, free.as_ref().expect("a token").top);
                }
                _ => assert_eq!(row, free, "row {index}"),
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
