//! Hostile checkpoints: files that are opened, and a reader that touches every byte they hand out.

use crate::{File, folder_of};
use ropeway_weights::{AffineRow, Checkpoint, Config, Form, Tensor};
use std::path::Path;

/// Writes the files into a fresh folder, opens `opened` of it (or the folder itself, if empty) and reads everything.
pub fn try_files(files: &[File<'_>], opened: &str) {
    let folder = folder_of(files);
    open_and_read_everything(&folder.path().join(opened));
}

fn open_and_read_everything(path: &Path) {
    let Ok(checkpoint) = Checkpoint::open(path) else { return };
    if let Config::Gguf(metadata) = checkpoint.config() {
        for key in metadata.keys() {
            read_value(metadata, key);
        }
    }
    for name in checkpoint.names() {
        let tensor = checkpoint.tensor(name).expect("a listed tensor");
        read_rows(&tensor);
        read_rows(&tensor.slice_rows(tensor.rows() / 2..tensor.rows()));
    }
    checkpoint.release_pages();
}

fn read_value(metadata: &ropeway_weights::gguf::Metadata, key: &str) {
    let _ = (metadata.str(key), metadata.u64(key), metadata.f32(key), metadata.bool(key));
    assert_eq!(
        metadata.strs(key).map(Iterator::count).unwrap_or(0),
        metadata.strs(key).map_or(0, |array| array.len())
    );
    let _ = metadata.i32s(key).map(Iterator::count);
    let _ = metadata.f32s(key).map(Iterator::count);
    let _ = metadata.bools(key).map(Iterator::count);
}

/// Reads each row both ways.
fn read_rows(tensor: &Tensor) {
    let cols = tensor.cols();
    let mut exact = vec![0.0; cols];
    let (mut quants, mut scales, mut mins) = (vec![0; cols], vec![0.0; cols], vec![0.0; cols]);
    for row in 0..tensor.rows() {
        tensor.read_f32(row, &mut exact);
        let Form::Affine(form) = tensor.form() else { continue };
        let groups = cols / form.group.len();
        let (scales, mins) = (&mut scales[..groups], &mut mins[..groups]);
        tensor.read_affine(row, AffineRow { quants: &mut quants, scales, mins });
    }
}
