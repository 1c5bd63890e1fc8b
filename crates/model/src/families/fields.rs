//! One way to read a configuration, whichever of the two file forms wrote it.
//!
//! A [`Key`] carries both spellings of one quantity; [`Fields`] looks up the right one, falls back to what the family
//! defines for absent keys, and checks the range. GGUF metadata arrives here as a JSON object of its own.

use std::ops::RangeInclusive;

use super::object::Object;
use crate::{SpecError, spec::RopeLayout};

/// One quantity's key in `config.json`, and in GGUF metadata behind the architecture's name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Key {
    hugging_face: Option<&'static str>,
    gguf: Option<&'static str>,
}

impl Key {
    /// A quantity that both forms can hold.
    pub(super) const fn new(hugging_face: &'static str, gguf: &'static str) -> Self {
        Self { hugging_face: Some(hugging_face), gguf: Some(gguf) }
    }

    /// A quantity that only `config.json` holds.
    pub(super) const fn hugging_face(key: &'static str) -> Self {
        Self { hugging_face: Some(key), gguf: None }
    }

    /// A quantity that only GGUF metadata holds.
    pub(super) const fn gguf(key: &'static str) -> Self {
        Self { hugging_face: None, gguf: Some(key) }
    }
}

/// What a GGUF file tells through its tensors rather than its metadata.
pub(super) trait TensorFacts {
    /// Rows of a tensor, or `None` when the file lacks it.
    fn rows(&self, name: &str) -> Option<usize>;
    /// The values of a one-dimensional tensor of `len` values; `None` when absent or of another shape.
    fn vector(&self, name: &str, len: usize) -> Option<Vec<f32>>;
}

/// Which form wrote the configuration.
#[derive(Clone, Copy)]
pub(super) enum Form<'a> {
    /// `config.json`.
    HuggingFace,
    /// GGUF metadata, beside these tensors.
    Gguf(&'a dyn TensorFacts),
}

/// A model's configuration.
pub(super) struct Fields<'a> {
    /// All keys; of the text part where a model has several.
    pub(super) object: Object<'a>,
    /// Which spelling they have.
    pub(super) form: Form<'a>,
    /// Whose defaults count.
    pub(super) family: Manner,
}

/// What a family assumes about a configuration; each field as in [`Family`](super::Family).
#[derive(Clone, Copy)]
pub(super) struct Manner {
    pub(super) name: &'static str,
    pub(super) gguf_layout: RopeLayout,
    pub(super) defaults: &'static [(Key, f64)],
    pub(super) gguf_defaults: &'static [(Key, f64)],
}

impl Fields<'_> {
    /// Whether the tensors are laid out and named as in GGUF files.
    pub(super) fn is_gguf(&self) -> bool {
        matches!(self.form, Form::Gguf(_))
    }

    /// The key as this form spells it.
    fn name(&self, key: Key) -> Option<&'static str> {
        if self.is_gguf() { key.gguf } else { key.hugging_face }
    }

    fn default_of(&self, key: Key) -> Option<f64> {
        let defaults = if self.is_gguf() { self.family.gguf_defaults } else { self.family.defaults };
        defaults.iter().find(|(defaulted, _)| *defaulted == key).map(|(_, value)| *value)
    }

    /// What the family assumes for a key the file does not mention; an explicit `null` is taken at its word.
    fn default_unless_null(&self, key: Key) -> Option<f64> {
        let mentioned = self.name(key).is_some_and(|name| self.object.mentions(name));
        if mentioned { None } else { self.default_of(key) }
    }

    /// A whole number that may be absent.
    pub(super) fn maybe_count(
        &self,
        key: Key,
        range: RangeInclusive<usize>,
    ) -> Result<Option<usize>, SpecError> {
        let read = self.name(key).map_or(Ok(None), |name| self.object.count(name, range))?;
        Ok(read.or_else(|| self.default_unless_null(key).map(|value| value as usize)))
    }

    /// A number that may be absent.
    pub(super) fn maybe_number(
        &self,
        key: Key,
        range: RangeInclusive<f64>,
    ) -> Result<Option<f64>, SpecError> {
        let read = self.name(key).map_or(Ok(None), |name| self.object.number(name, range))?;
        Ok(read.or_else(|| self.default_unless_null(key)))
    }

    /// A whole number the model cannot do without.
    pub(super) fn count(&self, key: Key, range: RangeInclusive<usize>) -> Result<usize, SpecError> {
        let read = self.maybe_count(key, range)?;
        read.or_else(|| self.default_of(key).map(|value| value as usize)).ok_or_else(|| self.missing(key))
    }

    /// A number the model cannot do without.
    pub(super) fn number(&self, key: Key, range: RangeInclusive<f64>) -> Result<f64, SpecError> {
        let read = self.maybe_number(key, range)?;
        read.or_else(|| self.default_of(key)).ok_or_else(|| self.missing(key))
    }

    /// A flag; `false` when absent.
    pub(super) fn flag(&self, key: Key) -> Result<bool, SpecError> {
        self.flag_or(key, self.default_of(key).is_some_and(|value| value != 0.0))
    }

    /// A flag with the default given.
    pub(super) fn flag_or(&self, key: Key, default: bool) -> Result<bool, SpecError> {
        let read = self.name(key).map_or(Ok(None), |name| self.object.flag(name))?;
        Ok(read.unwrap_or(default))
    }

    /// The error for a key whose value contradicts the rest.
    pub(super) fn bad(&self, key: Key, allowed: &str) -> SpecError {
        self.object.bad(self.name(key).unwrap_or_default(), allowed)
    }

    fn missing(&self, key: Key) -> SpecError {
        self.object.missing(self.name(key).unwrap_or_default())
    }
}
