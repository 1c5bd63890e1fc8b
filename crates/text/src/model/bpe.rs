//! Byte-pair encoding: start from characters, merge the best pair of neighbours until none is left.
//!
//! ```text
//! symbols   l  o  w  e  r        doubly linked, merged in place
//! queue     (rank, left)         best first; entries that a merge made stale are skipped when they come up
//! ```
//!
//! The same loop serves byte-level BPE (ranks from a merge list) and SentencePiece BPE (ranks from token scores).

use super::{Merges, Missing, Seams};
use crate::vocabulary::Vocabulary;
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// A BPE model.
pub(crate) struct Bpe {
    pub(crate) ranks: Ranks,
    pub(crate) missing: Missing,
    pub(crate) whole: Whole,
    pub(crate) seams: Seams,
}

/// Where the order of merges comes from.
pub(crate) enum Ranks {
    /// A list of pairs.
    Merges(Merges),
    /// The score of the token that a merge gives, by id; the highest goes first.
    Scores(Vec<f32>),
}

/// Whether a pre-token that is a token as a whole is taken at once, whatever the merges would give.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Whole {
    Taken,
    Merged,
}

/// A run of text that is one token so far.
struct Symbol {
    start: u32,
    end: u32,
    id: u32,
    previous: u32,
    next: u32,
}

const NONE: u32 = u32::MAX;
/// The id of a character that is no token.
const MISSING: u32 = u32::MAX;

type Queue = BinaryHeap<Reverse<(u32, u32, u32)>>;

impl Bpe {
    pub(crate) fn tokenize(&self, vocabulary: &Vocabulary, piece: &str, ids: &mut Vec<u32>) {
        if self.whole == Whole::Taken
            && let Some(id) = vocabulary.piece(piece)
        {
            return ids.push(id);
        }
        let mut repeated = false;
        for piece in self.seams.parts(vocabulary, piece) {
            let mut word = Word { bpe: self, vocabulary, piece, symbols: symbols(vocabulary, piece) };
            word.merge();
            repeated = word.write(repeated, ids);
        }
    }

    /// Rank and token of merging two neighbours that together spell `text`.
    fn pair(&self, vocabulary: &Vocabulary, left: u32, right: u32, text: &str) -> Option<(u32, u32)> {
        match &self.ranks {
            Ranks::Merges(merges) => merges.get(left, right),
            Ranks::Scores(scores) => {
                let id = vocabulary.piece(text)?;
                Some((descending(*scores.get(id as usize)?), id))
            }
        }
    }
}

/// Maps scores to ranks so that a higher score has a lower rank.
fn descending(score: f32) -> u32 {
    let bits = score.to_bits();
    let ascending = if bits >> 31 == 1 { !bits } else { bits | 1 << 31 };
    !ascending
}

/// One symbol per character.
fn symbols(vocabulary: &Vocabulary, piece: &str) -> Vec<Symbol> {
    let mut symbols: Vec<Symbol> = Vec::with_capacity(piece.len());
    for (start, character) in piece.char_indices() {
        let end = start + character.len_utf8();
        let index = symbols.len() as u32;
        symbols.push(Symbol {
            start: start as u32,
            end: end as u32,
            id: vocabulary.piece(&piece[start..end]).unwrap_or(MISSING),
            previous: index.checked_sub(1).unwrap_or(NONE),
            next: index + 1,
        });
    }
    if let Some(last) = symbols.last_mut() {
        last.next = NONE;
    }
    symbols
}

/// A pre-token while it is being merged.
struct Word<'a> {
    bpe: &'a Bpe,
    vocabulary: &'a Vocabulary,
    piece: &'a str,
    symbols: Vec<Symbol>,
}

