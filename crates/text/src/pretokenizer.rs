//! Pre-tokenizing: cutting normalised text into pieces that no token may cross.
//!
//! Every known pre-tokenizer is a list of a few steps; each step cuts the pieces of the step before or rewrites them.
//! Pieces are handed on as they are found; nothing is collected, so that a long text takes no memory here.

use crate::error::TextError;
use crate::interrupt::Interrupt;
use crate::pattern::Pattern;
use crate::spelling::byte_char;
use serde::Deserialize;
use std::ops::Range;

/// A pre-tokenizer; without steps the text is one piece.
#[derive(Default)]
pub(crate) struct PreTokenizer {
    pub(crate) steps: Vec<Step>,
}

/// One step.
pub(crate) enum Step {
    /// Cuts around matches.
    Split { delimiter: Delimiter, behavior: Behavior, invert: bool },
    /// Puts a space before a piece that has none.
    PrefixSpace,
    /// Writes every byte as its character of the byte-level alphabet.
    Bytes,
    /// Writes spaces as `replacement`, and one before the pieces that `prepend` says.
    Metaspace { replacement: char, prepend: Prepend },
}

/// What a [`Step::Split`] looks for.
pub(crate) enum Delimiter {
    Pattern(Pattern),
    Chars(fn(char) -> bool),
}

/// What becomes of the delimiters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
pub(crate) enum Behavior {
    /// They are dropped.
    Removed,
    /// Each is a piece.
    Isolated,
    /// Each ends the piece before it.
    MergedWithPrevious,
    /// Each begins the piece after it.
    MergedWithNext,
    /// Neighbouring ones are one piece.
    Contiguous,
}

/// Which pieces get a word mark that the text doesn't have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Prepend {
    /// The one at the very start of the text.
    First,
    Never,
    Always,
}

/// Where a piece stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// At the very start of the text.
    Start,
    Inside,
}

impl Step {
    /// Each match of `pattern` is a piece, and so is what lies between two.
    pub(crate) fn isolate(pattern: &str) -> Result<Self, TextError> {
        Ok(Self::split(Delimiter::Pattern(Pattern::new(pattern)?), Behavior::Isolated))
    }

    pub(crate) fn split(delimiter: Delimiter, behavior: Behavior) -> Self {
        Step::Split { delimiter, behavior, invert: false }
    }
}

impl PreTokenizer {
    /// Leaves it to the model to write bytes as characters, if that is the last step: it does so part by part. Whether it
    /// is.
    pub(crate) fn leave_bytes_to_model(&mut self) -> bool {
        self.steps.pop_if(|step| matches!(step, Step::Bytes)).is_some()
    }

    /// Calls `piece` for every piece of `text`, in order, until it fails or the interrupt is raised; none is empty.
    pub(crate) fn split(
        &self,
        text: &str,
        place: Place,
        interrupt: &Interrupt,
        piece: PieceTaker<'_>,
    ) -> Result<(), TextError> {
        Run { interrupt, piece }.over(&self.steps, text, place)
    }
}

/// What is called for every piece.
type PieceTaker<'p> = &'p mut dyn FnMut(&str) -> Result<(), TextError>;

/// The steps, applied to one text.
struct Run<'r> {
    interrupt: &'r Interrupt,
    piece: PieceTaker<'r>,
}

impl Run<'_> {
    fn over(&mut self, steps: &[Step], text: &str, place: Place) -> Result<(), TextError> {
        if text.is_empty() {
            return Ok(());
        }
        let Some((step, rest)) = steps.split_first() else {
            return (self.piece)(text);
        };
        match step {
            Step::Split { delimiter, behavior, invert } => {
                let (interrupt, mut joining) = (self.interrupt, Joining::new(*behavior));
                let mut cut = |cut: Range<usize>| {
                    let place = if cut.start == 0 { place } else { Place::Inside };
                    self.over(rest, &text[cut], place)
                };
                delimiter.each_span(text, *invert, |span| {
                    interrupt.check()?;
                    joining.push(span).map_or(Ok(()), &mut cut)
                })?;
                joining.finish().map_or(Ok(()), cut)
            }
            Step::PrefixSpace if !text.starts_with(' ') => self.over(rest, &format!(" {text}"), place),
            Step::PrefixSpace => self.over(rest, text, place),
            Step::Bytes => self.over(rest, &text.bytes().map(byte_char).collect::<String>(), place),
            Step::Metaspace { replacement, prepend } => {
                self.over(rest, &metaspace(text, *replacement, *prepend, place), place)
            }
        }
    }
}

fn metaspace(text: &str, replacement: char, prepend: Prepend, place: Place) -> String {
    let mut marked = text.replace(' ', replacement.encode_utf8(&mut [0; 4]));
    let wanted = match prepend {
        Prepend::Always => true,
        Prepend::First => place == Place::Start,
        Prepend::Never => false,
    };
    if wanted && !marked.starts_with(replacement) {
        marked.insert(0, replacement);
    }
    marked
}

