//! GGUF metadata of published models, as their converters write it, and what it becomes.

use std::collections::HashMap;

use serde_json::{Value, json};

use super::{fields::TensorFacts, gguf};
use crate::{
    SpecError,
    spec::{
        Activation, DecoderSpec, ExpertsSpec, MlpSpec, QkNorm, RopeIndex, RopeLayout, Scaling, YarnScaling,
    },
};

/// Tensors by name: rows, and the values of those that are vectors.
#[derive(Default)]
struct Tensors(HashMap<&'static str, (usize, Vec<f32>)>);

impl Tensors {
    fn with(mut self, name: &'static str, rows: usize) -> Self {
        self.0.insert(name, (rows, Vec::new()));
        self
    }

    fn with_vector(mut self, name: &'static str, values: Vec<f32>) -> Self {
        self.0.insert(name, (1, values));
        self
    }
}

impl TensorFacts for Tensors {
    fn rows(&self, name: &str) -> Option<usize> {
        self.0.get(name).map(|(rows, _)| *rows)
    }

    fn vector(&self, name: &str, len: usize) -> Option<Vec<f32>> {
        self.0.get(name).map(|(_, values)| values.clone()).filter(|values| values.len() == len)
    }
}

fn metadata(extra: &Value) -> Value {
    let mut members = json!({"block_count": 30, "context_length": 8192, "embedding_length": 576,
        "feed_forward_length": 1536, "attention.head_count": 9, "attention.head_count_kv": 3,
        "attention.layer_norm_rms_epsilon": 1e-5_f32, "rope.dimension_count": 64, "rope.freq_base": 100_000.0});
    members.as_object_mut().unwrap().extend(extra.as_object().unwrap().clone());
    members
}

fn embedding() -> Tensors {
    Tensors::default().with("token_embd.weight", 49152)
}

fn spec(architecture: &str, extra: &Value, tensors: &Tensors) -> DecoderSpec {
    gguf::described(architecture, &metadata(extra), tensors).unwrap()
}

#[test]
fn a_llama_file_pairs_neighbours_and_takes_its_vocabulary_from_the_embedding() {
    let spec = spec("llama", &json!({"vocab_size": 5}), &embedding());
    assert_eq!((spec.family, spec.vocab, spec.hidden, spec.head_dim), ("llama", 49152, 576, 64));
    assert_eq!((spec.ropes[0].layout, spec.ropes[0].theta), (RopeLayout::Interleaved, 100_000.0));
    assert_eq!((spec.norm.eps, spec.max_context), (1e-5, 8192));
    assert!(spec.tied_embeddings && !spec.attention.qkv_bias);
}

#[test]
fn a_head_or_bias_exists_when_its_tensor_does() {
    let tensors =
        embedding().with("output.weight", 49152).with("blk.0.attn_q.bias", 1).with("blk.0.ffn_up.bias", 1);
    let spec = spec("llama", &json!({}), &tensors);
    assert!(!spec.tied_embeddings && spec.attention.qkv_bias && !spec.attention.output_bias && spec.mlp_bias);
}

#[test]
fn a_llama_file_with_experts_is_a_mixtral() {
    let spec = spec("llama", &json!({"expert_count": 8, "expert_used_count": 2}), &embedding());
    let experts = ExpertsSpec { experts: 8, top_k: 2, intermediate: 1536, normalise: true };
    assert!(spec.layers.iter().all(|layer| layer.mlp == MlpSpec::Experts(experts)));
}

#[test]
fn divisors_of_llama_3_1_come_from_their_tensor() {
    let tensors = embedding().with_vector("rope_freqs.weight", vec![2.0; 32]);
    assert_eq!(spec("llama", &json!({}), &tensors).ropes[0].scaling, Scaling::Factors(vec![2.0; 32]));
    for bad in [vec![2.0; 31], vec![0.0; 32], vec![f32::NAN; 32]] {
        let tensors = embedding().with_vector("rope_freqs.weight", bad);
        let error = gguf::described("llama", &metadata(&json!({})), &tensors).unwrap_err();
        assert!(error.to_string().contains("rope_freqs.weight"), "{error}");
    }
}

#[test]
fn linear_scaling_has_a_new_and_an_old_key_and_zero_means_none() {
    let scaling = |extra: Value| spec("llama", &extra, &embedding()).ropes[0].scaling.clone();
    assert_eq!(
        scaling(json!({"rope.scaling.type": "linear", "rope.scaling.factor": 4.0})),
        Scaling::Linear { factor: 4.0 }
    );
    assert_eq!(scaling(json!({"rope.scale_linear": 2.0})), Scaling::Linear { factor: 2.0 });
    assert_eq!(scaling(json!({"rope.scaling.factor": 0.0, "rope.scale_linear": 1.0})), Scaling::None);
    assert_eq!(scaling(json!({"rope.scaling.type": "none", "rope.scaling.factor": 4.0})), Scaling::None);
}

#[test]
fn a_qwen2_file_with_yarn_serves_the_stretched_window() {
    let extra = json!({"rope.scaling.type": "yarn", "rope.scaling.factor": 4.0,
        "rope.scaling.original_context_length": 4096});
    let spec = spec("qwen2", &extra, &embedding());
    assert!(spec.attention.qkv_bias);
    assert_eq!(spec.ropes[0].layout, RopeLayout::Half);
    assert_eq!(spec.ropes[0].scaling, Scaling::Yarn(YarnScaling::paper(4.0, 4096)));
    assert_eq!(spec.max_context, 16384);
}

#[test]
fn a_phi3_file_carries_two_sets_of_divisors() {
    let extra = json!({"context_length": 131_072, "rope.scaling.original_context_length": 4096,
        "rope.scaling.attn_factor": 1.19, "attention.sliding_window": 0});
    let tensors = embedding()
        .with_vector("rope_factors_long.weight", vec![9.0; 32])
        .with_vector("rope_factors_short.weight", vec![1.1; 32]);
    let long = spec("phi3", &extra, &tensors);
    let Scaling::LongRope(scaling) = &long.ropes[0].scaling else { panic!("{:?}", long.ropes[0]) };
    assert_eq!((scaling.original_context, scaling.long[0], scaling.short[31]), (4096, 9.0, 1.1));
    assert!((scaling.attention_factor - 1.19).abs() < 1e-6);
    assert!(long.layers.iter().all(|layer| layer.window.is_none()));
    let half = embedding().with_vector("rope_factors_long.weight", vec![9.0; 32]);
    let error = gguf::described("phi3", &metadata(&extra), &half).unwrap_err();
    assert_eq!(error, SpecError::Missing { key: "rope_factors_short.weight".to_owned() });
}

#[test]
fn a_qwen3moe_file_normalises_its_experts_without_saying_so() {
    let extra = json!({"expert_count": 128, "expert_used_count": 8, "expert_feed_forward_length": 768,
        "attention.key_length": 128, "attention.value_length": 128, "rope.dimension_count": 128});
    let spec = spec("qwen3moe", &extra, &embedding());
    let experts = ExpertsSpec { experts: 128, top_k: 8, intermediate: 768, normalise: true };
    assert!(spec.layers.iter().all(|layer| layer.mlp == MlpSpec::Experts(experts)));
    assert_eq!((spec.head_dim, spec.attention.qk_norm), (128, Some(QkNorm::PerHead)));
}

#[test]
fn a_smollm3_file_leaves_every_fourth_layer_unrotated() {
    let spec = spec("smollm3", &json!({}), &embedding());
    let plain: Vec<usize> = (0..30).filter(|layer| spec.layers[*layer].rope.is_none()).collect();
    assert_eq!(plain, [3, 7, 11, 15, 19, 23, 27]);
    assert_eq!(spec.ropes[0].layout, RopeLayout::Interleaved);
}

#[test]
fn a_gemma2_file_stores_whole_norm_weights_and_its_caps() {
    let extra = json!({"attn_logit_softcapping": 50.0, "final_logit_softcapping": 30.0,
        "attention.sliding_window": 4096});
    let small = spec("gemma2", &extra, &embedding());
    assert_eq!((small.norm.offset, small.embedding_scale), (0.0, 24.0));
    assert_eq!((small.attention.softcap, small.logit_softcap), (Some(50.0), Some(30.0)));
    assert_eq!((small.layers[0].window, small.layers[1].window), (Some(4096), None));
    assert_eq!((small.attention.scale, small.activation), (0.125, Activation::GeluTanh));
    let largest = json!({"block_count": 46, "embedding_length": 4608, "attention.head_count": 32,
        "attention.head_count_kv": 16, "attention.key_length": 128, "attention.value_length": 128});
    let largest = spec("gemma2", &largest, &embedding());
    assert_eq!((largest.attention.scale, largest.head_dim), (1.0 / 12.0, 128));
}

#[test]
fn a_gemma3_file_has_a_local_rope_unless_it_has_no_window() {
    let windowed =
        spec("gemma3", &json!({"attention.sliding_window": 512, "rope.scaling.factor": 8.0}), &embedding());
    assert_eq!(windowed.layers[5].rope, Some(RopeIndex(0)));
    assert_eq!((windowed.layers[4].rope, windowed.layers[4].window), (Some(RopeIndex(1)), Some(512)));
    assert_eq!((windowed.ropes[1].theta, &windowed.ropes[1].scaling), (10_000.0, &Scaling::None));
    assert_eq!(windowed.ropes[0].scaling, Scaling::Linear { factor: 8.0 });
    let plain = spec("gemma3", &json!({}), &embedding());
    assert!(plain.layers.iter().all(|layer| layer.window.is_none() && layer.rope == Some(RopeIndex(0))));
}

#[test]
fn every_bad_value_is_refused_under_its_full_key() {
    let cases = [
        ("llama.block_count", json!({"block_count": 0})),
        ("llama.embedding_length", json!({"embedding_length": "an array of 30"})),
        ("llama.attention.head_count", json!({"attention.head_count": 7})),
        ("llama.attention.head_count_kv", json!({"attention.head_count_kv": 2})),
        ("llama.attention.key_length", json!({"attention.key_length": 65})),
        ("llama.attention.value_length", json!({"attention.value_length": 32})),
        ("llama.rope.dimension_count", json!({"rope.dimension_count": 128})),
        ("llama.rope.dimension_count", json!({"rope.dimension_count": 31})),
        ("llama.rope.freq_base", json!({"rope.freq_base": "NaN"})),
        ("llama.rope.scaling.type", json!({"rope.scaling.type": "mystery"})),
        ("llama.rope.scaling.factor", json!({"rope.scaling.factor": 0.5})),
        ("llama.expert_used_count", json!({"expert_count": 2, "expert_used_count": 3})),
    ];
    for (expected, change) in cases {
        let error = gguf::described("llama", &metadata(&change), &embedding()).expect_err(expected);
        let SpecError::Bad { key, .. } = &error else { panic!("{change}: {error}") };
        assert_eq!(key, expected, "{error}");
    }
}

#[test]
fn missing_keys_and_unknown_architectures_are_named() {
    let error = gguf::described("llama", &json!({}), &Tensors::default()).unwrap_err();
    assert_eq!(error, SpecError::Missing { key: "llama.embedding_length".to_owned() });
    let error = gguf::described("rwkv", &json!({}), &Tensors::default()).unwrap_err();
    assert!(matches!(error, SpecError::UnsupportedFamily { .. }), "{error}");
}
