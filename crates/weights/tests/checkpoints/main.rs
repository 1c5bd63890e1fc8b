//! Checkpoints as files: the formats against their own Python packages, bad files one by one, arbitrary bytes.

mod arbitrary;
mod bad_folders;
mod bad_gguf;
mod default_model;
mod folders;
mod gguf_metadata;
mod gguf_types;
mod gguf_writer;
mod mlx;
mod safetensors_writer;
mod split_gguf;

use ropeway_weights::{AffineRow, Checkpoint, Form, Tensor, Zero};
use std::path::{Path, PathBuf};

/// A file or folder of `tests/fixtures`, made by `make.py` there.
fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures").join(name)
}

fn open(path: &Path) -> Checkpoint {
    Checkpoint::open(path).unwrap_or_else(|error| panic!("{error}"))
}

/// All values of a tensor, row after row.
fn values(tensor: &Tensor) -> Vec<f32> {
    let mut values = vec![f32::NAN; tensor.rows() * tensor.cols()];
    for (row, out) in values.chunks_exact_mut(tensor.cols()).enumerate() {
        tensor.read_f32(row, out);
    }
    values
}

/// All values of an affine tensor by the formula its documentation gives.
fn values_by_formula(tensor: &Tensor) -> Vec<f32> {
    let Form::Affine(form) = tensor.form() else { panic!("{} is not affine", tensor.name()) };
    let (cols, group) = (tensor.cols(), form.group.len());
    let (mut quants, mut scales, mut mins) =
        (vec![0; cols], vec![0.0; cols / group], vec![0.0; cols / group]);
    let mut values = Vec::new();
    for row in 0..tensor.rows() {
        tensor.read_affine(row, AffineRow { quants: &mut quants, scales: &mut scales, mins: &mut mins });
        values.extend(quants.iter().enumerate().map(|(k, quant)| match form.zero {
            Zero::Mins => scales[k / group] * f32::from(*quant) + mins[k / group],
            Zero::Fixed => scales[k / group] * (f32::from(*quant) - f32::from(form.bits.zero_point())),
        }));
    }
    values
}

/// Opens whatever lies at `path` and reads every row of every tensor both ways.
fn open_and_read_everything(path: &Path) {
    let Ok(checkpoint) = Checkpoint::open(path) else { return };
    for name in checkpoint.names() {
        let tensor = checkpoint.tensor(name).unwrap();
        values(&tensor);
        if matches!(tensor.form(), Form::Affine(_)) {
            values_by_formula(&tensor);
        }
    }
}
