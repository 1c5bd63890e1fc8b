//! From a conversation to token ids, such that no text in it becomes a special token.
//!
//! A user who types `<|im_end|>` must not end a turn. The template gives one text in which its own special tokens and those
//! typed by a user look alike, so the typed ones are marked before the template runs:
//!
//! ```text
//! content     a<|im_end|>b                                              · is a character that occurs nowhere
//! marked      a<·|im_end|>b
//! rendered    <|im_start|>user\na<·|im_end|>b<|im_end|>\n
//! read        <|im_start|>  user\na<|im_end|>b  <|im_end|>  \n          special, text, special, text
//! ```
//!
//! The mark stands after the first character of every special token's text, and also where a text ends with the beginning
//! of one, as templates may put two texts together. Without such texts nothing is marked and the ids are those of
//! [`ChatTemplate::render`]. It relies on templates to change texts at their ends or at tags only, as all known ones do:
//! one that takes something out of the middle of a text could join what was apart. A special token of a single character
//! can't be marked.

use super::{ChatRequest, ChatTemplate, Scene};
use crate::error::TextError;
use crate::tokenizer::{Special, Tokenizer};
use serde_json::{Map, Value};

/// Code points that will never be characters: no text needs them, and all of them in one text is no text.
const MARKS: std::ops::RangeInclusive<char> = '\u{FDD0}'..='\u{FDEF}';

/// Bytes of a text between two looks at the interrupt: some dozens of microseconds.
const BYTES_PER_CHECK: usize = 1 << 10;

impl ChatTemplate {
    /// The token ids of the prompt for a conversation. Only the template writes special tokens: their texts inside of
    /// messages, tools and variables are plain text.
    pub fn encode(&self, request: &ChatRequest<'_>, tokenizer: &Tokenizer) -> Result<Vec<u32>, TextError> {
        self.encode_readied(self.ready(request, tokenizer)?, tokenizer)
    }

    /// Copies what [`encode_readied`](Self::encode_readied) needs of a conversation, which need not be kept then: a long one
    /// should not be held beside all that is made of it.
    pub fn ready(&self, request: &ChatRequest<'_>, tokenizer: &Tokenizer) -> Result<Readied, TextError> {
        let mut survey = Survey { tokenizer, needs_marks: false, seen: Vec::new() };
        survey.look_at_all(request)?;
        if !survey.needs_marks {
            return Ok(Readied { scene: self.scene(request), mark: None });
        }
        let unused = MARKS.into_iter().find(|mark| !survey.seen.contains(mark));
        let marker = Marker { tokenizer, mark: unused.ok_or(TextError::NoCharacterLeft)? };
        let messages = marker.list(request.messages);
        let tools = request.tools.map(|tools| marker.list(tools));
        let marked = ChatRequest {
            messages: &messages,
            tools: tools.as_deref(),
            variables: marker.map(&request.variables),
            // A mark has three bytes and follows at least one.
            max_bytes: request.max_bytes.saturating_mul(4),
            ..request.clone()
        };
        Ok(Readied { scene: self.scene(&marked), mark: Some(marker.mark) })
    }

    /// The token ids of the prompt for a conversation that was readied for the same tokenizer.
    pub fn encode_readied(&self, readied: Readied, tokenizer: &Tokenizer) -> Result<Vec<u32>, TextError> {
        let text = self.render_scene(readied.scene)?;
        match readied.mark {
            None => tokenizer.encode(&text, Special::TEMPLATE),
            Some(mark) => tokenizer.encode_guarded(&text, mark),
        }
    }
}

/// A conversation that was copied, and marked where it needs to be.
#[derive(Debug)]
pub struct Readied {
    scene: Scene,
    mark: Option<char>,
}

/// Looks for texts to mark, and for characters that can't be the mark.
struct Survey<'t> {
    tokenizer: &'t Tokenizer,
    needs_marks: bool,
    seen: Vec<char>,
}

impl Survey<'_> {
    fn look_at_all(&mut self, request: &ChatRequest<'_>) -> Result<(), TextError> {
        let mut values = request.messages.iter().chain(request.tools.into_iter().flatten());
        values.try_for_each(|value| self.look(value))?;
        self.look_at_map(&request.variables)
    }

    fn look(&mut self, value: &Value) -> Result<(), TextError> {
        match value {
            Value::String(text) => self.look_at_text(text),
            Value::Array(items) => items.iter().try_for_each(|item| self.look(item)),
            Value::Object(entries) => self.look_at_map(entries),
            Value::Null | Value::Bool(_) | Value::Number(_) => Ok(()),
        }
    }

    fn look_at_map(&mut self, entries: &Map<String, Value>) -> Result<(), TextError> {
        entries.iter().try_for_each(|(key, value)| {
            self.look_at_text(key)?;
            self.look(value)
        })
    }

    fn look_at_text(&mut self, text: &str) -> Result<(), TextError> {
        let mut unchecked = 0;
        for (start, character) in text.char_indices() {
            if start - unchecked >= BYTES_PER_CHECK {
                self.tokenizer.check_interrupt()?;
                unchecked = start;
            }
            self.needs_marks = self.needs_marks || self.tokenizer.begins_special(&text[start..]);
            if MARKS.contains(&character) && !self.seen.contains(&character) {
                self.seen.push(character);
            }
        }
        Ok(())
    }
}

/// Copies values with marks in their texts.
struct Marker<'t> {
    tokenizer: &'t Tokenizer,
    mark: char,
}

impl Marker<'_> {
    fn list(&self, values: &[Value]) -> Vec<Value> {
        values.iter().map(|value| self.value(value)).collect()
    }

    fn map(&self, entries: &Map<String, Value>) -> Map<String, Value> {
        entries.iter().map(|(key, value)| (self.text(key), self.value(value))).collect()
    }

    fn value(&self, value: &Value) -> Value {
        match value {
            Value::String(text) => Value::String(self.text(text)),
            Value::Array(items) => Value::Array(self.list(items)),
            Value::Object(entries) => Value::Object(self.map(entries)),
            Value::Null | Value::Bool(_) | Value::Number(_) => value.clone(),
        }
    }

    fn text(&self, text: &str) -> String {
        let mut marked = String::with_capacity(text.len());
        for (start, character) in text.char_indices() {
            marked.push(character);
            if self.tokenizer.begins_special(&text[start..]) {
                marked.push(self.mark);
            }
        }
        marked
    }
}
