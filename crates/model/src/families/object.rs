//! Checked reads from one JSON object of a configuration.
//!
//! Every getter names the key, the value and the allowed range when it refuses. A missing key and a `null` are both
//! `None`; nothing here panics or allocates more than the configuration itself holds.

use std::ops::RangeInclusive;

use serde_json::{Map, Value};

use crate::SpecError;

/// Longest piece of a bad value that an error repeats; a hostile value may be megabytes.
const SHOWN_VALUE: usize = 60;

/// A JSON object, with the path that leads to it.
#[derive(Clone, Debug)]
pub(super) struct Object<'a> {
    path: String,
    members: Option<&'a Map<String, Value>>,
}

impl<'a> Object<'a> {
    /// The members of `value`, whose keys are shown to people behind `path`.
    pub(super) fn new(path: &str, value: &'a Value) -> Self {
        Self { path: path.to_owned(), members: value.as_object() }
    }

    /// An object without members.
    pub(super) fn empty(path: &str) -> Self {
        Self { path: path.to_owned(), members: None }
    }

    /// Whether the key is there, be it `null`.
    pub(super) fn mentions(&self, key: &str) -> bool {
        self.members.is_some_and(|members| members.contains_key(key))
    }

    /// The value of a key that is there and not `null`.
    pub(super) fn get(&self, key: &str) -> Option<&'a Value> {
        self.members?.get(key).filter(|value| !value.is_null())
    }

    /// The object under a key; empty when the key is absent.
    pub(super) fn child(&self, key: &str) -> Result<Object<'a>, SpecError> {
        let path = format!("{}{key}.", self.path);
        match self.get(key) {
            None => Ok(Object::empty(&path)),
            Some(value) if value.is_object() => Ok(Object::new(&path, value)),
            Some(_) => Err(self.bad(key, "an object")),
        }
    }

    /// A number within `range`.
    pub(super) fn number(&self, key: &str, range: RangeInclusive<f64>) -> Result<Option<f64>, SpecError> {
        let Some(value) = self.get(key) else { return Ok(None) };
        match value.as_f64().filter(|number| range.contains(number)) {
            Some(number) => Ok(Some(number)),
            None => Err(self.bad(key, &format!("a number from {} to {}", range.start(), range.end()))),
        }
    }

    /// A whole number within `range`.
    pub(super) fn count(&self, key: &str, range: RangeInclusive<usize>) -> Result<Option<usize>, SpecError> {
        let Some(value) = self.get(key) else { return Ok(None) };
        let whole = value.as_f64().filter(|number| number.fract() == 0.0 && *number >= 0.0);
        match whole.map(|number| number as usize).filter(|count| range.contains(count)) {
            Some(count) => Ok(Some(count)),
            None => Err(self.bad(key, &format!("a whole number from {} to {}", range.start(), range.end()))),
        }
    }

    /// `true` or `false`.
    pub(super) fn flag(&self, key: &str) -> Result<Option<bool>, SpecError> {
        let Some(value) = self.get(key) else { return Ok(None) };
        value.as_bool().map(Some).ok_or_else(|| self.bad(key, "true or false"))
    }

    /// A text.
    pub(super) fn text(&self, key: &str) -> Result<Option<&'a str>, SpecError> {
        let Some(value) = self.get(key) else { return Ok(None) };
        value.as_str().map(Some).ok_or_else(|| self.bad(key, "a text"))
    }

    /// A list of any length.
    pub(super) fn list(&self, key: &str) -> Result<Option<&'a [Value]>, SpecError> {
        let Some(value) = self.get(key) else { return Ok(None) };
        value.as_array().map(|list| Some(list.as_slice())).ok_or_else(|| self.bad(key, "a list"))
    }

    /// A list of exactly `len` numbers, each within `range`.
    pub(super) fn numbers(
        &self,
        key: &str,
        len: usize,
        range: &RangeInclusive<f64>,
    ) -> Result<Option<Vec<f32>>, SpecError> {
        let Some(list) = self.list(key)? else { return Ok(None) };
        let numbers: Option<Vec<f32>> = list
            .iter()
            .map(|value| value.as_f64().filter(|number| range.contains(number)).map(|number| number as f32))
            .collect();
        numbers.filter(|numbers| numbers.len() == len).map(Some).ok_or_else(|| {
            self.bad(key, &format!("a list of {len} numbers from {} to {}", range.start(), range.end()))
        })
    }

    /// The error for a key that must be there.
    pub(super) fn missing(&self, key: &str) -> SpecError {
        SpecError::Missing { key: format!("{}{key}", self.path) }
    }

    /// The error for a key whose value cannot be used.
    pub(super) fn bad(&self, key: &str, allowed: &str) -> SpecError {
        let value = self.members.and_then(|members| members.get(key)).unwrap_or(&Value::Null);
        SpecError::Bad {
            key: format!("{}{key}", self.path),
            value: shortened(value),
            allowed: allowed.to_owned(),
        }
    }
}

fn shortened(value: &Value) -> String {
    let text = match value {
        Value::Array(list) if list.len() > 8 => format!("a list of {} values", list.len()),
        Value::Object(members) => format!("an object of {} keys", members.len()),
        other => other.to_string(),
    };
    match text.char_indices().nth(SHOWN_VALUE) {
        Some((end, _)) => format!("{}...", &text[..end]),
        None => text,
    }
}
