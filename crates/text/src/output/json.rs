//! A JSON value that comes in character by character.
//!
//! ```text
//! written   {"city": "Par            {"city": "Paris", "da            {"city": "Paris", "days": 1
//! safe      {"city": "Par            {"city": "Paris"                 {"city": "Paris"
//! closed    {"city": "Par"}          {"city": "Paris"}                {"city": "Paris"}
//! ```
//!
//! What is *safe* can be handed out at once: whatever comes next, the value can still be completed to valid JSON by
//! closing what is open. Half a key, number, literal or escape is not safe. Raw control characters inside strings, which
//! models like to write and JSON forbids, are written as escapes.

use std::fmt::Write;

/// Deeper values are refused; readers of the result (`serde_json` among them) stop at 128 levels.
const MAX_DEPTH: usize = 100;

/// A value under construction.
#[derive(Debug)]
pub(super) struct Json {
    /// What was written and not yet taken.
    out: String,
    /// How much of `out` is safe.
    safe: usize,
    open: Vec<Container>,
    at: At,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Container {
    Object,
    Array,
}

/// What the next character belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum At {
    /// The start of a value.
    Value,
    /// The first item of an array, or its end.
    FirstItem,
    /// The first key of an object, or its end.
    FirstKey,
    Key,
    Colon,
    /// A comma or the end of the container.
    Comma,
    Text(Part),
    Escape(Part),
    /// `\u` with this many digits read, their value, and the high surrogate that came before.
    Unicode(Part, u8, u16, Option<u16>),
    /// After a high surrogate: the backslash, then the `u`, of the low one.
    Low(Part, u16, bool),
    /// A number or a literal, from this place of `out` on.
    Word(usize),
    End,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Part {
    Key,
    Value,
}

/// What a character did to the value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Grown {
    More,
    /// The value is complete, the character its last.
    Complete,
    /// The value was complete before this character, which is not part of it.
    CompleteBefore,
    /// No JSON. The character was not taken.
    Bad,
}

impl Json {
    pub(super) fn new() -> Self {
        Self { out: String::new(), safe: 0, open: Vec::new(), at: At::Value }
    }

    pub(super) fn push(&mut self, character: char) -> Grown {
        match self.at {
            At::Text(part) => self.text(part, character),
            At::Escape(part) => self.escape(part, character),
            At::Unicode(part, digits, code, high) => self.unicode(part, character, (digits, code, high)),
            At::Low(part, high, backslash) => self.low(part, character, high, backslash),
            At::Word(start) => self.word(start, character),
            _ if is_space(character) => self.space(character),
            At::FirstItem if character == ']' => self.end_container(character),
            At::Value | At::FirstItem => self.value(character),
            At::FirstKey if character == '}' => self.end_container(character),
            At::FirstKey | At::Key if character == '"' => self.put(character, At::Text(Part::Key)),
            At::Colon if character == ':' => self.put(character, At::Value),
            At::Comma => self.comma(character),
            At::FirstKey | At::Key | At::Colon | At::End => Grown::Bad,
        }
    }

    /// Whether nothing but space has come yet.
    pub(super) fn is_unstarted(&self) -> bool {
        self.at == At::Value && self.open.is_empty()
    }

    /// Takes what has become safe, possibly nothing.
    pub(super) fn take_safe(&mut self) -> String {
        if self.safe == 0 {
            return String::new();
        }
        let rest = self.out.split_off(self.safe);
        self.safe = 0;
        if let At::Word(start) = &mut self.at {
            *start -= self.out.len();
        }
        std::mem::replace(&mut self.out, rest)
    }

    /// Whether the last character is among what is not safe yet.
    pub(super) fn waits(&self) -> bool {
        !self.out.is_empty()
    }

    /// All of a complete value of which nothing was taken.
    pub(super) fn into_text(self) -> String {
        self.out
    }

    /// What has to follow what was taken to make it a complete value; empty if it is one.
    pub(super) fn close(&mut self) -> String {
        let mut closing = String::new();
        if let At::Text(Part::Value)
        | At::Escape(Part::Value)
        | At::Unicode(Part::Value, ..)
        | At::Low(Part::Value, ..) = self.at
        {
            closing.push('"');
        }
        while let Some(container) = self.open.pop() {
            closing.push(if container == Container::Object { '}' } else { ']' });
        }
        self.at = At::End;
        closing
    }

    fn put(&mut self, character: char, next: At) -> Grown {
        self.out.push(character);
        self.at = next;
        Grown::More
    }

    fn put_safe(&mut self, character: char, next: At) -> Grown {
        self.put(character, next);
        self.safe = self.out.len();
        Grown::More
    }

    fn space(&mut self, character: char) -> Grown {
        match self.at {
            At::End => Grown::Bad,
            At::FirstItem | At::FirstKey | At::Comma => self.put_safe(character, self.at),
            _ => self.put(character, self.at),
        }
    }

    fn value(&mut self, character: char) -> Grown {
        match character {
            '{' => self.open(Container::Object, character, At::FirstKey),
            '[' => self.open(Container::Array, character, At::FirstItem),
            '"' => self.put_safe(character, At::Text(Part::Value)),
            '-' | '0'..='9' | 't' | 'f' | 'n' => {
                let start = self.out.len();
                self.put(character, At::Word(start))
            }
            _ => Grown::Bad,
        }
    }

    fn open(&mut self, container: Container, character: char, next: At) -> Grown {
        if self.open.len() == MAX_DEPTH {
            return Grown::Bad;
        }
        self.open.push(container);
        self.put_safe(character, next)
    }

    fn end_container(&mut self, character: char) -> Grown {
        self.open.pop();
        self.out.push(character);
        self.end_value()
    }

