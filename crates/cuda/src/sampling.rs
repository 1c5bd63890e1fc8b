//! What sampling on the device needs to know about a step's rows, and what it gives back.
//!
//! ```text
//! | parameters, 24 words a row | masks of guided rows | lists: biases, histories, allowed tokens | rows that are adjusted |
//! ```
//! Parameters refer to lists by their word. The order of the words of a row is that of `RowParams` in `kernels/sample.cu`.

use std::num::NonZero;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};

use ropeway_executor::guides::mask_words;
use ropeway_executor::{Ask, Batch, GuideId, Guides, Row, RowError, RowResult, Sampled, SamplingParams};

use crate::kernels::{MOST_ALTERNATIVES, NO_INDEX, SAMPLED_LAST_STEP};

/// Words of a row's parameters.
pub const PARAMETER_WORDS: usize = 24;

/// Words of a row's outcome.
const OUTCOME_WORDS: usize = 4;

/// Statuses of an outcome.
const NOT_FINITE: u32 = 1;
const NOTHING_ALLOWED: u32 = 2;

/// The rows of a step, as sampling reads them. Kept and refilled.
#[derive(Debug, Default)]
pub struct SampleArrays {
    words: Vec<u32>,
    adjusted_rows: Vec<u32>,
    /// Rows whose guide failed, and how.
    refused: Vec<(usize, RowError)>,
    adjusted_rows_at: usize,
    alternatives: bool,
}

impl SampleArrays {
    /// Fills them for a batch; `guides` say what guided rows may choose.
    pub fn fill(&mut self, batch: &Batch, guides: &dyn Guides, vocab: usize) {
        self.words.clear();
        self.adjusted_rows.clear();
        self.refused.clear();
        self.alternatives = false;
        let mut mask = batch.rows.len() * PARAMETER_WORDS;
        self.words.resize(mask, 0);
        self.ask_guides(batch, guides, mask_words(vocab));
        for (index, row) in batch.rows.iter().enumerate() {
            let mask = guide_of(row).map(|_| {
                mask += mask_words(vocab);
                mask - mask_words(vocab)
            });
            let parameters = self.row(batch, index, row, mask);
            self.words[index * PARAMETER_WORDS..][..PARAMETER_WORDS].copy_from_slice(&parameters);
        }
        self.adjusted_rows_at = self.words.len();
        self.words.extend_from_slice(&self.adjusted_rows);
    }

    /// Appends the mask of every guided row, in their order. Several threads ask: a mask can take as long as a small step.
    fn ask_guides(&mut self, batch: &Batch, guides: &dyn Guides, width: usize) {
        let guided: Vec<(usize, GuideId)> =
            batch.rows.iter().enumerate().filter_map(|(index, row)| Some((index, guide_of(row)?))).collect();
        if guided.is_empty() {
            return;
        }
        let first = self.words.len();
        self.words.resize(first + guided.len() * width, 0);
        let threads = std::thread::available_parallelism().map_or(1, NonZero::get).min(guided.len());
        let share = guided.len().div_ceil(threads);
        let mut parts = self.words[first..].chunks_mut(share * width).zip(guided.chunks(share));
        let ask = |(masks, guided): (&mut [u32], &[(usize, GuideId)])| -> Vec<(usize, RowError)> {
            let rows = masks.chunks_exact_mut(width).zip(guided);
            rows.filter_map(|(mask, (index, guide))| Some((*index, guide_mask(guides, *guide, mask).err()?)))
                .collect()
        };
        self.refused = std::thread::scope(|scope| {
            // This thread takes a part itself: a single row needs no other.
            let own = parts.next();
            let others: Vec<_> = parts.map(|part| scope.spawn(move || ask(part))).collect();
            let asked = own.map(ask).into_iter();
            asked
                .chain(others.into_iter().map(|thread| thread.join().expect("panics of guides are caught")))
                .flatten()
                .collect()
        });
    }

    /// All words, to be uploaded.
    pub fn words(&self) -> &[u32] {
        &self.words
    }

    /// The word at which the list of adjusted rows begins.
    pub fn adjusted_rows_at(&self) -> usize {
        self.adjusted_rows_at
    }

    /// Rows whose logits are changed before one is chosen.
    pub fn adjusted(&self) -> usize {
        self.adjusted_rows.len()
    }

    /// Whether any row reports alternatives.
    pub fn has_alternatives(&self) -> bool {
        self.alternatives
    }

    /// Rows whose guide failed.
    pub fn take_refused(&mut self) -> Vec<(usize, RowError)> {
        std::mem::take(&mut self.refused)
    }

