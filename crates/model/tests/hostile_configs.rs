//! Configurations that are broken, contradictory or hostile: each is an error that names the key.

use proptest::prelude::*;
use ropeway_model::{DecoderSpec, RopeTable, SpecError, context::MAX_CONTEXT};
use serde_json::{Value, json};

fn good(family: &str) -> Value {
    json!({"model_type": family, "vocab_size": 100, "hidden_size": 64, "intermediate_size": 96,
        "num_hidden_layers": 4, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16,
        "max_position_embeddings": 512, "rms_norm_eps": 1e-6, "rope_theta": 10000.0, "sliding_window": 8,
        "num_experts": 4, "num_local_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 32})
}

fn with(family: &str, change: &Value) -> Value {
    let mut config = good(family);
    config.as_object_mut().expect("an object").extend(change.as_object().expect("an object").clone());
    config
}

#[test]
fn every_bad_value_is_refused_under_its_key() {
    let rope = |scaling: Value| json!({"rope_scaling": scaling});
    let cases: Vec<(&str, &str, Value)> = vec![
        ("llama", "vocab_size", json!({"vocab_size": 0})),
        ("llama", "vocab_size", json!({"vocab_size": u64::MAX})),
        ("llama", "vocab_size", json!({"vocab_size": "many"})),
        ("llama", "hidden_size", json!({"hidden_size": -64})),
        ("llama", "hidden_size", json!({"hidden_size": 64.5})),
        ("llama", "hidden_size", json!({"hidden_size": 1e300})),
        ("llama", "hidden_size", json!({"hidden_size": [64]})),
        ("llama", "intermediate_size", json!({"intermediate_size": 1_000_000_000})),
        ("llama", "num_hidden_layers", json!({"num_hidden_layers": 0})),
        ("llama", "num_hidden_layers", json!({"num_hidden_layers": 4_000_000_000_u64})),
        ("llama", "num_attention_heads", json!({"num_attention_heads": 0})),
        ("llama", "num_attention_heads", json!({"num_attention_heads": 5, "head_dim": null})),
        ("llama", "num_key_value_heads", json!({"num_key_value_heads": 0})),
        ("llama", "num_key_value_heads", json!({"num_key_value_heads": 3})),
        ("llama", "num_key_value_heads", json!({"num_key_value_heads": 8})),
        ("llama", "head_dim", json!({"head_dim": 15})),
        ("llama", "head_dim", json!({"head_dim": 2})),
        ("llama", "head_dim", json!({"head_dim": 100_000})),
        ("llama", "max_position_embeddings", json!({"max_position_embeddings": 0})),
        ("llama", "max_position_embeddings", json!({"max_position_embeddings": 1u64 << 60})),
        ("llama", "rms_norm_eps", json!({"rms_norm_eps": -1.0})),
        ("llama", "rope_theta", json!({"rope_theta": 0.0})),
        ("llama", "rope_theta", json!({"rope_theta": 1.0})),
        ("llama", "hidden_act", json!({"hidden_act": "relu"})),
        ("llama", "hidden_act", json!({"hidden_act": 7})),
        ("llama", "tie_word_embeddings", json!({"tie_word_embeddings": "yes"})),
        ("llama", "rope_scaling", rope(json!("yarn"))),
        ("llama", "rope_scaling.rope_type", rope(json!({"rope_type": "mrope"}))),
        ("llama", "rope_scaling.factor", rope(json!({"type": "linear", "factor": 0}))),
        ("llama", "rope_scaling.factor", rope(json!({"type": "dynamic", "factor": 1e9}))),
        (
            "llama",
            "rope_scaling.high_freq_factor",
            rope(json!({"rope_type": "llama3", "factor": 8,
            "low_freq_factor": 4, "high_freq_factor": 4})),
        ),
        (
            "llama",
            "rope_scaling.original_max_position_embeddings",
            rope(json!({"type": "yarn", "factor": 2, "original_max_position_embeddings": 1})),
        ),
        ("llama", "rope_scaling.beta_fast", rope(json!({"type": "yarn", "factor": 2, "beta_fast": 0}))),
        ("llama", "rope_parameters.rope_theta", json!({"rope_parameters": {"rope_theta": -5}})),
        ("llama", "partial_rotary_factor", json!({"partial_rotary_factor": 0.0})),
        ("llama", "partial_rotary_factor", json!({"partial_rotary_factor": 0.44})),
        ("llama", "partial_rotary_factor", json!({"partial_rotary_factor": 3.0})),
        (
            "phi3",
            "rope_scaling.short_factor",
            rope(json!({"type": "su", "short_factor": [1.0], "long_factor": [1.0]})),
        ),
        (
            "phi3",
            "rope_scaling.short_factor",
            rope(json!({"type": "su", "short_factor": vec![0.0; 8], "long_factor": vec![1.0; 8]})),
        ),
        (
            "phi3",
            "rope_scaling.long_factor",
            rope(json!({"type": "su", "short_factor": vec![1.0; 8], "long_factor": vec!["x"; 8]})),
        ),
        ("mistral", "sliding_window", json!({"sliding_window": -1})),
        ("qwen2", "max_window_layers", json!({"use_sliding_window": true, "max_window_layers": -3})),
        ("gemma2", "query_pre_attn_scalar", json!({"query_pre_attn_scalar": 0})),
        ("gemma2", "final_logit_softcapping", json!({"final_logit_softcapping": 0.0})),
        ("gemma2", "layer_types", json!({"layer_types": ["full_attention"]})),
        ("gemma3", "layer_types", json!({"layer_types": ["a", "b", "c", "d"]})),
        ("gemma3", "use_bidirectional_attention", json!({"use_bidirectional_attention": true})),
        ("gemma3", "sliding_window_pattern", json!({"sliding_window_pattern": 0})),
        ("gemma3", "rope_local_base_freq", json!({"rope_local_base_freq": 0})),
        ("gemma3", "text_config", json!({"text_config": 3})),
        ("smollm3", "no_rope_layers", json!({"no_rope_layers": [1, 0]})),
        ("smollm3", "no_rope_layers", json!({"no_rope_layers": ["1", "1", "1", "0"]})),
        ("smollm3", "no_rope_layer_interval", json!({"no_rope_layer_interval": 0})),
        ("mixtral", "num_local_experts", json!({"num_local_experts": 1_000_000})),
        ("mixtral", "num_experts_per_tok", json!({"num_experts_per_tok": 5})),
        ("qwen3_moe", "num_experts_per_tok", json!({"num_experts_per_tok": 0})),
        ("qwen3_moe", "decoder_sparse_step", json!({"decoder_sparse_step": 0})),
        ("qwen3_moe", "mlp_only_layers", json!({"mlp_only_layers": 3})),
    ];
    for (family, expected, change) in cases {
        let error = DecoderSpec::from_hugging_face(&with(family, &change)).expect_err(&change.to_string());
        let SpecError::Bad { key, .. } = &error else { panic!("{change}: {error}") };
        assert_eq!(key, expected, "{change}: {error}");
    }
}

#[test]
fn every_missing_key_is_named() {
    for key in ["vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads"]
    {
        for config in [with("llama", &json!({key: null})), {
            let mut config = good("llama");
            config.as_object_mut().expect("an object").remove(key);
            config
        }] {
            let error = DecoderSpec::from_hugging_face(&config).expect_err(key);
            assert_eq!(error, SpecError::Missing { key: key.to_owned() });
        }
    }
    let config = with("llama", &json!({"rope_scaling": {"type": "linear"}}));
    let error = DecoderSpec::from_hugging_face(&config).expect_err("no factor");
    assert_eq!(error, SpecError::Missing { key: "rope_scaling.factor".to_owned() });
}

#[test]
fn an_unknown_family_is_told_which_ones_there_are() {
    let error = DecoderSpec::from_hugging_face(&json!({"model_type": "mamba"})).expect_err("not supported");
    let text = error.to_string();
    for name in
        ["mamba", "llama", "mistral", "mixtral", "smollm3", "qwen2", "qwen3", "phi3", "gemma2", "gemma3"]
    {
        assert!(text.contains(name), "{text}");
    }
}

#[test]
fn something_that_is_no_configuration_is_an_error() {
    for config in [json!(null), json!([]), json!("llama"), json!({}), json!({"model_type": 3})] {
        DecoderSpec::from_hugging_face(&config).expect_err(&config.to_string());
    }
}

#[test]
fn an_error_repeats_only_the_start_of_a_long_value() {
    let config = with("llama", &json!({"vocab_size": "x".repeat(1 << 20)}));
    let text = DecoderSpec::from_hugging_face(&config).expect_err("not a number").to_string();
    assert!(text.len() < 400, "{} characters", text.len());
}

/// Values that a hostile author would try.
fn nasty() -> impl Strategy<Value = Value> {
    prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<u64>().prop_map(Value::from),
        (0u64..20).prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        (0.0f64..4.0).prop_map(Value::from),
        "[a-z0-9_]{0,12}".prop_map(Value::from),
        prop::sample::select(vec!["yarn", "linear", "dynamic", "llama3", "longrope", "sliding_attention"])
            .prop_map(Value::from),
        prop::collection::vec(0.0f64..3.0, 0..10).prop_map(Value::from),
        Just(json!({})),
    ]
}

const KEYS: [&str; 26] = [
    "vocab_size",
    "hidden_size",
    "intermediate_size",
    "num_hidden_layers",
    "num_attention_heads",
    "num_key_value_heads",
    "head_dim",
    "max_position_embeddings",
    "rms_norm_eps",
    "rope_theta",
    "sliding_window",
    "layer_types",
    "no_rope_layers",
    "use_sliding_window",
    "max_window_layers",
    "num_experts",
    "num_experts_per_tok",
    "moe_intermediate_size",
    "decoder_sparse_step",
    "mlp_only_layers",
    "partial_rotary_factor",
    "query_pre_attn_scalar",
    "rope_local_base_freq",
    "sliding_window_pattern",
    "original_max_position_embeddings",
    "text_config",
];

const ROPE_KEYS: [&str; 12] = [
    "rope_type",
    "type",
    "factor",
    "low_freq_factor",
    "high_freq_factor",
    "original_max_position_embeddings",
    "beta_fast",
    "beta_slow",
    "attention_factor",
    "mscale",
    "short_factor",
    "rope_theta",
];

const FAMILIES: [&str; 10] =
    ["llama", "mistral", "mixtral", "smollm3", "qwen2", "qwen3", "qwen3_moe", "phi3", "gemma2", "gemma3"];

proptest! {
    /// Whatever is accepted must be safe to compute with: finite angles, sizes within bounds.
    #[test]
    fn a_mutated_configuration_is_refused_or_usable(
        family in prop::sample::select(FAMILIES.to_vec()),
        changes in prop::collection::vec((prop::sample::select(KEYS.to_vec()), nasty()), 0..4),
        scaling in prop::collection::vec((prop::sample::select(ROPE_KEYS.to_vec()), nasty()), 0..5),
    ) {
        let mut config = good(family);
        for (key, value) in changes {
            config[key] = value;
        }
        for (key, value) in scaling {
            config["rope_scaling"][key] = value;
        }
        let Ok(spec) = DecoderSpec::from_hugging_face(&config) else { return Ok(()) };
        prop_assert!(spec.heads.is_multiple_of(spec.kv_heads) && spec.head_dim.is_multiple_of(2));
        prop_assert!(spec.max_context <= MAX_CONTEXT && spec.layers.len() <= 1024);
        prop_assert!(spec.attention.scale.is_finite() && spec.embedding_scale.is_finite());
        for rope in &spec.ropes {
            let table = RopeTable::new(rope, spec.context);
            let (mut cos, mut sin) = (vec![0.0; table.pairs()], vec![0.0; table.pairs()]);
            table.fill(spec.context - 1, &mut cos, &mut sin);
            prop_assert!(cos.iter().chain(&sin).all(|value| value.is_finite()), "{rope:?}");
        }
    }
}
