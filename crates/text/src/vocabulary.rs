//! The token table: every token's text once, found by id and by text.
//!
//! ```text
//! texts    "<unk><s></s>▁the..."          one string, tokens in id order
//! ends     [5, 8, 12, ...]                token i is texts[ends[i-1]..ends[i]]
//! kinds    [Unknown, Control, ...]        one byte a token
//! slots    [EMPTY, 17, 3, EMPTY, ...]     hash of the text -> id, linear probing, at most half full
//! ```
//!
//! A vocabulary of 49,152 tokens takes about 1.1 MB this way; two maps with owned strings take ten times as much. It
//! relies on nothing but the texts it was given and must never allocate by a size it was told instead of one it saw.

use crate::error::TextError;
use std::hash::{BuildHasher, RandomState};

/// What a token is for, in GGUF's terms.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// A piece of text that the model's algorithm produces.
    Normal,
    /// Stands for text that has no token.
    Unknown,
    /// Steers the model and is no text: begin, end, turn markers.
    Control,
    /// Text that is always taken as one token.
    UserDefined,
    /// One raw byte, spelled `<0xAB>`.
    Byte,
    /// An id without a token.
    Unused,
}

/// All tokens of a model.
pub(crate) struct Vocabulary {
    texts: String,
    ends: Vec<u32>,
    kinds: Vec<Kind>,
    slots: Vec<u32>,
    /// Seeded afresh in every process, so that no file can be made whose tokens all collide.
    hasher: RandomState,
}

const EMPTY: u32 = u32::MAX;

impl Vocabulary {
    /// Builds the table from tokens in id order. When a text occurs twice the first id is found by text.
    pub(crate) fn new<'t>(tokens: impl Iterator<Item = (&'t str, Kind)>) -> Result<Self, TextError> {
        let (mut texts, mut ends, mut kinds) = (String::new(), Vec::new(), Vec::new());
        for (text, kind) in tokens {
            texts.push_str(text);
            ends.push(u32::try_from(texts.len()).map_err(|_| TextError::VocabularyTooLarge)?);
            kinds.push(kind);
        }
        texts.shrink_to_fit();
        ends.shrink_to_fit();
        kinds.shrink_to_fit();
        let slots = vec![EMPTY; (ends.len() * 2).next_power_of_two().max(2)];
        let mut vocabulary = Self { texts, ends, kinds, slots, hasher: RandomState::new() };
        vocabulary.index();
        Ok(vocabulary)
    }

    fn index(&mut self) {
        for id in 0..self.ends.len() as u32 {
            let slot = self.slot(self.text_at(id as usize));
            if self.slots[slot] == EMPTY && self.kinds[id as usize] != Kind::Unused {
                self.slots[slot] = id;
            }
        }
    }

    /// The slot that holds `text`, or the empty one where it would go.
    fn slot(&self, text: &str) -> usize {
        let mask = self.slots.len() - 1;
        let mut slot = self.hasher.hash_one(text) as usize & mask;
        while self.slots[slot] != EMPTY && self.text_at(self.slots[slot] as usize) != text {
            slot = (slot + 1) & mask;
        }
        slot
    }

    fn text_at(&self, index: usize) -> &str {
        let start = if index == 0 { 0 } else { self.ends[index - 1] as usize };
        &self.texts[start..self.ends[index] as usize]
    }

    /// The id of the token spelled exactly `text`.
    pub(crate) fn id(&self, text: &str) -> Option<u32> {
        let id = self.slots[self.slot(text)];
        (id != EMPTY).then_some(id)
    }

    /// The id of a token that text may turn into by itself: control tokens have to be asked for.
    pub(crate) fn piece(&self, text: &str) -> Option<u32> {
        let plain = |id: &u32| matches!(self.kind(*id), Kind::Normal | Kind::UserDefined);
        self.id(text).filter(plain)
    }

    /// The ids of the byte tokens `<0x00>` to `<0xFF>`, if the vocabulary has them all.
    pub(crate) fn byte_tokens(&self) -> Option<Box<[u32; 256]>> {
        let ids: Option<Vec<u32>> = (0..=255_u8).map(|byte| self.id(&format!("<0x{byte:02X}>"))).collect();
        ids?.try_into().ok().map(Box::new)
    }

    /// The token's spelling in the vocabulary.
    pub(crate) fn text(&self, id: u32) -> Option<&str> {
        ((id as usize) < self.len()).then(|| self.text_at(id as usize))
    }

    /// What the token is for; ids outside the vocabulary are unused.
    pub(crate) fn kind(&self, id: u32) -> Kind {
        self.kinds.get(id as usize).copied().unwrap_or(Kind::Unused)
    }

    pub(crate) fn len(&self) -> usize {
        self.ends.len()
    }

    /// Every token, in id order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (u32, &str, Kind)> {
        (0..self.len()).map(|index| (index as u32, self.text_at(index), self.kinds[index]))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn vocabulary(texts: &[&str]) -> Vocabulary {
        Vocabulary::new(texts.iter().map(|&text| (text, Kind::Normal))).unwrap()
    }

    #[test]
    fn every_token_is_found_by_id_and_by_text() {
        let texts: Vec<String> = (0..1000).map(|n| format!("token{n}")).collect();
        let vocabulary = vocabulary(&texts.iter().map(String::as_str).collect::<Vec<_>>());
        for (id, text) in texts.iter().enumerate() {
            assert_eq!(vocabulary.id(text), Some(id as u32));
            assert_eq!(vocabulary.text(id as u32), Some(text.as_str()));
        }
        assert_eq!(vocabulary.id("token1000"), None);
        assert_eq!(vocabulary.text(1000), None);
    }

    #[test]
    fn a_repeated_text_keeps_its_first_id() {
        assert_eq!(vocabulary(&["a", "b", "a"]).id("a"), Some(0));
    }

    #[test]
    fn an_empty_vocabulary_finds_nothing() {
        assert_eq!(vocabulary(&[]).id(""), None);
    }
}
