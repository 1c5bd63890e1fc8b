//! Byte-pair encoding: start from characters, merge the best pair of neighbours until none is left.
//!
//! ```text
//! symbols   l  o  w  e  r        doubly linked, merged in place; 12 bytes each
//! queue     (rank, left)         best first; entries that a merge made stale are skipped when they come up; 8 bytes each
//! ```
//!
//! The same loop serves byte-level BPE (ranks from a merge list) and SentencePiece BPE (ranks from token scores).

use super::seams::{LONGEST_PART, Seams};
use super::{Alphabet, Merges, Missing};
use crate::error::TextError;
use crate::interrupt::Interrupt;
use crate::sink::Sink;
use crate::vocabulary::Vocabulary;
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// A BPE model.
pub(crate) struct Bpe {
    ranks: Ranks,
    missing: Missing,
    whole: Whole,
    pub(crate) alphabet: Alphabet,
    seams: Seams,
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

/// A run of text that is one token so far. It ends where the next one starts.
struct Symbol {
    start: u32,
    id: u32,
    previous: Index,
    next: Index,
}

/// A symbol's place among those of a part.
type Index = u16;

const NONE: Index = Index::MAX;
const _: () = assert!(LONGEST_PART < NONE as usize, "a part has at most a symbol for each byte");

/// The id of a character that is no token.
const MISSING: u32 = u32::MAX;

/// Pairs by the rank of their merge, and the place of their left symbol.
type Queue = BinaryHeap<Reverse<(u32, Index)>>;

/// Merges between two looks at the interrupt: some dozens of microseconds.
const MERGES_PER_CHECK: usize = 256;

impl Bpe {
    /// A model whose tokens are spelled in the characters of the text.
    pub(crate) fn new(ranks: Ranks, missing: Missing, whole: Whole) -> Self {
        Self { ranks, missing, whole, alphabet: Alphabet::default(), seams: Seams::default() }
    }

    pub(crate) fn tokenize(
        &self,
        vocabulary: &Vocabulary,
        piece: &str,
        sink: &mut Sink<'_>,
    ) -> Result<(), TextError> {
        let mut repeated = false;
        for part in self.seams.parts(vocabulary, piece, self.alphabet) {
            // A piece that can be cut at a seam is no token.
            let may_be_token = self.whole == Whole::Taken && part.is_whole;
            if let Some(id) = may_be_token.then(|| vocabulary.piece(&part.text)).flatten() {
                sink.ids.push(id);
            } else {
                let mut word = Word::new(self, vocabulary, &part.text);
                word.merge(sink.interrupt)?;
                repeated = word.write(repeated, &mut sink.ids);
            }
            sink.checkpoint()?;
        }
        Ok(())
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
    let mut symbols: Vec<Symbol> = Vec::with_capacity(piece.chars().count());
    for (start, character) in piece.char_indices() {
        let end = start + character.len_utf8();
        let index = symbols.len() as Index;
        symbols.push(Symbol {
            start: start as u32,
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

impl<'a> Word<'a> {
    fn new(bpe: &'a Bpe, vocabulary: &'a Vocabulary, piece: &'a str) -> Self {
        Self { bpe, vocabulary, piece, symbols: symbols(vocabulary, piece) }
    }

    fn merge(&mut self, interrupt: &Interrupt) -> Result<(), TextError> {
        let mut queue = Queue::with_capacity(self.symbols.len());
        for left in 0..self.symbols.len() as Index {
            self.offer(left, &mut queue);
        }
        for turn in 1.. {
            let Some(Reverse((rank, left))) = queue.pop() else { break };
            // Another pair of the same rank may stand there by now; it is as good as the one that did.
            if let Some((_, id)) = self.pair(left).filter(|(now, _)| *now == rank) {
                self.join(left, id);
                self.offer(left, &mut queue);
                self.offer(self.symbols[usize::from(left)].previous, &mut queue);
            }
            if turn % MERGES_PER_CHECK == 0 {
                interrupt.check()?;
            }
        }
        Ok(())
    }

    /// Puts the pair that begins at `left` into the queue if it can be merged.
    fn offer(&self, left: Index, queue: &mut Queue) {
        if let Some((rank, _)) = self.pair(left) {
            queue.push(Reverse((rank, left)));
        }
    }

    /// Rank and token of the pair that begins at `left`: `None` at the end, for a symbol that was merged away, or where
    /// nothing can be merged.
    fn pair(&self, left: Index) -> Option<(u32, u32)> {
        let first = self.symbols.get(usize::from(left))?;
        let second = self.symbols.get(usize::from(first.next))?;
        let text = &self.piece[first.start as usize..self.end(second)];
        self.bpe.pair(self.vocabulary, first.id, second.id, text)
    }

    fn end(&self, symbol: &Symbol) -> usize {
        self.symbols.get(usize::from(symbol.next)).map_or(self.piece.len(), |next| next.start as usize)
    }

    fn join(&mut self, left: Index, id: u32) {
        let right = usize::from(self.symbols[usize::from(left)].next);
        let next = std::mem::replace(&mut self.symbols[right].next, NONE);
        let first = &mut self.symbols[usize::from(left)];
        (first.next, first.id) = (next, id);
        if let Some(after) = self.symbols.get_mut(usize::from(next)) {
            after.previous = left;
        }
    }

    /// Appends its tokens; `repeated` says that the character before it was missing. Whether its last one was.
    fn write(&self, mut repeated: bool, ids: &mut Vec<u32>) -> bool {
        let mut at: Index = 0;
        while let Some(symbol) = self.symbols.get(usize::from(at)) {
            if symbol.id == MISSING {
                let text = &self.piece[symbol.start as usize..self.end(symbol)];
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
    use crate::sink::collect;
    use crate::vocabulary::Kind;

    fn vocabulary(texts: &[&str]) -> Vocabulary {
        Vocabulary::new(texts.iter().map(|&text| (text, Kind::Normal))).unwrap()
    }

    fn texts<'v>(bpe: &Bpe, vocabulary: &'v Vocabulary, piece: &str) -> Vec<&'v str> {
        let ids = collect(|sink| bpe.tokenize(vocabulary, piece, sink));
        ids.into_iter().map(|id| vocabulary.text(id).unwrap()).collect()
    }

    fn merging(vocabulary: &Vocabulary, pairs: &[(&str, &str)], whole: Whole) -> Bpe {
        let ranks = Ranks::Merges(Merges::new(vocabulary, pairs.iter().copied()));
        Bpe { whole, ..scored(ranks, Missing::default()) }
    }

    fn scored(ranks: Ranks, missing: Missing) -> Bpe {
        Bpe::new(ranks, missing, Whole::Merged)
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
            assert_eq!(collect(|sink| bpe.tokenize(&vocabulary, "xyaz", sink)), expected);
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
