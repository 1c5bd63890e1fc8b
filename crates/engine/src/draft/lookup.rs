//! Prompt lookup: what followed the same words before may follow them again.
//!
//! Answers that quote their prompt (edit this code, extract these fields) or repeat themselves (lists, counting) are
//! proposed right most of the time, for next to nothing; nothing is proposed for text without repetition. The index is a
//! sequence's own, and is made on the caller's thread.

use super::Confidence;
use super::index::{Text, TextIndex};
use crate::tokens::Tokens;

/// What is known of a sequence's text.
#[derive(Debug)]
pub(crate) struct Lookup {
    prediction: Box<[u32]>,
    index: TextIndex,
}

impl Lookup {
    /// Reads the prompt, and what the client expects as the answer.
    pub(crate) fn new(prediction: Box<[u32]>, tokens: &Tokens) -> Self {
        let mut index = TextIndex::with_room(prediction.len() + tokens.capacity());
        index.extend(Text::new(&prediction, tokens));
        Self { prediction, index }
    }

    /// Reads what the sequence said since, and writes up to `most` tokens that may follow.
    pub(crate) fn propose(&mut self, tokens: &Tokens, most: usize, proposed: &mut Vec<u32>) -> Confidence {
        let text = Text::new(&self.prediction, tokens);
        self.index.extend(text);
        if let Some(found) = self.index.find(text) {
            proposed.extend(text.from(found.at).take(most));
            return Confidence::of_agreement(found.agreeing);
        }
        if tokens.answer().is_empty() {
            proposed.extend(self.prediction.iter().take(most));
        }
        Confidence::of_agreement(usize::MAX)
    }
}
