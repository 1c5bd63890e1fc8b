//! How a batch becomes a step's arrays.

use std::ops::Range;

use ropeway_executor::{Batch, BlockId, Chunk};

use super::{COUNT_WORDS, ITEM_WORDS, PROMPT_WORDS, Sections, StepKind};
use crate::attention::DecodeStrategy;
use crate::kernels::{BLOCK, NO_INDEX, PROMPT_ROWS, SAMPLED_LAST_STEP, SEGMENT, SEGMENT_BLOCKS};
use crate::shape::RowClass;

/// Which of an item's words says where the items of a row end.
const ROW_END: usize = 8;

/// Unused bytes between two arrays that are uploaded along rather than apart: about what a copy of its own costs.
const GAP: usize = 16 << 10;

/// Fills the arrays of one step.
pub struct Filler<'a> {
    sections: Sections,
    windows: &'a [Option<usize>],
    words: &'a mut [u32],
    used: Vec<Range<usize>>,
    tables: usize,
    prompts: usize,
    picked_prompts: usize,
    decoded: usize,
    whole: Option<DecodeStrategy>,
    items: [usize; COUNT_WORDS / 2],
}

impl<'a> Filler<'a> {
    /// Fills `words` with a batch; `ranges` gets the parts that are used.
    pub fn fill(
        sections: Sections,
        windows: &'a [Option<usize>],
        words: &'a mut [u32],
        batch: &Batch,
        ranges: &mut Vec<Range<usize>>,
    ) -> Result<StepKind, String> {
        let mut filler = Self {
            sections,
            windows,
            words,
            used: std::mem::take(ranges),
            tables: 0,
            prompts: 0,
            picked_prompts: 0,
            decoded: 0,
            whole: whole_rows(&sections, windows, batch),
            items: [0; COUNT_WORDS / 2],
        };
        filler.used.clear();
        filler.tokens(batch);
        let placed = batch.chunks.iter().try_for_each(|chunk| filler.chunk(batch, chunk));
        let filled = StepKind {
            class: RowClass::of(batch.tokens.len()),
            prompts: filler.prompts > 0,
            decodes: match filler.decoded {
                0 => DecodeStrategy::None,
                _ => filler.whole.unwrap_or(DecodeStrategy::Segments),
            },
        };
        if filler.whole.is_some() {
            filler.pad_items();
        }
        filler.finish();
        *ranges = filler.used;
        placed.map(|()| filled)
    }

    fn tokens(&mut self, batch: &Batch) {
        let (s, count) = (self.sections, batch.tokens.len());
        self.words[s.tokens()..][..count].copy_from_slice(&batch.tokens);
        self.words[s.tokens()..][count..s.class].fill(0);
        self.words[s.positions()..][..s.class].fill(0);
        self.words[s.slots()..][..s.class].fill(NO_INDEX);
        for feed in &batch.feeds {
            self.words[s.tokens() + feed.token] = SAMPLED_LAST_STEP | feed.row as u32;
        }
        // Padding rows repeat the first picked row, whose attention is computed.
        let some = batch.rows.first().map_or(0, |row| row.token as u32);
        self.words[s.picked()..][..s.rows_per_step].fill(some);
        for (word, row) in self.words[s.picked()..].iter_mut().zip(&batch.rows) {
            *word = row.token as u32;
        }
        self.used.push(s.picked()..s.slots() + s.class);
    }

    fn chunk(&mut self, batch: &Batch, chunk: &Chunk) -> Result<(), String> {
        let table = &batch.blocks[chunk.blocks.clone()];
        let s = self.sections;
        for (index, token) in chunk.tokens.clone().enumerate() {
            let position = chunk.start + index;
            let block = table[position / BLOCK].0 as usize;
            self.words[s.positions() + token] = position as u32;
            self.words[s.slots() + token] = (block * BLOCK + position % BLOCK) as u32;
        }
        if chunk.tokens.len() == 1 && self.decode(chunk, table) {
            return Ok(());
        }
        let table = self.table(table)?;
        self.prompt(batch, chunk, table);
        Ok(())
    }

