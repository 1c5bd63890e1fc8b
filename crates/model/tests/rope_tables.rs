//! Rotary embeddings against those of transformers, recorded by `fixtures/rope.py`.

use ropeway_model::{DecoderSpec, RopeTable, SpecError};
use serde_json::Value;

/// transformers computes in f32: a power and a division, each rounded.
const TOLERANCE: f64 = 1e-6;

fn recorded() -> Vec<Value> {
    serde_json::from_str(include_str!("fixtures/rope.json")).expect("the fixture is JSON")
}

fn table(case: &Value) -> Result<RopeTable, SpecError> {
    let context = case["context"].as_u64().expect("a window") as usize;
    let spec = DecoderSpec::from_hugging_face(&case["config"])?.with_context(context, None)?;
    Ok(RopeTable::new(&spec.ropes[0], spec.context))
}

fn close(ours: f64, theirs: f64) -> bool {
    (ours - theirs).abs() <= TOLERANCE * theirs.abs()
}

#[test]
fn every_scaling_turns_each_pair_as_fast_as_transformers_does() {
    for case in recorded() {
        let table = table(&case).expect("a valid configuration");
        let theirs: Vec<f64> = serde_json::from_value(case["inverse"].clone()).expect("numbers");
        assert_eq!(table.pairs(), theirs.len(), "{}", case["name"]);
        for (pair, (ours, theirs)) in table.inverse_frequencies().iter().zip(theirs).enumerate() {
            assert!(close(*ours, theirs), "{} pair {pair}: {ours} is not {theirs}", case["name"]);
        }
    }
}

#[test]
fn every_scaling_has_the_attention_factor_of_transformers() {
    for case in recorded() {
        let ours = table(&case).expect("a valid configuration").attention_factor();
        let theirs = case["attention_factor"].as_f64().expect("a number");
        assert!(close(ours, theirs), "{}: {ours} is not {theirs}", case["name"]);
    }
}

#[test]
fn angles_far_from_the_start_are_those_of_the_exact_product() {
    let case = &recorded()[0];
    let table = table(case).expect("a valid configuration");
    let (mut cos, mut sin) = (vec![0.0; table.pairs()], vec![0.0; table.pairs()]);
    for position in [0, 1, 2047, 1_000_003] {
        table.fill(position, &mut cos, &mut sin);
        for (pair, inverse) in table.inverse_frequencies().iter().enumerate() {
            let angle = position as f64 * inverse;
            assert_eq!((cos[pair], sin[pair]), (angle.cos() as f32, angle.sin() as f32), "pair {pair}");
        }
    }
}

#[test]
fn the_attention_factor_is_in_the_cosines_and_sines() {
    let cases = recorded();
    let case = cases.iter().find(|case| case["name"] == "yarn").expect("a yarn case");
    let table = table(case).expect("a valid configuration");
    let (mut cos, mut sin) = (vec![0.0; table.pairs()], vec![0.0; table.pairs()]);
    table.fill(0, &mut cos, &mut sin);
    assert_eq!(cos, vec![table.attention_factor() as f32; table.pairs()]);
    assert_eq!(sin, vec![0.0; table.pairs()]);
}
