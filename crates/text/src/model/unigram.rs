//! Unigram, as in SentencePiece: of all ways to cut the text into tokens, the one with the highest sum of scores.
//!
//! ```text
//! best[i]   the best cut of text[..i]: its score, its last token and where that begins
//! ```
//!
//! Tokens that begin at a place are found by narrowing a range of the sorted vocabulary byte by byte, so that the
//! search ends as soon as no token goes on.

use super::seams::Seams;
use super::{Alphabet, Missing};
use crate::error::TextError;
use crate::interrupt::Interrupt;
use crate::sink::Sink;
use crate::vocabulary::{Kind, Vocabulary};

/// A unigram model.
pub(crate) struct Unigram {
    /// Log probabilities by id.
    scores: Vec<f32>,
    /// Ids of all text tokens, sorted by text.
    sorted: Vec<u32>,
    missing: Missing,
    /// What a character without a token costs: worse than every token.
    missing_score: f64,
    seams: Seams,
}

/// Longer tokens are never found: SentencePiece makes none, and a file of them would make every text slow.
const MAX_TOKEN_BYTES: usize = 512;

/// Bytes between two looks at the interrupt: every place may be the begin of many tokens.
const BYTES_PER_CHECK: usize = 64;

/// How much worse than the worst token a missing character is.
const MISSING_PENALTY: f64 = 10.0;

/// The best way to reach a place in the text.
#[derive(Clone, Copy)]
struct Cut {
    score: f64,
    start: usize,
    /// `None` for a missing character.
    id: Option<u32>,
}

impl Unigram {
    pub(crate) fn new(vocabulary: &Vocabulary, scores: Vec<f32>, missing: Missing) -> Self {
        let text_token = |(id, text, kind): (u32, &str, Kind)| {
            (matches!(kind, Kind::Normal | Kind::UserDefined) && !text.is_empty()).then_some(id)
        };
        let mut sorted: Vec<u32> = vocabulary.iter().filter_map(text_token).collect();
        sorted.sort_by_key(|&id| vocabulary.text(id));
        let worst = scores.iter().copied().filter(|score| score.is_finite()).fold(0.0, f32::min);
        let missing_score = f64::from(worst) - MISSING_PENALTY;
        Self { scores, sorted, missing, missing_score, seams: Seams::default() }
    }

    pub(crate) fn tokenize(
        &self,
        vocabulary: &Vocabulary,
        piece: &str,
        sink: &mut Sink<'_>,
    ) -> Result<(), TextError> {
        let mut repeated = false;
        for part in self.seams.parts(vocabulary, piece, Alphabet::Characters) {
            repeated = self.tokenize_part(vocabulary, &part.text, repeated, sink)?;
            sink.checkpoint()?;
        }
        Ok(())
    }

    /// Writes the tokens of `part`; `repeated` says that the character before it was missing. Whether its last one was.
    fn tokenize_part(
        &self,
        vocabulary: &Vocabulary,
        part: &str,
        mut repeated: bool,
        sink: &mut Sink<'_>,
    ) -> Result<bool, TextError> {
        let cuts = self.best_cuts(vocabulary, part, sink.interrupt)?;
        let mut path = Vec::new();
        let mut end = part.len();
        while end > 0 {
            path.push((cuts[end].id, cuts[end].start..end));
            end = cuts[end].start;
        }
        for (id, range) in path.into_iter().rev() {
            match id {
                Some(id) => sink.ids.push(id),
                None => self.missing.write(&part[range], repeated, &mut sink.ids),
            }
            repeated = id.is_none();
        }
        Ok(repeated)
    }

    fn best_cuts(
        &self,
        vocabulary: &Vocabulary,
        piece: &str,
        interrupt: &Interrupt,
    ) -> Result<Vec<Cut>, TextError> {
        let mut cuts = vec![Cut { score: f64::NEG_INFINITY, start: 0, id: None }; piece.len() + 1];
        cuts[0].score = 0.0;
        let mut unchecked = 0;
        for (start, character) in piece.char_indices() {
            let after = start + character.len_utf8();
            if start - unchecked >= BYTES_PER_CHECK {
                interrupt.check()?;
                unchecked = start;
            }
            let so_far = cuts[start].score;
            let mut covered = false;
            self.each_token(vocabulary, &piece.as_bytes()[start..], |id, length| {
                covered |= start + length == after;
                let score = so_far + f64::from(self.scores.get(id as usize).copied().unwrap_or(0.0));
                improve(&mut cuts[start + length], Cut { score, start, id: Some(id) });
            });
            if !covered {
                improve(&mut cuts[after], Cut { score: so_far + self.missing_score, start, id: None });
            }
        }
        Ok(cuts)
    }

    /// Calls `found` with every token that begins `text`, and its length, shortest first.
    fn each_token(&self, vocabulary: &Vocabulary, text: &[u8], mut found: impl FnMut(u32, usize)) {
        let bytes = |id: u32| vocabulary.text(id).unwrap_or_default().as_bytes();
        let mut range = self.sorted.as_slice();
        for (depth, &byte) in text.iter().enumerate().take(MAX_TOKEN_BYTES) {
            let from = range.partition_point(|&id| bytes(id).get(depth) < Some(&byte));
            let to = range.partition_point(|&id| bytes(id).get(depth) <= Some(&byte));
            range = &range[from..to];
            let Some(&first) = range.first() else { return };
            if bytes(first).len() == depth + 1 {
                found(first, depth + 1);
            }
        }
    }
}

fn improve(cut: &mut Cut, candidate: Cut) {
    if candidate.score > cut.score {
        *cut = candidate;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sink::collect;

    fn model(tokens: &[(&str, f32)], missing: Missing) -> (Vocabulary, Unigram) {
        let vocabulary = Vocabulary::new(tokens.iter().map(|&(text, _)| (text, Kind::Normal))).unwrap();
        let unigram = Unigram::new(&vocabulary, tokens.iter().map(|&(_, score)| score).collect(), missing);
        (vocabulary, unigram)
    }

    fn ids((vocabulary, unigram): &(Vocabulary, Unigram), piece: &str) -> Vec<u32> {
        collect(|sink| unigram.tokenize(vocabulary, piece, sink))
    }

    #[test]
    fn the_cut_with_the_highest_sum_wins() {
        let model = model(&[("a", -1.0), ("b", -1.0), ("ab", -1.5), ("aba", -5.0)], Missing::default());
        assert_eq!(ids(&model, "aba"), [2, 0]);
    }

    #[test]
    fn a_long_text_has_the_tokens_of_its_words() {
        let missing = Missing { unknown: Some(0), fuse: true, bytes: None };
        let tokens = [("<unk>", 0.0), ("▁", -2.0), ("a", -1.0), ("b", -1.0), ("▁ab", -1.5), ("aba", -5.0)];
        let model = model(&tokens, missing);
        assert_eq!(ids(&model, &"▁ab▁aba▁xyz".repeat(1000)), [4, 4, 2, 1, 0].repeat(1000));
        assert_eq!(ids(&model, &"x".repeat(10_000)), [0]);
    }

    #[test]
    fn unknown_characters_fuse_and_never_split_a_character() {
        let missing = Missing { unknown: Some(0), fuse: true, bytes: None };
        let model = model(&[("<unk>", 0.0), ("a", -1.0)], missing);
        assert_eq!(ids(&model, "aééa"), [1, 0, 1]);
    }
}
