//! Encoder families as data: from a checkpoint's description of itself to an [`EncoderSpec`].
//!
//! As for decoders: [`spec`] reads what all share (the BERT design), a family's `refine` changes what it must.

mod bert;
mod distilbert;
mod modernbert;
mod mpnet;
mod nomic_bert;
mod xlm_roberta;

use ropeway_weights::{Checkpoint, Config};
use serde_json::Value;

use super::{
    Family,
    fields::{Fields, Form, Key, TensorFacts},
    find, gguf, keys,
    object::Object,
    plain,
};
use crate::{
    SpecError,
    encoder::{EncoderLayer, EncoderSpec, NormPlace},
    spec::Activation,
};

/// All encoder families, in the order in which error texts list them.
static FAMILIES: [&Family<EncoderSpec>; 6] = [
    &bert::FAMILY,
    &xlm_roberta::FAMILY,
    &mpnet::FAMILY,
    &distilbert::FAMILY,
    &nomic_bert::FAMILY,
    &modernbert::FAMILY,
];

/// Spellings of single families, and what the others call the same.
const ALIASES: [(&str, &str); 15] = [
    ("dim", "hidden_size"),
    ("hidden_dim", "intermediate_size"),
    ("n_layers", "num_hidden_layers"),
    ("n_heads", "num_attention_heads"),
    ("n_embd", "hidden_size"),
    ("n_inner", "intermediate_size"),
    ("n_layer", "num_hidden_layers"),
    ("n_head", "num_attention_heads"),
    ("n_positions", "max_position_embeddings"),
    ("layer_norm_epsilon", "layer_norm_eps"),
    ("norm_eps", "layer_norm_eps"),
    ("activation", "hidden_act"),
    ("hidden_activation", "hidden_act"),
    ("rotary_emb_base", "rope_theta"),
    ("global_rope_theta", "rope_theta"),
];

const EPSILON: Key = Key::new("layer_norm_eps", "attention.layer_norm_epsilon");
const TOKEN_TYPES: Key = Key::hugging_face("type_vocab_size");
/// Types of tokens: two today; a table sized by it must not hurt.
const MOST_TOKEN_TYPES: usize = 64;

impl EncoderSpec {
    /// Reads what a checkpoint says it is.
    pub fn from_checkpoint(checkpoint: &Checkpoint) -> Result<EncoderSpec, SpecError> {
        match checkpoint.config() {
            Config::HuggingFace(config) => EncoderSpec::from_hugging_face(config),
            Config::Gguf(metadata) => {
                let name = gguf::architecture(metadata)?;
                let members = Value::Object(gguf::members(metadata, name));
                let family = find(&FAMILIES, name, |family| family.architectures)?;
                build(family, Object::new(&format!("{name}."), &members), Form::Gguf(checkpoint))
            }
        }
    }

    /// Reads a Hugging Face `config.json`.
    pub fn from_hugging_face(config: &Value) -> Result<EncoderSpec, SpecError> {
        let root = Object::new("", config);
        let name = root.text("model_type")?.ok_or_else(|| root.missing("model_type"))?;
        let family = find(&FAMILIES, name, |family| family.model_types)?;
        let config = respelled(config);
        build(family, Object::new("", &config), Form::HuggingFace)
    }

    /// Whether a checkpoint's family is one of encoders.
    pub fn describes(checkpoint: &Checkpoint) -> bool {
        let known = |name: &str, names: fn(&Family<EncoderSpec>) -> &'static [&'static str]| {
            FAMILIES.iter().any(|family| names(family).contains(&name))
        };
        match checkpoint.config() {
            Config::HuggingFace(config) => {
                let name = config.get("model_type").and_then(Value::as_str);
                name.is_some_and(|name| known(name, |family| family.model_types))
            }
            Config::Gguf(metadata) => {
                gguf::architecture(metadata).is_ok_and(|name| known(name, |family| family.architectures))
            }
        }
    }
}

/// The configuration with every key in its common spelling.
fn respelled(config: &Value) -> Value {
    let Value::Object(members) = config else { return config.clone() };
    let mut members = members.clone();
    for (theirs, common) in ALIASES {
        if let Some(value) = members.get(theirs).filter(|value| !value.is_null()).cloned() {
            members.entry(common).or_insert(value);
        }
    }
    Value::Object(members)
}

fn build(family: &Family<EncoderSpec>, object: Object<'_>, form: Form<'_>) -> Result<EncoderSpec, SpecError> {
    let fields = Fields { object, form, family: family.manner() };
    let mut spec = spec(&fields)?;
    (family.refine)(&fields, &mut spec)?;
    Ok(spec)
}

/// The encoder that all families share: BERT.
fn spec(fields: &Fields<'_>) -> Result<EncoderSpec, SpecError> {
    let hidden = fields.count(keys::HIDDEN, keys::WIDTH)?;
    let heads = fields.count(keys::HEAD_COUNT, keys::HEADS)?;
    let layers = fields.count(keys::LAYER_COUNT, keys::LAYERS)?;
    Ok(EncoderSpec {
        family: fields.family.name,
        vocab: plain::vocab(fields)?,
        hidden,
        heads,
        head_dim: plain::head_dim(fields, hidden, heads)?,
        layers: vec![EncoderLayer { reach: None, rope: None }; layers],
        max_tokens: fields.count(keys::MAX_POSITIONS, keys::CONTEXT)?,
        norm_eps: fields.number(EPSILON, keys::EPSILON)? as f32,
        norms: NormPlace::After,
        activation: plain::activation(fields, "hidden_act")?.unwrap_or(Activation::Gelu),
        intermediate: fields.count(keys::INTERMEDIATE, keys::WIDTH)?,
        gated: false,
        first_position: Some(0),
        token_types: token_types(fields)?,
        distances: None,
        ropes: Vec::new(),
    })
}

fn token_types(fields: &Fields<'_>) -> Result<usize, SpecError> {
    match fields.form {
        Form::HuggingFace => Ok(fields.maybe_count(TOKEN_TYPES, 0..=MOST_TOKEN_TYPES)?.unwrap_or(0)),
        Form::Gguf(tensors) => Ok(rows(tensors, "token_types.weight").unwrap_or(0)),
    }
}

fn rows(tensors: &dyn TensorFacts, name: &str) -> Option<usize> {
    tensors.rows(name).filter(|rows| (1..=MOST_TOKEN_TYPES).contains(rows))
}

/// Learnt positions of which the first `pad_token_id + 1` rows are never used.
fn positions_after_padding(fields: &Fields<'_>, spec: &mut EncoderSpec) -> Result<(), SpecError> {
    // Converters to GGUF leave those rows out.
    if fields.is_gguf() {
        return Ok(());
    }
    let first = fields.count(Key::hugging_face("pad_token_id"), 0..=*keys::WIDTH.end())? + 1;
    if first >= spec.max_tokens {
        return Err(fields.bad(keys::MAX_POSITIONS, &format!("more than the {first} rows kept for padding")));
    }
    spec.first_position = Some(first);
    spec.max_tokens -= first;
    Ok(())
}
