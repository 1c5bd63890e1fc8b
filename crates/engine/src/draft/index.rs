//! Where in a text its own end stands before: what prompt lookup goes by.
//!
//! ```text
//! text       ... a b c d e f ... x a b c          the longest end of the text that stands in it before: a b c
//! proposal                                d e f   what followed it there; of equally long ones the latest
//! ```
//! The text is a prediction by the client if there is one, then the prompt, then the answer. Pairs of tokens are hashed into
//! heads of chains; a chain leads from a pair to the earlier pairs of the same hash, the latest first. Adding a token takes
//! constant time, and so does a proposal: at most [`CANDIDATES`] places are compared over at most [`LONGEST`] tokens.
//! Memory: [`BYTES_PER_TOKEN`] bytes for each token of the text at most, which is under 1 % of what its keys and values take in
//! every model that has more than about 1 KB of them per token.

use crate::tokens::Tokens;

/// Earlier places that are compared. In repetitive text the latest ones are the best.
const CANDIDATES: usize = 12;

/// Tokens over which places are compared: places that agree so far are equally good.
const LONGEST: usize = 24;

/// Tokens that have to agree at least.
const LEAST: usize = 2;

/// Most bytes of memory per token of text: a link and a head, each with room to grow to twice as many.
pub const BYTES_PER_TOKEN: usize = 16;

/// Fewest heads, as a power of two.
const FEWEST_HEADS: usize = 64;

/// No earlier place.
const NONE: u32 = u32::MAX;

/// An index of one sequence's text.
#[derive(Clone, Debug, Default)]
pub struct TextIndex {
    /// Per hash of a pair, the position after its latest occurrence.
    heads: Vec<u32>,
    /// Per position from 2 on, the position after the occurrence before that of the pair which ends there.
    links: Vec<u32>,
}

/// What was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Found {
    /// Where the continuation stands in the text.
    pub at: usize,
    /// How many tokens before it agree, up to [`LONGEST`].
    pub agreeing: usize,
}

/// What is looked up: a prediction, then a sequence's tokens.
#[derive(Clone, Copy, Debug)]
pub struct Text<'a> {
    prediction: &'a [u32],
    prompt: &'a [u32],
    answer: &'a [u32],
}

impl<'a> Text<'a> {
    /// The text of a sequence.
    pub fn new(prediction: &'a [u32], tokens: &'a Tokens) -> Self {
        Self { prediction, prompt: tokens.prompt(), answer: tokens.answer() }
    }

    /// How many tokens it has.
    pub fn len(&self) -> usize {
        self.prediction.len() + self.prompt.len() + self.answer.len()
    }

    /// The token at `position`.
    pub fn get(&self, position: usize) -> u32 {
        let after = position.checked_sub(self.prediction.len());
        let Some(position) = after else { return self.prediction[position] };
        match position.checked_sub(self.prompt.len()) {
            None => self.prompt[position],
            Some(position) => self.answer[position],
        }
    }

    /// The tokens from `at` on. At the text's end it goes on with what it gave: a text that repeats itself goes on repeating.
    pub fn from(self, at: usize) -> impl Iterator<Item = u32> + use<'a> {
        let period = self.len() - at;
        (0..).map(move |offset| self.get(at + offset % period))
    }

    /// The pair of tokens that ends before `position`.
    fn pair(&self, position: usize) -> [u32; 2] {
        [self.get(position - 2), self.get(position - 1)]
    }
}

impl TextIndex {
    /// An empty index with room for a text of so many tokens.
    pub fn with_room(tokens: usize) -> Self {
        Self { heads: vec![NONE; heads_for(tokens)], links: Vec::with_capacity(tokens) }
    }

    /// Takes in what the text has beyond what it had.
    pub fn extend(&mut self, text: Text<'_>) {
        self.grow(text);
        for position in self.links.len() + LEAST..text.len() {
            // The pair that ends at the text's own end leads nowhere yet.
            self.add(position, text);
        }
    }

    /// The longest end of the text that stands in it before.
    pub fn find(&self, text: Text<'_>) -> Option<Found> {
        if text.len() <= LEAST || self.heads.is_empty() {
            return None;
        }
        let mut best: Option<Found> = None;
        let mut at = self.heads[self.head_of(text.pair(text.len()))];
        for _ in 0..CANDIDATES {
            if at == NONE {
                break;
            }
            let agreeing = agreeing(text, at as usize);
            if agreeing >= LEAST && best.is_none_or(|best| agreeing > best.agreeing) {
                best = Some(Found { at: at as usize, agreeing });
            }
            if agreeing == LONGEST {
                break;
            }
            at = self.links[at as usize - LEAST];
        }
        best
    }