/// A stretch of text.
struct Span {
    range: Range<usize>,
    is_delimiter: bool,
}

impl Delimiter {
    /// Cuts all of `text` into delimiters and what lies between, until `found` fails; `invert` swaps the two.
    fn each_span(
        &self,
        text: &str,
        invert: bool,
        mut found: impl FnMut(Span) -> Result<(), TextError>,
    ) -> Result<(), TextError> {
        let mut done = 0;
        let mut span = |range: Range<usize>, matched: bool| {
            if range.is_empty() { Ok(()) } else { found(Span { range, is_delimiter: matched != invert }) }
        };
        let mut delimiter = |range: Range<usize>| {
            let before = std::mem::replace(&mut done, range.end)..range.start;
            span(before, false)?;
            span(range, true)
        };
        match self {
            Delimiter::Pattern(pattern) => pattern.each_match(text, delimiter)?,
            Delimiter::Chars(is_delimiter) => {
                let mut delimiters = text.char_indices().filter(|(_, character)| is_delimiter(*character));
                delimiters
                    .try_for_each(|(start, character)| delimiter(start..start + character.len_utf8()))?;
            }
        }
        span(done..text.len(), false)
    }
}

/// Joins spans to pieces as they come.
struct Joining {
    behavior: Behavior,
    /// What is joined so far, and whether its last span is a delimiter.
    open: Option<Span>,
}

impl Joining {
    fn new(behavior: Behavior) -> Self {
        Self { behavior, open: None }
    }

    /// Takes the next span; the piece that it ends, if any.
    fn push(&mut self, span: Span) -> Option<Range<usize>> {
        if self.behavior == Behavior::Removed && span.is_delimiter {
            return None;
        }
        match &mut self.open {
            Some(open) if self.behavior.joins(open.is_delimiter, span.is_delimiter) => {
                *open = Span { range: open.range.start..span.range.end, ..span };
                None
            }
            open => open.replace(span).map(|ended| ended.range),
        }
    }

    /// The last piece.
    fn finish(self) -> Option<Range<usize>> {
        self.open.map(|span| span.range)
    }
}

impl Behavior {
    /// Whether a span is one piece with the one before it.
    fn joins(self, after_delimiter: bool, is_delimiter: bool) -> bool {
        match self {
            Behavior::Removed | Behavior::Isolated => false,
            Behavior::MergedWithPrevious => !after_delimiter && is_delimiter,
            Behavior::MergedWithNext => after_delimiter && !is_delimiter,
            Behavior::Contiguous => after_delimiter == is_delimiter,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pieces(steps: Vec<Step>, text: &str) -> Vec<String> {
        let mut pieces = Vec::new();
        let pre_tokenizer = PreTokenizer { steps };
        let keep = &mut |piece: &str| {
            pieces.push(piece.to_owned());
            Ok(())
        };
        pre_tokenizer.split(text, Place::Start, &Interrupt::default(), keep).unwrap();
        pieces
    }

    fn at_dashes(behavior: Behavior) -> Vec<String> {
        pieces(vec![Step::split(Delimiter::Chars(|c| c == '-'), behavior)], "the-final--countdown")
    }

    #[test]
    fn each_behavior_treats_delimiters_as_it_says() {
        assert_eq!(at_dashes(Behavior::Removed), ["the", "final", "countdown"]);
        assert_eq!(at_dashes(Behavior::Isolated), ["the", "-", "final", "-", "-", "countdown"]);
        assert_eq!(at_dashes(Behavior::MergedWithPrevious), ["the-", "final-", "-", "countdown"]);
        assert_eq!(at_dashes(Behavior::MergedWithNext), ["the", "-final", "-", "-countdown"]);
        assert_eq!(at_dashes(Behavior::Contiguous), ["the", "-", "final", "--", "countdown"]);
    }

    #[test]
    fn only_the_start_of_the_text_gets_a_first_mark() {
        let steps = || {
            let mark = Step::Metaspace { replacement: '▁', prepend: Prepend::First };
            vec![Step::split(Delimiter::Chars(|c| c == '|'), Behavior::Removed), mark]
        };
        assert_eq!(pieces(steps(), "a b|c"), ["▁a▁b", "c"]);
    }

    #[test]
    fn nothing_is_cut_or_given_once_the_interrupt_is_raised() {
        let steps = vec![Step::isolate("[a-z]").unwrap()];
        let (interrupt, mut pieces) = (Interrupt::default(), 0);
        let stop = &mut |_: &str| {
            pieces += 1;
            interrupt.raise();
            Ok(())
        };
        let outcome = PreTokenizer { steps }.split("abc", Place::Start, &interrupt, stop);
        assert!(matches!(outcome, Err(TextError::Interrupted)));
        assert_eq!(pieces, 1);
    }

    #[test]
    fn bytes_are_written_in_the_byte_level_alphabet() {
        assert_eq!(pieces(vec![Step::PrefixSpace, Step::Bytes], "é"), ["ĠÃ©"]);
    }
}
