//! Every tensor type of GGUF against the values the `gguf` Python package reads from the same blocks.

use crate::{fixture, open, values, values_by_formula};
use ropeway_weights::{AffineForm, AffineRow, Bits, FloatType, Form, Group, Tensor, Zero};

const fn affine(bits: Bits, group: Group, zero: Zero) -> Form {
    Form::Affine(AffineForm { bits, group, zero })
}

const PACKED: [(&str, Form); 12] = [
    ("Q4_0", affine(Bits::Four, Group::ThirtyTwo, Zero::Fixed)),
    ("Q4_1", affine(Bits::Four, Group::ThirtyTwo, Zero::Mins)),
    ("Q5_0", affine(Bits::Eight, Group::ThirtyTwo, Zero::Fixed)),
    ("Q5_1", affine(Bits::Eight, Group::ThirtyTwo, Zero::Mins)),
    ("Q8_0", affine(Bits::Eight, Group::ThirtyTwo, Zero::Fixed)),
    ("Q2_K", affine(Bits::Four, Group::Sixteen, Zero::Mins)),
    ("Q3_K", affine(Bits::Four, Group::Sixteen, Zero::Fixed)),
    ("Q4_K", affine(Bits::Four, Group::ThirtyTwo, Zero::Mins)),
    ("Q5_K", affine(Bits::Eight, Group::ThirtyTwo, Zero::Mins)),
    ("Q6_K", affine(Bits::Eight, Group::Sixteen, Zero::Fixed)),
    ("IQ4_NL", affine(Bits::Eight, Group::ThirtyTwo, Zero::Fixed)),
    ("IQ4_XS", affine(Bits::Eight, Group::ThirtyTwo, Zero::Fixed)),
];

const FLOATS: [(&str, FloatType); 3] =
    [("F32", FloatType::F32), ("F16", FloatType::F16), ("BF16", FloatType::Bf16)];

fn packed_and_expected(kind: &str) -> (Tensor, Tensor) {
    let checkpoint = open(&fixture(&format!("gguf/{kind}.gguf")));
    (checkpoint.tensor("packed").unwrap(), checkpoint.tensor("expected").unwrap())
}

#[test]
fn every_packed_type_reads_as_its_reference_implementation_does() {
    for (kind, form) in PACKED {
        let (packed, expected) = packed_and_expected(kind);
        assert_eq!(packed.form(), form, "{kind}");
        assert_eq!(packed.shape(), [2, 512], "{kind}");
        assert_eq!(values(&packed), values(&expected), "{kind}");
    }
}

#[test]
fn the_affine_form_of_every_packed_type_loses_nothing() {
    for (kind, _) in PACKED {
        let (packed, _) = packed_and_expected(kind);
        assert_eq!(values_by_formula(&packed), values(&packed), "{kind}");
    }
}

#[test]
fn quants_stay_within_their_width() {
    for (kind, form) in PACKED {
        let Form::Affine(AffineForm { bits: Bits::Four, group, .. }) = form else { continue };
        let (packed, _) = packed_and_expected(kind);
        let (mut quants, mut scales, mut mins) = ([0xff; 512], [0.0; 32], [0.0; 32]);
        let groups = 512 / group.len();
        let (scales, mins) = (&mut scales[..groups], &mut mins[..groups]);
        packed.read_affine(1, AffineRow { quants: &mut quants, scales, mins });
        assert!(quants.iter().all(|quant| *quant < 16), "{kind}");
    }
}

#[test]
fn every_float_type_reads_as_its_reference_implementation_does() {
    for (kind, float) in FLOATS {
        let (stored, expected) = packed_and_expected(kind);
        assert_eq!(stored.form(), Form::Float(float));
        let bits = |tensor| values(tensor).iter().map(|value| value.to_bits()).collect::<Vec<_>>();
        assert_eq!(bits(&stored), bits(&expected), "{kind}");
    }
}

#[test]
fn a_slice_of_rows_reads_as_those_rows_of_the_whole() {
    for (kind, _) in PACKED {
        let (packed, _) = packed_and_expected(kind);
        let second = packed.slice_rows(1..2);
        assert_eq!(second.shape(), [1, 512]);
        assert_eq!(values(&second), values(&packed)[512..], "{kind}");
        assert_eq!(values(&second.slice_rows(0..1)), values(&second), "{kind}");
        assert_eq!(packed.slice_rows(1..1).rows(), 0);
    }
}

#[test]
fn a_fixed_zero_point_leaves_the_mins_untouched() {
    let (packed, _) = packed_and_expected("Q8_0");
    let (mut quants, mut scales, mut mins) = (vec![0; 512], vec![0.0; 16], vec![7.0; 16]);
    packed.read_affine(0, AffineRow { quants: &mut quants, scales: &mut scales, mins: &mut mins });
    assert_eq!(mins, vec![7.0; 16]);
    packed.read_affine(0, AffineRow { quants: &mut quants, scales: &mut scales, mins: &mut [] });
}

#[test]
fn a_tensor_outlives_its_checkpoint_and_moves_to_another_thread() {
    let (packed, expected) = packed_and_expected("Q4_K");
    let read = std::thread::spawn(move || values(&packed)).join().unwrap();
    assert_eq!(read, values(&expected));
}

#[test]
fn released_pages_come_back_when_they_are_read_again() {
    let checkpoint = open(&fixture("gguf/Q6_K.gguf"));
    let before = values(&checkpoint.tensor("packed").unwrap());
    checkpoint.release_pages();
    assert_eq!(values(&checkpoint.tensor("packed").unwrap()), before);
}
