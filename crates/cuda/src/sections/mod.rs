//! A step's arrays: where they lie in the block that is uploaded.
//!
//! ```text
//! | counts | picked | tokens | positions | slots | prompts | picked prompts | items per window | tables |
//! ```
//! Offsets depend on the class of the step alone, so that captured launches find everything where it was. Only what a step uses is
//! uploaded. `fill`: how a batch becomes them.

mod fill;

pub use fill::Filler;

use crate::attention::DecodeStrategy;
use crate::shape::{ModelShape, RowClass, StepShape};

/// Words of `PromptItem` and `DecodeItem` in `kernels/attend.cuh`.
const PROMPT_WORDS: usize = 5;
const ITEM_WORDS: usize = 12;

/// Words before which the counts of all windows, and of picked prompts, end.
const COUNT_WORDS: usize = 64;

/// Windows that a model may have.
pub const MOST_WINDOWS: usize = COUNT_WORDS / 2 - 1;

/// Offsets in words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sections {
    class: usize,
    rows_per_step: usize,
    items: usize,
    windows: usize,
    table_entries: usize,
    few_rows: usize,
    many_rows: usize,
}

impl Sections {
    /// The layout of steps of a class.
    pub fn new(model: &ModelShape, step: &StepShape, class: RowClass) -> Self {
        debug_assert!(model.windows <= MOST_WINDOWS);
        Self {
            class: class.rows(),
            rows_per_step: step.rows,
            items: step.items,
            windows: model.windows,
            table_entries: step.table_entries,
            few_rows: step.few_rows,
            many_rows: step.many_rows,
        }
    }

    /// Where a window's counts are: decode items, then prompt items.
    pub fn counts(&self, window: usize) -> usize {
        window * 2
    }

    /// The same of the last layer's prompts: no decode items, then prompt items with tokens whose logits are wanted.
    pub fn picked_counts(&self) -> usize {
        self.counts(self.windows)
    }

    /// Indices of tokens whose logits are wanted. The same in every class.
    pub fn picked(&self) -> usize {
        COUNT_WORDS
    }

    /// Tokens.
    pub fn tokens(&self) -> usize {
        self.picked() + self.rows_per_step
    }

    /// Their positions.
    pub fn positions(&self) -> usize {
        self.tokens() + self.class
    }

    /// Where their keys and values go.
    pub fn slots(&self) -> usize {
        self.positions() + self.class
    }

    /// Pieces of prompts.
    pub fn prompts(&self) -> usize {
        self.slots() + self.class
    }

    /// Those of them with tokens whose logits are wanted.
    pub fn picked_prompts(&self) -> usize {
        self.prompts() + self.class * PROMPT_WORDS
    }

    /// Segments of decoded rows.
    pub fn items(&self, window: usize) -> usize {
        let first = (self.picked_prompts() + self.class * PROMPT_WORDS).next_multiple_of(ITEM_WORDS);
        first + window * self.items * ITEM_WORDS
    }

    /// Block tables.
    pub fn tables(&self) -> usize {
        self.items(self.windows)
    }

    /// Bytes of all.
    pub fn bytes(&self) -> usize {
        (self.tables() + self.table_entries) * 4
    }
}

/// What decides which kernels a step launches; captured graphs are kept by it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct StepKind {
    /// Its class.
    pub class: RowClass,
    /// Whether it has pieces of prompts.
    pub prompts: bool,
    /// How its decoded rows attend.
    pub decodes: DecodeStrategy,
}
