//! From what a tensor does in an encoder to what it is called in a file.
//!
//! Every family wrote its own names for the same few tensors. One table lists them all: within one checkpoint only one of
//! a row is there. What stands before them (`bert.encoder.layer.3.`) is found once, by looking.

use ropeway_weights::{Checkpoint, Tensor, WeightsError};

/// What a tensor does in an encoder; its weight and bias share the name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Role {
    Words,
    Positions,
    TokenTypes,
    EmbeddingNorm,
    FinalNorm,
    /// `[buckets, heads]`.
    Distances,
    /// A tensor of one layer.
    Layer(usize, Part),
}

/// What a tensor does within a layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Part {
    Q,
    K,
    V,
    /// All three, one under the other.
    Qkv,
    Output,
    AttentionNorm,
    Up,
    Gate,
    /// Both, gate first.
    GateUp,
    Down,
    MlpNorm,
}

/// What a body may stand behind: nothing, or the model inside a classifier.
const BODIES: [&str; 6] = ["", "bert.", "roberta.", "mpnet.", "distilbert.", "model."];
/// What stands before a layer's number. The last is GGUF's.
const LAYERS: [&str; 5] = ["encoder.layer.", "transformer.layer.", "encoder.layers.", "layers.", "blk."];

fn end_names(role: Role) -> &'static [&'static str] {
    match role {
        Role::Words => &["embeddings.word_embeddings", "embeddings.tok_embeddings", "token_embd"],
        Role::Positions => &["embeddings.position_embeddings", "position_embd"],
        Role::TokenTypes => &["embeddings.token_type_embeddings", "token_types"],
        Role::EmbeddingNorm => &["embeddings.LayerNorm", "embeddings.norm", "emb_ln", "token_embd_norm"],
        Role::FinalNorm => &["final_norm"],
        Role::Distances => &["encoder.relative_attention_bias"],
        Role::Layer(_, part) => part_names(part),
    }
}

fn part_names(part: Part) -> &'static [&'static str] {
    match part {
        Part::Q => {
            &["attention.self.query", "attention.attn.q", "attention.q_lin", "self_attn.q_proj", "attn_q"]
        }
        Part::K => {
            &["attention.self.key", "attention.attn.k", "attention.k_lin", "self_attn.k_proj", "attn_k"]
        }
        Part::V => {
            &["attention.self.value", "attention.attn.v", "attention.v_lin", "self_attn.v_proj", "attn_v"]
        }
        Part::Qkv => &["attn.Wqkv", "attn_qkv"],
        Part::Output => &[
            "attention.output.dense",
            "attention.attn.o",
            "attention.out_lin",
            "self_attn.o_proj",
            "attn.Wo",
            "attn.out_proj",
            "attn_output",
        ],
        Part::AttentionNorm => &[
            "attention.output.LayerNorm",
            "attention.LayerNorm",
            "sa_layer_norm",
            "post_attention_layernorm",
            "norm1",
            "attn_norm",
            "attn_output_norm",
        ],
        Part::Up => &["intermediate.dense", "ffn.lin1", "mlp.up_proj", "mlp.fc11", "ffn_up"],
        Part::Gate => &["mlp.gate_proj", "mlp.fc12", "ffn_gate"],
        Part::GateUp => &["mlp.Wi"],
        Part::Down => &["output.dense", "ffn.lin2", "mlp.down_proj", "mlp.fc2", "mlp.Wo", "ffn_down"],
        Part::MlpNorm => &[
            "output.LayerNorm",
            "output_layer_norm",
            "post_mlp_layernorm",
            "norm2",
            "mlp_norm",
            "layer_output_norm",
        ],
    }
}

/// The names of one checkpoint's tensors.
#[derive(Clone, Copy, Debug)]
pub(super) struct Names {
    body: &'static str,
    layer: &'static str,
}

impl Names {
    /// The names that fit a checkpoint.
    pub(super) fn of(checkpoint: &Checkpoint) -> Self {
        Self::choose(|start| checkpoint.names().any(|name| name.starts_with(start)))
    }

    fn choose(any_starts: impl Fn(&str) -> bool) -> Self {
        let all = BODIES.iter().flat_map(|body| LAYERS.iter().map(move |layer| Self { body, layer }));
        let mut fitting = all.filter(|names| any_starts(&format!("{}{}0.", names.body, names.layer)));
        fitting.next().unwrap_or(Self { body: BODIES[0], layer: LAYERS[0] })
    }

    /// The names a role may go by, without `.weight`.
    fn candidates(self, role: Role) -> impl Iterator<Item = String> {
        let before = match role {
            Role::Layer(layer, _) => format!("{}{}{layer}.", self.body, self.layer),
            _ => self.body.to_owned(),
        };
        end_names(role).iter().map(move |name| format!("{before}{name}"))
    }

    /// The weight of a role, if the checkpoint has it; norms of the first BERT files are called gamma and beta.
    pub(super) fn find(self, checkpoint: &Checkpoint, role: Role) -> Option<Tensor> {
        self.with_endings(checkpoint, role, [".weight", ".gamma"])
    }

    /// The bias of a role, if the checkpoint has it.
    pub(super) fn bias(self, checkpoint: &Checkpoint, role: Role) -> Option<Tensor> {
        self.with_endings(checkpoint, role, [".bias", ".beta"])
    }

    fn with_endings(self, checkpoint: &Checkpoint, role: Role, endings: [&str; 2]) -> Option<Tensor> {
        self.candidates(role)
            .find_map(|name| endings.iter().find_map(|ending| checkpoint.find(&format!("{name}{ending}"))))
    }

    /// The weight of a role the model cannot do without.
    pub(super) fn tensor(self, checkpoint: &Checkpoint, role: Role) -> Result<Tensor, WeightsError> {
        let first = || self.candidates(role).next().unwrap_or_default();
        self.find(checkpoint, role).map_or_else(|| checkpoint.tensor(&format!("{}.weight", first())), Ok)
    }

    /// A tensor of the head that stands on the body, by its whole name or inside the body.
    pub(super) fn head(self, checkpoint: &Checkpoint, name: &str) -> Option<Tensor> {
        checkpoint.find(name).or_else(|| checkpoint.find(&format!("{}{name}", self.body)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_body_is_found_inside_a_classifier() {
        let names = Names::choose(|start| "roberta.encoder.layer.0.output.dense.weight".starts_with(start));
        assert_eq!((names.body, names.layer), ("roberta.", "encoder.layer."));
        let up = names.candidates(Role::Layer(3, Part::Up)).next();
        assert_eq!(up.as_deref(), Some("roberta.encoder.layer.3.intermediate.dense"));
    }

    #[test]
    fn gguf_layers_stand_behind_blk() {
        let names = Names::choose(|start| "blk.0.attn_q.weight".starts_with(start));
        assert!(names.candidates(Role::Layer(1, Part::Q)).any(|name| name == "blk.1.attn_q"));
        assert!(names.candidates(Role::Words).any(|name| name == "token_embd"));
    }
}
