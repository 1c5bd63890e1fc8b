//! SentencePiece's compiled normalisation rules: from runs of characters to what replaces them.
//!
//! ```text
//! trie length in bytes: u32 | trie: u32 units | replacements, each ended by a zero byte
//!
//! unit    31      30........10   9     8     7..0
//!         leaf?   offset         wide  leaf  label        (a leaf unit holds a value in its lower 31 bits)
//! ```
//!
//! The trie is a double array: the child of a node for a byte stands at `node ^ offset ^ byte` and carries that byte as
//! its label; a node that ends a rule has its leaf at `node ^ offset`. The leaf's value is where the replacement begins.
//! The arrays come from a file, so every step is checked against their ends.

use crate::error::TextError;

/// A set of rules.
pub(crate) struct Charsmap {
    units: Vec<u32>,
    replacements: String,
}

impl Charsmap {
    pub(crate) fn new(bytes: &[u8]) -> Result<Self, TextError> {
        let broken = || TextError::Inconsistent("its compiled normalisation rules are broken".to_owned());
        let (length, rest) = bytes.split_first_chunk().ok_or_else(broken)?;
        let length = u32::from_le_bytes(*length) as usize;
        let (trie, replacements) = rest.split_at_checked(length).ok_or_else(broken)?;
        let (units, []) = trie.as_chunks::<4>() else { return Err(broken()) };
        let replacements = std::str::from_utf8(replacements).map_err(|_| broken())?;
        let units = units.iter().map(|unit| u32::from_le_bytes(*unit)).collect();
        Ok(Self { units, replacements: replacements.to_owned() })
    }

    /// Replaces the longest run that has a rule, again and again, as long as the result has at most `limit` bytes.
    pub(crate) fn apply(&self, text: &str, limit: usize) -> Result<String, TextError> {
        let mut out = String::with_capacity(text.len());
        let mut rest = text;
        while let Some(character) = rest.chars().next() {
            let (length, replacement) = match self.longest(rest) {
                Some(found) => found,
                None => (character.len_utf8(), &rest[..character.len_utf8()]),
            };
            if out.len() + replacement.len() > limit {
                return Err(TextError::TextTooLong { bytes: out.len() + replacement.len(), limit });
            }
            out.push_str(replacement);
            rest = &rest[length..];
        }
        Ok(out)
    }

    /// The longest rule for a beginning of `text`: how much it takes, and what replaces that.
    fn longest(&self, text: &str) -> Option<(usize, &str)> {
        let mut node = offset(*self.units.first()?);
        let mut best = None;
        for (index, &byte) in text.as_bytes().iter().enumerate() {
            node ^= usize::from(byte);
            let Some(&unit) = self.units.get(node) else { break };
            if label(unit) != u32::from(byte) {
                break;
            }
            node ^= offset(unit);
            if has_leaf(unit) && text.is_char_boundary(index + 1) {
                let leaf = self.units.get(node).and_then(|leaf| self.replacement(*leaf));
                best = leaf.map(|text| (index + 1, text)).or(best);
            }
        }
        best
    }

    fn replacement(&self, leaf: u32) -> Option<&str> {
        let text = self.replacements.get((leaf & !(1 << 31)) as usize..)?;
        text.split('\0').next()
    }
}

/// Leaves never equal a byte, as their top bit is set.
fn label(unit: u32) -> u32 {
    unit & ((1 << 31) | 0xFF)
}

fn has_leaf(unit: u32) -> bool {
    unit >> 8 & 1 == 1
}

/// Wide offsets are given in steps of 256.
fn offset(unit: u32) -> usize {
    ((unit >> 10) as usize) << ((unit & (1 << 9)) >> 6)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn cut_off_rules_are_an_error() {
        for bytes in [&b""[..], b"\x04\0\0", b"\x08\0\0\0\0\0\0\0", b"\x03\0\0\0\0\0\0\0", b"\0\0\0\0\xFF"] {
            assert!(Charsmap::new(bytes).is_err(), "{bytes:?}");
        }
    }

    #[test]
    fn without_rules_text_stays() {
        assert_eq!(Charsmap::new(b"\0\0\0\0").unwrap().apply("añ", 10).unwrap(), "añ");
    }

    proptest! {
        #[test]
        fn arbitrary_rules_never_panic(units in prop::collection::vec(any::<u32>(), 0..64), text in ".{0,40}") {
            let mut bytes = ((units.len() * 4) as u32).to_le_bytes().to_vec();
            bytes.extend(units.iter().flat_map(|unit| unit.to_le_bytes()));
            bytes.extend(b"a\0\xC3\xA9\0");
            let _ = Charsmap::new(&bytes).unwrap().apply(&text, 100);
        }
    }
}