    fn end_value(&mut self) -> Grown {
        self.safe = self.out.len();
        let outermost = self.open.is_empty();
        self.at = if outermost { At::End } else { At::Comma };
        if outermost { Grown::Complete } else { Grown::More }
    }

    fn comma(&mut self, character: char) -> Grown {
        match (character, self.open.last()) {
            (',', Some(Container::Object)) => self.put(character, At::Key),
            (',', Some(Container::Array)) => self.put(character, At::Value),
            ('}', Some(Container::Object)) | (']', Some(Container::Array)) => self.end_container(character),
            _ => Grown::Bad,
        }
    }

    fn text(&mut self, part: Part, character: char) -> Grown {
        match (character, part) {
            ('"', Part::Key) => self.put(character, At::Colon),
            ('"', Part::Value) => {
                self.out.push(character);
                self.end_value()
            }
            ('\\', _) => self.put(character, At::Escape(part)),
            ('\0'..='\u{1f}', _) => {
                // Writing to a string can't fail.
                let _ = write!(self.out, "\\u{:04x}", character as u32);
                self.end_character(part)
            }
            _ => {
                self.out.push(character);
                self.end_character(part)
            }
        }
    }

    fn end_character(&mut self, part: Part) -> Grown {
        self.at = At::Text(part);
        if part == Part::Value {
            self.safe = self.out.len();
        }
        Grown::More
    }

    fn escape(&mut self, part: Part, character: char) -> Grown {
        match character {
            '"' | '\\' | '/' | 'b' | 'f' | 'n' | 'r' | 't' => {
                self.out.push(character);
                self.end_character(part)
            }
            'u' => self.put(character, At::Unicode(part, 0, 0, None)),
            _ => Grown::Bad,
        }
    }

    fn unicode(
        &mut self,
        part: Part,
        character: char,
        (digits, code, high): (u8, u16, Option<u16>),
    ) -> Grown {
        let Some(digit) = character.to_digit(16) else { return Grown::Bad };
        let code = code << 4 | digit as u16;
        if digits < 3 {
            return self.put(character, At::Unicode(part, digits + 1, code, high));
        }
        match (high, code) {
            (None, 0xD800..=0xDBFF) => self.put(character, At::Low(part, code, false)),
            (Some(_), 0xDC00..=0xDFFF) | (None, 0..=0xD7FF | 0xE000..) => {
                self.out.push(character);
                self.end_character(part)
            }
            _ => Grown::Bad,
        }
    }

    fn low(&mut self, part: Part, character: char, high: u16, backslash: bool) -> Grown {
        match (character, backslash) {
            ('\\', false) => self.put(character, At::Low(part, high, true)),
            ('u', true) => self.put(character, At::Unicode(part, 0, 0, Some(high))),
            _ => Grown::Bad,
        }
    }

    fn word(&mut self, start: usize, character: char) -> Grown {
        if character.is_ascii_alphanumeric() || matches!(character, '+' | '-' | '.') {
            return self.put(character, self.at);
        }
        if serde_json::from_str::<serde_json::Value>(&self.out[start..]).is_err() {
            return Grown::Bad;
        }
        let safe = self.safe;
        if self.end_value() == Grown::Complete {
            return Grown::CompleteBefore;
        }
        let grown = self.push(character);
        if grown == Grown::Bad {
            // The word stays with the character that does not fit.
            self.safe = safe;
        }
        grown
    }
}

fn is_space(character: char) -> bool {
    matches!(character, ' ' | '\t' | '\n' | '\r')
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is handed out for `text`, and how it ended.
    fn written(text: &str) -> (String, Grown) {
        let mut json = Json::new();
        let mut grown = Grown::More;
        let mut out = String::new();
        for character in text.chars() {
            grown = json.push(character);
            out.push_str(&json.take_safe());
            if grown != Grown::More {
                break;
            }
        }
        (out + &json.close(), grown)
    }

    #[test]
    fn complete_values_come_out_as_they_are() {
        for text in [
            r#"{"a": [1, -2.5e3, true, null, "x\n\u00e9\ud83d\ude00"], "b": {}}"#,
            "[]",
            "[ ]",
            r#""text""#,
            "{\n}",
        ] {
            assert_eq!(written(text), (text.to_owned(), Grown::Complete));
        }
    }

    #[test]
    fn every_beginning_can_be_closed_to_valid_json() {
        let text = r#"{"a": [1, -2.5e3, true, [null], "x\n\u00e9\ud83d\ude00"], "b\"": {"c": "d"}} "#;
        for end in 1..text.len() {
            let (out, _) = written(&text[..end]);
            assert!(serde_json::from_str::<serde_json::Value>(&out).is_ok(), "{out} of {}", &text[..end]);
        }
    }

    #[test]
    fn what_is_no_json_is_refused_where_it_goes_wrong() {
        for text in [
            "{'a'",
            "{a",
            "{\"a\" 1",
            "[1,]",
            "{\"a\":1,}",
            "{\"a\":01}",
            "[1e999]",
            "[tru]",
            r#"["\x"#,
            r#"["\ud83dx"#,
            r#"["\udc00"#,
            "}",
            "[1}",
        ] {
            let (_, grown) = written(text);
            assert_eq!(grown, Grown::Bad, "{text}");
        }
        assert_eq!(written(&"[".repeat(MAX_DEPTH + 1)).1, Grown::Bad);
    }

    #[test]
    fn raw_line_breaks_in_strings_become_escapes() {
        assert_eq!(written("{\"a\": \"x\ny\"}").0, r#"{"a": "x\u000ay"}"#);
    }
}
