//! Where the end of a text occurs earlier in it: the index behind prompt lookup.
//!
//! ```text
//! text       ... a b c d e f ... x a b c          the longest suffix that occurs earlier: a b c
//! proposal                                d e f   what followed it there; of equally long matches the latest
//! ```
//! Every token and every pair of tokens is hashed into the head of a chain; a chain leads from a pair to the earlier pairs
//! with the same hash, the latest first. Adding a token takes constant time, and so does a search: at most [`CANDIDATES`]
//! positions are compared over at most [`LONGEST`] tokens. Suffixes of one token match their latest occurrence only.
//!
//! A request's prompt is indexed once for all its sequences; each sequence indexes its own answer.

use super::text::Text;

/// Earlier positions that are compared. In repetitive text the latest ones are the best.
const CANDIDATES: usize = 12;

/// Tokens over which positions are compared; longer matches are equally good.
const LONGEST: usize = 24;

/// Positions before this one end no pair of tokens.
const FIRST: usize = 2;

/// Bytes of memory per token of text, at most: a link, and two heads for a number of tokens that is rounded up to a power of two.
pub const BYTES_PER_TOKEN: usize = 20;

/// Fewest heads, a power of two.
const FEWEST_HEADS: usize = 64;

/// No earlier position.
const NONE: u32 = u32::MAX;

/// An index of the positions of a text from some position on.
#[derive(Clone, Debug)]
pub struct TextIndex {
    /// The first position that is indexed.
    first: usize,
    /// Per hash of a pair, the position after its latest occurrence.
    pairs: Vec<u32>,
    /// Per hash of a token, the position after its latest occurrence.
    singles: Vec<u32>,
    /// Per indexed position, the position after the previous occurrence of the pair that ends there.
    links: Vec<u32>,
}

/// An earlier occurrence of the text's end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Match {
    /// Position of what followed it.
    pub position: usize,
    /// How many tokens before that position agree with the text's end, up to [`LONGEST`].
    pub length: usize,
}

impl TextIndex {
    /// An empty index of the positions from `first` on, with room for `tokens` of them.
    pub fn new(first: usize, tokens: usize) -> Self {
        let heads = tokens.next_power_of_two().max(FEWEST_HEADS);
        Self {
            first: first.max(FIRST),
            pairs: vec![NONE; heads],
            singles: vec![NONE; heads],
            links: Vec::with_capacity(tokens),
        }
    }

    /// Indexes what the text has beyond what it had. The pair at its very end leads nowhere yet and is left out.
    pub fn extend(&mut self, text: Text<'_>) {
        if text.len().saturating_sub(self.first) > self.pairs.len() {
            *self = Self::new(self.first, 2 * self.pairs.len());
        }
        for position in self.first + self.links.len()..text.len() {
            self.add(position, text);
        }
    }

    /// The longest suffix of the text that occurs among the indexed positions.
    pub fn longest_match(&self, text: Text<'_>) -> Option<Match> {
        if text.len() < FIRST {
            return None;
        }
        let mut longest = None;
        for position in self.occurrences(text).take(CANDIDATES) {
            longest = longer(longest, matching(text, position));
            if longest.is_some_and(|found| found.length == LONGEST) {
                break;
            }
        }
        longest.or_else(|| self.single(text))
    }

    /// Positions after earlier pairs with the hash of the text's last pair, the latest first.
    fn occurrences(&self, text: Text<'_>) -> impl Iterator<Item = usize> {
        let known = |position: u32| (position != NONE).then_some(position as usize);
        let latest = known(self.pairs[self.pair_head(text, text.len())]);
        std::iter::successors(latest, move |position| known(self.links[position - self.first]))
    }

    /// The latest occurrence of the last token.
    fn single(&self, text: Text<'_>) -> Option<Match> {
        let latest = self.singles[self.single_head(text, text.len())];
        if latest == NONE { None } else { matching(text, latest as usize) }
    }

    fn add(&mut self, position: usize, text: Text<'_>) {
        let (pair, single) = (self.pair_head(text, position), self.single_head(text, position));
        self.links.push(std::mem::replace(&mut self.pairs[pair], position as u32));
        self.singles[single] = position as u32;
    }

