//! JSON and values as Python writes them.

use serde_json::Value;
use std::fmt::Write;

/// The options of Python's `json.dumps`.
pub(super) struct Dumps {
    pub(super) ensure_ascii: bool,
    pub(super) indent: Option<usize>,
    /// Between items and after keys.
    pub(super) separators: Option<(String, String)>,
    pub(super) sort_keys: bool,
}

/// A value with more levels than this is cut off; requests can't be nested as deep.
const MAX_DEPTH: usize = 128;
/// Spaces a level; more is no layout.
const MAX_INDENT: usize = 64;

impl Dumps {
    pub(super) fn text(&self, value: &Value) -> String {
        let mut out = String::new();
        self.write(value, 0, &mut out);
        out
    }

    fn write(&self, value: &Value, depth: usize, out: &mut String) {
        match value {
            _ if depth > MAX_DEPTH => out.push_str("null"),
            Value::Null => out.push_str("null"),
            Value::Bool(truth) => out.push_str(if *truth { "true" } else { "false" }),
            Value::Number(number) => out.push_str(&python_number(number)),
            Value::String(text) => self.write_string(text, out),
            Value::Array(items) => self.write_list(['[', ']'], depth, items, out, |item, out| {
                self.write(item, depth + 1, out);
            }),
            Value::Object(entries) => {
                let mut entries: Vec<(&String, &Value)> = entries.iter().collect();
                if self.sort_keys {
                    entries.sort_by_key(|entry| entry.0);
                }
                self.write_list(['{', '}'], depth, &entries, out, |(key, value), out| {
                    self.write_string(key, out);
                    out.push_str(self.separators.as_ref().map_or(": ", |(_, after_key)| after_key));
                    self.write(value, depth + 1, out);
                });
            }
        }
    }

    fn write_list<T>(
        &self,
        [open, close]: [char; 2],
        depth: usize,
        items: &[T],
        out: &mut String,
        write: impl Fn(&T, &mut String),
    ) {
        let between = if self.indent.is_some() { "," } else { ", " };
        let between = self.separators.as_ref().map_or(between, |(between, _)| between);
        out.push(open);
        for (index, item) in items.iter().enumerate() {
            if index > 0 {
                out.push_str(between);
            }
            self.break_line(depth + 1, out);
            write(item, out);
        }
        if !items.is_empty() {
            self.break_line(depth, out);
        }
        out.push(close);
    }

    fn break_line(&self, depth: usize, out: &mut String) {
        if let Some(indent) = self.indent {
            out.push('\n');
            out.extend(std::iter::repeat_n(' ', depth * indent.min(MAX_INDENT)));
        }
    }

    fn write_string(&self, text: &str, out: &mut String) {
        out.push('"');
        for character in text.chars() {
            match character {
                '"' => out.push_str("\\\""),
                '\\' => out.push_str("\\\\"),
                '\n' => out.push_str("\\n"),
                '\r' => out.push_str("\\r"),
                '\t' => out.push_str("\\t"),
                '\u{8}' => out.push_str("\\b"),
                '\u{c}' => out.push_str("\\f"),
                '\0'..='\u{1f}' => write_escape(character, out),
                '\u{7f}'.. if self.ensure_ascii && !character.is_ascii() => write_escape(character, out),
                _ => out.push(character),
            }
        }
        out.push('"');
    }
}

fn write_escape(character: char, out: &mut String) {
    for unit in character.encode_utf16(&mut [0; 2]) {
        // Writing to a string can't fail.
        let _ = write!(out, "\\u{unit:04x}");
    }
}

/// A value as Python's `repr` writes it, top-level strings as they are.
pub(super) fn python_repr(value: &Value) -> String {
    let joined = |items: Vec<String>| items.join(", ");
    match value {
        Value::Null => "None".to_owned(),
        Value::Bool(true) => "True".to_owned(),
        Value::Bool(false) => "False".to_owned(),
        Value::Number(number) => python_number(number),
        Value::String(text) => quoted(text),
        Value::Array(items) => format!("[{}]", joined(items.iter().map(python_repr).collect())),
        Value::Object(entries) => {
            let entry = |(key, value): (&String, &Value)| format!("{}: {}", quoted(key), python_repr(value));
            format!("{{{}}}", joined(entries.iter().map(entry).collect()))
        }
    }
}

/// Single quotes unless only those occur inside.
fn quoted(text: &str) -> String {
    let quote = if text.contains('\'') && !text.contains('"') { '"' } else { '\'' };
    let mut out = String::from(quote);
    for character in text.chars() {
        match character {
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            _ if character == quote => out.extend(['\\', quote]),
            _ => out.push(character),
        }
    }
    out.push(quote);
    out
}

/// Python writes floats with a point or an exponent of two digits, the latter from 1e16 on and below 1e-4.
fn python_number(number: &serde_json::Number) -> String {
    let Some(float) = number.as_f64().filter(|_| number.is_f64()) else { return number.to_string() };
    let scientific = format!("{float:e}");
    let (digits, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    if (-4..16).contains(&exponent) || float == 0.0 {
        let plain = float.to_string();
        return if plain.contains('.') { plain } else { plain + ".0" };
    }
    let sign = if exponent < 0 { '-' } else { '+' };
    format!("{digits}e{sign}{:02}", exponent.abs())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    const PLAIN: Dumps = Dumps { ensure_ascii: false, indent: None, separators: None, sort_keys: false };

    #[test]
    fn dumps_writes_what_python_writes() {
        let value = json!({"b": [1, 2.5, null], "a": {"é<": "\"\n\u{1}"}, "e": [], "n": true});
        let plain = r#"{"b": [1, 2.5, null], "a": {"é<": "\"\n\u0001"}, "e": [], "n": true}"#;
        assert_eq!(PLAIN.text(&value), plain);
        let indented = Dumps { indent: Some(2), ..PLAIN }.text(&json!({"a": [1], "e": {}}));
        assert_eq!(indented, "{\n  \"a\": [\n    1\n  ],\n  \"e\": {}\n}");
        let options = Dumps {
            ensure_ascii: true,
            separators: Some((",".into(), ":".into())),
            sort_keys: true,
            ..PLAIN
        };
        assert_eq!(options.text(&json!({"b": "é😀", "a": 1})), r#"{"a":1,"b":"\u00e9\ud83d\ude00"}"#);
    }

    #[test]
    fn floats_are_written_as_in_python() {
        let floats = [1.0, 0.1, 1e15, 1e16, 1.5e-4, 1e-5, -2.5e300, 0.0];
        let texts = ["1.0", "0.1", "1000000000000000.0", "1e+16", "0.00015", "1e-05", "-2.5e+300", "0.0"];
        for (float, text) in floats.into_iter().zip(texts) {
            assert_eq!(PLAIN.text(&json!(float)), text);
        }
    }

    #[test]
    fn values_are_written_as_python_repr() {
        let value = json!({"a": [true, null, "it's", "x\"'"], "b": 1});
        assert_eq!(python_repr(&value), r#"{'a': [True, None, "it's", 'x"\''], 'b': 1}"#);
    }
}