impl Word<'_> {
    fn merge(&mut self) {
        let mut queue = Queue::with_capacity(self.symbols.len());
        for left in 0..self.symbols.len() as u32 {
            self.offer(left, &mut queue);
        }
        while let Some(Reverse((_, left, id))) = queue.pop() {
            if self.pair(left).is_some_and(|(_, now)| now == id) {
                self.join(left, id);
                self.offer(left, &mut queue);
                self.offer(self.symbols[left as usize].previous, &mut queue);
            }
        }
    }

    /// Puts the pair that begins at `left` into the queue if it can be merged.
    fn offer(&self, left: u32, queue: &mut Queue) {
        if let Some((rank, id)) = self.pair(left) {
            queue.push(Reverse((rank, left, id)));
        }
    }

    /// Rank and token of the pair that begins at `left`: `None` at the end, for a symbol that was merged away, or where
    /// nothing can be merged.
    fn pair(&self, left: u32) -> Option<(u32, u32)> {
        let first = self.symbols.get(left as usize)?;
        let second = self.symbols.get(first.next as usize)?;
        let text = &self.piece[first.start as usize..second.end as usize];
        self.bpe.pair(self.vocabulary, first.id, second.id, text)
    }

    fn join(&mut self, left: u32, id: u32) {
        let right = self.symbols[left as usize].next as usize;
        let Symbol { end, next, .. } = self.symbols[right];
        self.symbols[right].next = NONE;
        let first = &mut self.symbols[left as usize];
        (first.end, first.next, first.id) = (end, next, id);
        if let Some(after) = self.symbols.get_mut(next as usize) {
            after.previous = left;
        }
    }

    /// Appends its tokens; `repeated` says that the character before it was missing. Whether its last one was.
    fn write(&self, mut repeated: bool, ids: &mut Vec<u32>) -> bool {
        let mut at = 0;
        while let Some(symbol) = self.symbols.get(at as usize) {
            if symbol.id == MISSING {
                let text = &self.piece[symbol.start as usize..symbol.end as usize];
                self.bpe.missing.write(text, repeated, ids);
            } else {
                ids.push(symbol.id);
            }
            repeated = symbol.id == MISSING;
            at = symbol.next;
        }
        repeated
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::vocabulary::Kind;

    fn vocabulary(texts: &[&str]) -> Vocabulary {
        Vocabulary::new(texts.iter().map(|&text| (text, Kind::Normal))).unwrap()
    }

    fn texts<'v>(bpe: &Bpe, vocabulary: &'v Vocabulary, piece: &str) -> Vec<&'v str> {
        let mut ids = Vec::new();
        bpe.tokenize(vocabulary, piece, &mut ids);
        ids.into_iter().map(|id| vocabulary.text(id).unwrap()).collect()
    }

    fn merging(vocabulary: &Vocabulary, pairs: &[(&str, &str)], whole: Whole) -> Bpe {
        let ranks = Ranks::Merges(Merges::new(vocabulary, pairs.iter().copied()));
        Bpe { ranks, missing: Missing::default(), whole, seams: Seams::default() }
    }

    fn scored(ranks: Ranks, missing: Missing) -> Bpe {
        Bpe { ranks, missing, whole: Whole::Merged, seams: Seams::default() }
    }

    #[test]
    fn the_earliest_merge_wins_and_then_the_leftmost() {
        let vocabulary = vocabulary(&["a", "b", "ab", "ba", "aba"]);
        let pairs = [("b", "a"), ("a", "b"), ("ab", "a")];
        let bpe = merging(&vocabulary, &pairs, Whole::Merged);
        assert_eq!(texts(&bpe, &vocabulary, "abab"), ["a", "ba", "b"]);
        assert_eq!(texts(&bpe, &vocabulary, "ababa"), ["a", "ba", "ba"]);
    }

    #[test]
    fn a_whole_word_token_without_merges_needs_permission() {
        let vocabulary = vocabulary(&["a", "b", "ab"]);
        assert_eq!(texts(&merging(&vocabulary, &[], Whole::Merged), &vocabulary, "ab"), ["a", "b"]);
        assert_eq!(texts(&merging(&vocabulary, &[], Whole::Taken), &vocabulary, "ab"), ["ab"]);
    }

    #[test]
    fn higher_scores_merge_first() {
        let vocabulary = vocabulary(&["a", "b", "c", "ab", "bc"]);
        let ranks = Ranks::Scores(vec![0.0, 0.0, 0.0, -2.0, -1.0]);
        let bpe = scored(ranks, Missing::default());
        assert_eq!(texts(&bpe, &vocabulary, "abc"), ["a", "bc"]);
    }

    #[test]
    fn neighbouring_unknown_characters_fuse_only_when_asked() {
        let vocabulary = vocabulary(&["<unk>", "a"]);
        for (fuse, expected) in [(true, vec![0, 1, 0]), (false, vec![0, 0, 1, 0])] {
            let missing = Missing { unknown: Some(0), fuse, bytes: None };
            let bpe = scored(Ranks::Scores(Vec::new()), missing);
            let mut ids = Vec::new();
            bpe.tokenize(&vocabulary, "xyaz", &mut ids);
            assert_eq!(ids, expected);
        }
    }

    #[test]
    fn a_long_text_of_one_piece_has_the_tokens_of_its_words() {
        let vocabulary = vocabulary(&["<unk>", "▁", "a", "b", "▁a", "ab", "▁ab"]);
        let scores = vec![0.0, -9.0, -9.0, -9.0, -3.0, -2.0, -1.0];
        let missing = Missing { unknown: Some(0), fuse: true, bytes: None };
        let bpe = scored(Ranks::Scores(scores), missing);
        let words = ["▁ab", "▁a", "▁xyz", "▁ba"];
        let tokens = ["▁ab", "▁a", "▁", "<unk>", "▁", "b", "a"];
        let text = words.concat().repeat(1000);
        assert_eq!(texts(&bpe, &vocabulary, &text), tokens.repeat(1000));
        let unknown = "x".repeat(10_000);
        assert_eq!(texts(&bpe, &vocabulary, &unknown), ["<unk>"]);
    }

    #[test]
    fn ranks_follow_the_order_of_scores_down() {
        let scores = [f32::MAX, 1.0, 0.5, 0.0, -0.5, -1.0, -1e10, f32::MIN];
        assert!(scores.is_sorted_by(|a, b| descending(*a) < descending(*b)));
    }
}
