//! A tokenizer as llguidance sees it: every token's bytes in a trie, and how text is cut into tokens.
//!
//! Control tokens begin with a byte that no text holds, so that no grammar of text can ask for them. The token of that
//! byte itself is left out: it is never part of valid text.

use ropeway_text::{Around, InText, Special, Tokenizer};
use toktrie::{INVALID_TOKEN, TokRxInfo, TokTrie, TokenId, TokenizerEnv};

const MARKER: u8 = TokTrie::SPECIAL_TOKEN_MARKER;

/// Text that an answer consists of: nothing in it is special, nothing stands around it.
const ANSWER: Special = Special { in_text: InText::Plain, around: Around::Omit };

/// The trie of a tokenizer's tokens.
pub(crate) struct Vocabulary {
    tokenizer: Tokenizer,
    trie: TokTrie,
}

impl Vocabulary {
    pub(crate) fn new(tokenizer: &Tokenizer) -> Self {
        let words: Vec<Vec<u8>> = (0..tokenizer.vocab_size() as u32).map(|id| word(tokenizer, id)).collect();
        let ends = tokenizer.eos_tokens();
        let info = TokRxInfo::new(words.len() as u32, ends.first().copied().unwrap_or(INVALID_TOKEN));
        let trie = TokTrie::from(&info, &words);
        let trie = if ends.is_empty() { trie } else { trie.with_eos_tokens(ends) };
        Self { tokenizer: tokenizer.clone(), trie }
    }

    fn tokens(&self, text: &str) -> Vec<TokenId> {
        let mut tokens = self.tokenizer.encode(text, ANSWER).unwrap_or_default();
        // Some tokenizers put a space before every text.
        let spaced = tokens.first().is_some_and(|first| self.trie.token(*first) == b" ");
        if spaced && !text.starts_with(' ') {
            tokens.remove(0);
        }
        let same = self.trie.decode_raw(&tokens) == text.as_bytes();
        if same { tokens } else { self.trie.greedy_tokenize(text.as_bytes()) }
    }
}

fn word(tokenizer: &Tokenizer, id: u32) -> Vec<u8> {
    let bytes = tokenizer.token_bytes(id);
    if tokenizer.is_special(id) {
        return [&[MARKER], &bytes[..]].concat();
    }
    if bytes.first() == Some(&MARKER) { Vec::new() } else { bytes }
}

impl TokenizerEnv for Vocabulary {
    fn tok_trie(&self) -> &TokTrie {
        &self.trie
    }

    fn tokenize_bytes(&self, bytes: &[u8]) -> Vec<TokenId> {
        self.trie.tokenize_with_greedy_fallback(bytes, |text| self.tokens(text))
    }
}
