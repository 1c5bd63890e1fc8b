//! The decoder that all families share, before any of them says what it does differently.
//!
//! This is the llama design: pre-norms, grouped attention with one rotary embedding, a gated dense MLP. A family's
//! `refine` changes what it must on the result.

use super::{
    fields::{Fields, Form},
    keys::{self, HEAD_COUNT, HIDDEN, KEY_LENGTH, KV_HEAD_COUNT, WIDTH},
    ropes,
};
use crate::{
    SpecError,
    spec::{Activation, AttentionSpec, DecoderSpec, LayerSpec, MlpSpec, Norm, RopeIndex},
};

/// Reads what every decoder has.
pub(super) fn spec(fields: &Fields<'_>) -> Result<DecoderSpec, SpecError> {
    let hidden = fields.count(HIDDEN, WIDTH)?;
    let heads = fields.count(HEAD_COUNT, keys::HEADS)?;
    let head_dim = head_dim(fields, hidden, heads)?;
    let rope = ropes::main(fields, head_dim)?;
    let positions = fields.count(keys::MAX_POSITIONS, keys::CONTEXT)?;
    let max_context = ropes::served_context(positions, &rope.scaling);
    let eps = fields.number(keys::NORM_EPSILON, keys::EPSILON)? as f32;
    Ok(DecoderSpec {
        family: fields.family.name,
        vocab: vocab(fields)?,
        hidden,
        heads,
        kv_heads: kv_heads(fields, heads)?,
        head_dim,
        layers: layers(fields)?,
        max_context,
        context: max_context,
        norm: Norm { eps, offset: 0.0 },
        activation: activation(fields, "hidden_act")?.unwrap_or(Activation::Silu),
        embedding_scale: 1.0,
        tied_embeddings: tied_embeddings(fields)?,
        logit_softcap: None,
        attention: attention(fields, head_dim)?,
        mlp_bias: bias(fields, "ffn_up", keys::MLP_BIAS)?,
        post_norms: false,
        ropes: vec![rope],
    })
}

pub(super) fn head_dim(fields: &Fields<'_>, hidden: usize, heads: usize) -> Result<usize, SpecError> {
    let head_dim = match fields.maybe_count(KEY_LENGTH, keys::HEAD_DIM)? {
        Some(given) => given,
        None if hidden.is_multiple_of(heads) && keys::HEAD_DIM.contains(&(hidden / heads)) => hidden / heads,
        None => return Err(fields.bad(HEAD_COUNT, "a divisor of the hidden size that leaves 4 to 1024")),
    };
    if !head_dim.is_multiple_of(2) {
        return Err(fields.bad(KEY_LENGTH, "an even number, so that values can turn in pairs"));
    }
    if fields.maybe_count(keys::VALUE_LENGTH, keys::HEAD_DIM)?.is_some_and(|values| values != head_dim) {
        return Err(fields.bad(keys::VALUE_LENGTH, &format!("{head_dim}, as wide as the keys")));
    }
    Ok(head_dim)
}

fn kv_heads(fields: &Fields<'_>, heads: usize) -> Result<usize, SpecError> {
    let kv_heads = fields.maybe_count(KV_HEAD_COUNT, keys::HEADS)?.unwrap_or(heads);
    if heads.is_multiple_of(kv_heads) {
        return Ok(kv_heads);
    }
    Err(fields.bad(KV_HEAD_COUNT, &format!("a divisor of the {heads} attention heads")))
}

/// GGUF need not state its vocabulary: the embedding's rows do.
pub(super) fn vocab(fields: &Fields<'_>) -> Result<usize, SpecError> {
    let rows = match fields.form {
        Form::Gguf(tensors) => tensors.rows("token_embd.weight").filter(|rows| WIDTH.contains(rows)),
        Form::HuggingFace => None,
    };
    rows.map_or_else(|| fields.count(keys::VOCAB, WIDTH), Ok)
}

fn layers(fields: &Fields<'_>) -> Result<Vec<LayerSpec>, SpecError> {
    let count = fields.count(keys::LAYER_COUNT, keys::LAYERS)?;
    let intermediate = fields.count(keys::INTERMEDIATE, WIDTH)?;
    let layer = LayerSpec { window: None, rope: Some(RopeIndex(0)), mlp: MlpSpec::Dense { intermediate } };
    Ok(vec![layer; count])
}

fn tied_embeddings(fields: &Fields<'_>) -> Result<bool, SpecError> {
    match fields.form {
        Form::HuggingFace => fields.flag(keys::TIED),
        Form::Gguf(tensors) => Ok(tensors.rows("output.weight").is_none()),
    }
}

fn attention(fields: &Fields<'_>, head_dim: usize) -> Result<AttentionSpec, SpecError> {
    let given = fields.maybe_number(keys::ATTENTION_SCALE, keys::POSITIVE)?;
    Ok(AttentionSpec {
        scale: given.unwrap_or_else(|| 1.0 / (head_dim as f64).sqrt()) as f32,
        softcap: None,
        qkv_bias: bias(fields, "attn_q", keys::ATTENTION_BIAS)?,
        output_bias: bias(fields, "attn_output", keys::ATTENTION_BIAS)?,
        qk_norm: None,
    })
}

/// Whether a projection has a bias: `config.json` says so, GGUF shows it.
fn bias(fields: &Fields<'_>, projection: &str, key: super::fields::Key) -> Result<bool, SpecError> {
    match fields.form {
        Form::HuggingFace => fields.flag(key),
        Form::Gguf(tensors) => Ok(tensors.rows(&format!("blk.0.{projection}.bias")).is_some()),
    }
}

/// The non-linearity named under `key` of `config.json`.
pub(super) fn activation(fields: &Fields<'_>, key: &str) -> Result<Option<Activation>, SpecError> {
    match fields.object.text(key)? {
        None => Ok(None),
        Some("silu" | "swish") => Ok(Some(Activation::Silu)),
        Some("gelu_pytorch_tanh" | "gelu_new") => Ok(Some(Activation::GeluTanh)),
        Some("gelu") => Ok(Some(Activation::Gelu)),
        Some(_) => Err(fields.object.bad(key, "silu, gelu, gelu_new or gelu_pytorch_tanh")),
    }
}