    /// Bytes of memory.
    #[cfg(test)]
    fn bytes(&self) -> usize {
        4 * (self.heads.capacity() + self.links.capacity())
    }

    fn add(&mut self, position: usize, text: Text<'_>) {
        let head = self.head_of(text.pair(position));
        self.links.push(std::mem::replace(&mut self.heads[head], position as u32));
    }

    /// Keeps as many heads as tokens, or up to twice as many.
    fn grow(&mut self, text: Text<'_>) {
        let wanted = heads_for(text.len());
        if wanted <= self.heads.len() {
            return;
        }
        let known = self.links.len();
        self.heads = vec![NONE; wanted];
        self.links.clear();
        for position in LEAST..known + LEAST {
            self.add(position, text);
        }
    }

    fn head_of(&self, [first, second]: [u32; 2]) -> usize {
        let mixed = (u64::from(first) << 32 | u64::from(second)).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        (mixed >> 32) as usize & (self.heads.len() - 1)
    }
}

/// As many heads as tokens, or up to twice as many.
fn heads_for(tokens: usize) -> usize {
    tokens.next_power_of_two().max(FEWEST_HEADS)
}

/// Tokens before `at` that agree with those at the text's end.
fn agreeing(text: Text<'_>, at: usize) -> usize {
    let end = text.len();
    (1..=LONGEST.min(at)).take_while(|back| text.get(at - back) == text.get(end - back)).count()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    fn tokens(prompt: &[u32], answer: &[u32]) -> Tokens {
        let mut tokens = Tokens::new(Arc::from(prompt), answer.len());
        tokens.extend(answer);
        tokens
    }

    /// The same by trying every place.
    fn naive(text: Text<'_>) -> Option<Found> {
        let places = (LEAST..text.len()).map(|at| Found { at, agreeing: agreeing(text, at) });
        places.filter(|found| found.agreeing >= LEAST).max_by_key(|found| (found.agreeing, found.at))
    }

    fn found(prediction: &[u32], prompt: &[u32], answer: &[u32]) -> Option<Found> {
        let tokens = tokens(prompt, answer);
        let text = Text::new(prediction, &tokens);
        let mut lookup = TextIndex::default();
        lookup.extend(text);
        assert_eq!(lookup.find(text), naive(text));
        lookup.find(text)
    }

    #[test]
    fn the_longest_agreeing_place_wins_and_of_equal_ones_the_latest() {
        assert_eq!(found(&[], &[1, 2, 3, 4, 9, 2, 3, 5, 1, 2], &[3]), Some(Found { at: 3, agreeing: 3 }));
        assert_eq!(found(&[], &[1, 2, 7, 1, 2, 8, 1], &[2]), Some(Found { at: 5, agreeing: 2 }));
        assert_eq!(found(&[], &[1, 2, 3], &[4]), None);
        assert_eq!(found(&[], &[1], &[]), None);
    }

    #[test]
    fn a_prediction_stands_before_the_prompt() {
        assert_eq!(found(&[5, 6, 7, 8], &[1], &[5, 6]), Some(Found { at: 2, agreeing: 2 }));
    }

    #[test]
    fn token_by_token_gives_the_same_as_all_at_once() {
        let mut state = 7u32;
        let mut next = || {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            state >> 29
        };
        let prompt: Vec<u32> = (0..40).map(|_| next()).collect();
        let mut tokens = tokens(&prompt, &[]);
        let mut lookup = TextIndex::default();
        for _ in 0..300 {
            let text = Text::new(&[], &tokens);
            lookup.extend(text);
            let mut whole = TextIndex::default();
            whole.extend(text);
            assert_eq!(lookup.find(text), whole.find(text));
            if let Some(found) = lookup.find(text) {
                assert_eq!(agreeing(text, found.at), found.agreeing);
            }
            tokens.extend(&[next()]);
        }
    }

    #[test]
    fn memory_per_token_is_bounded() {
        let prompt: Vec<u32> = (0..10_000).collect();
        let tokens = tokens(&prompt, &[]);
        let mut lookup = TextIndex::default();
        lookup.extend(Text::new(&[], &tokens));
        assert!(lookup.bytes() <= BYTES_PER_TOKEN * tokens.len(), "{}", lookup.bytes());
    }
}
