//! From a checkpoint to an encoder's packed weights.

use ropeway_kernels::Compute;
use ropeway_kernels::activations::Width;
use ropeway_weights::{Checkpoint, Tensor};

use super::score::Scorer;
use super::tensors::{EncoderTensors, InputTensors, LayerTensors, MlpTensors, Projection, ScorerTensors};
use super::{Encoder, EncoderSpec, Layer, Mlp};
use crate::RopeTable;
use crate::layer::{GatedMlp, Linear};
use crate::load::{LoadError, LoadOptions, Progress};
use crate::stack::{Stack, gated_bias};

/// How finely the inputs of integer weights are quantised: what reads the residual stream, what reads attention's results
/// and what reads the inside of an MLP. Who asks for integers asks for speed: on the default model one byte everywhere leaves
/// a cosine of 0.998 to f32 at worst; two where the residual stream is large would leave 0.9992 and take 1.3 times as long.
const HIDDEN: Width = Width::Narrow;
const ATTENDED: Width = Width::Narrow;
const INNER: Width = Width::Narrow;

impl Encoder {
    /// Loads all weights of an encoder.
    pub fn load(
        checkpoint: &Checkpoint,
        spec: EncoderSpec,
        options: LoadOptions,
        compute: &mut Compute,
        progress: Progress<'_>,
    ) -> Result<Encoder, LoadError> {
        let tensors = EncoderTensors::new(checkpoint, &spec);
        let mut packer = Packer { options, compute };
        let count = spec.layers.len();
        let mut layers = Vec::with_capacity(count);
        for index in 0..count {
            layers.push(packer.layer(tensors.layer(index)?, spec.intermediate));
            progress(index + 1, count);
        }
        let InputTensors { words, positions, token_types, norm: embedding_norm } = tensors.inputs()?;
        let (distances, final_norm) = (tensors.distances()?, tensors.final_norm()?);
        let scorer = tensors.scorer()?.map(|scorer| packer.scorer(scorer));
        checkpoint.release_pages();
        let ropes = spec.ropes.iter().map(|rope| RopeTable::new(rope, spec.max_tokens)).collect();
        Ok(Encoder {
            spec,
            words,
            positions,
            token_types,
            embedding_norm,
            layers,
            final_norm,
            distances,
            ropes,
            scorer,
        })
    }
}

struct Packer<'a> {
    options: LoadOptions,
    compute: &'a mut Compute,
}

impl Packer<'_> {
    fn layer(&mut self, layer: LayerTensors, intermediate: usize) -> Layer {
        Layer {
            attention_norm: layer.attention_norm,
            qkv: self.qkv(layer.qkv),
            output: self.linear(layer.output, ATTENDED),
            mlp: self.mlp(layer.mlp, intermediate),
            mlp_norm: layer.mlp_norm,
        }
    }

    /// Queries, keys and values: one matrix where their forms allow it without widening, else one each.
    fn qkv(&mut self, qkv: Projection) -> Vec<Linear> {
        if qkv.tensors.iter().all(|tensor| tensor.form() == qkv.tensors[0].form()) {
            return vec![self.linear(qkv, HIDDEN)];
        }
        let mut first = 0;
        let mut part = |tensor: Tensor| {
            let rows = first..first + tensor.rows();
            first = rows.end;
            let bias = qkv.bias.as_ref().map(|bias| bias[rows].to_vec());
            self.linear(Projection { tensors: vec![tensor], bias }, HIDDEN)
        };
        qkv.tensors.into_iter().map(&mut part).collect()
    }

    fn mlp(&mut self, mlp: MlpTensors, intermediate: usize) -> Mlp {
        let down = self.linear(mlp.down, INNER);
        let Some(gate) = mlp.gate else { return Mlp::Plain { up: self.linear(mlp.up, HIDDEN), down } };
        let bias = gate.bias.zip(mlp.up.bias).map(|(gate, up)| gated_bias(&gate, &up));
        let [gate, up] = [gate.tensors, mlp.up.tensors].map(|tensors| tensors[0].clone());
        let gate_up = self.pack(&Stack::gated(gate, up), bias, HIDDEN);
        Mlp::Gated(GatedMlp { gate_up, down, intermediate })
    }

    fn scorer(&mut self, scorer: ScorerTensors) -> Scorer {
        Scorer { pooling: scorer.pooling, dense: self.linear(scorer.dense, HIDDEN), end: scorer.end }
    }

    fn linear(&mut self, projection: Projection, width: Width) -> Linear {
        self.pack(&Stack::stacked(projection.tensors), projection.bias, width)
    }

    fn pack(&mut self, stack: &Stack, bias: Option<Vec<f32>>, width: Width) -> Linear {
        let matrix = stack.pack(self.compute.pool(), self.options.precision, self.options.quantize);
        self.compute.reserve_cols(matrix.cols());
        Linear { matrix, bias, width }
    }
}
