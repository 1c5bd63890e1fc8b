//! What a decode step's time consists of: each kind of operation replayed by itself, over the arrays of the step before.

use ropeway_cuda::CudaExecutor;
use ropeway_cuda::plan::{MatrixRole, Op};
use ropeway_cuda::program::Program;
use ropeway_cuda::sections::{Decodes, Filled};
use ropeway_cuda::shape::RowClass;
use ropeway_executor::{Batch, BlockId, Executor, History, SamplingParams, StepOutput};

use crate::Failed;

/// Keys of every row.
const KEYS: usize = 256;

/// Prints the parts of a step with so many tokens of a prompt, after as many.
pub fn print_prompt(executor: &mut CudaExecutor, name: &str, tokens: usize) -> Result<(), Failed> {
    let mut batch = Batch::default();
    let table: Vec<BlockId> = (0..2 * tokens as u32 / 32).map(BlockId).collect();
    let prompt: Vec<u32> = (0..tokens as u32).collect();
    batch.push_chunk(&prompt, tokens, &table);
    batch.sample_last(&SamplingParams::greedy(), History::default());
    let filled = Filled { class: RowClass::of(tokens), prompts: true, decodes: Decodes::None };
    parts(executor, &batch, filled, &format!("{name} prompt of {tokens} after {tokens}"))
}

/// Prints the parts of a step of so many rows.
pub fn print(executor: &mut CudaExecutor, name: &str, rows: usize) -> Result<(), Failed> {
    let mut batch = Batch::default();
    let blocks = KEYS / 32;
    for row in 0..rows {
        let table: Vec<BlockId> = (0..blocks).map(|block| BlockId((row * blocks + block) as u32)).collect();
        batch.push_chunk(&[row as u32], KEYS - 1, &table);
        batch.sample_last(&SamplingParams::greedy(), History::default());
    }
    let class = RowClass::of(rows);
    let few = executor.program().is_some_and(|program| class.rows() <= program.step.few_rows);
    let decodes = if few { Decodes::Few } else { Decodes::Short(KEYS / 128) };
    let filled = Filled { class, prompts: false, decodes };
    parts(executor, &batch, filled, &format!("{name} step of {rows} x {KEYS} keys"))
}

fn parts(executor: &mut CudaExecutor, batch: &Batch, filled: Filled, what: &str) -> Result<(), Failed> {
    let mut output = StepOutput::default();
    let mut whole = f64::INFINITY;
    for _ in 0..6 {
        let start = std::time::Instant::now();
        executor.execute(batch, &mut output)?;
        whole = whole.min(start.elapsed().as_secs_f64());
    }
    let Some(program) = executor.program() else { return Ok(()) };
    let part = |chosen: &dyn Fn(&Op) -> bool| time(program, || program.layers_where(filled, chosen));
    let matrix = |op: &Op, want: fn(MatrixRole) -> bool| matches!(op, Op::Linear { matrix, .. } if want(program.plan.matrix(*matrix).role));
    let layers = part(&|_| true)?;
    let head = time(program, || program.head(RowClass::of(batch.rows.len())))?;
    println!(
        "RES {what}: launch to results {:.3} ms; layers {:.3}, head {:.3}: \
         norms {:.3}, qkv {:.3}, route {:.3}, attend {:.3}, output {:.3}, gate_up {:.3}, gate {:.3}, down {:.3}",
        whole * 1e3,
        layers * 1e3,
        head * 1e3,
        part(&|op| matches!(op, Op::Residual { .. }))? * 1e3,
        part(&|op| matrix(op, |role| matches!(role, MatrixRole::Qkv(_))))? * 1e3,
        part(&|op| matches!(op, Op::Route { .. }))? * 1e3,
        part(&|op| matches!(op, Op::Attend { .. }))? * 1e3,
        part(&|op| matrix(op, |role| matches!(role, MatrixRole::Output(_))))? * 1e3,
        part(&|op| matrix(op, |role| matches!(role, MatrixRole::GateUp(_))))? * 1e3,
        part(&|op| matches!(op, Op::Gate { .. }))? * 1e3,
        part(&|op| matrix(op, |role| matches!(role, MatrixRole::Down(_))))? * 1e3,
    );
    if program.plan.most_experts() > 0 {
        println!(
            "RES {what}: choosing experts {:.3} ms, their gate_up {:.3}, down {:.3}, combining {:.3}",
            part(&|op| matches!(op, Op::Choose { .. }))? * 1e3,
            part(&|op| matrix(op, |role| matches!(role, MatrixRole::ExpertGateUp(_))))? * 1e3,
            part(&|op| matrix(op, |role| matches!(role, MatrixRole::ExpertDown(_))))? * 1e3,
            part(&|op| matches!(op, Op::Combine { .. }))? * 1e3,
        );
    }
    Ok(())
}

/// Seconds of one replay.
fn time(
    program: &Program,
    queue: impl FnOnce() -> Result<(), ropeway_cuda::CudaError>,
) -> Result<f64, Failed> {
    let cuda = ropeway_cuda::CudaError::from;
    let stream = &program.stream;
    let graph = stream.capture(queue)?;
    let (before, after) = (stream.device().event().map_err(cuda)?, stream.device().event().map_err(cuda)?);
    let mut best = f64::INFINITY;
    for _ in 0..5 {
        stream.record(&before).map_err(cuda)?;
        stream.launch_graph(&graph).map_err(cuda)?;
        stream.record(&after).map_err(cuda)?;
        after.synchronize().map_err(cuda)?;
        best = best.min(after.seconds_since(&before).map_err(cuda)?);
    }
    Ok(best)
}