    /// The head of the pair that ends before `position`.
    fn pair_head(&self, text: Text<'_>, position: usize) -> usize {
        self.head(u64::from(text.get(position - 2)) << 32 | u64::from(text.get(position - 1)))
    }

    /// The head of the token before `position`.
    fn single_head(&self, text: Text<'_>, position: usize) -> usize {
        self.head(u64::from(text.get(position - 1)))
    }

    fn head(&self, key: u64) -> usize {
        (key.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 32) as usize & (self.pairs.len() - 1)
    }

    /// Bytes of memory.
    #[cfg(test)]
    fn bytes(&self) -> usize {
        4 * (self.pairs.capacity() + self.singles.capacity() + self.links.capacity())
    }
}

/// The longer of two matches; of equal ones the first.
pub fn longer(first: Option<Match>, second: Option<Match>) -> Option<Match> {
    let length = |found: Option<Match>| found.map_or(0, |found| found.length);
    if length(second) > length(first) { second } else { first }
}

/// The match that `position` follows, if any token agrees.
fn matching(text: Text<'_>, position: usize) -> Option<Match> {
    let end = text.len();
    let agrees = |back: &usize| text.get(position - back) == text.get(end - back);
    let length = (1..=LONGEST.min(position)).take_while(agrees).count();
    (length > 0).then_some(Match { position, length })
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::tokens::Tokens;

    fn tokens(prompt: &[u32], answer: &[u32]) -> Tokens {
        let mut tokens = Tokens::new(Arc::from(prompt), answer.len());
        tokens.extend(answer);
        tokens
    }

    fn index(text: Text<'_>) -> TextIndex {
        let mut index = TextIndex::new(0, 0);
        index.extend(text);
        index
    }

    /// The same by trying every position.
    fn naive(text: Text<'_>) -> Option<Match> {
        let matches = (FIRST..text.len()).filter_map(|position| matching(text, position));
        matches.max_by_key(|found| (found.length, found.position))
    }

    fn found(prediction: &[u32], prompt: &[u32], answer: &[u32]) -> Option<Match> {
        let tokens = tokens(prompt, answer);
        let text = Text::new(prediction, &tokens);
        let found = index(text).longest_match(text);
        assert_eq!(found, naive(text));
        found
    }

    #[test]
    fn the_longest_match_wins_and_of_equal_ones_the_latest() {
        assert_eq!(found(&[], &[1, 2, 3, 4, 9, 2, 3, 5, 1, 2], &[3]), Some(Match { position: 3, length: 3 }));
        assert_eq!(found(&[], &[1, 2, 7, 1, 2, 8, 1], &[2]), Some(Match { position: 5, length: 2 }));
        assert_eq!(found(&[], &[1, 2, 7, 8], &[2]), Some(Match { position: 2, length: 1 }));
        assert_eq!(found(&[], &[1, 2, 3], &[4]), None);
        assert_eq!(found(&[], &[1], &[]), None);
    }

    #[test]
    fn a_prediction_stands_before_the_prompt() {
        assert_eq!(found(&[5, 6, 7, 8], &[1], &[5, 6]), Some(Match { position: 2, length: 2 }));
    }

    #[test]
    fn an_index_that_grows_token_by_token_finds_what_a_new_one_finds() {
        let mut state = 7_u32;
        let mut next = || {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            state >> 29
        };
        let prompt: Vec<u32> = (0..40).map(|_| next()).collect();
        let mut tokens = tokens(&prompt, &[]);
        let mut growing = TextIndex::new(0, 0);
        for _ in 0..300 {
            let text = Text::new(&[], &tokens);
            growing.extend(text);
            let found = growing.longest_match(text);
            assert_eq!(found, index(text).longest_match(text));
            if let Some(found) = found {
                assert_eq!(matching(text, found.position), Some(found));
            }
            tokens.extend(&[next()]);
        }
    }

    #[test]
    fn memory_per_token_is_bounded() {
        for count in [1000, 4096, 4097, 10_000] {
            let prompt: Vec<u32> = (0..count).collect();
            let tokens = tokens(&prompt, &[]);
            let mut index = TextIndex::new(0, tokens.len());
            index.extend(Text::new(&[], &tokens));
            assert!(index.bytes() <= BYTES_PER_TOKEN * tokens.len(), "{} bytes for {count}", index.bytes());
        }
    }
}
