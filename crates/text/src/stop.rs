//! Stop strings across token borders.
//!
//! ```text
//! pieces     "the e" "nd#" "# of"         stop "###"
//! out        "the e" "nd"   held "##"  ->  "## of"
//! ```
//! Text that may be the beginning of a stop string is held back until it is decided; everything else goes out at
//! once. Which text goes out in the end does not depend on how it came in.

/// What became of a piece of text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Stopping {
    /// No stop string yet: this much can go out.
    Text(String),
    /// A stop string is complete; what came before it can go out, the rest is dropped.
    Stopped {
        /// The text before the stop string.
        text: String,
        /// The stop string.
        stop: String,
    },
}

/// Looks for stop strings in a text that arrives in pieces.
#[derive(Clone, Debug)]
pub struct StopMatcher {
    stops: Vec<String>,
    held: String,
}

impl StopMatcher {
    /// Looks for these; empty ones are ignored.
    pub fn new(mut stops: Vec<String>) -> Self {
        stops.retain(|stop| !stop.is_empty());
        Self { stops, held: String::new() }
    }

    /// Takes the next piece.
    pub fn push(&mut self, piece: &str) -> Stopping {
        if self.stops.is_empty() {
            return Stopping::Text(piece.into());
        }
        self.held.push_str(piece);
        if let Some((at, stop)) = self.first() {
            let text = self.held[..at].to_owned();
            self.held.clear();
            return Stopping::Stopped { text, stop };
        }
        let undecided = self.undecided();
        let rest = self.held.split_off(self.held.len() - undecided);
        Stopping::Text(std::mem::replace(&mut self.held, rest))
    }

    /// The text is over: gives what was held back.
    pub fn finish(&mut self) -> String {
        std::mem::take(&mut self.held)
    }

    /// The stop string that is complete first; of several that are, the longest.
    fn first(&self) -> Option<(usize, String)> {
        let found = self.stops.iter().filter_map(|stop| Some((self.held.find(stop.as_str())?, stop)));
        let best = found.min_by_key(|(at, stop)| (at + stop.len(), *at));
        best.map(|(at, stop)| (at, stop.clone()))
    }

    /// How many bytes at the end may be the beginning of a stop string.
    fn undecided(&self) -> usize {
        let begins = |stop: &String| {
            let longest = (stop.len() - 1).min(self.held.len());
            let held = self.held.as_bytes();
            (1..=longest).rev().find(|len| held.ends_with(&stop.as_bytes()[..*len])).unwrap_or(0)
        };
        let bytes = self.stops.iter().map(begins).max().unwrap_or(0);
        // A stop string begins at a character, so the cut is at one, too.
        debug_assert!(self.held.is_char_boundary(self.held.len() - bytes));
        bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn run(stops: &[&str], pieces: &[&str]) -> (String, Option<String>) {
        let mut matcher = StopMatcher::new(stops.iter().map(ToString::to_string).collect());
        let mut out = String::new();
        for piece in pieces {
            match matcher.push(piece) {
                Stopping::Text(text) => out.push_str(&text),
                Stopping::Stopped { text, stop } => return (out + &text, Some(stop)),
            }
        }
        (out + &matcher.finish(), None)
    }

    #[test]
    fn a_stop_string_is_found_across_pieces_and_left_out() {
        assert_eq!(run(&["###"], &["the e", "nd#", "## of"]), ("the end".into(), Some("###".into())));
        assert_eq!(run(&["###"], &["the e", "nd#", "# of"]), ("the end## of".into(), None));
        assert_eq!(run(&["ab", "b"], &["xa", "b"]), ("x".into(), Some("ab".into())));
        assert_eq!(run(&["", "é!"], &["caf", "é", "?é", "!"]), ("café?".into(), Some("é!".into())));
    }

    #[test]
    fn text_is_held_back_only_while_it_may_begin_a_stop_string() {
        let mut matcher = StopMatcher::new(vec!["User:".into()]);
        assert_eq!(matcher.push("Hello Us"), Stopping::Text("Hello ".into()));
        assert_eq!(matcher.push("A"), Stopping::Text("UsA".into()));
    }

    proptest! {
        #[test]
        fn the_result_does_not_depend_on_the_pieces(
            text in "[abé]{0,30}",
            stop in "[abé]{1,4}",
            other in "[abé]{1,4}",
            cut in 1_usize..5,
        ) {
            let chars: Vec<String> = text.chars().collect::<Vec<_>>().chunks(cut).map(|c| c.iter().collect()).collect();
            let pieces: Vec<&str> = chars.iter().map(String::as_str).collect();
            let alone = match text.find(&stop) {
                Some(at) => (text[..at].to_owned(), Some(stop.clone())),
                None => (text.clone(), None),
            };
            prop_assert_eq!(run(&[&stop], &pieces), alone);
            prop_assert_eq!(run(&[&stop, &other], &pieces), run(&[&stop, &other], &[&text]));
        }
    }
}