    fn row(&mut self, batch: &Batch, index: usize, row: &Row, mask: Option<usize>) -> [u32; PARAMETER_WORDS] {
        let params = &row.params;
        let (scored, reports) = match row.ask {
            Ask::Sample => (NO_INDEX, params.logprobs),
            Ask::Score(token) => (token, Some(params.logprobs.unwrap_or(0))),
        };
        self.alternatives |= reports.is_some_and(|count| count > 0);
        let lists = if scored == NO_INDEX { self.lists(batch, row, mask) } else { RowLists::default() };
        let adjusted = if lists.any() { self.pick(index) } else { NO_INDEX };
        let span = |range: &Range<usize>| [range.start as u32, range.len() as u32];
        let (bias, repeated, counted) = (span(&lists.bias), span(&lists.repeated), span(&lists.counted));
        let allowed = lists.allowed.as_ref().map_or([NO_INDEX, 0], span);
        let (seed, position) = (params.seed.0, row.position);
        [
            seed as u32,
            (seed >> 32) as u32,
            position as u32,
            (position >> 32) as u32,
            inverse_temperature(params).to_bits(),
            params.top_p.to_bits(),
            params.min_p.to_bits(),
            params.typical_p.to_bits(),
            params.repetition_penalty.to_bits(),
            params.presence_penalty.to_bits(),
            params.frequency_penalty.to_bits(),
            params.top_k,
            bias[0],
            bias[1],
            repeated[0],
            repeated[1],
            counted[0],
            counted[1],
            allowed[0],
            allowed[1],
            lists.mask.map_or(NO_INDEX, |at| at as u32),
            adjusted,
            scored,
            reports.unwrap_or(NO_INDEX),
        ]
    }

    fn pick(&mut self, index: usize) -> u32 {
        self.adjusted_rows.push(index as u32);
        self.adjusted_rows.len() as u32 - 1
    }

    fn lists(&mut self, batch: &Batch, row: &Row, mask: Option<usize>) -> RowLists {
        let params = &row.params;
        let bias = params.logit_bias.iter().flat_map(|(token, bias)| [*token, bias.to_bits()]);
        let bias = self.list(bias);
        let mut lists =
            RowLists { bias: bias.start..bias.start + bias.len() / 2, mask, ..RowLists::default() };
        if params.uses_history() {
            (lists.repeated, lists.counted) = self.histories(batch, row);
        }
        if let Some(allowed) = &params.allowed {
            lists.allowed = Some(self.list(allowed.iter().copied()));
        }
        lists
    }

    /// What the repetition penalty looks at, and what the others do.
    fn histories(&mut self, batch: &Batch, row: &Row) -> (Range<usize>, Range<usize>) {
        let fed = batch
            .feeds
            .iter()
            .find(|feed| feed.token == row.token)
            .map(|feed| SAMPLED_LAST_STEP | feed.row as u32);
        let tokens = batch.history[row.history.clone()].iter().copied();
        let all = self.list(tokens.chain(fed));
        match row.params.penalty_window {
            Some(window) => {
                let latest = all.end - all.len().min(window as usize)..all.end;
                (latest.clone(), latest)
            }
            None => (all.clone(), (all.start + row.prompt).min(all.end)..all.end),
        }
    }

    fn list(&mut self, words: impl Iterator<Item = u32>) -> Range<usize> {
        let first = self.words.len();
        self.words.extend(words);
        first..self.words.len()
    }
}

/// The guide of a row that is sampled; none for rows that are only scored.
fn guide_of(row: &Row) -> Option<GuideId> {
    row.guide.filter(|_| row.ask == Ask::Sample)
}

/// Writes a guide's mask. If the guide fails, every token is allowed: the row's result is thrown away.
fn guide_mask(guides: &dyn Guides, guide: GuideId, mask: &mut [u32]) -> Result<(), RowError> {
    catch_panic(|| guides.allow(guide, mask)).inspect_err(|_| mask.fill(u32::MAX))
}

/// Runs what a guide does; should it panic, only its row fails.
pub(crate) fn catch_panic<T>(work: impl FnOnce() -> Result<T, RowError>) -> Result<T, RowError> {
    catch_unwind(AssertUnwindSafe(work)).unwrap_or(Err(RowError::Panicked))
}

/// Where a row's lists are, in words; `bias` counts pairs.
#[derive(Default)]
struct RowLists {
    bias: Range<usize>,
    repeated: Range<usize>,
    counted: Range<usize>,
    allowed: Option<Range<usize>>,
    mask: Option<usize>,
}

impl RowLists {
    fn any(&self) -> bool {
        let plain = self.bias.is_empty() && self.repeated.is_empty() && self.counted.is_empty();
        !plain || self.allowed.is_some() || self.mask.is_some()
    }
}

/// 0 for the first largest logit.
fn inverse_temperature(params: &SamplingParams) -> f32 {
    let greedy = params.temperature.is_nan() || params.temperature <= 0.0;
    if greedy { 0.0 } else { params.temperature.recip().clamp(f32::MIN_POSITIVE, f32::MAX) }
}

/// What came of row `index`, from the words that the device wrote; with its log-probability, if it `reports` that.
pub fn outcome(outcomes: &[u32], alternatives: &[u32], index: usize, reports: bool) -> RowResult {
    let [token, status, logprob, count] = outcomes[index * OUTCOME_WORDS..][..OUTCOME_WORDS] else {
        unreachable!("four words were taken")
    };
    match status {
        NOT_FINITE => return Err(RowError::NotFinite),
        NOTHING_ALLOWED => return Err(RowError::NothingAllowed),
        _ => {}
    }
    let list = alternatives.get(index * MOST_ALTERNATIVES * 2..).unwrap_or_default();
    let top = list.chunks_exact(2).take(count as usize).map(|pair| (pair[0], f32::from_bits(pair[1])));
    Ok(Sampled { token, logprob: if reports { f32::from_bits(logprob) } else { 0.0 }, top: top.collect() })
}
