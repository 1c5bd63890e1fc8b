//! What templates expect from Python and Hugging Face's `transformers` beyond Jinja itself.
//!
//! | what | how |
//! |---|---|
//! | string, dict and list methods | `minijinja-contrib`, and a few more here |
//! | `tojson` | as Python's `json.dumps`, nothing escaped for HTML |
//! | `raise_exception` | ends the render with its message |
//! | `strftime_now` | the request's time |
//! | `{% generation %}` | marks the assistant's text for training; a block here |
//! | `{{ true }}`, `{{ none }}`, `{{ {} }}` | written as Python writes them |

use super::date::strftime;
use super::json::{Dumps, python_repr};
use super::width;
use minijinja::syntax::SyntaxConfig;
use minijinja::value::{Kwargs, Value, ValueKind};
use minijinja::{Environment, Error, ErrorKind, Output, State};
use minijinja_contrib::pycompat;
use std::time::SystemTime;

/// Macros may call themselves this deep; real ones (JSON schemas as types) go about ten levels.
const MAX_RECURSION: usize = 200;

/// The message of `raise_exception`.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(super) struct Refusal(pub(super) String);

/// An environment without templates, whose renders take at most `max_steps` instructions.
pub(super) fn new(max_steps: u64) -> Environment<'static> {
    let mut environment = Environment::new();
    let syntax = SyntaxConfig::builder().trim_blocks(true).lstrip_blocks(true).build();
    // Only delimiters can be wrong, and they are the default ones.
    environment.set_syntax(syntax.unwrap_or_default());
    environment.set_fuel(Some(max_steps));
    environment.set_recursion_limit(MAX_RECURSION);
    environment.set_unknown_method_callback(method);
    environment.set_formatter(format);
    environment.add_filter("tojson", tojson);
    environment.add_filter("indent", width::indent);
    environment.add_filter("format", width::format);
    environment.add_test("iterable", is_iterable);
    environment.add_function("raise_exception", raise_exception);
    environment
}

/// Python can walk over strings, lists and dicts, and Jinja over what is undefined, but not over `none`.
fn is_iterable(value: &Value) -> bool {
    !value.is_none() && value.try_iter().is_ok()
}

/// The function `strftime_now` of a request.
pub(super) fn strftime_at(now: SystemTime) -> Value {
    Value::from_function(move |format: String| strftime(&format, now))
}

fn raise_exception(message: String) -> Result<Value, Error> {
    let refusal = Refusal(message);
    Err(Error::new(ErrorKind::InvalidOperation, refusal.to_string()).with_source(refusal))
}

#[allow(clippy::needless_pass_by_value)] // the form of a filter
fn tojson(value: &Value, options: Kwargs) -> Result<Value, Error> {
    let dumps = Dumps {
        ensure_ascii: options.get::<Option<bool>>("ensure_ascii")?.unwrap_or(false),
        indent: options.get("indent")?,
        separators: options.get::<Option<Vec<String>>>("separators")?.and_then(pair),
        sort_keys: options.get::<Option<bool>>("sort_keys")?.unwrap_or(false),
    };
    options.assert_all_used()?;
    Ok(Value::from_safe_string(dumps.text(&as_json(value)?)))
}

/// The two strings of Python's `separators`.
fn pair(strings: Vec<String>) -> Option<(String, String)> {
    <[String; 2]>::try_from(strings).ok().map(|[between, after_key]| (between, after_key))
}

fn as_json(value: &Value) -> Result<serde_json::Value, Error> {
    serde_json::to_value(value).map_err(|error| {
        Error::new(ErrorKind::BadSerialization, "not expressible as JSON").with_source(error)
    })
}

/// Writes a value as Python's `str` does.
fn format(output: &mut Output<'_>, _state: &mut State<'_, '_>, value: &Value) -> Result<(), Error> {
    let written = match value.kind() {
        ValueKind::Undefined => Ok(()),
        ValueKind::Bool | ValueKind::None | ValueKind::Map | ValueKind::Seq => {
            output.write_str(&python_repr(&as_json(value)?))
        }
        _ => match value.as_str() {
            Some(text) => output.write_str(text),
            None => output.write_str(&value.to_string()),
        },
    };
    written.map_err(Error::from)
}

/// Methods of Python's values that templates call.
fn method(state: &mut State<'_, '_>, value: &Value, name: &str, arguments: &[Value]) -> Result<Value, Error> {
    let argument = || arguments.first().and_then(Value::as_str).unwrap_or_default();
    if let (Some(pattern), "format") = (value.as_str(), name) {
        width::check_pattern(pattern)?;
    }
    match (value.as_str(), name) {
        (Some(text), "removeprefix") => Ok(Value::from(text.strip_prefix(argument()).unwrap_or(text))),
        (Some(text), "removesuffix") => Ok(Value::from(text.strip_suffix(argument()).unwrap_or(text))),
        _ => pycompat::unknown_method_callback(state, value, name, arguments),
    }
}

/// The template with `{% generation %}` blocks, which only training looks at, as plain blocks.
pub(super) fn without_generation_tags(source: &str) -> String {
    let mut text = String::with_capacity(source.len());
    let mut rest = source;
    while let Some(start) = rest.find("{%") {
        let (before, tag) = rest.split_at(start);
        // The tag's own start is no part of its end: `{%}` is open.
        let Some(length) = tag[2..].find("%}") else { break };
        let (inner, after) = (&tag[2..2 + length], &tag[length + 4..]);
        text.push_str(before);
        text.push_str("{%");
        match inner.trim_matches(['-', '+']).trim() {
            "generation" => text.push_str(&inner.replace("generation", "with")),
            "endgeneration" => text.push_str(&inner.replace("endgeneration", "endwith")),
            _ => text.push_str(inner),
        }
        text.push_str("%}");
        rest = after;
    }
    text.push_str(rest);
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn generation_tags_become_plain_blocks_with_the_same_white_space_control() {
        let source = "a{%- generation -%}b{% endgeneration %}{% if x %}generation{% endif %}{% open";
        let plain = "a{%- with -%}b{% endwith %}{% if x %}generation{% endif %}{% open";
        assert_eq!(without_generation_tags(source), plain);
        for open in ["{%}", "{%}%", "{%", "a{%}{% generation"] {
            assert_eq!(without_generation_tags(open), open);
        }
    }
}
