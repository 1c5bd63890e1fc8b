//! Guesses at what a sequence will say, computed beside its next token and kept as far as they are right.
//!
//! ```text
//! chunk     | last chosen | d1 | d2 | d3 |      drafted tokens ride behind the pending one
//! rows      |      r0     | r1 | r2 | r3 |      each position is sampled as if it were reached alone
//! kept        r0, and r1 if r0 = d1, and r2 if r1 = d2 ...
//! ```
//! What is kept is what the sequence would have said without drafts, bit for bit: a wrong guess costs time, never text.

use crate::sequence::Sequence;

/// Proposes what may follow.
pub trait Drafter: Send {
    /// Appends to `drafts` up to `most` tokens that may follow the sequence's tokens.
    fn draft(&mut self, sequence: &Sequence, most: usize, drafts: &mut Vec<u32>);
}

/// Most tokens drafted for a sequence in a step: more are hardly ever all right.
const DEEPEST: usize = 8;

/// Has `drafter` propose for a sequence that only waits for its next token; nothing for those whose next token is not the
/// model's own choice alone.
pub(crate) fn draft(drafter: &mut dyn Drafter, sequence: &mut Sequence) {
    if sequence.in_flight.is_some() {
        // Its drafts are being judged.
        return;
    }
    let mut drafts = std::mem::take(&mut sequence.drafts);
    drafts.clear();
    if sequence.is_decoding() && sequence.is_plain() {
        // The last token that fits is sampled, not drafted.
        let room = sequence.ticket.max_len - sequence.len();
        drafter.draft(sequence, DEEPEST.min(room.saturating_sub(1)), &mut drafts);
    }
    sequence.drafts = drafts;
}
