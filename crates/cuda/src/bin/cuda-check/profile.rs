//! What a step's time consists of: each kind of operation replayed by itself, over the arrays of the step before.

use ropeway_cuda::driver::{Graph, Stream};
use ropeway_cuda::plan::{MatrixRole, Op, Plan};
use ropeway_cuda::shape::RowClass;
use ropeway_cuda::{CudaError, CudaExecutor};
use ropeway_executor::{Batch, BlockId, Executor, History, SamplingParams, StepOutput};

use crate::meter::{Load, Meter};
use crate::{Failed, Task, models};

/// Seconds for which a part is repeated before its clock is looked at, and again while it is.
const SETTLED: f64 = 0.25;

/// Keys of every row.
const KEYS: usize = 256;

/// Tokens of a prompt's step, and before it.
const PROMPT: usize = 8192;

pub fn measure(task: &Task) -> Result<(), Failed> {
    for model in models::wanted(task) {
        let mut executor = model.open(&task.options)?;
        for choice in executor.program().iter().flat_map(|program| program.products.choices()) {
            println!("   {} {choice}", model.name);
        }
        for rows in [1, 64, 256] {
            print(&mut executor, model.name, rows)?;
        }
        print_prompt(&mut executor, model.name, PROMPT)?;
    }
    Ok(())
}

/// Prints the parts of a step with so many tokens of a prompt, after as many.
fn print_prompt(executor: &mut CudaExecutor, name: &str, tokens: usize) -> Result<(), Failed> {
    let mut batch = Batch::default();
    let table: Vec<BlockId> = (0..2 * tokens as u32 / 32).map(BlockId).collect();
    let prompt: Vec<u32> = (0..tokens as u32).collect();
    batch.push_chunk(&prompt, tokens, &table);
    batch.sample_last(&SamplingParams::greedy(), History::default());
    parts(executor, &batch, &format!("{name} prompt of {tokens} after {tokens}"))
}

/// Prints the parts of a step of so many rows.
fn print(executor: &mut CudaExecutor, name: &str, rows: usize) -> Result<(), Failed> {
    let mut batch = Batch::default();
    let blocks = KEYS / 32;
    for row in 0..rows {
        let table: Vec<BlockId> = (0..blocks).map(|block| BlockId((row * blocks + block) as u32)).collect();
        batch.push_chunk(&[row as u32], KEYS - 1, &table);
        batch.sample_last(&SamplingParams::greedy(), History::default());
    }
    parts(executor, &batch, &format!("{name} step of {rows} x {KEYS} keys"))
}

fn parts(executor: &mut CudaExecutor, batch: &Batch, what: &str) -> Result<(), Failed> {
    let mut output = StepOutput::default();
    let mut whole = f64::INFINITY;
    for _ in 0..6 {
        let start = std::time::Instant::now();
        executor.execute(batch, &mut output)?;
        whole = whole.min(start.elapsed().as_secs_f64());
    }
    let Some(program) = executor.program() else { return Ok(()) };
    let filled = program.kind_of(batch)?;
    println!("RES {what}: launch to results {:.3} ms", whole * 1e3);
    let meter = Meter::open();
    let print = |part: &str, queue: &dyn Fn() -> Result<(), CudaError>| -> Result<(), Failed> {
        let graph = program.stream.capture(queue)?;
        println!("RES {what}: {part:9} {}", replay(&program.stream, &graph, meter.as_ref())?);
        Ok(())
    };
    print("layers", &|| program.layers(filled))?;
    print("head", &|| program.head(RowClass::of(batch.rows.len())))?;
    for (part, is_part) in PARTS {
        let chosen = |op: &Op| is_part(op, &program.plan);
        if program.plan.layers.iter().any(chosen) {
            print(part, &|| program.layers_where(filled, chosen))?;
        }
    }
    Ok(())
}

/// Kinds of operations.
type IsPart = fn(&Op, &Plan) -> bool;
const PARTS: [(&str, IsPart); 12] = [
    ("norms", |op, _| matches!(op, Op::Residual { .. })),
    ("qkv", |op, plan| multiplies(op, plan, |role| matches!(role, MatrixRole::Qkv(_)))),
    ("prepare_qkv", |op, _| matches!(op, Op::PrepareQkv { .. })),
    ("attend", |op, _| matches!(op, Op::Attend { .. })),
    ("output", |op, plan| multiplies(op, plan, |role| matches!(role, MatrixRole::Output(_)))),
    ("gate_up", |op, plan| multiplies(op, plan, |role| matches!(role, MatrixRole::GateUp(_)))),
    ("gate", |op, _| matches!(op, Op::Gate { .. })),
    ("down", |op, plan| multiplies(op, plan, |role| matches!(role, MatrixRole::Down(_)))),
    ("router", |op, _| matches!(op, Op::RouteExperts { .. })),
    ("experts' gate_up", |op, plan| multiplies(op, plan, |role| matches!(role, MatrixRole::ExpertGateUp(_)))),
    ("experts' down", |op, plan| multiplies(op, plan, |role| matches!(role, MatrixRole::ExpertDown(_)))),
    ("combining", |op, _| matches!(op, Op::Combine { .. })),
];

fn multiplies(op: &Op, plan: &Plan, is_meant: fn(MatrixRole) -> bool) -> bool {
    matches!(op, Op::Linear { matrix, .. } if is_meant(plan.matrix(*matrix).role))
}

/// What a graph takes in the fastest of its first launches, and when it is repeated until the GPU has settled at what its power allows.
fn replay(stream: &Stream, graph: &Graph, meter: Option<&Meter>) -> Result<String, Failed> {
    let rested = (0..5)
        .map(|_| repeat(stream, graph, 1))
        .try_fold(f64::INFINITY, |best, seconds| Ok::<_, Failed>(best.min(seconds?)))?;
    let Some(meter) = meter else { return Ok(format!("{:.3} ms", rested * 1e3)) };
    let times = (SETTLED / rested).ceil() as usize;
    repeat(stream, graph, times)?;
    let (busy, load) = meter.during(|| repeat(stream, graph, times));
    let at = load.map(|Load { megahertz, watts }| format!(" at {megahertz:.0} MHz, {watts:.0} W"));
    Ok(format!("{:.3} ms, repeated {:.3} ms{}", rested * 1e3, busy? * 1e3, at.unwrap_or_default()))
}

/// Seconds of one of so many replays.
fn repeat(stream: &Stream, graph: &Graph, times: usize) -> Result<f64, Failed> {
    let cuda = CudaError::from;
    let (before, after) = (stream.device().event().map_err(cuda)?, stream.device().event().map_err(cuda)?);
    stream.record(&before).map_err(cuda)?;
    for _ in 0..times {
        stream.launch_graph(graph).map_err(cuda)?;
    }
    stream.record(&after).map_err(cuda)?;
    after.synchronize().map_err(cuda)?;
    Ok(after.seconds_since(&before).map_err(cuda)? / times.max(1) as f64)
}
