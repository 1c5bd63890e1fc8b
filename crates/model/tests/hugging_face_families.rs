//! Published configurations of every family, and the telling fields of what they become.

use ropeway_model::{
    DecoderSpec,
    spec::{
        Activation, ExpertsSpec, LayerSpec, Llama3Scaling, MlpSpec, QkNorm, RopeIndex, RopeLayout, Scaling,
        YarnScaling,
    },
};
use serde_json::{Value, json};

fn spec(config: &Value) -> DecoderSpec {
    DecoderSpec::from_hugging_face(config).expect("a published configuration")
}

/// `[vocab, hidden, heads, kv_heads, head_dim, layers, context]`.
fn shape(spec: &DecoderSpec) -> [usize; 7] {
    let &DecoderSpec { vocab, hidden, heads, kv_heads, head_dim, max_context, .. } = spec;
    assert_eq!(spec.context, max_context);
    [vocab, hidden, heads, kv_heads, head_dim, spec.layers.len(), max_context]
}

fn windows(spec: &DecoderSpec) -> Vec<Option<usize>> {
    spec.layers.iter().map(|layer| layer.window).collect()
}

fn llama_3_1_8b() -> Value {
    json!({"model_type": "llama", "vocab_size": 128_256, "hidden_size": 4096, "intermediate_size": 14336,
        "num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 8, "hidden_act": "silu",
        "max_position_embeddings": 131_072, "rms_norm_eps": 1e-5, "rope_theta": 500_000.0,
        "rope_scaling": {"factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
            "original_max_position_embeddings": 8192, "rope_type": "llama3"},
        "tie_word_embeddings": false, "attention_bias": false, "mlp_bias": false, "torch_dtype": "bfloat16"})
}

const LLAMA3: Scaling = Scaling::Llama3(Llama3Scaling {
    factor: 8.0,
    low_freq_factor: 1.0,
    high_freq_factor: 4.0,
    original_context: 8192,
});

#[test]
fn llama_3_1_8b_has_its_own_rope_scaling_and_an_untied_head() {
    let spec = spec(&llama_3_1_8b());
    assert_eq!(spec.family, "llama");
    assert_eq!(shape(&spec), [128_256, 4096, 32, 8, 128, 32, 131_072]);
    assert_eq!((spec.q_width(), spec.kv_width()), (4096, 1024));
    assert!(!spec.tied_embeddings && !spec.mlp_bias && !spec.post_norms);
    assert_eq!((spec.norm.eps, spec.norm.offset), (1e-5, 0.0));
    assert_eq!((spec.ropes[0].theta, spec.ropes[0].layout), (500_000.0, RopeLayout::Half));
    assert_eq!(spec.ropes[0].scaling, LLAMA3);
    let layer =
        LayerSpec { window: None, rope: Some(RopeIndex(0)), mlp: MlpSpec::Dense { intermediate: 14336 } };
    assert!(spec.layers.iter().all(|other| *other == layer));
}

#[test]
fn the_style_of_transformers_5_means_the_same_as_that_of_4() {
    let mut config = llama_3_1_8b();
    let members = config.as_object_mut().expect("an object");
    members.remove("rope_scaling");
    members.remove("rope_theta");
    members.insert(
        "rope_parameters".into(),
        json!({"rope_theta": 500_000.0, "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
            "original_max_position_embeddings": 8192, "rope_type": "llama3"}),
    );
    assert_eq!(spec(&config), spec(&llama_3_1_8b()));
}

#[test]
fn smollm2_135m_is_a_small_llama_with_a_tied_head() {
    let spec = spec(
        &json!({"model_type": "llama", "vocab_size": 49152, "hidden_size": 576, "intermediate_size": 1536,
        "num_hidden_layers": 30, "num_attention_heads": 9, "num_key_value_heads": 3, "rms_norm_eps": 1e-5,
        "max_position_embeddings": 8192, "rope_theta": 100_000, "rope_scaling": null, "tie_word_embeddings": true}),
    );
    assert_eq!(shape(&spec), [49152, 576, 9, 3, 64, 30, 8192]);
    assert!(spec.tied_embeddings);
    assert_eq!((spec.embedding_scale, spec.activation), (1.0, Activation::Silu));
    assert_eq!((spec.attention.scale, spec.attention.qk_norm), (0.125, None));
}

