//! Where a text can be cut without changing its tokens: between two characters that no token has side by side.
//!
//! A piece may be a whole text, as for SentencePiece's models, or one endless word. Models take some dozens of bytes of memory
//! for each byte of what they work on, so that they work on one part at a time.
//!
//! ```text
//! pairs    one bit per hash of two neighbouring characters in a token
//!          not set: no token has them, and no token crosses from one to the other
//!          set: some token may; two pairs with the same hash only make for fewer cuts
//! ```

use crate::vocabulary::Vocabulary;
use std::sync::OnceLock;

/// Bytes from which a part ends at the next seam: so many that it costs little to begin anew.
const PART: usize = 1 << 10;

/// Bytes at which a part ends even without a seam: this bounds its memory to some megabytes. A run so long in which every
/// pair of neighbours is part of some token is no text of any language.
const LONGEST_PART: usize = 64 << 10;

/// Bits for each token: most have a few pairs, which they share with others.
const BITS_PER_TOKEN: usize = 8;

/// Cuts texts for the models of one vocabulary.
#[derive(Default)]
pub(crate) struct Seams {
    /// Made when the first text comes that is long enough to be cut.
    pairs: OnceLock<Pairs>,
}

/// The pairs of neighbouring characters in the tokens of a vocabulary; a power of two of words.
struct Pairs(Vec<u64>);

impl Pairs {
    fn of(vocabulary: &Vocabulary) -> Self {
        let words = (vocabulary.len() * BITS_PER_TOKEN / 64).next_power_of_two();
        let mut pairs = Self(vec![0; words]);
        for (_, text, _) in vocabulary.iter() {
            for (before, after) in text.chars().zip(text.chars().skip(1)) {
                let (word, bit) = pairs.place(before, after);
                pairs.0[word] |= bit;
            }
        }
        pairs
    }

    /// The word and the bit of a pair.
    fn place(&self, before: char, after: char) -> (usize, u64) {
        // The golden ratio's digits spread the pairs over the upper bits.
        let hash = (u64::from(before) << 32 | u64::from(after)).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
        ((hash as usize / 64) & (self.0.len() - 1), 1 << (hash % 64))
    }

    fn is_seam(&self, before: char, after: char) -> bool {
        let (word, bit) = self.place(before, after);
        self.0[word] & bit == 0
    }

    /// Where the first part of `text` ends.
    fn end(&self, text: &str) -> usize {
        let mut before = None;
        for (index, after) in text.char_indices() {
            let is_seam = index >= PART && before.is_some_and(|before| self.is_seam(before, after));
            if is_seam || index + after.len_utf8() > LONGEST_PART {
                return index;
            }
            before = Some(after);
        }
        text.len()
    }
}

impl Seams {
    /// The parts of `piece`, in order.
    pub(super) fn parts<'p>(&self, vocabulary: &Vocabulary, piece: &'p str) -> impl Iterator<Item = &'p str> {
        let mut rest = piece;
        std::iter::from_fn(move || {
            let end = match rest.len() {
                0..=PART => rest.len(),
                _ => self.pairs.get_or_init(|| Pairs::of(vocabulary)).end(rest),
            };
            let (part, left) = rest.split_at(end);
            rest = left;
            (!part.is_empty()).then_some(part)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::vocabulary::Kind;

    fn parts<'p>(tokens: &[&str], text: &'p str) -> Vec<&'p str> {
        let vocabulary = Vocabulary::new(tokens.iter().map(|&text| (text, Kind::Normal))).unwrap();
        Seams::default().parts(&vocabulary, text).collect()
    }

    #[test]
    fn a_text_is_cut_where_no_token_crosses_and_nothing_is_lost() {
        let text = "ab▁ab▁abc".repeat(1000);
        let parts = parts(&["ab", "b▁", "c"], &text);
        assert!(parts.len() > 5);
        assert_eq!(parts.concat(), text);
        assert!(parts[1..].iter().all(|part| !part.starts_with('b') && !part.starts_with('▁')), "{parts:?}");
    }

    #[test]
    fn a_short_text_is_one_part_and_one_without_seams_is_cut_all_the_same() {
        assert_eq!(parts(&["aa", "é"], "aéaé"), ["aéaé"]);
        assert!(parts(&["aa"], "").is_empty());
        let text = "a".repeat(3 * LONGEST_PART);
        let lengths: Vec<usize> = parts(&["aa"], &text).into_iter().map(str::len).collect();
        assert_eq!(lengths, [LONGEST_PART; 3]);
    }
}
