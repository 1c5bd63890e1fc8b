//! One run of calls in one of the formats, from the first character after its opening tag to its end.

use super::call::Calls;
use super::headed::Headed;
use super::json::{Grown, Json};
use super::pythonic::Pythonic;
use super::sink::Sink;

/// What a character did to a run of calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// It was taken, and nothing was handed out for it yet.
    Hold,
    /// It was taken, and everything up to it is handed out.
    Taken,
    /// It was taken, and everything before it is handed out.
    TakenBefore,
    /// It was the last one of the run, and everything is handed out.
    Done,
    /// It does not belong here, and was not taken: this is no call after all.
    Bad,
}

/// How a run of calls is written after its opening tag.
#[derive(Clone, Copy, Debug)]
pub(super) enum Opening {
    /// A JSON object with name and arguments, or a list of them.
    Json,
    /// A header that names the function, then the arguments as a JSON object.
    Headed(fn(&str) -> Option<&str>),
    /// One of the two above.
    JsonOrHeaded(fn(&str) -> Option<&str>),
    /// A Python list of function calls.
    Pythonic,
}

/// Which names are taken for tools where nothing but the form says that this is a call.
#[derive(Clone, Copy, Debug)]
pub(super) enum Names<'n> {
    /// After an opening tag: any.
    Any,
    /// Without a tag: only these, or any if there are none.
    Known(&'n [String]),
}

impl Names<'_> {
    pub(super) fn allow(self, name: &str) -> bool {
        match self {
            Names::Known(known) if !known.is_empty() => known.iter().any(|tool| tool == name),
            _ => true,
        }
    }

    /// Whether there was no tag: what does not look like a call at once is none.
    pub(super) fn are_all_there_is(self) -> bool {
        matches!(self, Names::Known(_))
    }
}

/// A run of calls.
#[derive(Debug)]
pub(super) enum Body {
    Undecided(Opening),
    /// Without a tag, after `[`: a list in JSON, or in Python.
    UndecidedList,
    Json(Calls),
    Headed(Headed),
    Pythonic(Pythonic),
}

impl Body {
    pub(super) fn push(&mut self, character: char, names: Names<'_>, sink: &mut Sink) -> Step {
        match self {
            Body::Json(calls) => calls.push(character, names, sink),
            Body::Headed(headed) => headed.push(character, sink),
            Body::Pythonic(list) => list.push(character, names, sink),
            Body::Undecided(_) | Body::UndecidedList if character.is_whitespace() => Step::Hold,
            Body::Undecided(opening) => match decide(*opening, character) {
                Some(decided) => self.become_and_push(decided, character, names, sink),
                None => Step::Bad,
            },
            Body::UndecidedList if character == '{' => {
                self.become_and_push(Body::Json(Calls::list()), character, names, sink)
            }
            Body::UndecidedList => {
                self.become_and_push(Body::Pythonic(Pythonic::in_list()), character, names, sink)
            }
        }
    }

    fn become_and_push(&mut self, decided: Body, character: char, names: Names<'_>, sink: &mut Sink) -> Step {
        *self = decided;
        self.push(character, names, sink)
    }

    /// Completes the arguments that were handed out in part. Returns whether there were any.
    pub(super) fn close(&mut self, sink: &mut Sink) -> bool {
        match self {
            Body::Json(calls) => calls.close(sink),
            Body::Headed(headed) => headed.close(sink),
            Body::Pythonic(_) | Body::Undecided(_) | Body::UndecidedList => false,
        }
    }
}

/// The first character that is no space tells the formats apart.
fn decide(opening: Opening, first: char) -> Option<Body> {
    let json = matches!(first, '{' | '[').then(|| Body::Json(Calls::new()));
    match opening {
        Opening::Json => json,
        Opening::Headed(name_of) => Some(Body::Headed(Headed::new(name_of))),
        Opening::JsonOrHeaded(name_of) => json.or(Some(Body::Headed(Headed::new(name_of)))),
        Opening::Pythonic => (first == '[').then(|| Body::Pythonic(Pythonic::new())),
    }
}

/// Adds a character to arguments that are handed out as they come; done when they are complete.
pub(super) fn stream(arguments: &mut Json, character: char, sink: &mut Sink) -> Step {
    let grown = arguments.push(character);
    let safe = arguments.take_safe();
    sink.arguments(&safe);
    match grown {
        Grown::Complete => Step::Done,
        Grown::More if safe.is_empty() => Step::Hold,
        Grown::More if arguments.waits() => Step::TakenBefore,
        Grown::More => Step::Taken,
        Grown::CompleteBefore | Grown::Bad => Step::Bad,
    }
}
