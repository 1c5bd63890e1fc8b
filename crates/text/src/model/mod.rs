//! The algorithms that turn one pre-token into token ids: BPE, unigram and WordPiece.
//!
//! They rely on the [`Vocabulary`] for texts and ids and keep only what it can't say: merge ranks, scores, prefixes.
//! They must never produce a control token from text, nor need more than `O(n log n)` steps for `n` bytes of text, nor work
//! for long without a look at the sink.

mod bpe;
mod merges;
mod seams;
mod unigram;
mod wordpiece;

pub(crate) use bpe::{Bpe, Ranks, Whole};
pub(crate) use merges::Merges;
pub(crate) use seams::Alphabet;
pub(crate) use unigram::Unigram;
pub(crate) use wordpiece::WordPiece;

use crate::error::TextError;
use crate::sink::Sink;
use crate::vocabulary::Vocabulary;

/// One of the three algorithms.
pub(crate) enum Model {
    Bpe(Bpe),
    Unigram(Unigram),
    WordPiece(WordPiece),
}

impl Model {
    /// Writes the tokens of `piece`, until the sink takes no more.
    pub(crate) fn tokenize(
        &self,
        vocabulary: &Vocabulary,
        piece: &str,
        sink: &mut Sink<'_>,
    ) -> Result<(), TextError> {
        match self {
            Model::Bpe(bpe) => bpe.tokenize(vocabulary, piece, sink),
            Model::Unigram(unigram) => unigram.tokenize(vocabulary, piece, sink),
            Model::WordPiece(wordpiece) => wordpiece.tokenize(vocabulary, piece, sink),
        }
    }
}

/// What stands for a character that the vocabulary doesn't have.
#[derive(Default)]
pub(crate) struct Missing {
    /// The tokens of its UTF-8 bytes, if the vocabulary has all 256.
    pub(crate) bytes: Option<Box<[u32; 256]>>,
    /// Else this token; without it the character is dropped, as the reference implementations do.
    pub(crate) unknown: Option<u32>,
    /// Whether neighbouring unknowns become one token.
    pub(crate) fuse: bool,
}

impl Missing {
    /// Appends the tokens for `text`; `repeated` says that the character before was missing as well.
    fn write(&self, text: &str, repeated: bool, ids: &mut Vec<u32>) {
        if let Some(bytes) = &self.bytes {
            ids.extend(text.bytes().map(|byte| bytes[byte as usize]));
        } else if !(repeated && self.fuse) {
            ids.extend(self.unknown);
        }
    }
}
