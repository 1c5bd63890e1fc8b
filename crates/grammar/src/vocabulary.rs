//! A tokenizer as llguidance sees it: every token's bytes in a trie, and how text is cut into tokens.
//!
//! Control tokens begin with a byte that no text holds, so that no grammar of text can ask for them. The token of that
//! byte itself is left out: it is never part of valid text.

use ropeway_text::{Around, InText, Special, Tokenizer};
use sha2::{Digest, Sha256};
use toktrie::{INVALID_TOKEN, TokRxInfo, TokTrie, TokenId, TokenizerEnv};

const MARKER: u8 = TokTrie::SPECIAL_TOKEN_MARKER;

/// Text that an answer consists of: nothing in it is special, nothing stands around it.
const ANSWER: Special = Special { in_text: InText::Plain, around: Around::Omit };

/// Every token's bytes, and which tokens end an answer: all that compiling a grammar needs of a tokenizer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Words {
    /// The bytes of each token.
    list: Vec<Vec<u8>>,
    ends: Vec<TokenId>,
    /// Of all the others.
    digest: [u8; 32],
}

impl Words {
    /// The words of a tokenizer.
    pub(crate) fn of(tokenizer: &Tokenizer) -> Self {
        let words = (0..tokenizer.vocab_size() as u32).map(|id| word(tokenizer, id)).collect();
        Self::new(words, tokenizer.eos_tokens().to_vec())
    }

    pub(crate) fn new(words: Vec<Vec<u8>>, ends: Vec<TokenId>) -> Self {
        let mut words = Self { list: words, ends, digest: [0; 32] };
        words.digest = Sha256::digest(words.to_bytes()).into();
        words
    }

    /// The same for the same vocabulary.
    pub(crate) fn digest(&self) -> [u8; 32] {
        self.digest
    }

    fn trie(&self) -> TokTrie {
        let end = self.ends.first().copied().unwrap_or(INVALID_TOKEN);
        let info = TokRxInfo::new(self.list.len() as u32, end);
        let trie = TokTrie::from(&info, &self.list);
        if self.ends.is_empty() { trie } else { trie.with_eos_tokens(&self.ends) }
    }

    /// Little endian: the number of words, each word's length and bytes, then the ends.
    pub(crate) fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        let number = |bytes: &mut Vec<u8>, value: usize| bytes.extend((value as u32).to_le_bytes());
        number(&mut bytes, self.list.len());
        for word in &self.list {
            number(&mut bytes, word.len());
            bytes.extend(word);
        }
        self.ends.iter().for_each(|end| number(&mut bytes, *end as usize));
        bytes
    }

    /// What [`to_bytes`](Self::to_bytes) wrote; `None` if it is cut off.
    pub(crate) fn from_bytes(mut bytes: &[u8]) -> Option<Self> {
        let count = number(&mut bytes)?;
        let mut words = Vec::new();
        for _ in 0..count {
            let length = number(&mut bytes)? as usize;
            words.push(bytes.split_off(..length)?.to_vec());
        }
        let mut ends = Vec::new();
        while !bytes.is_empty() {
            ends.push(number(&mut bytes)?);
        }
        Some(Self::new(words, ends))
    }
}

fn number(bytes: &mut &[u8]) -> Option<u32> {
    let taken = bytes.split_off(..size_of::<u32>())?;
    taken.try_into().ok().map(u32::from_le_bytes)
}

/// The trie of a tokenizer's tokens.
pub(crate) struct Vocabulary {
    /// `None` where texts need not be cut as the model's tokenizer cuts them.
    tokenizer: Option<Tokenizer>,
    trie: TokTrie,
}

impl Vocabulary {
    pub(crate) fn new(words: &Words, tokenizer: Option<&Tokenizer>) -> Self {
        Self { tokenizer: tokenizer.cloned(), trie: words.trie() }
    }

    fn tokens(&self, text: &str) -> Vec<TokenId> {
        let encode = |tokenizer: &Tokenizer| tokenizer.encode(text, ANSWER).unwrap_or_default();
        let mut tokens = self.tokenizer.as_ref().map(encode).unwrap_or_default();
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_read_as_they_were_written() {
        let words = Words::new(vec![b"a".to_vec(), Vec::new(), vec![0xff, 0]], vec![2, 7]);
        let bytes = words.to_bytes();
        assert_eq!(Words::from_bytes(&bytes), Some(words.clone()));
        assert_ne!(Words::new(words.list, Vec::new()).digest(), words.digest);
        assert_eq!(Words::from_bytes(&bytes[..bytes.len() - 9]), None);
        assert_eq!(Words::from_bytes(&[]), None);
    }
}
