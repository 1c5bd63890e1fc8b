//! Shapes of well-known models, with random weights.

use ropeway_cuda::{CudaExecutor, CudaOptions};
use ropeway_model::DecoderSpec;
use serde_json::{Value, json};

use crate::{Failed, Task};

/// A model to measure.
pub struct Model {
    /// What it is called here.
    pub name: &'static str,
    config: fn() -> Value,
    /// Whether only who names it gets it.
    on_demand: bool,
}

/// The models that the goals are set for, one with experts, and one that an emulated GPU is fast enough for.
pub const MODELS: [Model; 5] = [
    Model { name: "135m", config: smollm2_135m, on_demand: false },
    Model { name: "1.5b", config: qwen25_1_5b, on_demand: false },
    Model { name: "8b", config: llama3_8b, on_demand: false },
    Model { name: "30b-a3b", config: qwen3_30b_a3b, on_demand: true },
    Model { name: "tiny", config: tiny, on_demand: true },
];

/// The models that a task is about.
pub fn wanted(task: &Task) -> impl Iterator<Item = &'static Model> {
    let by_default = |model: &Model| task.models.is_empty() && !model.on_demand;
    let named = |model: &Model| !task.models.is_empty() && task.wants_model(model.name);
    MODELS.iter().filter(move |model| by_default(model) || named(model))
}

impl Model {
    /// Its specification.
    pub fn spec(&self) -> Result<DecoderSpec, Failed> {
        DecoderSpec::from_hugging_face(&(self.config)()).map_err(|error| Failed::Wrong(error.to_string()))
    }

    /// The model with random weights.
    pub fn open(&self, options: &CudaOptions) -> Result<CudaExecutor, Failed> {
        Ok(CudaExecutor::random(self.spec()?, 1, options.clone())?)
    }
}

fn smollm2_135m() -> Value {
    json!({
        "model_type": "llama", "vocab_size": 49152, "hidden_size": 576, "intermediate_size": 1536, "num_hidden_layers": 30,
        "num_attention_heads": 9, "num_key_value_heads": 3, "max_position_embeddings": 32768, "rms_norm_eps": 1e-5,
        "rope_theta": 100_000.0, "tie_word_embeddings": true, "hidden_act": "silu"
    })
}

fn qwen25_1_5b() -> Value {
    json!({
        "model_type": "qwen2", "vocab_size": 151_936, "hidden_size": 1536, "intermediate_size": 8960, "num_hidden_layers": 28,
        "num_attention_heads": 12, "num_key_value_heads": 2, "max_position_embeddings": 32768, "rms_norm_eps": 1e-6,
        "rope_theta": 1_000_000.0, "tie_word_embeddings": true, "hidden_act": "silu"
    })
}

fn llama3_8b() -> Value {
    json!({
        "model_type": "llama", "vocab_size": 128_256, "hidden_size": 4096, "intermediate_size": 14336, "num_hidden_layers": 32,
        "num_attention_heads": 32, "num_key_value_heads": 8, "max_position_embeddings": 32768, "rms_norm_eps": 1e-5,
        "rope_theta": 500_000.0, "tie_word_embeddings": false, "hidden_act": "silu"
    })
}

fn qwen3_30b_a3b() -> Value {
    json!({
        "model_type": "qwen3_moe", "vocab_size": 151_936, "hidden_size": 2048, "intermediate_size": 6144,
        "moe_intermediate_size": 768, "num_experts": 128, "num_experts_per_tok": 8, "norm_topk_prob": true,
        "decoder_sparse_step": 1, "mlp_only_layers": [], "num_hidden_layers": 48, "num_attention_heads": 32,
        "num_key_value_heads": 4, "head_dim": 128, "max_position_embeddings": 32768, "rms_norm_eps": 1e-6,
        "rope_theta": 1_000_000.0, "tie_word_embeddings": false, "hidden_act": "silu"
    })
}

fn tiny() -> Value {
    json!({
        "model_type": "llama", "vocab_size": 320, "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2,
        "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 32768, "rms_norm_eps": 1e-5,
        "rope_theta": 100_000.0, "tie_word_embeddings": true, "hidden_act": "silu"
    })
}
