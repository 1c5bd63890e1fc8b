//! Makes a failing scenario smaller while it still fails.
//!
//! A scenario is a list of parts (requests, faults) that can be left out or made shorter. [`shrink`] first leaves out
//! ranges of parts, half of them, then a quarter, down to single ones, then takes the options from those that remain, and
//! halves their sizes.
//! Every [`Edit`] that keeps the scenario failing is kept. A seed and its edits, written as text, are the whole
//! scenario, so that a failure can be replayed from one line.

use std::fmt;
use std::ops::Range;
use std::str::FromStr;

/// Scenarios that are tried for one failure: enough for some hundred requests, within seconds.
const ATTEMPTS: usize = 500;

/// A scenario that can be made smaller. It prints as what a person needs to understand it.
pub trait Shrink: Sized + Clone + fmt::Display {
    /// Parts that can be left out or made shorter.
    fn parts(&self) -> usize;

    /// The scenario without these parts.
    fn without(&self, parts: Range<usize>) -> Self;

    /// The scenario with the options of one part left out; `None` if it has none.
    fn simplified(&self, part: usize) -> Option<Self>;

    /// The scenario with one part made shorter; `None` if that part can't be.
    fn shortened(&self, part: usize) -> Option<Self>;
}

/// One change to a scenario, by the indices that its parts have at that point.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Edit {
    /// Leaves out a range of parts.
    Drop(Range<usize>),
    /// Takes the options from a part.
    Simplify(usize),
    /// Makes a part shorter.
    Shorten(usize),
}

impl Edit {
    /// The edited scenario; `None` if it has no such part.
    pub fn apply<S: Shrink>(&self, scenario: &S) -> Option<S> {
        match self {
            Edit::Drop(parts) => (parts.end <= scenario.parts()).then(|| scenario.without(parts.clone())),
            Edit::Simplify(part) => scenario.simplified(*part),
            Edit::Shorten(part) => scenario.shortened(*part),
        }
    }
}

impl fmt::Display for Edit {
    /// `-3..9` leaves out parts 3 to 8, `=2` takes the options from part 2, `/2` makes it shorter.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Edit::Drop(parts) => write!(f, "-{}..{}", parts.start, parts.end),
            Edit::Simplify(part) => write!(f, "={part}"),
            Edit::Shorten(part) => write!(f, "/{part}"),
        }
    }
}

/// A text that is no edit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BadEdit(String);

impl FromStr for Edit {
    type Err = BadEdit;

    fn from_str(text: &str) -> Result<Self, BadEdit> {
        let number = |text: &str| text.parse::<usize>().ok();
        let range = |text: &str| text.split_once("..").and_then(|(a, b)| Some(number(a)?..number(b)?));
        let edit = match text.split_at_checked(1) {
            Some(("-", parts)) => range(parts).map(Edit::Drop),
            Some(("=", part)) => number(part).map(Edit::Simplify),
            Some(("/", part)) => number(part).map(Edit::Shorten),
            _ => None,
        };
        edit.ok_or_else(|| BadEdit(text.into()))
    }
}

/// The smallest failing scenario that was found.
#[derive(Clone, Debug)]
pub struct Shrunk<S> {
    /// The scenario.
    pub scenario: S,
    /// How it differs from the original.
    pub edits: Vec<Edit>,
    /// How it fails.
    pub failure: String,
}

/// Makes `scenario`, which fails with `failure`, smaller while `check` still gives an error.
pub fn shrink<S: Shrink>(
    scenario: S,
    failure: String,
    check: impl Fn(&S) -> Result<(), String>,
) -> Shrunk<S> {
    let mut search = Search { best: Shrunk { scenario, edits: Vec::new(), failure }, check, left: ATTEMPTS };
    search.drop_parts();
    search.reduce_parts();
    search.best
}

struct Search<S, C> {
    best: Shrunk<S>,
    check: C,
    /// Attempts left.
    left: usize,
}

impl<S: Shrink, C: Fn(&S) -> Result<(), String>> Search<S, C> {
    fn drop_parts(&mut self) {
        let mut width = self.best.scenario.parts().div_ceil(2);
        while width > 0 {
            let mut start = 0;
            while start < self.best.scenario.parts() && self.left > 0 {
                let end = (start + width).min(self.best.scenario.parts());
                if !self.attempt(Edit::Drop(start..end)) {
                    start = end;
                }
            }
            width /= 2;
        }
    }

    fn reduce_parts(&mut self) {
        for part in 0..self.best.scenario.parts() {
            self.attempt(Edit::Simplify(part));
            while self.attempt(Edit::Shorten(part)) {}
        }
    }

    /// Keeps the edit if the scenario still fails with it.
    fn attempt(&mut self, edit: Edit) -> bool {
        let Some(scenario) = edit.apply(&self.best.scenario).filter(|_| self.left > 0) else { return false };
        self.left -= 1;
        let Err(failure) = (self.check)(&scenario) else { return false };
        self.best.scenario = scenario;
        self.best.failure = failure;
        self.best.edits.push(edit);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Numbers, whose only option is to be negative.
    #[derive(Clone, Debug, PartialEq)]
    struct Numbers(Vec<i32>);

    impl fmt::Display for Numbers {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            write!(f, "{:?}", self.0)
        }
    }

    impl Shrink for Numbers {
        fn parts(&self) -> usize {
            self.0.len()
        }

        fn without(&self, parts: Range<usize>) -> Self {
            let kept = |index: &usize| !parts.contains(index);
            Numbers((0..self.0.len()).filter(kept).map(|index| self.0[index]).collect())
        }

        fn simplified(&self, part: usize) -> Option<Self> {
            let mut simpler = self.clone();
            let number = simpler.0.get_mut(part).filter(|number| **number < 0)?;
            *number = -*number;
            Some(simpler)
        }

        fn shortened(&self, part: usize) -> Option<Self> {
            let mut smaller = self.clone();
            let number = smaller.0.get_mut(part).filter(|number| number.abs() > 1)?;
            *number /= 2;
            Some(smaller)
        }
    }

    /// Fails if two numbers above 10 are there.
    fn check(numbers: &Numbers) -> Result<(), String> {
        let large = numbers.0.iter().filter(|number| number.abs() > 10).count();
        if large < 2 { Ok(()) } else { Err(format!("{large} large numbers")) }
    }

    #[test]
    fn what_is_not_needed_for_the_failure_goes_and_the_edits_lead_there_again() {
        let all = Numbers((0..100).map(|i| if i % 30 == 7 { -90 } else { i % 10 }).collect());
        let shrunk = shrink(all.clone(), "4 large numbers".into(), check);
        assert_eq!(shrunk.scenario, Numbers(vec![11, 11]));
        assert_eq!(shrunk.failure, "2 large numbers");
        let text: Vec<String> = shrunk.edits.iter().map(Edit::to_string).collect();
        let replayed = text.iter().fold(all, |numbers, edit| {
            edit.parse::<Edit>().unwrap().apply(&numbers).expect("the part is there")
        });
        assert_eq!(replayed, shrunk.scenario);
    }

    #[test]
    fn a_text_that_is_no_edit_is_an_error() {
        for text in ["", "3", "-3", "-a..b", "/x", "=", "ü1"] {
            assert_eq!(text.parse::<Edit>(), Err(BadEdit(text.into())));
        }
    }
}
