//! Widths that a template asks for. A padding of a hundred gigabytes is a few characters of a template: its memory would be
//! reserved before anything is written, so that no bound on the output could stop it.

use minijinja::filters;
use minijinja::value::{Kwargs, Rest, StringInput, Value, ValueOrKwargs};
use minijinja::{Error, ErrorKind, State};

/// Columns: real templates indent by a few, and pad numbers to a few digits.
const MAX_WIDTH: usize = 10_000;

/// Bytes that an indented text may have: several times the longest context there is.
const MAX_INDENTED: usize = 64 << 20;

/// Jinja's `indent`.
pub(super) fn indent(
    text: StringInput<'_>,
    width: Option<usize>,
    first: Option<bool>,
    blank: Option<bool>,
    options: Kwargs,
) -> Result<Value, Error> {
    let width = match width {
        Some(width) => width,
        None => options.get::<Option<usize>>("width")?.unwrap_or(4),
    };
    let lines = text.as_str().lines().count();
    if width > MAX_WIDTH || lines.saturating_mul(width) > MAX_INDENTED {
        return Err(too_wide());
    }
    filters::indent(text, Some(width), first, blank, options)
}

/// Jinja's `format`.
pub(super) fn format(
    state: &mut State<'_, '_>,
    pattern: &Value,
    arguments: Rest<ValueOrKwargs>,
) -> Result<Value, Error> {
    check_pattern(pattern.as_str().unwrap_or_default())?;
    filters::format(state, pattern, arguments)
}

/// Turns down a pattern of Python's `format` or `%` with a width, or a precision, that no text needs.
pub(super) fn check_pattern(pattern: &str) -> Result<(), Error> {
    let numbers = pattern.split(|character: char| !character.is_ascii_digit());
    let fits = |digits: &str| digits.parse().is_ok_and(|width: usize| width <= MAX_WIDTH);
    if numbers.filter(|digits| !digits.is_empty()).all(fits) { Ok(()) } else { Err(too_wide()) }
}

fn too_wide() -> Error {
    let what = format!("a width in it is larger than {MAX_WIDTH} columns, or makes too long a text");
    Error::new(ErrorKind::InvalidOperation, what)
}