fn mistral_7b() -> Value {
    json!({"model_type": "mistral", "vocab_size": 32000, "hidden_size": 4096, "intermediate_size": 14336,
        "num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 8, "rms_norm_eps": 1e-5,
        "max_position_embeddings": 32768, "rope_theta": 10000.0, "sliding_window": 4096})
}

#[test]
fn mistral_7b_slides_on_every_layer_until_its_window_is_null() {
    let first = spec(&mistral_7b());
    assert_eq!(shape(&first), [32000, 4096, 32, 8, 128, 32, 32768]);
    assert_eq!(windows(&first), vec![Some(4096); 32]);
    let mut later = mistral_7b();
    later["sliding_window"] = Value::Null;
    assert_eq!(windows(&spec(&later)), vec![None; 32]);
}

#[test]
fn mistral_nemo_states_heads_narrower_than_hidden_over_heads() {
    let mut config = mistral_7b();
    config["hidden_size"] = json!(5120);
    config["head_dim"] = json!(128);
    let spec = spec(&config);
    assert_eq!((spec.hidden, spec.q_width()), (5120, 4096));
}

fn qwen2_5_1_5b() -> Value {
    json!({"model_type": "qwen2", "vocab_size": 151_936, "hidden_size": 1536, "intermediate_size": 8960,
        "num_hidden_layers": 28, "num_attention_heads": 12, "num_key_value_heads": 2, "rms_norm_eps": 1e-6,
        "max_position_embeddings": 32768, "max_window_layers": 21, "sliding_window": 32768,
        "use_sliding_window": false, "rope_theta": 1_000_000.0, "tie_word_embeddings": true})
}

#[test]
fn qwen2_5_1_5b_has_biases_on_queries_keys_and_values_only() {
    let spec = spec(&qwen2_5_1_5b());
    assert_eq!(shape(&spec), [151_936, 1536, 12, 2, 128, 28, 32768]);
    assert!(spec.attention.qkv_bias && !spec.attention.output_bias && spec.tied_embeddings);
    assert_eq!(windows(&spec), vec![None; 28]);
}

#[test]
fn qwen2_5_slides_from_a_layer_on_once_switched_on() {
    let mut config = qwen2_5_1_5b();
    config["use_sliding_window"] = json!(true);
    let windows = windows(&spec(&config));
    assert_eq!((windows[20], windows[21]), (None, Some(32768)));
}