    fn table(&mut self, table: &[BlockId]) -> Result<usize, String> {
        let first = self.tables;
        if first + table.len() > self.sections.table_entries {
            let most = self.sections.table_entries;
            return Err(format!("block tables of more than {most} entries in one step"));
        }
        for (word, block) in self.words[self.sections.tables() + first..].iter_mut().zip(table) {
            *word = block.0;
        }
        self.tables += table.len();
        Ok(first)
    }

    /// Adds a row that is decoded, if its segments still fit.
    fn decode(&mut self, chunk: &Chunk, table: &[BlockId]) -> bool {
        let keys = chunk.start + 1;
        let fits = |(items, window): (usize, &Option<usize>)| {
            items + segments(*window, keys).len().max(SEGMENT_BLOCKS) <= self.sections.items
        };
        if !self.items.iter().copied().zip(self.windows).all(fits) {
            return false;
        }
        for (index, window) in self.windows.iter().enumerate() {
            let (segments, item) = (segments(*window, keys), self.items[index]);
            for (at, segment) in segments.clone().enumerate() {
                let what = [chunk.tokens.start, keys, segment, segments.len()];
                self.item(index, item + at, what, &table[segment * SEGMENT_BLOCKS..]);
            }
            self.items[index] += segments.len();
            let row_end = self.sections.items(index) + self.decoded * ITEM_WORDS + ROW_END;
            self.words[row_end] = self.items[index] as u32;
            if self.whole.is_some() {
                self.clear_items(index, self.items[index]..item + SEGMENT_BLOCKS);
                self.items[index] = item + SEGMENT_BLOCKS;
            }
        }
        self.decoded += 1;
        true
    }

    fn item(&mut self, window: usize, item: usize, what: [usize; 4], table: &[BlockId]) {
        let at = self.sections.items(window) + item * ITEM_WORDS;
        let blocks = table.iter().take(SEGMENT_BLOCKS).map(|block| block.0).chain(std::iter::repeat(0));
        let values = what.into_iter().map(|value| value as u32).chain(blocks);
        for (word, value) in self.words[at..at + ITEM_WORDS].iter_mut().zip(values) {
            *word = value;
        }
    }

    /// Items without segments.
    fn clear_items(&mut self, window: usize, items: Range<usize>) {
        let first = self.sections.items(window);
        self.words[first + items.start * ITEM_WORDS..first + items.end * ITEM_WORDS].fill(0);
    }

    /// Rows that a class has beyond the step's own attend to nothing.
    fn pad_items(&mut self) {
        for window in 0..self.windows.len() {
            self.clear_items(window, self.items[window]..self.sections.class * SEGMENT_BLOCKS);
            self.items[window] = self.sections.class * SEGMENT_BLOCKS;
        }
    }

    /// Adds the pieces of a chunk, those with the most keys first.
    fn prompt(&mut self, batch: &Batch, chunk: &Chunk, table: usize) {
        let s = self.sections;
        let end = chunk.start + chunk.tokens.len();
        for first in (0..chunk.tokens.len()).step_by(PROMPT_ROWS).rev() {
            let rows = PROMPT_ROWS.min(chunk.tokens.len() - first);
            let token = chunk.tokens.start + first;
            let item = [token, rows, chunk.start + first, table, end].map(|v| v as u32);
            self.words[s.prompts() + self.prompts * PROMPT_WORDS..][..PROMPT_WORDS].copy_from_slice(&item);
            self.prompts += 1;
            let from = batch.rows.partition_point(|row| row.token < token);
            if batch.rows.get(from).is_some_and(|row| row.token < token + rows) {
                self.words[s.picked_prompts() + self.picked_prompts * PROMPT_WORDS..][..PROMPT_WORDS]
                    .copy_from_slice(&item);
                self.picked_prompts += 1;
            }
        }
    }

