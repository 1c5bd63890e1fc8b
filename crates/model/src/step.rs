//! One step's input: chunks of sequences, flattened into the arrays that the forward pass reads.
//!
//! ```text
//! tokens     | a0 a1 a2 a3 | b7 | c0 c1 |    three chunks
//! positions  | 0  1  2  3  | 7  | 0  1  |
//! slots      block and slot of every position, looked up in the chunk's block table
//! spans      | rows 0..4, start 0 | row 4, start 7 | rows 5..7, start 0 |
//! ```
//! It relies on the caller for block tables that cover their chunks.

use ropeway_kernels::attention::Span;
use ropeway_kernels::kv::BLOCK;
use ropeway_kernels::route::{DistinctSlots, KvSlot};

/// One step's input as flat arrays.
#[derive(Clone, Copy, Debug)]
pub struct Step<'a> {
    /// Token ids of all chunks.
    pub tokens: &'a [u32],
    /// Position of each token in its sequence.
    pub positions: &'a [u32],
    /// Where each token's keys and values go.
    pub slots: DistinctSlots<'a>,
    /// Block tables of all chunks.
    pub tables: &'a [u32],
    /// The chunks.
    pub spans: &'a [Span],
    /// Tokens whose logits are wanted.
    pub logit_rows: &'a [u32],
}

/// The arrays of a [`Step`]. Kept and refilled, so that a step allocates nothing once warm.
#[derive(Debug, Default)]
pub struct StepArrays {
    tokens: Vec<u32>,
    positions: Vec<u32>,
    slots: Vec<KvSlot>,
    tables: Vec<u32>,
    spans: Vec<Span>,
    logit_rows: Vec<u32>,
    /// Scratch of the check that slots are distinct.
    sorted: Vec<u64>,
}

impl StepArrays {
    /// Removes all chunks, keeping their memory.
    pub fn clear(&mut self) {
        self.tokens.clear();
        self.positions.clear();
        self.slots.clear();
        self.tables.clear();
        self.spans.clear();
        self.logit_rows.clear();
    }

    /// Number of tokens so far.
    pub fn len(&self) -> usize {
        self.tokens.len()
    }

    /// Whether there are no tokens yet.
    pub fn is_empty(&self) -> bool {
        self.tokens.is_empty()
    }

    /// Adds consecutive tokens of a sequence, the first of them at position `start`. `table` holds the sequence's blocks
    /// from position 0 on.
    ///
    /// # Panics
    /// If the table ends before the chunk does.
    pub fn push_chunk(&mut self, tokens: &[u32], start: usize, table: impl IntoIterator<Item = u32>) {
        let (first_row, first_block) = (self.tokens.len(), self.tables.len());
        self.tokens.extend_from_slice(tokens);
        self.tables.extend(table);
        for position in start..start + tokens.len() {
            self.positions.push(position as u32);
            let block = self.tables[first_block + position / BLOCK];
            self.slots.push(KvSlot { block, slot: (position % BLOCK) as u32 });
        }
        let table = first_block..self.tables.len();
        self.spans.push(Span { first_row, start, len: tokens.len(), table });
    }

    /// Asks for the logits of the token at `row`, an index into the step's tokens.
    pub fn want_logits(&mut self, row: usize) {
        self.logit_rows.push(row as u32);
    }

    /// What was pushed, ready for the forward pass.
    ///
    /// # Panics
    /// If two tokens have the same block and slot.
    pub fn step(&mut self) -> Step<'_> {
        Step {
            tokens: &self.tokens,
            positions: &self.positions,
            slots: DistinctSlots::new(&self.slots, &mut self.sorted),
            tables: &self.tables,
            spans: &self.spans,
            logit_rows: &self.logit_rows,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chunks_are_laid_out_one_after_the_other_with_their_blocks_looked_up() {
        let mut arrays = StepArrays::default();
        for _ in 0..2 {
            arrays.clear();
            arrays.push_chunk(&[7, 8], BLOCK - 1, [5, 3]);
            arrays.push_chunk(&[9], 0, [4]);
            arrays.want_logits(2);
            let step = arrays.step();
            assert_eq!((step.tokens, step.logit_rows), (&[7, 8, 9][..], &[2][..]));
            assert_eq!(step.positions, [BLOCK as u32 - 1, BLOCK as u32, 0]);
            let slots: Vec<_> = step.slots.as_slice().iter().map(|slot| (slot.block, slot.slot)).collect();
            assert_eq!(slots, [(5, BLOCK as u32 - 1), (3, 0), (4, 0)]);
            let spans: Vec<_> = step.spans.iter().map(|span| (span.first_row, span.table.clone())).collect();
            assert_eq!(spans, [(0, 0..2), (2, 2..3)]);
        }
    }

    #[test]
    #[should_panic(expected = "the same KV slot")]
    fn chunks_that_write_to_the_same_slot_are_refused() {
        let mut arrays = StepArrays::default();
        arrays.push_chunk(&[1], 3, [0]);
        arrays.push_chunk(&[2], 3, [0]);
        arrays.step();
    }
}
