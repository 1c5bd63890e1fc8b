//! The forms that packed matrices have, and which one a file's tensors ask for.

use ropeway_model::tensors::DecoderTensors;
use ropeway_model::{DecoderSpec, LoadError, Quantize};
use ropeway_weights::{AffineForm, Bits, Form as TensorForm, Group, Tensor};

use crate::plan::{Form, MatrixRole, Plan};
use crate::weights::{WeightSource, matrix_tensors};

/// Outputs of a strip: the rows of the matrix instruction.
pub const STRIP: usize = 16;

/// Inputs of a record: four steps of the matrix instruction.
pub const RECORD_INPUTS: usize = 64;

/// Small integers with two 16-bit factors per group: 5, 6, 9 or 10 bits a weight.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct PackedForm {
    /// Width of a quant.
    pub bits: Bits,
    /// How many neighbouring inputs share a scale.
    pub group: Group,
}

impl PackedForm {
    /// Every form that there are kernels for.
    pub const ALL: [PackedForm; 4] = [
        PackedForm { bits: Bits::Four, group: Group::ThirtyTwo },
        PackedForm { bits: Bits::Four, group: Group::Sixteen },
        PackedForm { bits: Bits::Eight, group: Group::ThirtyTwo },
        PackedForm { bits: Bits::Eight, group: Group::Sixteen },
    ];

    /// The form of a tensor in a file.
    pub fn of(form: AffineForm) -> Self {
        Self { bits: form.bits, group: form.group }
    }

    /// What float weights are packed to.
    pub fn quantized(quantize: Quantize) -> Self {
        let bits = match quantize {
            Quantize::Q4 => Bits::Four,
            Quantize::Q8 => Bits::Eight,
        };
        Self { bits, group: Group::ThirtyTwo }
    }

    /// The narrowest form that holds both.
    #[must_use]
    pub fn join(self, other: Self) -> Self {
        let bits = if self.bits == other.bits { self.bits } else { Bits::Eight };
        let group = if self.group == other.group { self.group } else { Group::Sixteen };
        Self { bits, group }
    }

    /// Bits of a quant.
    pub fn width(self) -> usize {
        match self.bits {
            Bits::Four => 4,
            Bits::Eight => 8,
        }
    }

    /// Groups of every 32 inputs.
    pub fn parts(self) -> usize {
        32 / self.group.len()
    }

    /// Bytes of a record's quants.
    pub(super) fn quant_bytes(self) -> usize {
        STRIP * RECORD_INPUTS * self.width() / 8
    }

    /// Bytes of a record: 16 outputs by 64 inputs.
    pub fn record_bytes(self) -> usize {
        self.quant_bytes() + STRIP * RECORD_INPUTS / self.group.len() * 4
    }

    /// Bytes of 16 outputs.
    pub fn strip_bytes(self, inputs: usize) -> usize {
        inputs.div_ceil(RECORD_INPUTS) * self.record_bytes()
    }

    /// Bytes of the records of a matrix; the scales of its strips follow them, an f32 each.
    pub fn records_bytes(self, outputs: usize, inputs: usize) -> usize {
        outputs.div_ceil(STRIP) * self.strip_bytes(inputs)
    }

    /// Bytes of a matrix.
    pub fn bytes(self, outputs: usize, inputs: usize) -> usize {
        self.records_bytes(outputs, inputs) + outputs.div_ceil(STRIP) * 4
    }
}

/// Sets the form of every matrix: as the files have it, or as float weights are to be packed.
pub(crate) fn choose_forms(
    plan: &mut Plan,
    spec: &DecoderSpec,
    source: &WeightSource<'_>,
    quantize: Option<Quantize>,
) -> Result<(), LoadError> {
    for matrix in &mut plan.matrices {
        // Of an embedding that is no head, a step reads a row per token: it stays as exact as it is, as on the CPU.
        let only_rows = matrix.role == MatrixRole::Embedding && !spec.tied_embeddings;
        let quantize = quantize.filter(|_| !only_rows).map(PackedForm::quantized);
        let form = match source {
            WeightSource::Checkpoint(checkpoint) => {
                let tensors = matrix_tensors(&DecoderTensors::new(checkpoint, spec), spec, matrix)?;
                joined(&tensors, quantize)
            }
            WeightSource::Random(_) => quantize,
        };
        matrix.set_form(form.map_or(Form::Bf16, Form::Packed));
    }
    Ok(())
}

/// The form that holds all tensors of a matrix; none where one of them is to stay a float.
fn joined(tensors: &[Tensor], quantize: Option<PackedForm>) -> Option<PackedForm> {
    let of = |tensor: &Tensor| match tensor.form() {
        TensorForm::Affine(form) => Some(PackedForm::of(form)),
        TensorForm::Float(_) => quantize,
    };
    tensors.iter().map(of).reduce(|one, other| Some(one?.join(other?))).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_weight_takes_as_many_bits_as_the_documentation_says() {
        let (outputs, inputs) = (4096, 14336);
        let bits =
            PackedForm::ALL.map(|form| form.bytes(outputs, inputs) as f64 * 8.0 / (outputs * inputs) as f64);
        for (bits, documented) in bits.into_iter().zip([5.0, 6.0, 9.0, 10.0]) {
            assert!((documented..documented + 0.001).contains(&bits), "{bits} instead of {documented}");
        }
    }

    #[test]
    fn joined_forms_hold_the_wider_quants_and_the_smaller_groups() {
        let [narrow, halves, wide, both] = PackedForm::ALL;
        assert_eq!(narrow.join(narrow), narrow);
        assert_eq!(narrow.join(halves), halves);
        assert_eq!(wide.join(halves), both);
        assert_eq!(wide.join(narrow), wide);
    }
}
