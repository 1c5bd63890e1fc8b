//! Counts what a JSON body holds while it arrives, so that one that can't be served is refused before its end.
//!
//! ```text
//! {"model": "m", "prompt": [[1, 2, 3], [4, 5]], "tools": [{"type": "function"}]}
//!  name   value  field     ids of lists          names and values, whoever they belong to
//! ```
//! It reads every byte once and keeps nothing but counts. It does not check that the body is JSON: the parser does, and
//! what the parser would build is never more than what was counted here.

use super::shape::{Contexts, Field, Room};
use crate::error::ApiError;

/// Nested lists and objects; the parser has the same limit.
const DEEPEST: usize = 128;

/// Bytes of the longest field name that is told apart.
const LONGEST_NAME: usize = 32;

/// Names and values that any body may have. One takes about 256 bytes in memory, so these are 8 MiB.
const FREE_VALUES: usize = 32 << 10;

/// Beyond these, a body has one for every so many bytes: conversations have fewer.
const BYTES_PER_VALUE: usize = 32;

/// Names and values that no body may exceed: a conversation of some thousand messages with a hundred tools.
const MOST_VALUES: usize = 128 << 10;

/// What is being read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Lexeme {
    /// Nothing, or what stands between values.
    Between,
    /// A number or a word.
    Plain,
    /// A text.
    Text,
    /// The character after a backslash.
    Escape,
    /// So many more digits of an escaped code point.
    Digits(u8),
}

/// Counts a body's parts as they arrive.
pub struct Scanner {
    fields: &'static [Field],
    contexts: Contexts,
    /// Names and values that the body may have.
    most_values: usize,
    values: usize,
    lexeme: Lexeme,
    depth: usize,
    /// By depth, whether it is an object.
    objects: u128,
    /// Whether the next text is a name.
    at_name: bool,
    /// The name being read at the top, if it is one.
    name: Vec<u8>,
    is_name: bool,
    /// The field that is being read, if it is one of `fields`.
    field: Option<(Field, Room)>,
    text: usize,
    items: usize,
    ids: usize,
}

impl Scanner {
    /// Counts a body of about `bytes` with these fields.
    pub fn new(fields: &'static [Field], contexts: Contexts, bytes: usize) -> Self {
        Self {
            fields,
            contexts,
            most_values: most_values(bytes),
            values: 0,
            lexeme: Lexeme::Between,
            depth: 0,
            objects: 0,
            at_name: false,
            name: Vec::with_capacity(LONGEST_NAME),
            is_name: false,
            field: None,
            text: 0,
            items: 0,
            ids: 0,
        }
    }

    /// Names and values so far.
    pub fn values(&self) -> usize {
        self.values
    }

    /// Reads the next bytes.
    pub fn feed(&mut self, mut bytes: &[u8]) -> Result<(), ApiError> {
        while let Some(&byte) = bytes.first() {
            let read = match self.lexeme {
                Lexeme::Text => self.text(bytes)?,
                Lexeme::Escape => {
                    self.lexeme = if byte == b'u' { Lexeme::Digits(4) } else { Lexeme::Text };
                    1
                }
                Lexeme::Digits(left) => {
                    self.lexeme = if left == 1 { Lexeme::Text } else { Lexeme::Digits(left - 1) };
                    1
                }
                Lexeme::Plain if is_plain(byte) => 1,
                Lexeme::Plain | Lexeme::Between => {
                    self.lexeme = Lexeme::Between;
                    self.between(byte)?;
                    1
                }
            };
            bytes = &bytes[read..];
        }
        Ok(())
    }

    /// Checks a body that has ended: its length is known now.
    pub fn finish(&self, bytes: usize) -> Result<(), ApiError> {
        if self.values > most_values(bytes) { Err(too_many_values(most_values(bytes))) } else { Ok(()) }
    }

    /// Reads on in a text; how many bytes.
    fn text(&mut self, bytes: &[u8]) -> Result<usize, ApiError> {
        let run = bytes.iter().position(|byte| matches!(byte, b'"' | b'\\')).unwrap_or(bytes.len());
        let room = LONGEST_NAME - self.name.len();
        if self.is_name {
            self.name.extend_from_slice(&bytes[..run.min(room)]);
        }
        self.add_text(run)?;
        match bytes.get(run) {
            None => return Ok(run),
            Some(b'\\') => {
                // An escaped character has at least one byte. No field that matters has one in its name.
                self.add_text(1)?;
                self.is_name = false;
                self.lexeme = Lexeme::Escape;
            }
            Some(_) => self.end_text(),
        }
        Ok(run + 1)
    }

