//! What prompt lookup reads: the client's prediction of the answer if there is one, the prompt, then the answer so far.

use crate::tokens::Tokens;

/// The three parts, as one text.
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

    /// The same without the answer.
    pub fn without_answer(self) -> Self {
        Self { answer: &[], ..self }
    }

    /// How many tokens it has.
    pub fn len(&self) -> usize {
        self.prediction.len() + self.prompt.len() + self.answer.len()
    }

    /// The token at `position`.
    pub fn get(&self, position: usize) -> u32 {
        let Some(after) = position.checked_sub(self.prediction.len()) else {
            return self.prediction[position];
        };
        match after.checked_sub(self.prompt.len()) {
            None => self.prompt[after],
            Some(position) => self.answer[position],
        }
    }

    /// The tokens from `position` on. At its end the text goes on with what came from there: what repeats itself goes on
    /// repeating.
    pub fn from(self, position: usize) -> impl Iterator<Item = u32> + use<'a> {
        let period = self.len() - position;
        (0..).map(move |offset| self.get(position + offset % period))
    }
}
