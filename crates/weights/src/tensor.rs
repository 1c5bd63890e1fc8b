//! A named matrix inside a mapped file, read row by row.
//!
//! Relies on the readers (`gguf`, `huggingface`) to have checked that the file holds every row before they build one.
//! Must never copy weights: a tensor is a name, a shape and windows into the mapping, which it keeps alive.

use crate::mapping::Region;
use crate::packed::Codec;
use crate::packed::mlx::MlxPacked;
use crate::{AffineRow, FloatType, Form, Zero, floats};
use std::ops::Range;
use std::sync::Arc;

/// One tensor of a checkpoint. Cheap to clone, owns its share of the mapping, safe to send to other threads.
#[derive(Debug, Clone)]
pub struct Tensor {
    name: Arc<str>,
    shape: Vec<usize>,
    storage: Storage,
}

/// Where and how the values lie.
#[derive(Debug, Clone)]
pub(crate) enum Storage {
    Float { float: FloatType, data: Region },
    Blocks { codec: &'static Codec, data: Region },
    Mlx(MlxPacked),
}

impl Tensor {
    pub(crate) fn new(name: &str, shape: Vec<usize>, storage: Storage) -> Tensor {
        Tensor { name: Arc::from(name), shape, storage }
    }

    /// The name in the checkpoint.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The dimensions, outermost first, as Hugging Face prints them (GGUF's order reversed).
    pub fn shape(&self) -> &[usize] {
        &self.shape
    }

    /// The number of rows: the product of all dimensions but the innermost; 1 for a vector.
    pub fn rows(&self) -> usize {
        self.shape.split_last().map_or(1, |(_, outer)| outer.iter().product())
    }

    /// The length of a row: the innermost dimension; 1 for a scalar.
    pub fn cols(&self) -> usize {
        self.shape.last().copied().unwrap_or(1)
    }

    /// What the values are.
    pub fn form(&self) -> Form {
        match &self.storage {
            Storage::Float { float, .. } => Form::Float(*float),
            Storage::Blocks { codec, .. } => Form::Affine(codec.form),
            Storage::Mlx(packed) => Form::Affine(packed.form()),
        }
    }

    /// The rows `range` as a tensor of shape `[range.len(), cols]`: one expert of a merged tensor, or one part of a
    /// fused projection. Shares the mapping.
    ///
    /// # Panics
    /// When the range leaves the tensor: compare with [`Self::rows`] first where the range comes from a file.
    pub fn slice_rows(&self, range: Range<usize>) -> Tensor {
        assert!(
            range.start <= range.end && range.end <= self.rows(),
            "rows {range:?} of {} rows",
            self.rows()
        );
        let cols = self.cols();
        let storage = match &self.storage {
            Storage::Float { float, data } => {
                Storage::Float { float: *float, data: data.rows(&range, cols * float.bytes()) }
            }
            Storage::Blocks { codec, data } => {
                Storage::Blocks { codec, data: data.rows(&range, codec.row_bytes(cols)) }
            }
            Storage::Mlx(packed) => Storage::Mlx(packed.slice_rows(&range, cols)),
        };
        Tensor { name: Arc::clone(&self.name), shape: vec![range.len(), cols], storage }
    }

    /// Reads one row as exact `f32`: plain numbers widened, packed ones as `scale * quant + min`.
    ///
    /// # Panics
    /// When there is no such row or `out` is not [`Self::cols`] long.
    pub fn read_f32(&self, row: usize, out: &mut [f32]) {
        let cols = self.cols();
        assert_eq!(out.len(), cols, "a row of {} needs a buffer of its length", self.name);
        match &self.storage {
            Storage::Float { float, data } => floats::read(*float, data.row(row, cols * float.bytes()), out),
            Storage::Blocks { codec, data } => (codec.read_f32)(data.row(row, codec.row_bytes(cols)), out),
            Storage::Mlx(packed) => packed.read_f32(row, out),
        }
    }

    /// Reads one row as quants, scales and (with [`Zero::Mins`]) minima, losslessly.
    ///
    /// # Panics
    /// When the tensor is not [`Form::Affine`], there is no such row, or a buffer has another length than
    /// [`AffineRow`] says.
    pub fn read_affine(&self, row: usize, out: AffineRow<'_>) {
        self.check_buffers(&out);
        match &self.storage {
            Storage::Float { .. } => unreachable!("check_buffers refuses plain numbers"),
            Storage::Blocks { codec, data } => {
                (codec.read_affine)(data.row(row, codec.row_bytes(self.cols())), out);
            }
            Storage::Mlx(packed) => packed.read_affine(row, out),
        }
    }

    fn check_buffers(&self, out: &AffineRow<'_>) {
        let Form::Affine(form) = self.form() else {
            panic!("{} holds plain numbers: read it with read_f32", self.name)
        };
        let groups = self.cols() / form.group.len();
        assert_eq!(out.quants.len(), self.cols(), "quants of a row of {}", self.name);
        assert_eq!(out.scales.len(), groups, "scales of a row of {}", self.name);
        if form.zero == Zero::Mins {
            assert_eq!(out.mins.len(), groups, "mins of a row of {}", self.name);
        }
    }
}