    fn add_text(&mut self, bytes: usize) -> Result<(), ApiError> {
        self.text = self.text.saturating_add(bytes);
        let room = self.field.map_or(Room::OTHER, |(_, room)| room);
        if self.text > room.text {
            return Err(match self.field {
                Some((field, _)) => self.contexts.text_too_long(field),
                None => Contexts::other_text_too_long(),
            });
        }
        if self.depth == 1 && self.text > room.alone { Err(Contexts::other_text_too_long()) } else { Ok(()) }
    }

    fn end_text(&mut self) {
        self.lexeme = Lexeme::Between;
        if std::mem::take(&mut self.is_name) {
            let named = self.fields.iter().find(|field| field.name.as_bytes() == self.name);
            self.field = named.map(|field| (*field, self.contexts.room(field.holds)));
            (self.text, self.items, self.ids) = (0, 0, 0);
        }
    }

    fn between(&mut self, byte: u8) -> Result<(), ApiError> {
        match byte {
            b'"' => self.begin_text(),
            b'[' | b'{' => self.open(byte == b'{'),
            b']' | b'}' => {
                self.close();
                Ok(())
            }
            b',' => {
                self.at_name = self.is_in_object();
                Ok(())
            }
            b':' | b' ' | b'\t' | b'\r' | b'\n' => {
                self.at_name &= byte != b':';
                Ok(())
            }
            _ => {
                self.lexeme = Lexeme::Plain;
                self.plain()
            }
        }
    }

    fn is_in_object(&self) -> bool {
        self.depth > 0 && self.objects >> (self.depth - 1) & 1 == 1
    }

    fn begin_text(&mut self) -> Result<(), ApiError> {
        self.lexeme = Lexeme::Text;
        if self.at_name && self.depth == 1 {
            self.is_name = true;
            self.name.clear();
            (self.field, self.text) = (None, 0);
            return self.value();
        }
        if self.field.is_none_or(|(_, room)| !room.together) {
            self.text = 0;
        }
        self.item()
    }

    fn open(&mut self, is_object: bool) -> Result<(), ApiError> {
        if self.depth == DEEPEST {
            let what = format!("the body is nested deeper than {DEEPEST} levels; flatten it");
            return Err(ApiError::invalid(what).coded("invalid_json"));
        }
        let bit = 1 << self.depth;
        self.objects = if is_object { self.objects | bit } else { self.objects & !bit };
        self.depth += 1;
        self.at_name = is_object;
        self.ids = 0;
        // The list around several items is none of them, but one of ids is.
        if is_object { self.value() } else { self.item() }
    }

    fn close(&mut self) {
        self.depth = self.depth.saturating_sub(1);
        self.at_name = false;
    }

    fn plain(&mut self) -> Result<(), ApiError> {
        match self.field {
            Some((field, room)) if room.items.is_some() && !self.is_in_object() => {
                self.ids += 1;
                if self.ids > room.ids.max(1) { Err(self.contexts.too_many_tokens(field)) } else { Ok(()) }
            }
            _ => self.value(),
        }
    }

    /// A text or a list.
    fn item(&mut self) -> Result<(), ApiError> {
        let Some((field, Room { items: Some(most), .. })) = self.field else { return self.value() };
        self.items += 1;
        if self.items > most + 1 {
            let what =
                format!("{} has more than the {most} texts a request may have; send several", field.name);
            return Err(ApiError::invalid(what).about(field.name));
        }
        Ok(())
    }

    fn value(&mut self) -> Result<(), ApiError> {
        self.values += 1;
        if self.values > self.most_values { Err(too_many_values(self.most_values)) } else { Ok(()) }
    }
}

/// Whether a number or a word goes on.
fn is_plain(byte: u8) -> bool {
    !matches!(byte, b',' | b':' | b'"' | b'[' | b']' | b'{' | b'}' | b' ' | b'\t' | b'\r' | b'\n')
}

/// Names and values that a body of so many bytes may have.
fn most_values(bytes: usize) -> usize {
    (FREE_VALUES + bytes / BYTES_PER_VALUE).min(MOST_VALUES)
}

fn too_many_values(most: usize) -> ApiError {
    let what = format!(
        "the body has more than {most} names and values, which is more than a request of its size may have; send \
         fewer messages or tools"
    );
    ApiError::invalid(what).coded("too_many_values")
}

#[cfg(test)]
mod tests;
