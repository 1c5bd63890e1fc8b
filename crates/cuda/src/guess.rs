//! What a step will cost on this GPU, guessed from the model's size; the engine measures the rest.

use ropeway_executor::CostGuess;

use crate::kernels::BLOCK;
use crate::plan::MatrixPlan;
use crate::program::Program;

/// Bytes of memory that a multiprocessor reads per second, and products that it computes: about two thirds of an H200's 132.
const READ: f64 = 25e9;
const MULTIPLY: f64 = 2.5e12;

/// The same for attention, whose products are smaller.
const ATTEND: f64 = 1.0e12;

/// Seconds of a step that do not depend on its size: launches and their gaps, per layer.
const LAYER: f64 = 20e-6;

/// The guess for a loaded model.
pub(crate) fn cost(program: &Program) -> CostGuess {
    let model = &program.model;
    let parts = f64::from(program.stream.device().properties().multiprocessors);
    let bytes = program.plan.weight_bytes() as f64;
    let values = program.plan.matrices.iter().map(MatrixPlan::values).sum::<usize>() as f64;
    let head = (model.vocab * model.hidden) as f64;
    let picoseconds = |seconds: f64| (seconds.max(0.0) * 1e12) as u64;
    let width = (model.layers * model.head_dim) as f64;
    CostGuess {
        step: picoseconds(bytes / (READ * parts) + LAYER * model.layers as f64),
        token: picoseconds((values - head) / (MULTIPLY * parts)),
        row: picoseconds(head / (MULTIPLY * parts)),
        pair: picoseconds(2.0 * width * model.heads as f64 / (ATTEND * parts)),
        read: picoseconds((model.block_bytes() / BLOCK) as f64 / (READ * parts)),
    }
}
