//! GGUF metadata as the JSON object that [`Fields`] reads.
//!
//! Only keys behind the architecture's own name are taken, so that the vocabulary's arrays are never touched.

use ropeway_weights::{
    Checkpoint,
    gguf::{Kind, Metadata},
};
use serde_json::{Map, Number, Value};

use super::{
    FAMILIES, build,
    fields::{Fields, Form, TensorFacts},
    find,
    object::Object,
};
use crate::{SpecError, spec::DecoderSpec};

/// Reads what a GGUF file says it is.
pub(super) fn spec(metadata: &Metadata, checkpoint: &Checkpoint) -> Result<DecoderSpec, SpecError> {
    let name = architecture(metadata)?;
    described(name, &Value::Object(members(metadata, name)), checkpoint)
}

/// The family's name in GGUF.
pub(super) fn architecture(metadata: &Metadata) -> Result<&str, SpecError> {
    const KEY: &str = "general.architecture";
    metadata.str(KEY).ok_or_else(|| SpecError::Missing { key: KEY.to_owned() })
}

/// Reads the keys of one architecture, without the architecture's name in front.
pub(super) fn described(
    architecture: &str,
    members: &Value,
    tensors: &dyn TensorFacts,
) -> Result<DecoderSpec, SpecError> {
    let family = find(&FAMILIES, architecture, |family| family.architectures)?;
    let object = Object::new(&format!("{architecture}."), members);
    build(family, &Fields { object, form: Form::Gguf(tensors), family: family.manner() })
}

/// The scalars behind the architecture's name, without it.
pub(super) fn members(metadata: &Metadata, architecture: &str) -> Map<String, Value> {
    let own = |key: &str| Some(key.strip_prefix(architecture)?.strip_prefix('.')?.to_owned());
    metadata.keys().filter_map(|key| Some((own(key)?, value(metadata, key)))).collect()
}

/// A scalar as JSON; anything else as a text that says what it is, which every checked read refuses.
fn value(metadata: &Metadata, key: &str) -> Value {
    match metadata.kind(key) {
        Some(Kind::String) => metadata.str(key).map_or(Value::Null, Value::from),
        Some(Kind::Bool) => metadata.bool(key).map_or(Value::Null, Value::from),
        Some(Kind::F32 | Kind::F64) => metadata.f32(key).map_or(Value::Null, float),
        Some(Kind::Array) => {
            Value::from(format!("an array of {}", metadata.array_len(key).unwrap_or_default()))
        }
        _ => metadata.u64(key).map_or_else(|| Value::from("a negative number"), Value::from),
    }
}

fn float(value: f32) -> Value {
    Number::from_f64(f64::from(value)).map_or_else(|| Value::from(value.to_string()), Value::Number)
}

impl TensorFacts for Checkpoint {
    fn rows(&self, name: &str) -> Option<usize> {
        self.find(name).map(|tensor| tensor.rows())
    }

    fn vector(&self, name: &str, len: usize) -> Option<Vec<f32>> {
        let tensor = self.find(name).filter(|tensor| tensor.rows() == 1 && tensor.cols() == len)?;
        let mut values = vec![0.0; len];
        tensor.read_f32(0, &mut values);
        Some(values)
    }
}
