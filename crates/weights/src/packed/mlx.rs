//! MLX's affine format: quants, scales and biases as three tensors.
//!
//! ```text
//! quants  [rows][cols * bits / 8] bytes, value k in the bits from k * bits upwards (little-endian words)
//! scales  [rows][cols / group]    f32, f16 or bf16
//! biases  [rows][cols / group]    the same type          w = scale * q + bias
//! ```
//! A group of 64 or 128 is handed out as two or four groups of 32 with equal scales.
//! Relies on `huggingface::mlx` for having checked that the three shapes agree.

use super::{affine, expand_mins};
use crate::floats;
use crate::mapping::Region;
use crate::{AffineForm, AffineRow, Bits, FloatType, Group, Zero};
use std::ops::Range;

/// Values per scale in an MLX file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum MlxGroup {
    G32,
    G64,
    G128,
}

impl MlxGroup {
    pub(crate) const MAX: usize = 128;

    pub(crate) fn from_size(size: u64) -> Option<MlxGroup> {
        match size {
            32 => Some(MlxGroup::G32),
            64 => Some(MlxGroup::G64),
            128 => Some(MlxGroup::G128),
            _ => None,
        }
    }

    pub(crate) const fn size(self) -> usize {
        match self {
            MlxGroup::G32 => 32,
            MlxGroup::G64 => 64,
            MlxGroup::G128 => 128,
        }
    }
}

/// The three tensors of one quantised matrix.
#[derive(Debug, Clone)]
pub(crate) struct MlxPacked {
    pub(crate) bits: Bits,
    pub(crate) group: MlxGroup,
    pub(crate) float: FloatType,
    pub(crate) quants: Region,
    pub(crate) scales: Region,
    pub(crate) biases: Region,
}

/// One row's bytes.
struct Row<'a> {
    quants: &'a [u8],
    scales: &'a [u8],
    biases: &'a [u8],
}

impl MlxPacked {
    pub(crate) fn form(&self) -> AffineForm {
        affine(self.bits, Group::ThirtyTwo, Zero::Mins)
    }

    pub(crate) fn slice_rows(&self, rows: &Range<usize>, cols: usize) -> MlxPacked {
        MlxPacked {
            quants: self.quants.rows(rows, self.quant_bytes(cols)),
            scales: self.scales.rows(rows, self.scale_bytes(cols)),
            biases: self.biases.rows(rows, self.scale_bytes(cols)),
            ..*self
        }
    }

    pub(crate) fn read_affine(&self, row: usize, AffineRow { quants, scales, mins }: AffineRow<'_>) {
        let bytes = self.row(row, quants.len());
        unpack(self.bits, bytes.quants, quants);
        self.spread(bytes.scales, scales);
        self.spread(bytes.biases, mins);
    }

    pub(crate) fn read_f32(&self, row: usize, out: &mut [f32]) {
        let bytes = self.row(row, out.len());
        let mut quants = [0; MlxGroup::MAX];
        let quants = &mut quants[..self.group.size()];
        let packed = bytes.quants.chunks_exact(self.quant_bytes(self.group.size()));
        let width = self.float.bytes();
        let pairs = bytes.scales.chunks_exact(width).zip(bytes.biases.chunks_exact(width));
        for ((out, packed), (scale, bias)) in out.chunks_exact_mut(quants.len()).zip(packed).zip(pairs) {
            let (mut scales, mut biases) = ([0.0], [0.0]);
            floats::read(self.float, scale, &mut scales);
            floats::read(self.float, bias, &mut biases);
            unpack(self.bits, packed, quants);
            expand_mins(quants, scales[0], biases[0], out);
        }
    }

    fn row(&self, row: usize, cols: usize) -> Row<'_> {
        Row {
            quants: self.quants.row(row, self.quant_bytes(cols)),
            scales: self.scales.row(row, self.scale_bytes(cols)),
            biases: self.biases.row(row, self.scale_bytes(cols)),
        }
    }

    fn quant_bytes(&self, cols: usize) -> usize {
        match self.bits {
            Bits::Four => cols / 2,
            Bits::Eight => cols,
        }
    }

    fn scale_bytes(&self, cols: usize) -> usize {
        cols / self.group.size() * self.float.bytes()
    }

    /// Reads one number per MLX group and repeats it for each group of 32, from the back so that it works in place.
    fn spread(&self, bytes: &[u8], out: &mut [f32]) {
        let (count, repeat) = (bytes.len() / self.float.bytes(), self.group.size() / Group::ThirtyTwo.len());
        floats::read(self.float, bytes, &mut out[..count]);
        for index in (0..count).rev() {
            let value = out[index];
            out[index * repeat..][..repeat].fill(value);
        }
    }
}

#[inline]
fn unpack(bits: Bits, packed: &[u8], out: &mut [u8]) {
    match bits {
        Bits::Eight => out.copy_from_slice(packed),
        Bits::Four => {
            for (pair, byte) in out.as_chunks_mut::<2>().0.iter_mut().zip(packed) {
                *pair = [byte & 0x0f, byte >> 4];
            }
        }
    }
}
