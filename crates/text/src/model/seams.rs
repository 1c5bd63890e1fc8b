//! Where a text can be cut without changing its tokens: between two characters that no token has side by side.
//!
//! A piece may be a whole text, as for SentencePiece's models, or one endless word. Models take some dozens of bytes of memory
//! for each byte of what they work on, so that they work on one part at a time. Vocabularies of bytes have an alphabet of
//! their own; pieces are written in it part by part as well.
//!
//! ```text
//! pairs    one bit per hash of two neighbouring characters in a token
//!          not set: no token has them, and no token crosses from one to the other
//!          set: some token may; two pairs with the same hash only make for fewer cuts
//! ```

use crate::spelling::byte_char;
use crate::vocabulary::Vocabulary;
use std::borrow::Cow;
use std::sync::OnceLock;

/// Bytes from which a part ends at the next seam: so many that it costs little to begin anew.
const PART: usize = 1 << 10;

/// Bytes at which a part ends even without a seam: this bounds its memory to half a megabyte and its time to some
/// milliseconds. A run so long in which every pair of neighbours is part of some token is no text of any language.
pub(super) const LONGEST_PART: usize = 16 << 10;

/// Bits for each token: most have a few pairs, which they share with others.
const BITS_PER_TOKEN: usize = 8;

/// Cuts texts for the models of one vocabulary.
#[derive(Default)]
pub(crate) struct Seams {
    /// Made when the first text comes that is long enough to be cut.
    pairs: OnceLock<Pairs>,
}

/// What the tokens of a vocabulary are spelled in.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Alphabet {
    /// The characters of the text.
    #[default]
    Characters,
    /// A character for each byte ([`byte_char`]).
    Bytes,
}

/// A part of a piece, in the vocabulary's alphabet.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Part<'p> {
    pub(super) text: Cow<'p, str>,
    /// Whether it is all of the piece.
    pub(super) is_whole: bool,
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

    /// Where the first part of a text ends, if it does before the text; characters come with their place.
    fn end(&self, characters: impl Iterator<Item = (usize, char)>) -> Option<usize> {
        let mut before = None;
        for (index, after) in characters {
            let is_seam = index >= PART && before.is_some_and(|before| self.is_seam(before, after));
            if is_seam || index >= LONGEST_PART {
                return Some(index);
            }
            before = Some(after);
        }
        None
    }
}

impl Seams {
    /// The parts of `piece`, in order.
    pub(super) fn parts<'p>(
        &self,
        vocabulary: &Vocabulary,
        piece: &'p str,
        alphabet: Alphabet,
    ) -> impl Iterator<Item = Part<'p>> {
        let mut done = 0;
        std::iter::from_fn(move || {
            let end = self.part_end(vocabulary, piece, alphabet, done);
            let (start, is_whole) = (std::mem::replace(&mut done, end), (end == piece.len()));
            let text = match alphabet {
                Alphabet::Characters => Cow::Borrowed(&piece[start..end]),
                Alphabet::Bytes => Cow::Owned(spelled(&piece.as_bytes()[start..end])),
            };
            (start < end).then_some(Part { text, is_whole: is_whole && start == 0 })
        })
    }

    /// Where the part of `piece` ends that begins at `start`.
    fn part_end(&self, vocabulary: &Vocabulary, piece: &str, alphabet: Alphabet, start: usize) -> usize {
        if piece.len() - start <= PART {
            return piece.len();
        }
        let pairs = self.pairs.get_or_init(|| Pairs::of(vocabulary));
        let end = match alphabet {
            Alphabet::Characters => pairs.end(piece[start..].char_indices()),
            Alphabet::Bytes => {
                let bytes = piece.as_bytes()[start..].iter().enumerate();
                pairs.end(bytes.map(|(index, byte)| (index, byte_char(*byte))))
            }
        };
        end.map_or(piece.len(), |end| start + end)
    }
}

/// Bytes in their alphabet, whose characters have one or two bytes.
fn spelled(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(2 * bytes.len());
    text.extend(bytes.iter().map(|byte| byte_char(*byte)));
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::vocabulary::Kind;

    fn parts_in(alphabet: Alphabet, tokens: &[&str], text: &str) -> Vec<String> {
        let vocabulary = Vocabulary::new(tokens.iter().map(|&text| (text, Kind::Normal))).unwrap();
        let seams = Seams::default();
        seams.parts(&vocabulary, text, alphabet).map(|part| part.text.into_owned()).collect()
    }

    fn parts(tokens: &[&str], text: &str) -> Vec<String> {
        parts_in(Alphabet::Characters, tokens, text)
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
        let lengths: Vec<usize> = parts(&["aa"], &text).iter().map(String::len).collect();
        assert_eq!(lengths, [LONGEST_PART; 3]);
    }

    #[test]
    fn bytes_are_cut_in_their_own_alphabet_also_inside_of_characters() {
        let text = "é ".repeat(20_000);
        let spelled = spelled(text.as_bytes());
        let seams = parts_in(Alphabet::Bytes, &["Ã©", "©Ġ", "x"], &text);
        assert!(seams.len() > 20);
        assert_eq!(seams.concat(), spelled);
        assert!(seams[1..].iter().all(|part| part.starts_with('Ã')), "only there no token crosses");
        let forced = parts_in(Alphabet::Bytes, &["Ã©", "©Ġ", "ĠÃ"], &text);
        assert_eq!(forced.concat(), spelled);
        assert!(forced.iter().all(|part| part.chars().count() <= LONGEST_PART));
    }

    #[test]
    fn only_a_piece_in_one_part_is_whole() {
        let vocabulary = Vocabulary::new([("aa", Kind::Normal)].into_iter()).unwrap();
        let whole = |text: &str| -> Vec<bool> {
            let seams = Seams::default();
            seams.parts(&vocabulary, text, Alphabet::Bytes).map(|part| part.is_whole).collect()
        };
        assert_eq!(whole("aaa"), [true]);
        assert_eq!(whole(&"a".repeat(LONGEST_PART + 1)), [false, false]);
    }
}
