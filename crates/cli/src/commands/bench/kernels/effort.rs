//! What is measured, and for how long: the one place that bounds the time of a run.

use std::time::Duration;

use ropeway_kernels::Isa;
use ropeway_kernels::kv::KvFormat;
use ropeway_kernels::packed::{AffineFormat, Bits, FloatFormat};

/// Outputs and inputs of a weight matrix.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    pub outputs: usize,
    pub inputs: usize,
}

impl Shape {
    const fn new(outputs: usize, inputs: usize) -> Self {
        Self { outputs, inputs }
    }

    /// Whether rows this many are measured: the vocabulary head sees single rows and decode batches only.
    pub fn takes(self, rows: usize) -> bool {
        self != HEAD || [1, 64].contains(&rows)
    }
}

/// The layers of SmolLM2-135M: query-key-value, attention output, gate and up, down.
const LAYERS: [Shape; 4] =
    [Shape::new(960, 576), Shape::new(576, 576), Shape::new(3072, 576), Shape::new(576, 1536)];
/// Its vocabulary head.
const HEAD: Shape = Shape::new(49_152, 576);

/// How weights are stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Weights {
    Affine(AffineFormat),
    Float(FloatFormat),
}

impl Weights {
    const fn affine(bits: Bits, mins: bool) -> Self {
        Self::Affine(AffineFormat { bits, halves: false, mins })
    }

    pub fn name(self) -> &'static str {
        match self {
            Self::Affine(AffineFormat { bits: Bits::Four, mins: true, .. }) => "int4 mins",
            Self::Affine(AffineFormat { bits: Bits::Four, mins: false, .. }) => "int4",
            Self::Affine(AffineFormat { bits: Bits::Eight, mins: true, .. }) => "int8 mins",
            Self::Affine(AffineFormat { bits: Bits::Eight, mins: false, .. }) => "int8",
            Self::Float(FloatFormat::F16) => "f16",
            Self::Float(FloatFormat::Bf16) => "bf16",
            Self::Float(FloatFormat::F32) => "f32",
        }
    }
}

/// Sequences decoded together, each over so many keys.
#[derive(Clone, Copy, Debug)]
pub struct Decode {
    pub sequences: usize,
    pub context: usize,
}

/// The measurements of one run.
#[derive(Clone, Debug)]
pub struct Effort {
    pub weights: Vec<Weights>,
    pub shapes: Vec<Shape>,
    pub rows: Vec<usize>,
    /// Weights that single rows cycle through, in bytes; `None` leaves them in the caches.
    pub cycle: Option<usize>,
    pub kv_formats: Vec<KvFormat>,
    pub prefill: Vec<usize>,
    pub decode: Vec<Decode>,
    /// Time for one kernel at one size.
    pub budget: Duration,
    /// Time for one attention measurement, whose single runs are long.
    pub attention_budget: Duration,
}

/// Weights far beyond any cache.
pub const BEYOND_CACHES: usize = 256 << 20;

impl Effort {
    /// Everything, in under a minute on two cores.
    pub fn full() -> Self {
        let integers = [(Bits::Four, true), (Bits::Four, false), (Bits::Eight, true), (Bits::Eight, false)];
        let floats = [FloatFormat::F16, FloatFormat::Bf16, FloatFormat::F32];
        let decode = |(sequences, context)| Decode { sequences, context };
        Self {
            weights: (integers.into_iter().map(|(bits, mins)| Weights::affine(bits, mins)))
                .chain(floats.into_iter().map(Weights::Float))
                .collect(),
            shapes: LAYERS.into_iter().chain([HEAD]).collect(),
            rows: vec![1, 4, 8, 32, 64, 512],
            cycle: Some(BEYOND_CACHES),
            kv_formats: vec![KvFormat::S16, KvFormat::Q8],
            prefill: vec![512, 4000],
            decode: [(1, 100), (1, 2000), (64, 100), (64, 2000)].map(decode).to_vec(),
            budget: Duration::from_millis(50),
            attention_budget: Duration::from_millis(600),
        }
    }

    /// The default model's formats at the sizes that decide its speed, in a few seconds.
    pub fn quick() -> Self {
        Self {
            weights: vec![Weights::affine(Bits::Four, true), Weights::Float(FloatFormat::F16)],
            shapes: vec![LAYERS[2]],
            rows: vec![1, 64],
            cycle: None,
            kv_formats: vec![KvFormat::S16],
            prefill: vec![512],
            decode: vec![Decode { sequences: 64, context: 100 }],
            budget: Duration::from_millis(50),
            attention_budget: Duration::from_millis(100),
        }
    }

    /// Without what the plain loops of the reference would take minutes for.
    pub fn bounded_for(mut self, isa: Isa) -> Self {
        if isa == Isa::reference() {
            self.shapes.retain(|&shape| shape != HEAD);
            self.rows.retain(|&rows| rows <= 8);
            self.cycle = None;
            self.prefill.retain(|&tokens| tokens <= 512);
            self.decode.retain(|decode| decode.sequences * decode.context <= 10_000);
        }
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_vocabulary_head_is_measured_for_decoding_only() {
        let rows = |shape: Shape| Effort::full().rows.into_iter().filter(move |&rows| shape.takes(rows));
        assert!(rows(HEAD).eq([1, 64]));
        assert!(rows(LAYERS[0]).eq(Effort::full().rows));
    }

    #[test]
    fn the_reference_skips_what_would_take_minutes() {
        let bounded = Effort::full().bounded_for(Isa::reference());
        assert!(bounded.rows == [1, 4, 8] && !bounded.shapes.contains(&HEAD));
        assert_eq!(bounded.prefill, [512]);
    }
}
