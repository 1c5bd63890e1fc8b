//! A sequence's tokens: the prompt, which all sequences of a request share, and the answer, which is its own.

use std::ops::Range;
use std::sync::Arc;

/// Tokens of an answer that find room without another allocation: most answers are shorter.
const RESERVED: usize = 1024;

/// Prompt and answer.
#[derive(Clone, Debug)]
pub struct Tokens {
    prompt: Arc<[u32]>,
    answer: Vec<u32>,
}

impl Tokens {
    /// A prompt, and room for an answer of up to `most` tokens.
    pub fn new(prompt: Arc<[u32]>, most: usize) -> Self {
        Self { prompt, answer: Vec::with_capacity(most.min(RESERVED)) }
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.prompt.len() + self.answer.len()
    }

    /// Whether there are none; never true, for the prompt has some.
    pub fn is_empty(&self) -> bool {
        self.prompt.is_empty()
    }

    /// The prompt.
    pub fn prompt(&self) -> &[u32] {
        &self.prompt
    }

    /// The answer so far.
    pub fn answer(&self) -> &[u32] {
        &self.answer
    }

    /// The token at `position`.
    pub fn get(&self, position: usize) -> u32 {
        match position.checked_sub(self.prompt.len()) {
            None => self.prompt[position],
            Some(position) => self.answer[position],
        }
    }

    /// The tokens at these positions: those of the prompt, then those of the answer.
    pub fn range(&self, positions: Range<usize>) -> [&[u32]; 2] {
        let edge = self.prompt.len();
        let Range { start, end } = positions;
        let prompt = &self.prompt[start.min(edge)..end.min(edge)];
        let answer = &self.answer[start.max(edge) - edge..end.max(edge) - edge];
        [prompt, answer]
    }

    /// Adds to the answer.
    pub fn extend(&mut self, tokens: &[u32]) {
        self.answer.extend_from_slice(tokens);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_range_is_found_on_both_sides_of_the_edge() {
        let mut tokens = Tokens::new(Arc::from([0, 1, 2]), 4);
        tokens.extend(&[3, 4, 5]);
        for start in 0..=6 {
            for end in start..=6 {
                let want: Vec<u32> = (start as u32..end as u32).collect();
                assert_eq!(tokens.range(start..end).concat(), want);
            }
        }
        assert_eq!((tokens.get(2), tokens.get(3), tokens.len()), (2, 3, 6));
    }
}
