//! Python literals as JSON values: what stands between the parentheses of a call.

use serde_json::{Map, Number, Value};
use std::iter::Peekable;
use std::str::Chars;

/// Deeper values are refused, as in JSON.
const MAX_DEPTH: usize = 100;

/// The JSON object of `a=1, b="x"`; `None` if this is anything else than literals with names.
pub(super) fn keyword_arguments(text: &str) -> Option<String> {
    let mut reader = Reader { rest: text.chars().peekable(), depth: 0 };
    let mut arguments = Map::new();
    while reader.next_after_space().is_some() {
        let name = reader.word();
        reader.expect('=')?;
        if name.is_empty() {
            return None;
        }
        arguments.insert(name, reader.value()?);
        if !reader.eat(',') && reader.next_after_space().is_some() {
            return None;
        }
    }
    serde_json::to_string(&arguments).ok()
}

struct Reader<'t> {
    rest: Peekable<Chars<'t>>,
    depth: usize,
}

impl Reader<'_> {
    fn next_after_space(&mut self) -> Option<char> {
        while self.rest.next_if(|c| c.is_whitespace()).is_some() {}
        self.rest.peek().copied()
    }

    fn eat(&mut self, wanted: char) -> bool {
        let found = self.next_after_space() == Some(wanted);
        if found {
            self.rest.next();
        }
        found
    }

    fn expect(&mut self, wanted: char) -> Option<()> {
        self.eat(wanted).then_some(())
    }

    /// Letters, digits and what numbers are made of.
    fn word(&mut self) -> String {
        let is_inner = |c: &char| c.is_alphanumeric() || matches!(c, '_' | '.' | '+' | '-');
        std::iter::from_fn(|| self.rest.next_if(is_inner)).collect()
    }

    fn value(&mut self) -> Option<Value> {
        match self.next_after_space()? {
            '"' | '\'' => self.string().map(Value::String),
            '[' => self.items('[', ']').map(Value::Array),
            '(' => self.items('(', ')').map(Value::Array),
            '{' => self.dict().map(Value::Object),
            _ => literal(&self.word()),
        }
    }

    fn items(&mut self, open: char, close: char) -> Option<Vec<Value>> {
        let mut items = Vec::new();
        self.expect(open)?;
        self.deeper()?;
        while !self.eat(close) {
            items.push(self.value()?);
            if !self.eat(',') && self.next_after_space() != Some(close) {
                return None;
            }
        }
        self.depth -= 1;
        Some(items)
    }

    fn dict(&mut self) -> Option<Map<String, Value>> {
        let mut entries = Map::new();
        self.expect('{')?;
        self.deeper()?;
        while !self.eat('}') {
            self.next_after_space().filter(|c| matches!(c, '"' | '\''))?;
            let key = self.string()?;
            self.expect(':')?;
            entries.insert(key, self.value()?);
            if !self.eat(',') && self.next_after_space() != Some('}') {
                return None;
            }
        }
        self.depth -= 1;
        Some(entries)
    }

    fn deeper(&mut self) -> Option<()> {
        self.depth += 1;
        (self.depth <= MAX_DEPTH).then_some(())
    }

    fn string(&mut self) -> Option<String> {
        let quote = self.rest.next()?;
        let mut text = String::new();
        loop {
            match self.rest.next()? {
                '\\' => self.escape(&mut text)?,
                end if end == quote => return Some(text),
                character => text.push(character),
            }
        }
    }

    /// What follows a backslash; unknown escapes stand for themselves, as in Python.
    fn escape(&mut self, text: &mut String) -> Option<()> {
        match self.rest.next()? {
            'n' => text.push('\n'),
            't' => text.push('\t'),
            'r' => text.push('\r'),
            'b' => text.push('\u{8}'),
            'f' => text.push('\u{c}'),
            '\n' => {}
            'x' => text.push(self.code(2)?),
            'u' => text.push(self.code(4)?),
            'U' => text.push(self.code(8)?),
            character @ ('\\' | '\'' | '"') => text.push(character),
            character => text.extend(['\\', character]),
        }
        Some(())
    }

    fn code(&mut self, digits: usize) -> Option<char> {
        let mut code: u32 = 0;
        for _ in 0..digits {
            code = code.checked_mul(16)? + self.rest.next()?.to_digit(16)?;
        }
        char::from_u32(code)
    }
}

fn literal(word: &str) -> Option<Value> {
    match word {
        "True" | "true" => Some(Value::Bool(true)),
        "False" | "false" => Some(Value::Bool(false)),
        "None" | "null" => Some(Value::Null),
        _ if !word.starts_with(|c: char| c.is_ascii_digit() || matches!(c, '-' | '+' | '.')) => None,
        _ => {
            let number = serde_json::from_str::<Number>(word).ok();
            number.or_else(|| Number::from_f64(word.parse().ok()?)).map(Value::Number)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn python_literals_become_json() {
        let text =
            r#"a=1, b="x\n\"y\"", c='it\'s', d=[1, -2.5, (True,)], e={"k": None,}, f=.5, g='\u00e9\d'"#;
        let json =
            r#"{"a":1,"b":"x\n\"y\"","c":"it's","d":[1,-2.5,[true]],"e":{"k":null},"f":0.5,"g":"é\\d"}"#;
        assert_eq!(keyword_arguments(text).unwrap(), json);
        assert_eq!(keyword_arguments(" ").unwrap(), "{}");
    }

    #[test]
    fn anything_but_named_literals_is_refused() {
        let deep = format!("a={}", "[".repeat(5000));
        for text in
            ["1", "a", "a=", "a=b", "a=f(1)", "a=1 b=2", "a='x", "=1", "a=1-", "a={1: 2}", "a=inf", &deep]
        {
            assert_eq!(keyword_arguments(text), None, "{text}");
        }
    }
}
