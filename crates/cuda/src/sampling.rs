//! What sampling on the device needs to know about a step's rows, and what it gives back.
//!
//! ```text
//! | parameters, 24 words a row | rows that are adjusted | lists: biases, histories, allowed tokens, masks |
//! ```
//! Parameters refer to lists by their word. The order of the words of a row is that of `RowParams` in `kernels/sample.cu`.

use std::ops::Range;

use ropeway_executor::guides::mask_words;
use ropeway_executor::{Ask, Batch, Guides, Row, RowError, RowResult, Sampled, SamplingParams};

use crate::kernels::{FED, MOST_ALTERNATIVES, NONE};

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
    picks: Vec<u32>,
    /// Rows whose guide failed, and how.
    refused: Vec<(usize, RowError)>,
    picks_at: usize,
    alternatives: bool,
}

impl SampleArrays {
    /// Fills them for a batch; `guides` say what guided rows may choose.
    pub fn fill(&mut self, batch: &Batch, guides: &dyn Guides, vocab: usize) {
        self.words.clear();
        self.picks.clear();
        self.refused.clear();
        self.alternatives = false;
        self.words.resize(batch.rows.len() * PARAMETER_WORDS, 0);
        for (index, row) in batch.rows.iter().enumerate() {
            let parameters = self.row(batch, index, row, guides, vocab);
            self.words[index * PARAMETER_WORDS..][..PARAMETER_WORDS].copy_from_slice(&parameters);
        }
        self.picks_at = self.words.len();
        self.words.extend_from_slice(&self.picks);
    }

    /// All words, to be uploaded.
    pub fn words(&self) -> &[u32] {
        &self.words
    }

    /// The word at which the list of adjusted rows begins.
    pub fn picks_at(&self) -> usize {
        self.picks_at
    }

    /// Rows whose logits are changed before one is chosen.
    pub fn adjusted(&self) -> usize {
        self.picks.len()
    }

    /// Whether any row reports alternatives.
    pub fn has_alternatives(&self) -> bool {
        self.alternatives
    }

    /// Rows whose guide failed.
    pub fn take_refused(&mut self) -> Vec<(usize, RowError)> {
        std::mem::take(&mut self.refused)
    }

    fn row(
        &mut self,
        batch: &Batch,
        index: usize,
        row: &Row,
        guides: &dyn Guides,
        vocab: usize,
    ) -> [u32; PARAMETER_WORDS] {
        let params = &row.params;
        let (scored, reports) = match row.ask {
            Ask::Sample => (NONE, params.logprobs),
            Ask::Score(token) => (token, Some(params.logprobs.unwrap_or(0))),
        };
        self.alternatives |= reports.is_some_and(|count| count > 0);
        let lists =
            if scored == NONE { self.lists(batch, index, row, guides, vocab) } else { Lists::default() };
        let adjusted = if lists.any() { self.pick(index) } else { NONE };
        let span = |range: &Range<usize>| [range.start as u32, range.len() as u32];
        let (bias, repeated, counted) = (span(&lists.bias), span(&lists.repeated), span(&lists.counted));
        let allowed = lists.allowed.as_ref().map_or([NONE, 0], span);
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
            lists.mask.map_or(NONE, |at| at as u32),
            adjusted,
            scored,
            reports.unwrap_or(NONE),
        ]
    }

    fn pick(&mut self, index: usize) -> u32 {
        self.picks.push(index as u32);
        self.picks.len() as u32 - 1
    }

    fn lists(&mut self, batch: &Batch, index: usize, row: &Row, guides: &dyn Guides, vocab: usize) -> Lists {
        let params = &row.params;
        let bias = params.logit_bias.iter().flat_map(|(token, bias)| [*token, bias.to_bits()]);
        let bias = self.list(bias);
        let mut lists = Lists { bias: bias.start..bias.start + bias.len() / 2, ..Lists::default() };
        if params.uses_history() {
            (lists.repeated, lists.counted) = self.histories(batch, row);
        }
        if let Some(allowed) = &params.allowed {
            lists.allowed = Some(self.list(allowed.iter().copied()));
        }
        if let Some(guide) = row.guide {
            let at = self.list(std::iter::repeat_n(0, mask_words(vocab)));
            if let Err(error) = guides.allow(guide, &mut self.words[at.clone()]) {
                // Whatever is chosen is thrown away.
                self.words[at.clone()].fill(u32::MAX);
                self.refused.push((index, error));
            }
            lists.mask = Some(at.start);
        }
        lists
    }

    /// What the repetition penalty looks at, and what the others do.
    fn histories(&mut self, batch: &Batch, row: &Row) -> (Range<usize>, Range<usize>) {
        let fed = batch.feeds.iter().find(|feed| feed.token == row.token).map(|feed| FED | feed.row as u32);
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

/// Where a row's lists are, in words; `bias` counts pairs.
#[derive(Default)]
struct Lists {
    bias: Range<usize>,
    repeated: Range<usize>,
    counted: Range<usize>,
    allowed: Option<Range<usize>>,
    mask: Option<usize>,
}

impl Lists {
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

/// What came of row `index`, from the words that the device wrote.
pub fn outcome(outcomes: &[u32], alternatives: &[u32], index: usize, row: &Row) -> RowResult {
    let [token, status, logprob, count] = outcomes[index * OUTCOME_WORDS..][..OUTCOME_WORDS] else {
        unreachable!("four words were taken")
    };
    match status {
        NOT_FINITE => return Err(RowError::NotFinite),
        NOTHING_ALLOWED => return Err(RowError::NothingAllowed),
        _ => {}
    }
    let wanted = matches!(row.ask, Ask::Score(_)) || row.params.logprobs.is_some();
    let list = alternatives.get(index * MOST_ALTERNATIVES * 2..).unwrap_or_default();
    let top = list.chunks_exact(2).take(count as usize).map(|pair| (pair[0], f32::from_bits(pair[1])));
    Ok(Sampled { token, logprob: if wanted { f32::from_bits(logprob) } else { 0.0 }, top: top.collect() })
}
