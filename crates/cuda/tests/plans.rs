//! What each family becomes: the plan of its tiny checkpoint, as text. A changed snapshot is a changed forward pass.

mod fixtures;

use std::fmt::Write;

use ropeway_cuda::plan::{Op, Plan};
use ropeway_model::DecoderSpec;

/// A plan: a line for every matrix and every operation.
fn text(plan: &Plan) -> String {
    let mut out = String::new();
    for matrix in &plan.matrices {
        let _ = writeln!(
            out,
            "{:?}: {} x {} x {}, {} slices, {:?}",
            matrix.role, matrix.copies, matrix.outputs, matrix.inputs, matrix.slices, matrix.results
        );
    }
    let _ = writeln!(out, "windows {:?}, {:?}", plan.windows, plan.activation);
    for op in plan.layers.iter().chain(&plan.head) {
        let _ = writeln!(out, "{}", line(plan, op));
    }
    out
}

/// An operation with the names of its weights instead of their numbers.
fn line(plan: &Plan, op: &Op) -> String {
    let mut line = format!("{op:?}");
    for (index, vector) in plan.vectors.iter().enumerate() {
        line = line.replace(&format!("VectorId({index})"), &format!("{:?}", vector.role));
    }
    for (index, matrix) in plan.matrices.iter().enumerate() {
        line = line.replace(&format!("MatrixId({index})"), &format!("{:?}", matrix.role));
    }
    line
}

#[test]
fn every_family_s_plan_is_as_recorded() {
    let families =
        ["llama", "mistral", "mixtral", "smollm3", "qwen2", "qwen3", "qwen3-moe", "phi3", "gemma2", "gemma3"];
    for case in fixtures::cases().iter().filter(|case| families.contains(&case.path.as_str())) {
        let spec = DecoderSpec::from_checkpoint(&case.checkpoint()).expect("a specification");
        insta::assert_snapshot!(case.path.clone(), text(&Plan::new(&spec)));
    }
}

#[test]
fn a_plan_reads_every_weight_that_it_uploads_and_no_other() {
    for case in fixtures::cases() {
        let spec = DecoderSpec::from_checkpoint(&case.checkpoint()).expect("a specification");
        let plan = Plan::new(&spec);
        let ops = format!("{:?} {:?}", plan.layers, plan.head);
        for index in 0..plan.matrices.len() {
            assert!(ops.contains(&format!("MatrixId({index})")), "{}: matrix {index}", case.path);
        }
        for index in 0..plan.vectors.len() {
            assert!(ops.contains(&format!("VectorId({index})")), "{}: vector {index}", case.path);
        }
    }
}
