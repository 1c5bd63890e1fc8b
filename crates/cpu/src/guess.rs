//! What a step will cost on a core of today, guessed from the model's size; the engine measures the rest.

use ropeway_executor::CostGuess;
use ropeway_model::Decoder;

/// Bytes of weights that a step reads per second, on all cores together.
const READ: f64 = 20e9;

/// Multiplications per second and core: about a third of what eight-bit dot products reach at most.
const MULTIPLY: f64 = 100e9;

/// The same for attention, in 16-bit integers and with a softmax between its two products.
const ATTEND: f64 = 40e9;

/// Bytes of keys and values that a core takes in per second, for one token that attends to them.
const SCAN: f64 = 4e9;

/// The guess for a model on so many threads.
pub(crate) fn cost(decoder: &Decoder, threads: usize) -> CostGuess {
    let spec = &decoder.spec;
    let threads = threads.max(1) as f64;
    let head = (spec.vocab * spec.hidden) as f64;
    // Most weights are packed into half a byte; in wider ones the products take as much longer as the reading.
    let layers = 2.0 * decoder.weight_bytes() as f64 - head;
    let width = (spec.layers.len() * spec.head_dim) as f64;
    let picoseconds = |seconds: f64| (seconds.max(0.0) * 1e12) as u64;
    CostGuess {
        step: picoseconds(decoder.weight_bytes() as f64 / READ),
        token: picoseconds(layers / (MULTIPLY * threads)),
        row: picoseconds(head / (MULTIPLY * threads)),
        pair: picoseconds(2.0 * width * spec.heads as f64 / (ATTEND * threads)),
        read: picoseconds(4.0 * width * spec.kv_heads as f64 / (SCAN * threads)),
    }
}
