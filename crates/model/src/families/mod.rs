//! Model families as data: from a checkpoint's description of itself to a [`DecoderSpec`] or, under `encoders`, an
//! [`EncoderSpec`](crate::encoder::EncoderSpec).
//!
//! A family is one small file with a [`Family`]: the names it goes by, what it assumes for keys a file leaves out, and
//! how it departs from the plain decoder. Everything a file says is checked against a range before it is used; a hostile
//! configuration is a [`SpecError`], never a panic or a large allocation.
//!
//! To add a family: write its file, name it in [`FAMILIES`], and add its published configuration to the tests.
//!
//! # Layout
//! - `plain`: what all families share. `ropes`, `windows`, `experts`: what several do.
//! - `fields`, `keys`, `object`: checked reading of either file form.

mod encoders;
mod experts;
mod fields;
mod gguf;
mod keys;
mod object;
mod plain;
mod ropes;
mod windows;

mod gemma2;
mod gemma3;
mod llama;
mod mistral;
mod mixtral;
mod phi3;
mod qwen2;
mod qwen3;
mod qwen3_moe;
mod smollm3;

#[cfg(test)]
mod tests;

use ropeway_weights::{Checkpoint, Config};
use serde_json::Value;

use self::{
    fields::{Fields, Form, Key, Manner},
    object::Object,
};
use crate::{
    SpecError,
    spec::{DecoderSpec, RopeLayout},
};

/// What is particular to one family of models that `S` describes.
struct Family<S: 'static = DecoderSpec> {
    /// Its name, for people.
    name: &'static str,
    /// `model_type` of its Hugging Face configurations.
    model_types: &'static [&'static str],
    /// `general.architecture` of its GGUF files.
    architectures: &'static [&'static str],
    /// How its GGUF files pair the values of a head.
    gguf_layout: RopeLayout,
    /// What `config.json` means when it does not mention a key; flags as 0 or 1.
    defaults: &'static [(Key, f64)],
    /// The same for GGUF metadata.
    gguf_defaults: &'static [(Key, f64)],
    /// Turns the plain decoder into its own.
    refine: fn(&Fields<'_>, &mut S) -> Result<(), SpecError>,
}

impl<S> Family<S> {
    /// What reading a configuration needs to know of it.
    fn manner(&self) -> Manner {
        Manner {
            name: self.name,
            gguf_layout: self.gguf_layout,
            defaults: self.defaults,
            gguf_defaults: self.gguf_defaults,
        }
    }
}

/// All families, in the order in which error texts list them.
static FAMILIES: [&Family; 10] = [
    &llama::FAMILY,
    &mistral::FAMILY,
    &mixtral::FAMILY,
    &smollm3::FAMILY,
    &qwen2::FAMILY,
    &qwen3::FAMILY,
    &qwen3_moe::FAMILY,
    &phi3::FAMILY,
    &gemma2::FAMILY,
    &gemma3::FAMILY,
];

impl DecoderSpec {
    /// Reads what a checkpoint says it is.
    pub fn from_checkpoint(checkpoint: &Checkpoint) -> Result<DecoderSpec, SpecError> {
        match checkpoint.config() {
            Config::HuggingFace(config) => DecoderSpec::from_hugging_face(config),
            Config::Gguf(metadata) => gguf::spec(metadata, checkpoint),
        }
    }

    /// Reads a Hugging Face `config.json`, of transformers 4 or 5.
    pub fn from_hugging_face(config: &Value) -> Result<DecoderSpec, SpecError> {
        let root = Object::new("", config);
        let name = root.text("model_type")?.ok_or_else(|| root.missing("model_type"))?;
        let family = find(&FAMILIES, name, |family| family.model_types)?;
        // A model that also sees images keeps the decoder's part in an object of its own.
        let object = if root.get("text_config").is_some() { root.child("text_config")? } else { root };
        build(family, &Fields { object, form: Form::HuggingFace, family: family.manner() })
    }
}

fn build(family: &Family, fields: &Fields<'_>) -> Result<DecoderSpec, SpecError> {
    let mut spec = plain::spec(fields)?;
    (family.refine)(fields, &mut spec)?;
    Ok(spec)
}

fn find<S>(
    families: &'static [&'static Family<S>],
    name: &str,
    names: fn(&Family<S>) -> &'static [&'static str],
) -> Result<&'static Family<S>, SpecError> {
    let known = families.iter().find(|family| names(family).contains(&name));
    known.copied().ok_or_else(|| SpecError::UnsupportedFamily {
        found: name.chars().take(60).collect(),
        supported: families.iter().map(|family| family.name).collect::<Vec<_>>().join(", "),
    })
}
