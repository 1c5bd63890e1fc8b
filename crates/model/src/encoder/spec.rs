//! What an encoder is, as plain data: everything its one forward pass needs to know about a model.
//!
//! Made from a checkpoint by `families`, which checks every number; read by the loader and the forward pass. As for
//! decoders, nothing but a human is told which family a model is.
//!
//! ```text
//! x = norm(word[token] + position[first + i] + kind[type])            what a family lacks is left out
//! for each layer, norms after:     x = norm(x + attention(x));        x = norm(x + mlp(x))
//! for each layer, norms before:    x = x + attention(norm(x));        x = x + mlp(norm(x));    at the end x = norm(x)
//! attention: q, k, v (+ bias) -> rope -> softmax(q . k * scale + bias[distance]) within reach -> output (+ bias)
//! mlp:       down(activation(up(x))), or gated: down(activation(gate(x)) * up(x))
//! ```

use crate::spec::{Activation, RopeIndex, RopeSpec};

/// Everything the encoder forward pass needs to know about a model.
#[derive(Clone, Debug, PartialEq)]
pub struct EncoderSpec {
    /// The family's name, for people.
    pub family: &'static str,
    /// Rows of the word embedding.
    pub vocab: usize,
    /// Width of the residual stream.
    pub hidden: usize,
    /// Heads per layer.
    pub heads: usize,
    /// Values per head; even.
    pub head_dim: usize,
    /// The layers, first to last; at least one.
    pub layers: Vec<EncoderLayer>,
    /// The longest text the model can take, in tokens.
    pub max_tokens: usize,
    /// Added to the variance in every norm.
    pub norm_eps: f32,
    /// Where the norms stand.
    pub norms: NormPlace,
    /// The non-linearity of the MLP.
    pub activation: Activation,
    /// Width inside the MLP.
    pub intermediate: usize,
    /// Whether the MLP has a gate.
    pub gated: bool,
    /// Learnt positions: the row of a text's first token. `None` where positions are rotary.
    pub first_position: Option<usize>,
    /// Rows of the token type embedding; 0 where there is none.
    pub token_types: usize,
    /// A learnt bias per distance on the scores.
    pub distances: Option<DistanceBuckets>,
    /// The rotary embeddings that layers refer to.
    pub ropes: Vec<RopeSpec>,
}

/// What differs from layer to layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EncoderLayer {
    /// Tokens further away than this are not seen; `None` sees all.
    pub reach: Option<usize>,
    /// The rotary embedding of queries and keys.
    pub rope: Option<RopeIndex>,
}

/// Where a layer's norms stand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NormPlace {
    /// On the sum of the residual stream and a branch.
    After,
    /// On a branch's input; one more at the end.
    Before,
}

/// How distances between tokens share the rows of a bias table: near ones have their own, far ones share, logarithmically.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DistanceBuckets {
    /// Rows of the table, half for each direction.
    pub buckets: usize,
    /// From here on all distances share the last row.
    pub farthest: usize,
}

impl DistanceBuckets {
    /// The row for a key at `distance` (key position minus query position).
    pub fn bucket(self, distance: isize) -> usize {
        let half = self.buckets / 2;
        let first = if distance > 0 { half } else { 0 };
        let (near, away) = (half / 2, distance.unsigned_abs());
        if away < near {
            return first + away;
        }
        let share = (away as f32 / near as f32).ln() / (self.farthest as f32 / near as f32).ln();
        first + (near + (share * (half - near) as f32) as usize).min(half - 1)
    }
}

impl EncoderSpec {
    /// Values in one token's queries, and as many in its keys and its values.
    pub fn width(&self) -> usize {
        self.heads * self.head_dim
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn distances_fall_into_the_buckets_of_mpnet() {
        let buckets = DistanceBuckets { buckets: 32, farthest: 128 };
        let rows: Vec<usize> = [0, -1, 1, -7, 7, -8, -11, -12, -127, 300].map(|d| buckets.bucket(d)).to_vec();
        assert_eq!(rows, [0, 1, 17, 7, 23, 8, 8, 9, 15, 31]);
    }
}
