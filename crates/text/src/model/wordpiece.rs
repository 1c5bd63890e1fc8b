//! WordPiece, as in BERT: the longest token that begins the word, then the longest that continues it.
//!
//! Two spellings of the same vocabulary exist: Hugging Face marks what continues a word (`play`, `##ing`), GGUF marks
//! what begins one (`▁play`, `ing`). Both are a prefix for the first piece and one for the others.

use crate::error::TextError;
use crate::sink::Sink;
use crate::vocabulary::Vocabulary;

/// A WordPiece model.
pub(crate) struct WordPiece {
    /// Stands before the first piece of a word in the vocabulary.
    pub(crate) first: String,
    /// Stands before every later piece.
    pub(crate) later: String,
    /// Stands for a word that can't be spelled.
    pub(crate) unknown: u32,
    /// A longer word is unknown at once; it also bounds the quadratic search.
    pub(crate) max_chars: usize,
}

impl WordPiece {
    pub(crate) fn tokenize(
        &self,
        vocabulary: &Vocabulary,
        word: &str,
        sink: &mut Sink<'_>,
    ) -> Result<(), TextError> {
        let (before, ids) = (sink.ids.len(), &mut sink.ids);
        if word.chars().nth(self.max_chars).is_some() || !self.spell(vocabulary, word, ids) {
            ids.truncate(before);
            ids.push(self.unknown);
        }
        sink.checkpoint()
    }

    /// Whether the word could be spelled to its end.
    fn spell(&self, vocabulary: &Vocabulary, word: &str, ids: &mut Vec<u32>) -> bool {
        let mut start = 0;
        while start < word.len() {
            let prefix = if start == 0 { &self.first } else { &self.later };
            let Some((id, length)) = longest(vocabulary, prefix, &word[start..]) else { return false };
            ids.push(id);
            start += length;
        }
        true
    }
}

/// The longest token that is `prefix` and a beginning of `rest`, and how much of `rest` it takes.
fn longest(vocabulary: &Vocabulary, prefix: &str, rest: &str) -> Option<(u32, usize)> {
    let mut text = format!("{prefix}{rest}");
    while text.len() > prefix.len() {
        if let Some(id) = vocabulary.piece(&text) {
            return Some((id, text.len() - prefix.len()));
        }
        text.pop();
    }
    None
}
