//! From token ids back to text, one token at a time.
//!
//! Tokens are runs of bytes, and a character may be spread over several of them. The detokenizer keeps the bytes of an
//! unfinished character back until it is complete or can't become one, so that what it gave out never changes: the
//! pieces of [`Detokenizer::push`] and [`Detokenizer::finish`] concatenated are exactly what decoding all ids at once
//! gives.

use crate::tokenizer::{SpecialTokens, Tokenizer};

/// An incremental decoder of one sequence.
#[derive(Debug)]
pub struct Detokenizer {
    tokenizer: Tokenizer,
    special: SpecialTokens,
    /// Special tokens that are written although others are not.
    shown: Vec<u32>,
    /// Bytes of the last token and of an unfinished character before it; at most three of them between calls.
    pending: Vec<u8>,
    /// What the last call gave out.
    text: String,
    place: Place,
}

/// Where in the text the next token stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    /// At the very start, where a space that tokenizing put there is taken away again.
    Start,
    /// After other text.
    Inside,
}

impl Detokenizer {
    pub(crate) fn new(tokenizer: Tokenizer, special: SpecialTokens) -> Self {
        let (shown, pending, text) = (Vec::new(), Vec::new(), String::new());
        Self { tokenizer, special, shown, pending, text, place: Place::Start }
    }

    /// Writes control tokens such as `<|im_end|>` as text as well; without this they are left out.
    pub fn keeping_special(mut self) -> Self {
        self.special = SpecialTokens::Keep;
        self
    }

    /// Writes the special tokens with these texts as text as well, for instance those that
    /// [`OutputStyle::markup`](crate::OutputStyle::markup) needs; texts that are no tokens are ignored.
    pub fn showing<'t>(mut self, texts: impl IntoIterator<Item = &'t str>) -> Self {
        self.shown.extend(texts.into_iter().filter_map(|text| self.tokenizer.token_id(text)));
        self
    }

    /// Says that the tokens continue a text that the reader already has, so that the first word keeps its space.
    pub fn continuing(mut self) -> Self {
        self.place = Place::Inside;
        self
    }

    /// Takes the next token and returns the text that became final by it: whole characters, possibly none.
    pub fn push(&mut self, id: u32) -> &str {
        self.text.clear();
        self.write(id);
        let taken = take_complete(&self.pending, &mut self.text);
        self.pending.drain(..taken);
        &self.text
    }

    /// Ends the sequence and returns what was kept back; an unfinished character becomes U+FFFD.
    pub fn finish(&mut self) -> String {
        self.place = Place::Start;
        String::from_utf8_lossy(&std::mem::take(&mut self.pending)).into_owned()
    }

    fn write(&mut self, id: u32) {
        let before = self.pending.len();
        let first = self.place == Place::Start;
        let special = if self.shown.contains(&id) { SpecialTokens::Keep } else { self.special };
        self.tokenizer.write_token(id, special, first, &mut self.pending);
        if first && self.pending.len() > before {
            self.place = Place::Inside;
            if self.tokenizer.starts_with_added_space() && self.pending[before] == b' ' {
                self.pending.remove(before);
            }
        }
    }
}

/// Appends the text of `bytes` up to an unfinished character, with U+FFFD for what is no UTF-8, and returns how many
/// bytes that was.
fn take_complete(bytes: &[u8], text: &mut String) -> usize {
    let mut rest = bytes;
    loop {
        match std::str::from_utf8(rest) {
            Ok(valid) => {
                text.push_str(valid);
                return bytes.len();
            }
            Err(error) => {
                let (valid, after) = rest.split_at(error.valid_up_to());
                text.push_str(&String::from_utf8_lossy(valid));
                let Some(bad) = error.error_len() else { return bytes.len() - after.len() };
                text.push(char::REPLACEMENT_CHARACTER);
                rest = &after[bad..];
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unfinished_character_is_kept_back() {
        let mut text = String::new();
        assert_eq!(take_complete(b"a\xF0\x9F\x98", &mut text), 1);
        assert_eq!(text, "a");
    }

    #[test]
    fn broken_bytes_become_replacement_characters_as_in_whole_decoding() {
        let mut text = String::new();
        let bytes = b"\xFFa\xE2\x82b\xC3";
        let taken = take_complete(bytes, &mut text);
        text.push_str(&String::from_utf8_lossy(&bytes[taken..]));
        assert_eq!(text, String::from_utf8_lossy(bytes));
    }
}
