//! Filling in what is missing between two texts: the tokens that a model was trained with for that.
//!
//! ```text
//! <prefix> the text before <suffix> the text after <middle>  what is generated
//! ```

use crate::tokenizer::Tokenizer;

/// The tokens before the text before, the text after and what is missing, as families of models spell them.
const SPELLINGS: [[&str; 3]; 6] = [
    ["<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>"],
    ["<fim_prefix>", "<fim_suffix>", "<fim_middle>"],
    ["<fim-prefix>", "<fim-suffix>", "<fim-middle>"],
    ["<｜fim▁begin｜>", "<｜fim▁hole｜>", "<｜fim▁end｜>"],
    ["<PRE>", "<SUF>", "<MID>"],
    ["▁<PRE>", "▁<SUF>", "▁<MID>"],
];

/// A model's tokens for filling in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Infill([u32; 3]);

impl Infill {
    /// Those of this vocabulary, if it has any.
    pub fn of(tokenizer: &Tokenizer) -> Option<Self> {
        let known = |texts: [&str; 3]| {
            let [prefix, suffix, middle] = texts.map(|text| tokenizer.token_id(text));
            Some(Self([prefix?, suffix?, middle?]))
        };
        SPELLINGS.into_iter().find_map(known)
    }

    /// The prompt after which the model writes what is missing between these texts.
    pub fn prompt(self, before: Vec<u32>, after: Vec<u32>) -> Vec<u32> {
        let Self([prefix, suffix, middle]) = self;
        let mut tokens = vec![prefix];
        tokens.extend(before);
        tokens.push(suffix);
        tokens.extend(after);
        tokens.push(middle);
        tokens
    }
}
