//! What a step will cost on this GPU, guessed from the model's size; the engine measures the rest.

use ropeway_executor::CostGuess;

use crate::kernels::BLOCK;
use crate::plan::MatrixPlan;
use crate::program::Program;

/// Per multiprocessor and second: bytes read from memory, and multiply-adds of matrix products. About two thirds of the peak of an H200, which has 132.
const SM_BYTES_PER_SECOND: f64 = 25e9;
const SM_PRODUCTS_PER_SECOND: f64 = 2.5e12;

/// The same for attention, whose products are smaller.
const SM_ATTENTION_PRODUCTS_PER_SECOND: f64 = 1.0e12;

/// Seconds of a step that do not depend on its size: launches and their gaps, per layer.
const SECONDS_PER_LAYER: f64 = 20e-6;

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
        step: picoseconds(bytes / (SM_BYTES_PER_SECOND * parts) + SECONDS_PER_LAYER * model.layers as f64),
        token: picoseconds((values - head) / (SM_PRODUCTS_PER_SECOND * parts)),
        row: picoseconds(head / (SM_PRODUCTS_PER_SECOND * parts)),
        pair: picoseconds(2.0 * width * model.heads as f64 / (SM_ATTENTION_PRODUCTS_PER_SECOND * parts)),
        read: picoseconds((model.block_bytes() / BLOCK) as f64 / (SM_BYTES_PER_SECOND * parts)),
    }
}
