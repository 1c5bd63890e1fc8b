//! Added tokens: texts that are one token wherever they stand, found before anything else looks at the text.
//!
//! Special ones (`<|im_start|>`) are only looked for when the caller says that the text may contain them: what a user
//! typed must not be able to open a turn of its own.

use crate::error::TextError;
use crate::interrupt::Interrupt;
use crate::vocabulary::{Kind, Vocabulary};
use aho_corasick::{AhoCorasick, AhoCorasickKind, Input, Match, MatchKind};
use std::ops::Range;

/// One added token and how it is matched.
#[derive(Clone, Debug, Default)]
pub(crate) struct AddedToken {
    pub(crate) id: u32,
    pub(crate) text: String,
    pub(crate) special: bool,
    pub(crate) fit: Fit,
}

/// How an added token gets on with the text around it.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Fit {
    /// Only where no letter, digit or underscore touches it.
    pub(crate) single_word: bool,
    /// Takes the white space before it along.
    pub(crate) takes_left: bool,
    /// Takes the white space after it along.
    pub(crate) takes_right: bool,
}

/// A set of added tokens, searched for together; the longest of those that begin at a place wins.
pub(crate) struct AddedTokens {
    tokens: Vec<AddedToken>,
    all: AhoCorasick,
    /// Without the special ones, with their indices.
    plain: (AhoCorasick, Vec<usize>),
    /// The special ones, sorted by text.
    special: Vec<usize>,
    /// Bytes of the longest text.
    longest: usize,
}

/// Bytes that are searched between two looks at the interrupt: some hundred microseconds.
const WINDOW: usize = 64 << 10;

/// A part of the text.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Part<'t> {
    /// An added token.
    Token(u32),
    /// Text between added tokens, never empty, and where it starts.
    Text(&'t str, usize),
}

impl AddedTokens {
    pub(crate) fn new(mut tokens: Vec<AddedToken>) -> Result<Self, TextError> {
        tokens.retain(|token| !token.text.is_empty());
        let every: Vec<usize> = (0..tokens.len()).collect();
        let plain: Vec<usize> = every.iter().copied().filter(|&index| !tokens[index].special).collect();
        let all = automaton(&tokens, &every)?;
        let plain = (automaton(&tokens, &plain)?, plain);
        let mut special: Vec<usize> = every.into_iter().filter(|&index| tokens[index].special).collect();
        special.sort_by(|&a, &b| tokens[a].text.cmp(&tokens[b].text));
        let longest = tokens.iter().map(|token| token.text.len()).max().unwrap_or(0);
        Ok(Self { tokens, all, plain, special, longest })
    }

    /// The tokens of a vocabulary that GGUF marks as control, unknown or user-defined.
    pub(crate) fn of_vocabulary(vocabulary: &Vocabulary) -> Result<Self, TextError> {
        let added = |(id, text, kind): (u32, &str, Kind)| {
            let special = matches!(kind, Kind::Control | Kind::Unknown);
            let text = text.to_owned();
            (special || kind == Kind::UserDefined).then(|| AddedToken {
                id,
                text,
                special,
                ..AddedToken::default()
            })
        };
        Self::new(vocabulary.iter().filter_map(added).collect())
    }

    /// Whether `text` begins with a special token's text, or is the beginning of one.
    pub(crate) fn begins_special(&self, text: &str) -> bool {
        let mut candidates = &self.special[..];
        for (depth, byte) in text.bytes().enumerate() {
            let at = |&index: &usize| self.tokens[index].text.as_bytes().get(depth).copied();
            let start = candidates.partition_point(|index| at(index) < Some(byte));
            let end = candidates.partition_point(|index| at(index) <= Some(byte));
            candidates = &candidates[start..end];
            match candidates.first() {
                None => return false,
                // The shortest of those with a common beginning comes first.
                Some(&index) if self.tokens[index].text.len() == depth + 1 => return true,
                Some(_) => {}
            }
        }
        !text.is_empty()
    }

    /// Calls `part` for everything in `text`, in order, until it fails or the interrupt is raised. Special tokens are taken
    /// as text unless `special`.
    pub(crate) fn split<'t>(
        &self,
        text: &'t str,
        special: bool,
        interrupt: &Interrupt,
        mut part: impl FnMut(Part<'t>) -> Result<(), TextError>,
    ) -> Result<(), TextError> {
        let (mut done, mut searched) = (0, 0);
        let automaton = if special { &self.all } else { &self.plain.0 };
        while let Some(found) = self.find(automaton, text, searched, interrupt)? {
            searched = found.end();
            let index = found.pattern().as_usize();
            let token = &self.tokens[if special { index } else { self.plain.1[index] }];
            let Some(range) = token.place(text, found.range(), done) else { continue };
            if done < range.start {
                part(Part::Text(&text[done..range.start], done))?;
            }
            part(Part::Token(token.id))?;
            done = range.end;
        }
        if done < text.len() {
            part(Part::Text(&text[done..], done))?;
        }
        Ok(())
    }
}

