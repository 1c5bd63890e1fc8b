//! Writes safetensors folders, so that a test can lie in the header, the index and the config.

use serde_json::{Value, json};
use std::path::Path;
use tempfile::TempDir;

/// A file's bytes: the header as it stands, then `data` bytes that count up.
pub fn file(header: &Value, data: usize) -> Vec<u8> {
    raw_file(header.to_string().as_bytes(), data)
}

/// As [`file`], for headers that are not JSON.
pub fn raw_file(header: &[u8], data: usize) -> Vec<u8> {
    let mut bytes = (header.len() as u64).to_le_bytes().to_vec();
    bytes.extend(header);
    bytes.extend((0..data).map(|byte| byte as u8));
    bytes
}

pub fn tensor(dtype: &str, shape: &[u64], start: u64, end: u64) -> Value {
    json!({ "dtype": dtype, "shape": shape, "data_offsets": [start, end] })
}

/// A folder under construction.
pub struct Folder(TempDir);

impl Folder {
    pub fn new(config: &Value) -> Folder {
        let folder = Folder(tempfile::tempdir().unwrap());
        folder.with("config.json", config.to_string())
    }

    /// A folder whose config is empty and whose single file is given.
    pub fn of(file: Vec<u8>) -> Folder {
        Folder::new(&json!({})).with("model.safetensors", file)
    }

    pub fn with(self, name: &str, bytes: impl AsRef<[u8]>) -> Folder {
        std::fs::write(self.path().join(name), bytes).unwrap();
        self
    }

    pub fn without(self, name: &str) -> Folder {
        std::fs::remove_file(self.path().join(name)).unwrap();
        self
    }

    pub fn with_index(self, weight_map: &Value) -> Folder {
        self.with("model.safetensors.index.json", json!({ "weight_map": weight_map }).to_string())
    }

    pub fn path(&self) -> &Path {
        self.0.path()
    }
}

/// An MLX module of two rows, 64 columns, four bits, groups of 32: the header and how many bytes it describes.
pub fn mlx_header() -> (Value, usize) {
    let header = json!({
        "m.weight": tensor("U32", &[2, 8], 0, 64),
        "m.scales": tensor("F16", &[2, 2], 64, 72),
        "m.biases": tensor("F16", &[2, 2], 72, 80),
    });
    (header, 80)
}

/// The config that fits [`mlx_header`].
pub fn mlx_config() -> Value {
    json!({ "quantization": { "bits": 4, "group_size": 32 } })
}
