//! Regular expressions of tokenizers, run in linear time wherever that is possible.
//!
//! Nearly all pre-tokenizers end in `|\s+(?!\S)|\s+`: a run of white space leaves its last character to the word that
//! follows. This look-ahead is the only thing that keeps them from being regular, so it is taken off and done by hand:
//!
//! ```text
//! head|\s+(?!\S)|\s+   ->   [head, \s+]   and a match of the second that is longer than one character and not at the
//!                                          end of the text gives its last character back
//! ```
//!
//! What still looks around runs on a backtracking engine with a bound on its steps.

use crate::error::TextError;
use regex_automata::meta::Regex;
use regex_automata::{Input, PatternID};
use std::ops::Range;

/// A compiled pattern.
pub(crate) enum Pattern {
    /// No look-around, except for white space as above in the pattern with that index.
    Linear { regex: Regex, spaces: Option<PatternID> },
    /// Anything else.
    Backtracking(Box<fancy_regex::Regex>),
}

/// Compiled size; the largest known pattern takes a tenth of it.
const MAX_BYTES: usize = 16 << 20;

/// Steps of one backtracking search; real patterns need a few per byte of a word.
const MAX_STEPS: usize = 1_000_000;

const SPACES_BUT_LAST: &str = r"|\s+(?!\S)|\s+";
const SPACES: &str = r"\s+";

impl Pattern {
    pub(crate) fn new(pattern: &str) -> Result<Self, TextError> {
        if let Some(head) = pattern.strip_suffix(SPACES_BUT_LAST)
            && let Some(regex) = linear(&[head, SPACES])
        {
            return Ok(Pattern::Linear { regex, spaces: Some(PatternID::must(1)) });
        }
        if let Some(regex) = linear(&[pattern]) {
            return Ok(Pattern::Linear { regex, spaces: None });
        }
        fancy_regex::RegexBuilder::new(pattern)
            .backtrack_limit(MAX_STEPS)
            .delegate_size_limit(MAX_BYTES)
            .build()
            .map(|regex| Pattern::Backtracking(Box::new(regex)))
            .map_err(|error| bad_pattern(pattern, &error))
    }

    /// Calls `found` for every non-empty match, in order, until it fails.
    pub(crate) fn each_match(
        &self,
        text: &str,
        mut found: impl FnMut(Range<usize>) -> Result<(), TextError>,
    ) -> Result<(), TextError> {
        match self {
            Pattern::Linear { regex, spaces } => each_linear(regex, *spaces, text, found),
            Pattern::Backtracking(regex) => regex.find_iter(text).try_for_each(|result| {
                let range = result.map_err(|error| bad_pattern(regex.as_str(), &error))?.range();
                if range.is_empty() { Ok(()) } else { found(range) }
            }),
        }
    }
}

/// `None` for what is not regular, or broken: the backtracking engine knows which.
fn linear(patterns: &[&str]) -> Option<Regex> {
    let config = Regex::config().nfa_size_limit(Some(MAX_BYTES));
    Regex::builder().configure(config).build_many(patterns).ok()
}

fn bad_pattern(pattern: &str, reason: &fancy_regex::Error) -> TextError {
    TextError::BadPattern { pattern: pattern.to_owned(), reason: reason.to_string() }
}

fn each_linear(
    regex: &Regex,
    spaces: Option<PatternID>,
    text: &str,
    mut found: impl FnMut(Range<usize>) -> Result<(), TextError>,
) -> Result<(), TextError> {
    let mut input = Input::new(text);
    while let Some(at) = regex.search(&input) {
        let mut range = at.range();
        if Some(at.pattern()) == spaces {
            range.end = without_last(text, &range);
        }
        if range.is_empty() {
            let Some(step) = text[range.end..].chars().next() else { break };
            input.set_start(range.end + step.len_utf8());
            continue;
        }
        input.set_start(range.end);
        found(range)?;
    }
    Ok(())
}

/// Where a run of white space ends that leaves its last character to what follows, if anything does.
fn without_last(text: &str, run: &Range<usize>) -> usize {
    let last = text[run.clone()].chars().next_back().map_or(0, char::len_utf8);
    let shorter = run.end - last;
    if run.end == text.len() || shorter == run.start { run.end } else { shorter }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn matches<'t>(pattern: &Pattern, text: &'t str) -> Vec<&'t str> {
        let mut found = Vec::new();
        let keep = |range: Range<usize>| {
            found.push(&text[range]);
            Ok(())
        };
        pattern.each_match(text, keep).unwrap();
        found
    }

    const WORDS: &str = r" ?\p{L}+| ?[^\s\p{L}]+|\s+(?!\S)|\s+";

    #[test]
    fn white_space_by_hand_equals_the_look_ahead() {
        let by_hand = Pattern::new(WORDS).unwrap();
        assert!(matches!(by_hand, Pattern::Linear { spaces: Some(_), .. }));
        let looking = Pattern::Backtracking(Box::new(fancy_regex::Regex::new(WORDS).unwrap()));
        for text in ["a b", "a  b", "a\n\n b", "  ", "a   ", " \t!\u{3000}\u{3000}x", "", "é\u{a0}\u{a0}é"]
        {
            assert_eq!(matches(&by_hand, text), matches(&looking, text), "{text:?}");
        }
    }

    #[test]
    fn other_look_around_backtracks() {
        let pattern = Pattern::new(r"\d(?=(\d{3})+\b)|\d").unwrap();
        assert!(matches!(pattern, Pattern::Backtracking(_)));
        assert_eq!(matches(&pattern, "1234"), ["1", "2", "3", "4"]);
    }

    #[test]
    fn an_exploding_pattern_is_an_error_and_not_a_hang() {
        let pattern = Pattern::new(r"(?=(a+)+$)(a|aa)+\1b").unwrap();
        let error = pattern.each_match(&"a".repeat(200), |_| Ok(())).unwrap_err();
        assert!(matches!(error, TextError::BadPattern { .. }));
    }

    #[test]
    fn a_broken_pattern_is_an_error() {
        assert!(matches!(Pattern::new("(a").err(), Some(TextError::BadPattern { .. })));
    }
}
