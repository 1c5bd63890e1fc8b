//! Calls as a Python list of function calls: `[weather(city="Paris", days=2), clock()]`.
//!
//! Arguments have to be translated, so a call is handed out when its closing parenthesis has come.

use super::body::{Names, Step};
use super::python::keyword_arguments;
use super::sink::Sink;

/// The longest function name in bytes; APIs allow 64 letters.
const MAX_NAME: usize = 256;

/// Such a list.
#[derive(Debug)]
pub(super) struct Pythonic {
    at: At,
}

#[derive(Debug)]
enum At {
    Start,
    /// The name of a call, possibly empty yet.
    Name(String),
    Arguments(Arguments),
    /// A comma or the end of the list.
    Comma,
}

/// The inside of a call's parentheses.
#[derive(Debug, Default)]
struct Arguments {
    name: String,
    text: String,
    /// Brackets open inside.
    depth: usize,
    quote: Option<char>,
    escaped: bool,
}

impl Pythonic {
    /// Before the opening bracket.
    pub(super) fn new() -> Self {
        Self { at: At::Start }
    }

    /// After the opening bracket.
    pub(super) fn in_list() -> Self {
        Self { at: At::Name(String::new()) }
    }

    pub(super) fn push(&mut self, character: char, names: Names<'_>, sink: &mut Sink) -> Step {
        match (&mut self.at, character) {
            (At::Arguments(arguments), ')') if arguments.end_here() => {
                let Some(json) = keyword_arguments(&arguments.text) else { return Step::Bad };
                sink.call(&arguments.name);
                sink.arguments(&json);
                self.at = At::Comma;
                return Step::Taken;
            }
            (At::Arguments(arguments), _) => arguments.push(character),
            (At::Name(name), '(') if !name.is_empty() && names.allow(name) => {
                let name = std::mem::take(name);
                self.at = At::Arguments(Arguments { name, ..Arguments::default() });
            }
            (At::Name(name), _) if continues_name(name, character) => name.push(character),
            (At::Name(name), _) if character.is_whitespace() && name.is_empty() => {}
            (At::Start | At::Comma, _) if character.is_whitespace() => {}
            (At::Start, '[') | (At::Comma, ',') => self.at = At::Name(String::new()),
            (At::Comma, ']') => return Step::Done,
            _ => return Step::Bad,
        }
        Step::Hold
    }
}

fn continues_name(name: &str, character: char) -> bool {
    let inner = character.is_ascii_digit() || matches!(character, '.' | '-');
    name.len() < MAX_NAME && (character.is_alphabetic() || character == '_' || (inner && !name.is_empty()))
}

impl Arguments {
    /// Whether a closing parenthesis here is the call's own.
    fn end_here(&self) -> bool {
        self.depth == 0 && self.quote.is_none()
    }

    fn push(&mut self, character: char) {
        self.text.push(character);
        match (self.quote, character) {
            _ if self.escaped => self.escaped = false,
            (Some(_), '\\') => self.escaped = true,
            (Some(quote), _) if quote == character => self.quote = None,
            (None, '"' | '\'') => self.quote = Some(character),
            (None, '(' | '[' | '{') => self.depth += 1,
            (None, ')' | ']' | '}') => self.depth = self.depth.saturating_sub(1),
            _ => {}
        }
    }
}
