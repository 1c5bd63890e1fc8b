//! Prompt lookup: what followed the same words before may follow them again.
//!
//! Answers that quote their prompt (edit this code, extract these fields) or repeat themselves (lists, counting) are
//! drafted right most of the time, for about a microsecond a token.

use std::sync::OnceLock;

use super::Confidence;
use super::drafting::Source;
use super::index::{TextIndex, longer};
use super::text::Text;
use crate::tokens::Tokens;

/// Tokens of an answer that are indexed without another allocation.
const RESERVED: usize = 1024;

/// What all sequences of a request may quote: the prompt, and the client's prediction of the answer.
#[derive(Debug, Default)]
pub struct Quotable {
    prediction: Box<[u32]>,
    index: OnceLock<TextIndex>,
}

impl Quotable {
    /// A prompt, and what the client expects as the answer.
    pub fn new(prediction: Vec<u32>) -> Self {
        Self { prediction: prediction.into(), index: OnceLock::new() }
    }

    /// What is left of the prediction while the answer has been just that.
    fn predicted(&self, tokens: &Tokens) -> Option<&[u32]> {
        self.prediction.strip_prefix(tokens.answer()).filter(|rest| !rest.is_empty())
    }

    /// The index of the prompt, made when it is first needed.
    fn index(&self, text: Text<'_>) -> &TextIndex {
        self.index.get_or_init(|| {
            let text = text.without_answer();
            let mut index = TextIndex::new(0, text.len());
            index.extend(text);
            index
        })
    }
}

/// What a sequence may quote of its own answer; made when it is first needed.
#[derive(Debug, Default)]
pub struct Lookup {
    answer: Option<TextIndex>,
}

impl Lookup {
    /// Writes up to `most` tokens that may follow; how far they can be trusted, and where they are from.
    pub fn propose(
        &mut self,
        quotable: &Quotable,
        tokens: &Tokens,
        most: usize,
        proposed: &mut Vec<u32>,
    ) -> (Confidence, Source) {
        let text = Text::new(&quotable.prediction, tokens);
        if let Some(rest) = quotable.predicted(tokens) {
            proposed.extend(rest.iter().take(most));
            return (Confidence::of_match(usize::MAX), Source::Prediction);
        }
        let answer = self.answer.get_or_insert_with(|| TextIndex::new(text.without_answer().len(), RESERVED));
        answer.extend(text);
        let prompt = quotable.index(text);
        if let Some(found) = longer(answer.longest_match(text), prompt.longest_match(text)) {
            proposed.extend(text.from(found.position).take(most));
            let is_predicted = found.position < quotable.prediction.len();
            let source = if is_predicted { Source::Prediction } else { Source::Other };
            return (Confidence::of_match(found.length), source);
        }
        (Confidence::default(), Source::Other)
    }
}
