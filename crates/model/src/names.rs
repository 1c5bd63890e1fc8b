//! From what a tensor does to what it is called in a file.
//!
//! Two tables, one per file form, list the names a role goes by. Most roles have one; where converters differ (fused or
//! separate projections, one tensor per expert or all experts merged) the loader asks for one arrangement after the
//! other and takes the first that is there:
//!
//! ```text
//! queries, keys, values   Q, K, V     else  Qkv      rows: q | k | v
//! gate and up             Gate, Up    else  GateUp   rows: gate | up
//! experts                 per expert  else  MergedGate, MergedUp, MergedDown, or MergedGateUp and MergedDown:
//!                                           [experts, rows, cols]; gate | up within each expert's rows
//! ```
//! In GGUF the fused gate and up go by the plain name of up, so ask for `Gate` before `Up`.
//!
//! It relies on the checkpoint's word for which names exist, and must never read a tensor's contents.

use ropeway_weights::{Checkpoint, Config, Tensor, WeightsError};

/// What a tensor does in a decoder.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Role {
    /// `[vocab, hidden]`, one row per token.
    Embedding,
    /// The norm before the head.
    FinalNorm,
    /// `[vocab, hidden]`; absent where the embedding doubles as the head.
    Head,
    /// A tensor of one layer.
    Layer(usize, Part),
    /// A tensor of one expert of one layer.
    Expert {
        /// The layer.
        layer: usize,
        /// The expert within it.
        expert: usize,
        /// The projection.
        part: ExpertPart,
    },
}

/// What a tensor does within a layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Part {
    /// Norm before attention.
    AttentionNorm,
    /// Query projection `[heads * head_dim, hidden]`.
    Q,
    /// Key projection `[kv_heads * head_dim, hidden]`.
    K,
    /// Value projection `[kv_heads * head_dim, hidden]`.
    V,
    /// All three, one under the other.
    Qkv,
    /// Output projection `[hidden, heads * head_dim]`.
    Output,
    /// Bias of `Q`.
    QBias,
    /// Bias of `K`.
    KBias,
    /// Bias of `V`.
    VBias,
    /// Bias of `Qkv`.
    QkvBias,
    /// Bias of `Output`.
    OutputBias,
    /// Norm on queries.
    QNorm,
    /// Norm on keys.
    KNorm,
    /// Norm on attention's output, where the model has post-norms.
    PostAttentionNorm,
    /// Norm before the MLP.
    MlpNorm,
    /// Gate projection `[intermediate, hidden]`.
    Gate,
    /// Up projection `[intermediate, hidden]`.
    Up,
    /// Both, one under the other.
    GateUp,
    /// Down projection `[hidden, intermediate]`.
    Down,
    /// Bias of `Gate`.
    GateBias,
    /// Bias of `Up`.
    UpBias,
    /// Bias of `Down`.
    DownBias,
    /// Norm on the MLP's output, where the model has post-norms.
    PostMlpNorm,
    /// The experts' router `[experts, hidden]`.
    Router,
    /// `Gate` of all experts.
    MergedGate,
    /// `Up` of all experts.
    MergedUp,
    /// `GateUp` of all experts.
    MergedGateUp,
    /// `Down` of all experts.
    MergedDown,
}

/// What a tensor does within an expert.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ExpertPart {
    /// Gate projection.
    Gate,
    /// Up projection.
    Up,
    /// Down projection.
    Down,
}

/// One file form's names; those of the body stand behind the body's prefix.
struct Dialect {
    /// Prefixes the body may have; the first where a file gives no hint.
    bodies: &'static [&'static str],
    embedding: &'static str,
    final_norm: &'static str,
    /// What stands before a layer's number.
    layer: &'static str,
    part: fn(Part) -> &'static [&'static str],
    /// With `{}` for the expert's number.
    expert: fn(ExpertPart) -> &'static [&'static str],
    /// Whole names.
    head: &'static [&'static str],
}

static HUGGING_FACE: Dialect = Dialect {
    // The longer ones belong to models that also see images, the empty one to models without a head.
    bodies: &["model.", "language_model.model.", "model.language_model.", ""],
    embedding: "embed_tokens.weight",
    final_norm: "norm.weight",
    layer: "layers.",
    part: hugging_face_part,
    expert: hugging_face_expert,
    head: &["lm_head.weight", "language_model.lm_head.weight"],
};

static GGUF: Dialect = Dialect {
    bodies: &[""],
    embedding: "token_embd.weight",
    final_norm: "output_norm.weight",
    layer: "blk.",
    part: gguf_part,
    expert: gguf_expert,
    head: &["output.weight"],
};