    /// Writes the counts, and says what is to be uploaded.
    fn finish(&mut self) {
        let s = self.sections;
        for window in 0..s.windows {
            // Padding is no part of whole rows.
            let items = if self.whole.is_some() { self.decoded * SEGMENT_BLOCKS } else { self.items[window] };
            let counts = [items as u32, self.prompts as u32];
            self.words[s.counts(window)..][..2].copy_from_slice(&counts);
            self.used.push(s.items(window)..s.items(window) + self.items[window] * ITEM_WORDS);
        }
        self.words[s.picked_counts()..][..2].copy_from_slice(&[0, self.picked_prompts as u32]);
        self.used.push(0..s.picked_counts() + 2);
        self.used.push(s.prompts()..s.prompts() + self.prompts * PROMPT_WORDS);
        self.used.push(s.picked_prompts()..s.picked_prompts() + self.picked_prompts * PROMPT_WORDS);
        self.used.push(s.tables()..s.tables() + self.tables);
        join(&mut self.used);
    }
}

/// The segments that a decoded row with so many keys attends to.
fn segments(window: Option<usize>, keys: usize) -> Range<usize> {
    window.map_or(0, |window| keys.saturating_sub(window) / SEGMENT)..keys.div_ceil(SEGMENT)
}

/// How whole rows of a step are taken, if they can be: all of it is decoded, and no row has many segments.
fn whole_rows(sections: &Sections, windows: &[Option<usize>], batch: &Batch) -> Option<DecodeStrategy> {
    if batch.chunks.iter().any(|chunk| chunk.tokens.len() > 1) {
        return None;
    }
    let of_chunk =
        |chunk: &Chunk| windows.iter().map(|window| segments(*window, chunk.start + 1).len()).max();
    let most = batch.chunks.iter().filter_map(of_chunk).max()?;
    let kind = match sections.class {
        rows if rows <= sections.few_rows => DecodeStrategy::Few,
        rows if rows >= sections.many_rows => DecodeStrategy::Rows,
        _ => return None,
    };
    (most <= SEGMENT_BLOCKS && sections.class * SEGMENT_BLOCKS <= sections.items).then_some(kind)
}

/// Sorts ranges, drops empty ones, and joins those with a short gap between them.
fn join(ranges: &mut Vec<Range<usize>>) {
    ranges.retain(|range| !range.is_empty());
    ranges.sort_unstable_by_key(|range| range.start);
    ranges.dedup_by(|next, kept| {
        let near = next.start * 4 <= kept.end * 4 + GAP;
        if near {
            kept.end = kept.end.max(next.end);
        }
        near
    });
}

#[cfg(test)]
mod tests {
    use ropeway_executor::{History, SamplingParams};

    use super::*;
    use crate::shape::{ModelShape, StepShape};

    #[test]
    #[allow(clippy::single_range_in_vec_init, reason = "one range is what is left")]
    fn near_ranges_are_uploaded_together_and_far_ones_apart() {
        let mut ranges = vec![50_000..50_010, 10..20, 0..10, 30..30, 100..200];
        join(&mut ranges);
        assert_eq!(ranges, [0..200, 50_000..50_010]);
        let mut one = vec![5..6];
        join(&mut one);
        assert_eq!(one, [5..6]);
    }

    const MODEL: ModelShape = ModelShape {
        vocab: 100,
        hidden: 64,
        heads: 4,
        kv_heads: 2,
        head_dim: 16,
        kv: crate::kv::KvForm::Bf16,
        layers: 1,
        context: 4096,
        gated: 64,
        experts: 0,
        top_k: 0,
        windows: 2,
        unpacked: 0,
        branch_slices: 0,
    };

    fn filled(batch: &Batch, items: usize, few_rows: usize) -> (Vec<u32>, Sections, StepKind) {
        let many_rows = if few_rows == 0 { usize::MAX } else { few_rows + 1 };
        let step = StepShape { tokens: 512, rows: 8, items, table_entries: 1000, few_rows, many_rows };
        let sections = Sections::new(&MODEL, &step, RowClass::of(batch.tokens.len()));
        let (mut words, mut ranges) = (vec![0; sections.bytes() / 4], Vec::new());
        let windows = [None, Some(100)];
        let filled =
            Filler::fill(sections, &windows, &mut words, batch, &mut ranges).expect("room for all of it");
        (words, sections, filled)
    }

