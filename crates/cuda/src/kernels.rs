//! The kernels: their sources, compiled and loaded, and the arguments they take, field for field as in `kernels/*.cu`.

#![allow(unsafe_code, reason = "the layouts are promised to the driver")]

use crate::compile::{Compiler, Source};
use crate::driver::{Address, Device, Function, Module};
use crate::error::CudaError;
use crate::packed::{PackedForm, PackedKernels, packed_source};
use crate::plan::Form;

/// A token that the step before chooses: the bit says so, the rest is that step's row.
pub const FED: u32 = 1 << 31;
/// No token, no list, no place.
pub const NONE: u32 = u32::MAX;
/// Tokens of a KV block.
pub const BLOCK: usize = 32;
/// Keys of a segment of attention.
pub const SEGMENT: usize = 128;
/// Blocks of a segment.
pub const TILES: usize = SEGMENT / BLOCK;
/// Tokens that a block of the prompt kernel attends for.
pub const PROMPT_ROWS: usize = 128;
/// Logits that sampling looks at together.
pub const STRETCH: usize = 1024;
/// Stretches of one block of the survey.
pub const SURVEY_STRETCHES: usize = 8;
/// Most alternatives that a row can report.
pub const MOST_ALTERNATIVES: usize = 128;
/// Heads of one block of `route`.
pub const ROUTE_HEADS: usize = 8;