fn hugging_face_part(part: Part) -> &'static [&'static str] {
    match part {
        Part::AttentionNorm => &["input_layernorm.weight"],
        Part::Q => &["self_attn.q_proj.weight"],
        Part::K => &["self_attn.k_proj.weight"],
        Part::V => &["self_attn.v_proj.weight"],
        Part::Qkv => &["self_attn.qkv_proj.weight"],
        Part::Output => &["self_attn.o_proj.weight"],
        Part::QBias => &["self_attn.q_proj.bias"],
        Part::KBias => &["self_attn.k_proj.bias"],
        Part::VBias => &["self_attn.v_proj.bias"],
        Part::QkvBias => &["self_attn.qkv_proj.bias"],
        Part::OutputBias => &["self_attn.o_proj.bias"],
        Part::QNorm => &["self_attn.q_norm.weight"],
        Part::KNorm => &["self_attn.k_norm.weight"],
        Part::PostAttentionNorm => &["post_attention_layernorm.weight"],
        // Without post-norms the name means what it says not: it stands after attention, before the MLP.
        Part::MlpNorm => &["pre_feedforward_layernorm.weight", "post_attention_layernorm.weight"],
        Part::Gate => &["mlp.gate_proj.weight"],
        Part::Up => &["mlp.up_proj.weight"],
        Part::GateUp => &["mlp.gate_up_proj.weight"],
        Part::Down => &["mlp.down_proj.weight"],
        Part::GateBias => &["mlp.gate_proj.bias"],
        Part::UpBias => &["mlp.up_proj.bias"],
        Part::DownBias => &["mlp.down_proj.bias"],
        Part::PostMlpNorm => &["post_feedforward_layernorm.weight"],
        Part::Router => &["mlp.gate.weight", "block_sparse_moe.gate.weight"],
        Part::MergedGate => {
            &["mlp.switch_mlp.gate_proj.weight", "block_sparse_moe.switch_mlp.gate_proj.weight"]
        }
        Part::MergedUp => &["mlp.switch_mlp.up_proj.weight", "block_sparse_moe.switch_mlp.up_proj.weight"],
        Part::MergedGateUp => &["mlp.experts.gate_up_proj", "block_sparse_moe.experts.gate_up_proj"],
        Part::MergedDown => &[
            "mlp.experts.down_proj",
            "block_sparse_moe.experts.down_proj",
            "mlp.switch_mlp.down_proj.weight",
            "block_sparse_moe.switch_mlp.down_proj.weight",
        ],
    }
}

fn hugging_face_expert(part: ExpertPart) -> &'static [&'static str] {
    match part {
        ExpertPart::Gate => &["mlp.experts.{}.gate_proj.weight", "block_sparse_moe.experts.{}.w1.weight"],
        ExpertPart::Up => &["mlp.experts.{}.up_proj.weight", "block_sparse_moe.experts.{}.w3.weight"],
        ExpertPart::Down => &["mlp.experts.{}.down_proj.weight", "block_sparse_moe.experts.{}.w2.weight"],
    }
}

fn gguf_part(part: Part) -> &'static [&'static str] {
    match part {
        Part::AttentionNorm => &["attn_norm.weight"],
        Part::Q => &["attn_q.weight"],
        Part::K => &["attn_k.weight"],
        Part::V => &["attn_v.weight"],
        Part::Qkv => &["attn_qkv.weight"],
        Part::Output => &["attn_output.weight"],
        Part::QBias => &["attn_q.bias"],
        Part::KBias => &["attn_k.bias"],
        Part::VBias => &["attn_v.bias"],
        Part::QkvBias => &["attn_qkv.bias"],
        Part::OutputBias => &["attn_output.bias"],
        Part::QNorm => &["attn_q_norm.weight"],
        Part::KNorm => &["attn_k_norm.weight"],
        Part::PostAttentionNorm => &["post_attention_norm.weight"],
        Part::MlpNorm => &["ffn_norm.weight"],
        Part::Gate => &["ffn_gate.weight"],
        Part::Up | Part::GateUp => &["ffn_up.weight"],
        Part::Down => &["ffn_down.weight"],
        Part::GateBias => &["ffn_gate.bias"],
        Part::UpBias => &["ffn_up.bias"],
        Part::DownBias => &["ffn_down.bias"],
        Part::PostMlpNorm => &["post_ffw_norm.weight"],
        Part::Router => &["ffn_gate_inp.weight"],
        Part::MergedGate => &["ffn_gate_exps.weight"],
        Part::MergedUp => &["ffn_up_exps.weight"],
        Part::MergedGateUp => &["ffn_gate_up_exps.weight"],
        Part::MergedDown => &["ffn_down_exps.weight"],
    }
}

fn gguf_expert(part: ExpertPart) -> &'static [&'static str] {
    match part {
        ExpertPart::Gate => &["ffn_gate.{}.weight"],
        ExpertPart::Up => &["ffn_up.{}.weight"],
        ExpertPart::Down => &["ffn_down.{}.weight"],
    }
}

/// The names of one checkpoint's tensors.
#[derive(Clone, Copy)]
pub struct TensorNames {
    dialect: &'static Dialect,
    body: &'static str,
}