    #[test]
    fn single_tokens_are_decoded_segment_by_segment_within_each_window() {
        let mut batch = Batch::default();
        let table: Vec<BlockId> = (0..19).map(BlockId).collect();
        batch.push_chunk(&[7], 599, &table);
        let (words, s, filled) = filled(&batch, 64, 0);
        assert_eq!(
            (filled.decodes, filled.prompts, filled.class.rows()),
            (DecodeStrategy::Segments, false, 1)
        );
        assert_eq!(words[s.counts(0)], 5, "600 keys are five segments");
        assert_eq!(words[s.counts(1)], 2, "the last hundred lie in two");
        assert_eq!(words[s.items(1)..][..12], [0, 600, 3, 2, 12, 13, 14, 15, 2, 0, 0, 0]);
        assert_eq!(words[s.items(1) + 12..][..12], [0, 600, 4, 2, 16, 17, 18, 0, 0, 0, 0, 0]);
        assert_eq!(words[s.slots()], 18 * 32 + 23);
    }

    #[test]
    fn rows_whose_segments_do_not_fit_are_attended_like_prompts() {
        let mut batch = Batch::default();
        let table: Vec<BlockId> = (0..10).map(BlockId).collect();
        batch.push_chunk(&[7], 299, &table);
        batch.push_chunk(&[8], 299, &table);
        batch.sample_last(&SamplingParams::greedy(), History::default());
        let (words, s, filled) = filled(&batch, 4, 0);
        assert!(filled.decodes == DecodeStrategy::Segments && filled.prompts);
        assert_eq!(words[s.prompts()..][..5], [1, 1, 299, 0, 300]);
        assert_eq!(words[s.picked_counts()..][..2], [0, 1]);
    }

    #[test]
    fn few_rows_of_few_segments_have_four_items_each_and_padding_has_none() {
        let mut batch = Batch::default();
        let table: Vec<BlockId> = (0..20).map(BlockId).collect();
        batch.push_chunk(&[7], 299, &table);
        batch.push_chunk(&[8], 10, &table);
        let (words, s, filled) = filled(&batch, 64, 16);
        assert_eq!(filled.decodes, DecodeStrategy::Few);
        assert_eq!(super::tests::filled(&batch, 64, 4).2.decodes, DecodeStrategy::Rows);
        assert_eq!(words[s.counts(0)], 8, "padding does not count");
        let segments: Vec<u32> = (0..12).map(|item| words[s.items(0) + item * 12 + 3]).collect();
        assert_eq!(segments, [3, 3, 3, 0, 1, 0, 0, 0, 0, 0, 0, 0]);
        batch.push_chunk(&[9], 600, &table);
        assert_eq!(
            super::tests::filled(&batch, 64, 16).2.decodes,
            DecodeStrategy::Segments,
            "five segments are too many"
        );
    }

    #[test]
    fn a_prompt_is_cut_into_pieces_and_the_longest_comes_first() {
        let mut batch = Batch::default();
        let table: Vec<BlockId> = (0..10).map(BlockId).collect();
        batch.push_chunk(&[1; 200], 50, &table);
        let (words, s, _) = filled(&batch, 4, 0);
        assert_eq!(words[s.prompts()..][..10], [128, 72, 178, 0, 250, 0, 128, 50, 0, 250]);
        assert_eq!(words[s.picked_counts()..][..2], [0, 0], "nobody looks at any of it");
    }

    #[test]
    fn the_last_layer_s_prompts_are_those_with_picked_rows() {
        let mut batch = Batch::default();
        let table: Vec<BlockId> = (0..10).map(BlockId).collect();
        batch.push_chunk(&[1; 300], 0, &table);
        batch.sample_last(&SamplingParams::greedy(), History::default());
        batch.push_chunk(&[1; 20], 0, &table);
        batch.push_chunk(&[1; 150], 0, &table);
        batch.score(320 + 3, 0, &SamplingParams::greedy());
        let (words, s, _) = filled(&batch, 4, 0);
        assert_eq!(words[s.counts(0)..][..2], [0, 6]);
        assert_eq!(words[s.picked_counts()..][..2], [0, 2]);
        assert_eq!(words[s.picked_prompts()..][..10], [256, 44, 256, 0, 300, 320, 128, 0, 20, 150]);
        assert_eq!(words[s.picked()..][..8], [299, 323, 299, 299, 299, 299, 299, 299]);
    }
}
