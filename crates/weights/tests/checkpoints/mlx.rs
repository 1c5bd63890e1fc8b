//! MLX-quantised folders made by `mlx` itself, against the values it reads from them.

use crate::safetensors_writer::{Folder, file, mlx_config, mlx_header};
use crate::{fixture, open, values, values_by_formula};
use ropeway_weights::{AffineForm, Bits, FloatType, Form, Group, Zero};
use serde_json::json;

/// `mlx` fuses the multiply and the add; this reader rounds in between.
const TOLERANCE: f32 = 1e-6;

const MODULES: [(&str, Bits, &[usize]); 5] = [
    ("default.weight", Bits::Four, &[3, 256]),
    ("wide_group.weight", Bits::Four, &[2, 256]),
    ("eight.weight", Bits::Eight, &[2, 96]),
    ("eight_64.weight", Bits::Eight, &[2, 128]),
    ("experts.weight", Bits::Four, &[2, 3, 64]),
];

#[test]
fn every_packing_reads_as_mlx_does() {
    let (quantised, expected) = (open(&fixture("mlx/quantised")), open(&fixture("mlx/expected")));
    for (name, bits, shape) in MODULES {
        let tensor = quantised.tensor(name).unwrap();
        assert_eq!(tensor.shape(), shape, "{name}");
        let form = AffineForm { bits, group: Group::ThirtyTwo, zero: Zero::Mins };
        assert_eq!(tensor.form(), Form::Affine(form), "{name}");
        for (ours, theirs) in values(&tensor).iter().zip(values(&expected.tensor(name).unwrap())) {
            assert!((ours - theirs).abs() <= TOLERANCE, "{name}: {ours} {theirs}");
        }
    }
}

#[test]
fn the_affine_form_loses_nothing() {
    let quantised = open(&fixture("mlx/quantised"));
    for (name, ..) in MODULES {
        let tensor = quantised.tensor(name).unwrap();
        assert_eq!(values_by_formula(&tensor), values(&tensor), "{name}");
    }
}

#[test]
fn scales_and_biases_are_not_tensors_of_their_own() {
    let quantised = open(&fixture("mlx/quantised"));
    assert!(quantised.names().all(|name| name.ends_with(".weight")));
    let norm = quantised.tensor("norm.weight").unwrap();
    assert_eq!(norm.form(), Form::Float(FloatType::Bf16));
    assert_eq!(values(&norm), values(&open(&fixture("mlx/expected")).tensor("norm.weight").unwrap()));
}

#[test]
fn one_expert_is_a_slice_of_rows() {
    let tensor = open(&fixture("mlx/quantised")).tensor("experts.weight").unwrap();
    let second = tensor.slice_rows(3..6);
    assert_eq!(second.shape(), [3, 64]);
    assert_eq!(values(&second), values(&tensor)[3 * 64..]);
    assert_eq!(values_by_formula(&second), values(&second));
}

#[test]
fn the_description_may_stand_under_either_key() {
    let (header, data) = mlx_header();
    let config = json!({ "quantization_config": mlx_config()["quantization"] });
    let folder = Folder::new(&config).with("model.safetensors", file(&header, data));
    assert_eq!(open(folder.path()).tensor("m.weight").unwrap().shape(), [2, 64]);
}

#[test]
fn a_module_may_be_named_as_quantised_like_the_rest() {
    let (header, data) = mlx_header();
    let mut config = mlx_config();
    config["quantization"]["m"] = json!(true);
    let folder = Folder::new(&config).with("model.safetensors", file(&header, data));
    assert_eq!(open(folder.path()).tensor("m.weight").unwrap().rows(), 2);
}