impl AddedTokens {
    /// The first match from `start` on, looked for in one window after the other.
    fn find(
        &self,
        automaton: &AhoCorasick,
        text: &str,
        mut start: usize,
        interrupt: &Interrupt,
    ) -> Result<Option<Match>, TextError> {
        loop {
            interrupt.check()?;
            // A match that begins in the window ends in what is searched, however long it is.
            let window = start.saturating_add(WINDOW);
            let end = window.saturating_add(self.longest).min(text.len());
            let found = automaton.find(Input::new(text).span(start..end));
            if end == text.len() || found.is_some_and(|found| found.start() < window) {
                return Ok(found);
            }
            start = window;
        }
    }
}

fn automaton(tokens: &[AddedToken], indices: &[usize]) -> Result<AhoCorasick, TextError> {
    AhoCorasick::builder()
        .match_kind(MatchKind::LeftmostLongest)
        // The compact form: vocabularies may have thousands of added tokens.
        .kind(Some(AhoCorasickKind::ContiguousNFA))
        .build(indices.iter().map(|&index| &tokens[index].text))
        .map_err(|error| TextError::Inconsistent(format!("its added tokens can't be searched for ({error})")))
}

impl AddedToken {
    /// What the token takes of the text when its own text was found at `found`, if it may stand there. Text before
    /// `done` is taken already.
    fn place(&self, text: &str, found: Range<usize>, done: usize) -> Option<Range<usize>> {
        let (before, after) = (&text[..found.start], &text[found.end..]);
        if found.start < done || (self.fit.single_word && touches_word(before, after)) {
            return None;
        }
        let start = if self.fit.takes_left { before.trim_end().len().max(done) } else { found.start };
        let spaces = after.len() - after.trim_start().len();
        let end = if self.fit.takes_right { found.end + spaces } else { found.end };
        Some(start..end)
    }
}

fn touches_word(before: &str, after: &str) -> bool {
    let word = |character: char| character.is_alphanumeric() || character == '_';
    before.chars().next_back().is_some_and(word) || after.chars().next().is_some_and(word)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn token(id: u32, text: &str) -> AddedToken {
        AddedToken { id, text: text.to_owned(), special: true, ..AddedToken::default() }
    }

    fn split(tokens: Vec<AddedToken>, text: &str, special: bool) -> Vec<Part<'_>> {
        let mut parts = Vec::new();
        let push = |part| {
            parts.push(part);
            Ok(())
        };
        AddedTokens::new(tokens).unwrap().split(text, special, &Interrupt::default(), push).unwrap();
        parts
    }

    #[test]
    fn the_longest_token_at_a_place_wins() {
        let parts = split(vec![token(0, "<a"), token(1, "<a>")], "x<a>y", true);
        assert_eq!(parts, [Part::Text("x", 0), Part::Token(1), Part::Text("y", 4)]);
    }

    #[test]
    fn a_token_is_found_wherever_it_lies_between_two_windows() {
        let before = |bytes: usize| "é".repeat(bytes / 2) + &"x".repeat(bytes % 2);
        for start in WINDOW - 4..WINDOW + 4 {
            let text = before(start) + "<a>" + &before(2 * WINDOW) + "<a";
            let parts = split(vec![token(0, "<a"), token(1, "<a>")], &text, true);
            let (first, between) = (&text[..start], &text[start + 3..text.len() - 2]);
            let expected =
                [Part::Text(first, 0), Part::Token(1), Part::Text(between, start + 3), Part::Token(0)];
            assert_eq!(parts, expected, "{start}");
        }
    }

    #[test]
    fn special_tokens_in_plain_text_are_text() {
        let user_defined = AddedToken { special: false, ..token(1, "--") };
        let parts = split(vec![token(0, "<s>"), user_defined], "<s>--", false);
        assert_eq!(parts, [Part::Text("<s>", 0), Part::Token(1)]);
    }

    #[test]
    fn the_beginning_of_a_special_token_is_recognised() {
        let user_defined = AddedToken { special: false, ..token(2, "--") };
        let tokens = AddedTokens::new(vec![token(0, "<s>"), token(1, "<|end|>"), user_defined]).unwrap();
        for text in ["<s>", "<s>x", "<", "<|en", "<|end|>"] {
            assert!(tokens.begins_special(text), "{text}");
        }
        for text in ["", "x<s>", "<x", "<s ", "--", "<|ends"] {
            assert!(!tokens.begins_special(text), "{text}");
        }
    }

    #[test]
    fn greedy_tokens_take_white_space_along() {
        let greedy = AddedToken {
            fit: Fit { takes_left: true, takes_right: true, single_word: false },
            ..token(0, "<m>")
        };
        assert_eq!(
            split(vec![greedy], "a <m> <m> b", true),
            [Part::Text("a", 0), Part::Token(0), Part::Token(0), Part::Text("b", 10),]
        );
    }

    #[test]
    fn a_single_word_token_does_not_match_inside_a_word() {
        let word = AddedToken { fit: Fit { single_word: true, ..Fit::default() }, ..token(0, "yes") };
        assert_eq!(split(vec![word], "yes! yesterday", true), [Part::Token(0), Part::Text("! yesterday", 3)]);
    }
}
