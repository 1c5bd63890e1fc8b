//! Bringing JSON to its end when few tokens are left: strings, lists and objects are closed where they may be.
//!
//! A small model may write a string or a list for ever; cut in the middle, its answer would be of no use to anybody.

use ropeway_text::{Around, InText, Special, Tokenizer};

/// The tokens that close what is open.
#[derive(Clone, Debug)]
pub(crate) struct Landing {
    /// Tokens that end an answer.
    ends: Vec<u32>,
    /// A character that stands nowhere in JSON but inside of strings.
    text: Option<u32>,
    quote: Option<u32>,
    /// What closes or, where nothing can be closed, goes on with the least, the best first.
    closers: Vec<u32>,
}

impl Landing {
    pub(crate) fn new(tokenizer: &Tokenizer) -> Self {
        let token = |character: &str| {
            let special = Special { in_text: InText::Plain, around: Around::Omit };
            let tokens = tokenizer.encode(character, special).unwrap_or_default();
            // Some tokenizers put a space before every text.
            tokens.last().copied().filter(|token| tokenizer.token_bytes(*token) == character.as_bytes())
        };
        Self {
            ends: tokenizer.eos_tokens().to_vec(),
            text: token("#"),
            quote: token("\""),
            closers: ["}", "]", ",", "\"", "0"].into_iter().filter_map(token).collect(),
        }
    }

    /// Narrows a mask down to what leads to the end soonest; whether it allowed anything else.
    pub(crate) fn narrow(&self, mask: &mut [u32]) -> bool {
        let is_allowed = |token: &u32| is_set(mask, *token);
        let chosen: Vec<u32> = if self.ends.iter().any(is_allowed) {
            self.ends.iter().copied().filter(is_allowed).collect()
        } else if self.text.as_ref().is_some_and(is_allowed) {
            self.quote.into_iter().filter(is_allowed).collect()
        } else {
            self.closers.iter().copied().find(is_allowed).into_iter().collect()
        };
        let allowed: u32 = mask.iter().map(|word| word.count_ones()).sum();
        if chosen.is_empty() || allowed as usize == chosen.len() {
            return false;
        }
        mask.fill(0);
        for token in chosen {
            mask[(token / u32::BITS) as usize] |= 1 << (token % u32::BITS);
        }
        true
    }
}

fn is_set(mask: &[u32], token: u32) -> bool {
    mask.get((token / u32::BITS) as usize).is_some_and(|word| word >> (token % u32::BITS) & 1 == 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    const END: u32 = 40;
    const TEXT: u32 = 1;
    const QUOTE: u32 = 2;
    const BRACE: u32 = 3;

    fn narrowed(tokens: &[u32]) -> (bool, Vec<u32>) {
        let landing =
            Landing { ends: vec![END], text: Some(TEXT), quote: Some(QUOTE), closers: vec![BRACE, QUOTE] };
        let mut mask = [0; 2];
        for token in tokens {
            mask[*token as usize / 32] |= 1 << (token % 32);
        }
        let changed = landing.narrow(&mut mask);
        (changed, (0..64).filter(|token| is_set(&mask, *token)).collect())
    }

    #[test]
    fn what_is_open_is_closed() {
        assert_eq!(narrowed(&[TEXT, QUOTE, BRACE, 9]), (true, vec![QUOTE]), "inside of a string");
        assert_eq!(narrowed(&[QUOTE, BRACE]), (true, vec![BRACE]), "in front of a property");
        assert_eq!(narrowed(&[END, BRACE]), (true, vec![END]), "at the end");
        assert_eq!(narrowed(&[7, 9]), (false, vec![7, 9]), "nothing is known to help");
        assert_eq!(narrowed(&[QUOTE]), (false, vec![QUOTE]), "there was no choice");
        assert_eq!(narrowed(&[TEXT, 9]), (false, vec![TEXT, 9]), "a string that is too short yet");
    }
}