impl TensorNames {
    /// The names that fit a checkpoint.
    pub fn of(checkpoint: &Checkpoint) -> Self {
        let dialect = match checkpoint.config() {
            Config::HuggingFace(_) => &HUGGING_FACE,
            Config::Gguf(_) => &GGUF,
        };
        Self::choose(dialect, |name| checkpoint.find(name).is_some())
    }

    fn choose(dialect: &'static Dialect, has: impl Fn(&str) -> bool) -> Self {
        let fits = |body: &&&str| has(&format!("{body}{}", dialect.embedding));
        let body = dialect.bodies.iter().find(fits).unwrap_or(&dialect.bodies[0]);
        Self { dialect, body }
    }

    /// The names a role may go by, likeliest first.
    pub fn candidates(&self, role: Role) -> Vec<String> {
        let (dialect, body) = (self.dialect, self.body);
        let in_layer = |layer: usize, name: &str| format!("{body}{}{layer}.{name}", dialect.layer);
        match role {
            Role::Embedding => vec![format!("{body}{}", dialect.embedding)],
            Role::FinalNorm => vec![format!("{body}{}", dialect.final_norm)],
            Role::Head => dialect.head.iter().map(|name| (*name).to_owned()).collect(),
            Role::Layer(layer, part) => {
                (dialect.part)(part).iter().map(|name| in_layer(layer, name)).collect()
            }
            Role::Expert { layer, expert, part } => {
                let expert = expert.to_string();
                let names = (dialect.expert)(part).iter();
                names.map(|name| in_layer(layer, &name.replace("{}", &expert))).collect()
            }
        }
    }

    /// The tensor of a role, if the checkpoint has it.
    pub fn find(&self, checkpoint: &Checkpoint, role: Role) -> Option<Tensor> {
        self.candidates(role).iter().find_map(|name| checkpoint.find(name))
    }

    /// The tensor of a role the model cannot do without.
    pub fn tensor(&self, checkpoint: &Checkpoint, role: Role) -> Result<Tensor, WeightsError> {
        match self.find(checkpoint, role) {
            Some(tensor) => Ok(tensor),
            None => checkpoint.tensor(&self.candidates(role)[0]),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(dialect: &'static Dialect) -> TensorNames {
        TensorNames::choose(dialect, |_| false)
    }

    #[test]
    fn both_forms_name_the_ends_of_the_model() {
        let (hugging_face, gguf) = (names(&HUGGING_FACE), names(&GGUF));
        assert_eq!(hugging_face.candidates(Role::Embedding), ["model.embed_tokens.weight"]);
        assert_eq!(gguf.candidates(Role::Embedding), ["token_embd.weight"]);
        assert_eq!(hugging_face.candidates(Role::FinalNorm), ["model.norm.weight"]);
        assert_eq!(gguf.candidates(Role::FinalNorm), ["output_norm.weight"]);
        assert_eq!(hugging_face.candidates(Role::Head)[0], "lm_head.weight");
        assert_eq!(gguf.candidates(Role::Head), ["output.weight"]);
    }

    #[test]
    fn layer_names_carry_the_layer_and_expert_names_the_expert() {
        let down = Role::Expert { layer: 3, expert: 11, part: ExpertPart::Down };
        let (hugging_face, gguf) = (names(&HUGGING_FACE), names(&GGUF));
        assert_eq!(
            hugging_face.candidates(Role::Layer(7, Part::Q)),
            ["model.layers.7.self_attn.q_proj.weight"]
        );
        assert_eq!(gguf.candidates(Role::Layer(7, Part::Q)), ["blk.7.attn_q.weight"]);
        assert_eq!(
            hugging_face.candidates(down),
            [
                "model.layers.3.mlp.experts.11.down_proj.weight",
                "model.layers.3.block_sparse_moe.experts.11.w2.weight"
            ]
        );
        assert_eq!(gguf.candidates(down), ["blk.3.ffn_down.11.weight"]);
    }

    #[test]
    fn a_decoder_inside_a_larger_model_is_found_by_its_embedding() {
        let inside = |name: &str| name == "language_model.model.embed_tokens.weight";
        let names = TensorNames::choose(&HUGGING_FACE, inside);
        assert_eq!(names.candidates(Role::FinalNorm), ["language_model.model.norm.weight"]);
        let inside = |name: &str| name == "model.language_model.embed_tokens.weight";
        let names = TensorNames::choose(&HUGGING_FACE, inside);
        assert_eq!(
            names.candidates(Role::Layer(0, Part::KNorm)),
            ["model.language_model.layers.0.self_attn.k_norm.weight"]
        );
    }

    #[test]
    fn the_norm_before_the_mlp_prefers_the_name_that_only_post_norm_models_have() {
        let candidates = names(&HUGGING_FACE).candidates(Role::Layer(0, Part::MlpNorm));
        assert_eq!(
            candidates,
            [
                "model.layers.0.pre_feedforward_layernorm.weight",
                "model.layers.0.post_attention_layernorm.weight"
            ]
        );
    }
}
