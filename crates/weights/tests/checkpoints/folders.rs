//! Hugging Face folders that are right: single, sharded, odd but legal.

use crate::safetensors_writer::{Folder, file, tensor};
use crate::{fixture, open, values};
use ropeway_weights::{Checkpoint, Config, FloatType, Form, WeightsError};
use safetensors::tensor::{Dtype, TensorView};
use serde_json::json;

fn shard(name: &str) -> Vec<u8> {
    file(&json!({ name: tensor("F32", &[2, 2], 0, 16) }), 16)
}

#[test]
fn files_of_the_format_s_own_writer_are_read() {
    let data: Vec<u8> = [1.5_f32, -2.0, 0.25, 8.0].iter().flat_map(|value| value.to_le_bytes()).collect();
    let halves: Vec<u8> = [0x3c00_u16, 0xc000].iter().flat_map(|bits| bits.to_le_bytes()).collect();
    let views = [
        ("w", TensorView::new(Dtype::F32, vec![2, 2], &data).unwrap()),
        ("h", TensorView::new(Dtype::F16, vec![2], &halves).unwrap()),
        ("s", TensorView::new(Dtype::F32, vec![], &data[..4]).unwrap()),
    ];
    let folder = Folder::of(safetensors::serialize(views, None).unwrap());
    let checkpoint = open(folder.path());
    assert_eq!(values(&checkpoint.tensor("w").unwrap()), [1.5, -2.0, 0.25, 8.0]);
    let half = checkpoint.tensor("h").unwrap();
    assert_eq!((half.rows(), half.cols(), half.form()), (1, 2, Form::Float(FloatType::F16)));
    assert_eq!(values(&half), [1.0, -2.0]);
    assert_eq!(values(&checkpoint.tensor("s").unwrap()), [1.5]);
}

#[test]
fn a_sharded_folder_is_one_checkpoint() {
    let folder = Folder::new(&json!({ "model_type": "llama" }))
        .with("one.safetensors", shard("a"))
        .with("two.safetensors", shard("b"))
        .with_index(&json!({ "a": "one.safetensors", "b": "two.safetensors" }));
    let checkpoint = open(folder.path());
    assert_eq!(checkpoint.names().collect::<Vec<_>>(), ["a", "b"]);
    assert_eq!(checkpoint.file_bytes(), 2 * shard("a").len() as u64);
    assert_eq!(checkpoint.folder(), folder.path());
    let Config::HuggingFace(config) = checkpoint.config() else { panic!("not a folder") };
    assert_eq!(config["model_type"], "llama");
}

#[test]
fn the_single_file_is_preferred_to_a_stale_index() {
    let folder = Folder::of(shard("a")).with_index(&json!({ "b": "gone.safetensors" }));
    assert_eq!(open(folder.path()).names().collect::<Vec<_>>(), ["a"]);
}

#[test]
fn files_without_an_index_are_all_read() {
    let folder = Folder::new(&json!({})).with("x.safetensors", shard("a")).with("y.safetensors", shard("b"));
    assert_eq!(open(folder.path()).names().collect::<Vec<_>>(), ["a", "b"]);
}

#[test]
fn numbers_no_weight_has_are_left_out_and_explained_when_asked_for() {
    let header = json!({
        "__metadata__": { "format": "pt" },
        "position_ids": tensor("I64", &[2], 0, 16),
        "w": tensor("BF16", &[2], 16, 20),
    });
    let folder = Folder::of(file(&header, 20));
    let checkpoint = open(folder.path());
    assert_eq!(checkpoint.names().collect::<Vec<_>>(), ["w"]);
    assert!(checkpoint.find("position_ids").is_none());
    let error = checkpoint.tensor("position_ids").unwrap_err();
    assert!(matches!(&error, WeightsError::UnsupportedType { dtype, .. } if dtype == "I64"), "{error}");
}

#[test]
fn a_missing_tensor_is_an_error_that_names_it() {
    let folder = Folder::of(shard("a"));
    let error = open(folder.path()).tensor("lm_head.weight").unwrap_err();
    assert!(matches!(&error, WeightsError::MissingTensor { name, .. } if name == "lm_head.weight"));
}

#[test]
fn a_folder_with_one_gguf_file_opens_that_file() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::copy(fixture("gguf/F16.gguf"), folder.path().join("model.gguf")).unwrap();
    let checkpoint = open(folder.path());
    assert_eq!(checkpoint.names().collect::<Vec<_>>(), ["expected", "packed"]);
    assert_eq!((checkpoint.path(), checkpoint.folder()), (folder.path(), folder.path()));
}

#[test]
fn clones_share_the_mapping() {
    let folder = Folder::of(shard("a"));
    let checkpoint = open(folder.path());
    let clone: Checkpoint = checkpoint.clone();
    drop(checkpoint);
    assert_eq!(clone.tensor("a").unwrap().shape(), [2, 2]);
}