#[test]
fn qwen2_5_with_yarn_serves_the_stretched_window() {
    let mut config = qwen2_5_1_5b();
    config["rope_scaling"] =
        json!({"type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32768});
    let spec = spec(&config);
    assert_eq!(spec.max_context, 131_072);
    assert_eq!(spec.ropes[0].scaling, Scaling::Yarn(YarnScaling::paper(4.0, 32768)));
}

#[test]
fn qwen3_0_6b_norms_each_head_and_has_more_query_values_than_hidden_ones() {
    let spec = spec(&json!({"model_type": "qwen3", "vocab_size": 151_936, "hidden_size": 1024,
        "intermediate_size": 3072, "num_hidden_layers": 28, "num_attention_heads": 16, "num_key_value_heads": 8,
        "head_dim": 128, "rms_norm_eps": 1e-6, "max_position_embeddings": 40960, "max_window_layers": 28,
        "sliding_window": null, "use_sliding_window": false, "rope_theta": 1_000_000, "tie_word_embeddings": true,
        "attention_bias": false}));
    assert_eq!(shape(&spec), [151_936, 1024, 16, 8, 128, 28, 40960]);
    assert_eq!((spec.q_width(), spec.attention.qk_norm), (2048, Some(QkNorm::PerHead)));
    assert!(!spec.attention.qkv_bias);
}

#[test]
fn qwen3_30b_a3b_sends_each_token_to_8_of_128_experts() {
    let config = json!({"model_type": "qwen3_moe", "vocab_size": 151_936, "hidden_size": 2048,
        "intermediate_size": 6144, "num_hidden_layers": 48, "num_attention_heads": 32, "num_key_value_heads": 4,
        "head_dim": 128, "rms_norm_eps": 1e-6, "max_position_embeddings": 40960, "rope_theta": 1_000_000.0,
        "num_experts": 128, "num_experts_per_tok": 8, "moe_intermediate_size": 768, "norm_topk_prob": true,
        "decoder_sparse_step": 1, "mlp_only_layers": [], "tie_word_embeddings": false});
    let all = spec(&config);
    assert_eq!(shape(&all), [151_936, 2048, 32, 4, 128, 48, 40960]);
    let experts = ExpertsSpec { experts: 128, top_k: 8, intermediate: 768, normalise: true };
    assert!(all.layers.iter().all(|layer| layer.mlp == MlpSpec::Experts(experts)));
    let mut some = config;
    some["mlp_only_layers"] = json!([1]);
    some["decoder_sparse_step"] = json!(2);
    some["norm_topk_prob"] = json!(false);
    let some = spec(&some);
    let dense = MlpSpec::Dense { intermediate: 6144 };
    assert_eq!(some.layers[0].mlp, dense);
    assert_eq!(some.layers[1].mlp, dense);
    assert_eq!(some.layers[3].mlp, MlpSpec::Experts(ExpertsSpec { normalise: false, ..experts }));
}

#[test]
fn mixtral_8x7b_sends_each_token_to_2_of_8_experts() {
    let spec = spec(&json!({"model_type": "mixtral", "vocab_size": 32000, "hidden_size": 4096,
        "intermediate_size": 14336, "num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 8,
        "rms_norm_eps": 1e-5, "max_position_embeddings": 32768, "rope_theta": 1_000_000.0, "sliding_window": null,
        "num_local_experts": 8, "num_experts_per_tok": 2, "tie_word_embeddings": false}));
    assert_eq!(shape(&spec), [32000, 4096, 32, 8, 128, 32, 32768]);
    let experts = ExpertsSpec { experts: 8, top_k: 2, intermediate: 14336, normalise: true };
    assert!(spec.layers.iter().all(|layer| layer.mlp == MlpSpec::Experts(experts) && layer.window.is_none()));
}

#[test]
fn smollm3_3b_leaves_every_fourth_layer_unrotated() {
    let config = json!({"model_type": "smollm3", "vocab_size": 128_256, "hidden_size": 2048,
        "intermediate_size": 11008, "num_hidden_layers": 36, "num_attention_heads": 16, "num_key_value_heads": 4,
        "rms_norm_eps": 1e-6, "max_position_embeddings": 65536, "rope_theta": 5_000_000.0, "rope_scaling": null,
        "no_rope_layer_interval": 4, "use_sliding_window": false, "sliding_window": null,
        "layer_types": vec!["full_attention"; 36]});
    let by_interval = spec(&config);
    assert_eq!(shape(&by_interval), [128_256, 2048, 16, 4, 128, 36, 65536]);
    assert!(by_interval.tied_embeddings);
    let plain: Vec<usize> = (0..36).filter(|layer| by_interval.layers[*layer].rope.is_none()).collect();
    assert_eq!(plain, [3, 7, 11, 15, 19, 23, 27, 31, 35]);
    let mut listed = config;
    listed["no_rope_layers"] = (0..36).map(|layer| u8::from(layer % 4 != 3)).collect();
    assert_eq!(spec(&listed), by_interval);
}

fn phi_3_mini() -> Value {
    json!({"model_type": "phi3", "vocab_size": 32064, "hidden_size": 3072, "intermediate_size": 8192,
        "num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 32, "rms_norm_eps": 1e-5,
        "max_position_embeddings": 4096, "original_max_position_embeddings": 4096, "rope_theta": 10000.0,
        "rope_scaling": null, "sliding_window": 2047, "tie_word_embeddings": false, "attention_bias": false})
}

#[test]
fn phi_3_mini_4k_slides_on_every_layer() {
    let spec = spec(&phi_3_mini());
    assert_eq!(shape(&spec), [32064, 3072, 32, 32, 96, 32, 4096]);
    assert_eq!(windows(&spec), vec![Some(2047); 32]);
}

#[test]
fn phi_3_mini_128k_divides_its_frequencies_under_any_of_three_names() {
    for name in ["longrope", "su", "yarn"] {
        let mut config = phi_3_mini();
        config["max_position_embeddings"] = json!(131_072);
        config["rope_scaling"] =
            json!({"type": name, "short_factor": vec![1.05; 48], "long_factor": vec![9.5; 48]});
        let spec = spec(&config);
        let Scaling::LongRope(scaling) = &spec.ropes[0].scaling else { panic!("{:?}", spec.ropes[0]) };
        assert_eq!((spec.max_context, scaling.original_context), (131_072, 4096));
        assert_eq!((scaling.short[47], scaling.long[0]), (1.05, 9.5));
        assert!((scaling.attention_factor - 1.190_238).abs() < 1e-6, "{}", scaling.attention_factor);
    }
}

#[test]
fn phi_4_mini_turns_three_quarters_of_a_head() {
    let mut config = phi_3_mini();
    config["hidden_size"] = json!(4096);
    config["partial_rotary_factor"] = json!(0.75);
    assert_eq!(spec(&config).ropes[0].dims, 96);
}

fn gemma_2_2b() -> Value {
    json!({"model_type": "gemma2", "vocab_size": 256_000, "hidden_size": 2304, "intermediate_size": 9216,
        "num_hidden_layers": 26, "num_attention_heads": 8, "num_key_value_heads": 4, "head_dim": 256,
        "hidden_act": "gelu_pytorch_tanh", "hidden_activation": "gelu_pytorch_tanh", "rms_norm_eps": 1e-6,
        "max_position_embeddings": 8192, "rope_theta": 10000.0, "sliding_window": 4096,
        "query_pre_attn_scalar": 256, "attn_logit_softcapping": 50.0, "final_logit_softcapping": 30.0})
}

#[test]
fn gemma_2_2b_caps_scores_and_logits_and_slides_on_every_other_layer() {
    let spec = spec(&gemma_2_2b());
    assert_eq!(shape(&spec), [256_000, 2304, 8, 4, 256, 26, 8192]);
    assert_eq!((spec.attention.softcap, spec.logit_softcap), (Some(50.0), Some(30.0)));
    assert_eq!((spec.attention.scale, spec.embedding_scale), (0.0625, 48.0));
    assert_eq!((spec.norm.offset, spec.activation), (1.0, Activation::GeluTanh));
    assert!(spec.post_norms && spec.tied_embeddings);
    assert_eq!(windows(&spec)[..4], [Some(4096), None, Some(4096), None]);
}

#[test]
fn gemma_2_27b_scales_scores_by_its_own_number() {
    let mut config = gemma_2_2b();
    config["query_pre_attn_scalar"] = json!(144);
    let spec = spec(&config);
    assert_eq!((spec.attention.scale, spec.head_dim), (1.0 / 12.0, 256));
}

fn gemma_3_1b() -> Value {
    json!({"model_type": "gemma3_text", "vocab_size": 262_144, "hidden_size": 1152, "intermediate_size": 6912,
        "num_hidden_layers": 26, "num_attention_heads": 4, "num_key_value_heads": 1, "head_dim": 256,
        "hidden_activation": "gelu_pytorch_tanh", "rms_norm_eps": 1e-6, "max_position_embeddings": 32768,
        "rope_theta": 1_000_000, "rope_local_base_freq": 10000, "rope_scaling": null, "sliding_window": 512,
        "sliding_window_pattern": 6, "query_pre_attn_scalar": 256, "attn_logit_softcapping": null,
        "final_logit_softcapping": null})
}

#[test]
fn gemma_3_1b_has_five_sliding_layers_with_a_rope_of_their_own_to_a_full_one() {
    let spec = spec(&gemma_3_1b());
    assert_eq!(shape(&spec), [262_144, 1152, 4, 1, 256, 26, 32768]);
    assert_eq!((spec.attention.softcap, spec.logit_softcap), (None, None));
    assert_eq!(spec.attention.qk_norm, Some(QkNorm::PerHead));
    assert_eq!((spec.ropes[0].theta, spec.ropes[1].theta), (1e6, 1e4));
    for (index, layer) in spec.layers.iter().enumerate() {
        let full = index % 6 == 5;
        assert_eq!(layer.window, (!full).then_some(512), "layer {index}");
        assert_eq!(layer.rope, Some(RopeIndex(usize::from(!full))), "layer {index}");
    }
}

#[test]
fn gemma_3_1b_reads_the_same_in_the_style_of_transformers_5() {
    let mut config = gemma_3_1b();
    let members = config.as_object_mut().expect("an object");
    for key in ["rope_theta", "rope_local_base_freq", "rope_scaling", "sliding_window_pattern"] {
        members.remove(key);
    }
    let kinds = (0..26).map(|layer| if layer % 6 == 5 { "full_attention" } else { "sliding_attention" });
    members.insert("layer_types".into(), kinds.collect());
    members.insert(
        "rope_parameters".into(),
        json!({"full_attention": {"rope_type": "default", "rope_theta": 1_000_000.0},
            "sliding_attention": {"rope_type": "default", "rope_theta": 10000.0}}),
    );
    assert_eq!(spec(&config), spec(&gemma_3_1b()));
}

#[test]
fn gemma_3_4b_keeps_its_text_part_in_an_object_and_leaves_out_what_is_usual() {
    let spec = spec(&json!({"model_type": "gemma3", "architectures": ["Gemma3ForConditionalGeneration"],
        "text_config": {"model_type": "gemma3_text", "hidden_size": 2560, "intermediate_size": 10240,
            "num_hidden_layers": 34, "rope_scaling": {"factor": 8.0, "rope_type": "linear"},
            "sliding_window": 1024},
        "vision_config": {"hidden_size": 1152}}));
    assert_eq!(shape(&spec), [262_208, 2560, 8, 4, 256, 34, 131_072]);
    assert_eq!(spec.ropes[0].scaling, Scaling::Linear { factor: 8.0 });
    assert_eq!(spec.ropes[1].scaling, Scaling::None);
    assert!(spec.tied_embeddings);
}

#[test]
fn a_llama_with_attention_bias_has_it_on_the_output_too() {
    let mut config = llama_3_1_8b();
    config["attention_bias"] = json!(true);
    config["mlp_bias"] = json!(true);
    let spec = spec(&config);
    assert!(spec.attention.qkv_bias && spec.attention.output_bias && spec.mlp_bias);
}

#[test]
fn a_dynamic_rope_serves_its_factor_times_the_trained_window() {
    let mut config = llama_3_1_8b();
    config["max_position_embeddings"] = json!(4096);
    config["rope_scaling"] = json!({"type": "dynamic", "factor": 4.0});
    let spec = spec(&config);
    assert_eq!(spec.max_context, 16384);
    assert_eq!(spec.ropes[0].scaling, Scaling::Dynamic { factor: 4.0, original_context: 4096 });
}
