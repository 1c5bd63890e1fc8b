//! Which form of decode attention each kind of step uses. When a model is loaded, all of its layers attend by every form in turn, about 0.1 s for
//! an 8B model; the fastest form is kept, of those that give the bits of the first.

use std::fmt;

use ropeway_executor::{Batch, BlockId};

use super::{DecodeForm, DecodeStrategy};
use crate::driver::{Address, Graph, LaunchShape};
use crate::error::CudaError;
use crate::kernels::{BLOCK, Randomise};
use crate::plan::Op;
use crate::program::Program;
use crate::sections::StepKind;
use crate::shape::RowClass;
use crate::timing;

/// Rows of the steps that are timed, and keys of the longest row: one of every kind, as a rule. What a model or its memory has no
/// room for is cut, and of two steps of a kind the first counts.
const STEPS: [(usize, usize); 3] = [(1, 256), (256, 256), (16, 4096)];

/// Rows have up to so many keys less, one by one: the last block that they see is full, has one token, and everything between.
const LENGTHS: usize = 61;

/// How often each form is timed, after a first time that takes longer.
const ROUNDS: usize = 7;

/// Chooses the forms of all kinds of steps. Overwrites keys, values and what a step works with.
pub(crate) fn choose(program: &mut Program) -> Result<(), CudaError> {
    if program.kernels.attend_decode.forms.len() < 2 {
        return Ok(());
    }
    for (rows, keys) in STEPS {
        let (rows, keys) = (rows.min(program.step.rows), keys.min(program.model.context));
        let filled = fill(program, rows, keys)?;
        let known = program.kernels.attend_decode.measured.iter().any(|one| one.decodes == filled.decodes);
        if !filled.prompts && !known {
            choose_for(program, filled, rows)?;
        }
    }
    Ok(())
}

/// Brings the arrays of a step of decoded rows to the device, with random queries, and random keys and values of the last layer.
fn fill(program: &Program, rows: usize, keys: usize) -> Result<StepKind, CudaError> {
    let Program { stream, model, workspace, blocks, .. } = program;
    let each = keys.div_ceil(BLOCK);
    let mut batch = Batch::default();
    for row in 0..rows {
        let table: Vec<BlockId> =
            (row * each..(row + 1) * each).map(|at| BlockId((at % blocks) as u32)).collect();
        batch.push_chunk(&[0], (keys - 1).saturating_sub((row + 6) % LENGTHS), &table);
    }
    let bytes = program.sections(RowClass::of(rows)).bytes();
    let mut arrays = stream.device().allocate_pinned(bytes)?;
    let filled = program.fill(&batch, arrays.words_mut(), &mut Vec::new())?;
    stream.upload(workspace.arrays, &arrays, 0, bytes)?;
    randomise(program, workspace.queries, rows * model.queries())?;
    let values = (rows * each).min(*blocks) * model.layer_block_bytes() / 2;
    randomise(program, program.layer_kv(model.layers - 1), values)?;
    stream.synchronize()?;
    Ok(filled)
}

/// Fills an array of bf16 values.
fn randomise(program: &Program, values: Address, count: usize) -> Result<(), CudaError> {
    let shape = LaunchShape { grid: [256, 1, 1], threads: 256, shared_bytes: 0 };
    let arguments = Randomise { values, count: count as u64, seed: 1, amount: 1.0 };
    Ok(program.stream.launch(&program.kernels.products.randomise, shape, &arguments)?)
}

/// Chooses the form for a kind of step.
fn choose_for(program: &mut Program, filled: StepKind, rows: usize) -> Result<(), CudaError> {
    let forms = program.kernels.attend_decode.forms.len();
    let graphs = (0..forms).map(|form| attention_by(program, filled, form)).collect::<Result<Vec<_>, _>>()?;
    let results = graphs.iter().map(|graph| results(program, graph, rows)).collect::<Result<Vec<_>, _>>()?;
    let seconds = timing::in_turn(&program.stream, graphs.iter(), ROUNDS)?;
    let decodes = &mut program.kernels.attend_decode;
    let measured: Vec<Measured> = decodes
        .forms
        .iter()
        .zip(results.iter().zip(&seconds))
        .map(|(kernels, (bits, seconds))| Measured {
            decodes: filled.decodes,
            form: kernels.form,
            right: *bits == results[0],
            seconds: timing::median(seconds),
        })
        .collect();
    decodes.chosen[filled.decodes as usize] = best(&measured);
    for wrong in measured.iter().filter(|measured| !measured.right) {
        tracing::warn!("decode attention that gives other bits is left out: {wrong}");
    }
    decodes.measured.extend(measured);
    Ok(())
}

/// All layers' attention by a form.
fn attention_by(program: &mut Program, filled: StepKind, form: usize) -> Result<Graph, CudaError> {
    program.kernels.attend_decode.chosen[filled.decodes as usize] = form;
    let program = &*program;
    program.stream.capture(|| program.layers_where(filled, |op| matches!(op, Op::Attend { .. })))
}

/// What the last layer's rows become: other layers differ in their windows, which `cuda-check attention` compares.
fn results(program: &Program, graph: &Graph, rows: usize) -> Result<Vec<u8>, CudaError> {
    let Program { stream, model, workspace, .. } = program;
    let bytes = rows * model.queries() * 2;
    let mut results = stream.device().allocate_pinned(bytes)?;
    // What is not written is not taken for right.
    stream.memset(workspace.attended, 0xff, bytes)?;
    stream.launch_graph(graph)?;
    stream.download(&mut results, workspace.attended, bytes)?;
    stream.synchronize()?;
    Ok(results.bytes().to_vec())
}

/// What was found of a form for a kind of step.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Measured {
    /// The kind.
    pub decodes: DecodeStrategy,
    /// The form.
    pub form: DecodeForm,
    /// Whether it gives the bits of the first form.
    pub right: bool,
    /// What all layers' attention takes.
    pub seconds: f64,
}

impl fmt::Display for Measured {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} by {:?} {:.0} us", self.decodes, self.form, self.seconds * 1e6)?;
        if self.right { Ok(()) } else { f.write_str(", with other bits") }
    }
}

/// The fastest of the right ones; the first one always is.
fn best(measured: &[Measured]) -> usize {
    let right = measured.iter().enumerate().filter(|(_, measured)| measured.right);
    right.min_by(|(_, one), (_, other)| one.seconds.total_cmp(&other.seconds)).map_or(0, |(index, _)| index)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn best_of(measured: &[(bool, f64)]) -> usize {
        let measured = measured.iter().map(|&(right, seconds)| Measured {
            decodes: DecodeStrategy::Rows,
            form: DecodeForm::Threads,
            right,
            seconds,
        });
        best(&measured.collect::<Vec<_>>())
    }

    #[test]
    fn the_fastest_form_is_chosen_unless_its_bits_are_others() {
        assert_eq!(best_of(&[(true, 2.0), (true, 1.0)]), 1);
        assert_eq!(best_of(&[(true, 2.0), (false, 1.0)]), 0);
        assert_eq!(best_of(&[(true, 1.0), (true, 2.0)]), 0);
    }
}