/// Declares arguments of kernels.
macro_rules! arguments {
    ($($(#[$doc:meta])* $name:ident { $($field:ident: $type:ty,)* })*) => {
        $($(#[$doc])*
        #[derive(Clone, Copy, Debug)]
        #[repr(C)]
        #[allow(missing_docs, reason = "documented beside the kernel")]
        pub struct $name { $(pub $field: $type,)* }
        // SAFETY: `repr(C)`, plain data; `tests` compares its size with the kernel's.
        unsafe impl $crate::driver::Arguments for $name {})*
    };
}

pub(crate) use arguments;

arguments! {
    /// `rows.cu`.
    Embed { tokens: Address, chosen: Address, table: Address, hidden: Address, width: u32, vocab: u32, scale: f32, }
    /// `rows.cu`.
    Residual {
        hidden: Address, branch: Address, bias: Address, post: Address, weight: Address, out: Address, picked: Address,
        width: u32, eps: f32, keep: u32,
    }
    /// `rows.cu`.
    Gate { gate_up: Address, bias: Address, out: Address, width: u32, kind: u32, }
    /// `rows.cu`.
    CopyBlocks { kv: Address, pairs: Address, layer_bytes: u64, block_bytes: u32, }
    /// `linear.cu`.
    Randomise { values: Address, count: u64, seed: u32, amount: f32, }
    /// `product.cuh`.
    Linear {
        w: Address, units: Address, x: Address, y: Address, partial: Address, finished: Address, lists: Address, counts: Address,
        n: u32, rows: u32, k: u32, slices: u32, input_share: u32, narrowed: u32,
    }
    /// `route.cu`.
    Route {
        projections: Address, bias: Address, query_norm: Address, key_norm: Address, angles: Address, positions: Address,
        slots: Address, queries: Address, kv: Address,
        heads: u32, kv_heads: u32, head_dim: u32, pairs: u32, interleaved: u32, whole: u32, eps: f32,
    }
    /// `attend.cu`.
    Attend {
        queries: Address, kv: Address, out: Address, tables: Address, counts: Address, items: Address,
        prompts: Address, values: Address, scales: Address, finished: Address,
        heads: u32, kv_heads: u32, window: u32, scale: f32, cap: f32,
    }
    /// `experts.cu`.
    Router {
        hidden: Address, norm: Address, w: Address, experts_of: Address, weights: Address,
        width: u32, experts: u32, top_k: u32, eps: f32, normalise: u32,
    }
    /// `experts.cu`.
    Lists { experts_of: Address, lists: Address, counts: Address, pairs: u32, }
    /// `experts.cu`.
    Combine { results: Address, weights: Address, branch: Address, width: u32, top_k: u32, }
    /// `sample.cu`.
    Sample {
        logits: Address, changed: Address, rows: Address, words: Address, picks: Address, marks: Address, peaks: Address,
        changed_peaks: Address, chosen_before: Address, chosen: Address, outcomes: Address, alternatives: Address,
        vocab: u32, stretches: u32, adjusted: u32, cap: f32,
    }
}

const PRELUDE: &str = include_str!("../kernels/prelude.cuh");

fn source(name: &'static str, text: &str, defines: Vec<String>) -> Source {
    Source { name, text: format!("{PRELUDE}\n{text}"), defines }
}

/// A source of products.
pub(crate) fn product_source(name: &'static str, text: &str, defines: Vec<String>) -> Source {
    source(name, &format!("{}\n{text}", include_str!("../kernels/product.cuh")), defines)
}

/// What kernels are compiled for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Constants {
    /// Values of a head.
    pub head_dim: usize,
    /// Values of the residual stream.
    pub hidden: usize,
    /// Whether attention's scores are capped.
    pub capped: bool,
}

impl Constants {
    /// Threads that share a row of the residual stream, four values each where they are enough.
    pub fn row_threads(&self) -> usize {
        (self.hidden / 4).next_multiple_of(32).clamp(32, 1024)
    }
}

/// All sources of a model.
pub fn sources(constants: Constants) -> Vec<Source> {
    let (threads, capped) = (constants.row_threads(), u32::from(constants.capped));
    let groups = constants.hidden.div_ceil(4 * threads);
    let rows = vec![format!("ROW_THREADS={threads}"), format!("GROUPS={groups}")];
    let attend = |part: &str| {
        let defines = vec![
            format!("HEAD_DIM={}", constants.head_dim),
            format!("CAPPED={capped}"),
            format!("KERNELS={part}"),
        ];
        source("attend", include_str!("../kernels/attend.cu"), defines)
    };
    vec![
        source("rows", include_str!("../kernels/rows.cu"), rows),
        product_source("linear", include_str!("../kernels/linear.cu"), Vec::new()),
        source("route", include_str!("../kernels/route.cu"), Vec::new()),
        attend("DECODE"),
        attend("SHORT"),
        attend("PROMPT"),
        source("experts", include_str!("../kernels/experts.cu"), Vec::new()),
        source("sample", include_str!("../kernels/sample.cu"), Vec::new()),
    ]
}

/// Shared memory and threads of the attention kernels for a head dimension; the constants of `attend.cu`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AttendShape {
    /// Threads of a block of the decode kernel.
    pub decode_threads: u32,
    /// Its shared memory.
    pub decode_shared: usize,
    /// Shared memory of the kernel for few rows.
    pub few_shared: usize,
    /// Shared memory of the kernels for rows of one to four segments, per segment.
    pub short_shared: usize,
    /// Threads of a block of the prompt kernel.
    pub prompt_threads: u32,
    /// Its shared memory.
    pub prompt_shared: usize,
}

impl AttendShape {
    /// For heads of so many values.
    pub fn new(head_dim: usize) -> Self {
        let half = BLOCK * (head_dim * 2 + 16);
        let (warps, stages) = if head_dim <= 128 { (4, 2) } else { (2, 1) };
        Self {
            decode_threads: warps * 32,
            decode_shared: warps as usize * 6 * half,
            few_shared: 4 * 6 * half,
            short_shared: 4 * half,
            prompt_threads: 256,
            prompt_shared: 2 * stages * TILES * half,
        }
    }
}

/// One form of the own product: rows that a block computes.
#[derive(Debug)]
pub struct LinearKernel {
    /// Results in f32.
    pub f32: Function,
    /// Results in bf16.
    pub bf16: Function,
    /// Outputs of a block.
    pub outputs: usize,
    /// Rows of a block.
    pub rows: usize,
    /// Its shared memory.
    pub shared: usize,
}

/// The kernels of products.
#[derive(Debug)]
pub struct ProductKernels {
    /// By ascending rows of a block.
    pub linear: [LinearKernel; 3],
    /// Random weights and inputs.
    pub randomise: Function,
    /// Those of each packed form that the model has.
    pub packed: Vec<PackedKernels>,
}

impl ProductKernels {
    fn load(module: &Module, packed: Vec<PackedKernels>) -> Result<Self, CudaError> {
        Ok(Self {
            linear: [
                LinearKernel::load(module, ["linear_8_f32", "linear_8_bf16"], [64, 8, 6])?,
                LinearKernel::load(module, ["linear_32_f32", "linear_32_bf16"], [64, 32, 6])?,
                LinearKernel::load(module, ["linear_128_f32", "linear_128_bf16"], [128, 128, 4])?,
            ],
            randomise: module.function("randomise", 0)?,
            packed,
        })
    }

    /// Those of a packed form.
    pub fn packed(&self, form: PackedForm) -> &PackedKernels {
        let found = self.packed.iter().find(|kernels| kernels.form == form);
        found.expect("kernels are compiled for every form of the plan")
    }

    /// The own products of a form, by ascending rows of a block.
    pub fn tiles(&self, form: Form) -> &[LinearKernel] {
        match form {
            Form::Bf16 => &self.linear,
            Form::Packed(form) => &self.packed(form).linear,
        }
    }
}

/// Every kernel, loaded.
#[derive(Debug)]
#[allow(missing_docs, reason = "named as in the sources")]
pub struct Kernels {
    pub embed: Function,
    pub residual: Function,
    /// Threads of `residual`.
    pub row_threads: u32,
    pub gate: Function,
    pub copy_blocks: Function,
    pub products: ProductKernels,
    pub route: Function,
    pub attend_decode: Function,
    /// For few rows of up to four segments; none where their keys and values don't fit into shared memory.
    pub attend_few: Option<Function>,
    /// For rows of up to one, two, three and four segments, as far as these fit into shared memory.
    pub attend_short: Vec<Function>,
    pub attend_prompt: Function,
    pub attend_shape: AttendShape,
    pub router: Function,
    pub lists: Function,
    pub combine: Function,
    pub survey: Function,
    pub adjust: Function,
    pub choose: Function,
}

/// Dynamic shared memory of the router at most: a row of 16,384 values and a logit for each expert.
const ROUTER_SHARED: usize = 72 << 10;

/// Kernels for rows of up to one, two, three and four segments.
const SHORT: [&str; 4] = ["attend_short_1", "attend_short_2", "attend_short_3", "attend_short_4"];

impl Kernels {
    /// Compiles what the cache does not have, and loads all: with products of these packed forms.
    pub fn load(
        device: &Device,
        compiler: &Compiler,
        constants: Constants,
        forms: &[PackedForm],
    ) -> Result<Self, CudaError> {
        let attend_shape = AttendShape::new(constants.head_dim);
        let fits = |bytes: usize| bytes <= device.properties().shared_bytes;
        if !fits(attend_shape.decode_shared.max(attend_shape.prompt_shared)) {
            let problem =
                "attention needs 227 KiB of shared memory per multiprocessor, as H100 and newer have";
            return Err(CudaError::Shape(problem.into()));
        }
        let mut sources = sources(constants);
        sources.extend(forms.iter().map(|form| packed_source(*form)));
        let modules = load_modules(device, compiler, &sources)?;
        let [rows, linear, route, attend, short, prompt, experts, sample, packed @ ..] = &modules[..] else {
            unreachable!("every source makes a module")
        };
        let packed = packed.iter().zip(forms).map(|(module, form)| PackedKernels::load(module, *form));
        Ok(Self {
            embed: rows.function("embed", 0)?,
            residual: rows.function("residual", 0)?,
            row_threads: constants.row_threads() as u32,
            gate: rows.function("gate", 0)?,
            copy_blocks: rows.function("copy_blocks", 0)?,
            products: ProductKernels::load(linear, packed.collect::<Result<_, _>>()?)?,
            route: route.function("route", 0)?,
            attend_decode: attend.function("attend_decode", attend_shape.decode_shared)?,
            attend_few: fits(attend_shape.few_shared)
                .then(|| attend.function("attend_few", attend_shape.few_shared))
                .transpose()?,
            attend_short: SHORT
                .into_iter()
                .zip(1..)
                .filter(|(_, segments)| fits(segments * attend_shape.short_shared))
                .map(|(name, segments)| short.function(name, segments * attend_shape.short_shared))
                .collect::<Result<_, _>>()?,
            attend_prompt: prompt.function("attend_prompt", attend_shape.prompt_shared)?,
            attend_shape,
            router: experts.function("router", ROUTER_SHARED)?,
            lists: experts.function("lists", 0)?,
            combine: experts.function("combine", 0)?,
            survey: sample.function("survey", 0)?,
            adjust: sample.function("adjust", 0)?,
            choose: sample.function("choose", 0)?,
        })
    }
}

/// Compiles all sources side by side, and loads them in order.
fn load_modules(device: &Device, compiler: &Compiler, sources: &[Source]) -> Result<Vec<Module>, CudaError> {
    let compiled: Vec<_> = std::thread::scope(|scope| {
        let threads: Vec<_> =
            sources.iter().map(|source| scope.spawn(|| compiler.compiled(source))).collect();
        threads.into_iter().map(|thread| thread.join().expect("a compiler does not panic")).collect()
    });
    compiled.into_iter().map(|compiled| Ok(device.module(&compiled?.image)?)).collect()
}

impl LinearKernel {
    fn load(
        module: &Module,
        [f32, bf16]: [&'static str; 2],
        [outputs, rows, stages]: [usize; 3],
    ) -> Result<Self, CudaError> {
        let shared = stages * (outputs + rows) * 128;
        let (f32, bf16) = (module.function(f32, shared)?, module.function(bf16, shared)?);
        Ok(Self { f32, bf16, outputs, rows, shared })
    }
}
