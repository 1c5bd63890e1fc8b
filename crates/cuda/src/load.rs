//! From a model's files to everything on the device: kernels compiled, memory planned, weights uploaded, products tuned.

use std::collections::HashMap;

use ropeway_model::DecoderSpec;
use ropeway_weights::Checkpoint;

use crate::attention::{DecodeForm, PromptForm};
use crate::blas::Blas;
use crate::compile::Compiler;
use crate::driver::{Device, Stream};
use crate::error::CudaError;
use crate::executor::{CudaOptions, KV_SHARE, REQUESTED_KV_SHARE};
use crate::kernels::{self, BLOCK, Kernels, Variants};
use crate::packed::{choose_forms, has_wgmma};
use crate::plan::{Op, Plan, RowsOf};
use crate::products::{Bench, ProductKey, ProductMemory, Products, Wanted};
use crate::program::{ModelConstants, Program};
use crate::shape::{ModelShape, RowClass, StepShape};
use crate::weights::{WeightSource, Weights};
use crate::workspace::Workspace;

/// Blocks of keys and values at most, unless more are asked for: eight million tokens. A tiny model would have room for a thousand times as many, and
/// the engine keeps a record of each.
const MOST_BLOCKS: usize = 1 << 18;

/// The first capability that kernels are written for.
const OLDEST: u32 = 80;

/// Where weights come from, kept for a restart.
#[derive(Clone)]
pub enum ModelSource {
    /// A model's files.
    Checkpoint(Checkpoint),
    /// Random numbers of a seed.
    Random(u32),
}

/// What computes on a GPU, besides kernels.
pub(crate) struct Tools {
    pub(crate) stream: Stream,
    pub(crate) compiler: Compiler,
    /// Absent where cuBLASLt is not installed.
    pub(crate) blas: Option<Blas>,
}

impl Tools {
    /// What NVIDIA brings for a device.
    pub(crate) fn new(device: &Device, options: &CudaOptions) -> Result<Self, CudaError> {
        let properties = device.properties();
        if properties.capability < OLDEST {
            return Err(CudaError::Shape(format!(
                "{} is older than capability 8.0 (Ampere), the first with bf16 matrix instructions",
                properties.name
            )));
        }
        let major = properties.driver_version / 1000;
        let compiler =
            Compiler::new(options.search.compiler(major)?, properties.capability, options.cache.clone())?;
        let blas = match options.search.products(major) {
            Ok(library) => Some(Blas::new(library)?),
            Err(missing) => {
                tracing::warn!("products are computed by the slower own kernel: {missing}");
                None
            }
        };
        Ok(Self { stream: device.stream()?, compiler, blas })
    }
}

/// Brings a model onto a GPU.
pub fn load(
    spec: &DecoderSpec,
    source: &ModelSource,
    options: &CudaOptions,
    progress: &mut dyn FnMut(usize, usize),
) -> Result<Program, CudaError> {
    let from = match source {
        ModelSource::Checkpoint(checkpoint) => WeightSource::Checkpoint(checkpoint),
        ModelSource::Random(seed) => WeightSource::Random(*seed),
    };
    let mut plan = Plan::new(spec);
    choose_forms(&mut plan, spec, &from, options.quantize)?;
    let model = ModelShape::new(spec, &plan, options.kv)?;
    let device = Device::open(&options.search, options.ordinal)?;
    let step = step_shape(&device, &model, options)?;
    // Whoever has too little memory learns it before anything takes its time.
    let blocks = Budget::new(&device, &plan, &model, &step)?.blocks(options.kv_tokens)?;
    let Tools { stream, compiler, blas } = Tools::new(&device, options)?;
    let prompts = PromptForm::fastest(device.properties(), spec.head_dim);
    let warpgroups = has_wgmma(device.properties());
    let experts = plan.max_top_k() > 0;
    let variants = Variants { forms: &plan.packed_forms(), warpgroups, experts, prompts };
    let kernels = Kernels::load(&device, &compiler, compiled_for(spec, &device, options), variants)?;
    let weights =
        Weights::upload(&stream, &kernels.products, spec, &plan, &from, options.quantize, progress)?;
    let buffer = device.allocate(Workspace::bytes(&model, &step))?;
    let workspace = Workspace::new(&model, &step, &buffer, &stream)?;
    let kv = device.allocate(blocks * model.block_bytes())?;
    let products = Products::new(blas, ProductMemory::of(&workspace, model.unpacked));
    let constants = ModelConstants::new(spec);
    let mut program = Program {
        stream,
        kernels,
        plan,
        constants,
        model,
        step,
        weights,
        workspace,
        _buffer: buffer,
        kv,
        blocks,
        products,
    };
    tune(&mut program, &device.properties().name, options)?;
    Ok(program)
}

/// The sizes of a model's steps on a device.
pub(crate) fn step_shape(
    device: &Device,
    model: &ModelShape,
    options: &CudaOptions,
) -> Result<StepShape, CudaError> {
    StepShape::new(model, device.properties(), options.step_tokens, options.step_rows)
}

/// The constants of a model's kernels.
fn compiled_for(spec: &DecoderSpec, device: &Device, options: &CudaOptions) -> kernels::KernelConstants {
    kernels::KernelConstants {
        shared_bytes: device.properties().shared_bytes,
        head_dim: spec.head_dim,
        hidden: spec.hidden,
        capped: spec.attention.softcap.is_some(),
        kv: options.kv,
        decode_form: match DecodeForm::possible(device.properties().capability, spec.head_dim, options.kv) {
            [.., last] if options.tma => *last,
            _ => DecodeForm::Threads,
        },
    }
}

/// How the device's memory is shared out.
pub(crate) struct Budget {
    /// Bytes that are free.
    pub(crate) free: usize,
    /// Bytes of weights.
    pub(crate) weights: usize,
    /// Bytes that a step needs.
    pub(crate) workspace: usize,
    /// Bytes of a block of keys and values.
    pub(crate) block: usize,
}

impl Budget {
    fn new(device: &Device, plan: &Plan, model: &ModelShape, step: &StepShape) -> Result<Self, CudaError> {
        Ok(Self {
            free: device.memory()?.free,
            weights: plan.weight_bytes(),
            workspace: Workspace::bytes(model, step),
            block: model.block_bytes(),
        })
    }

    /// Blocks of keys and values: as many as asked for, or most of what is left.
    pub(crate) fn blocks(&self, tokens: Option<usize>) -> Result<usize, CudaError> {
        let fixed = self.weights + self.workspace;
        let share = if tokens.is_some() { REQUESTED_KV_SHARE } else { KV_SHARE };
        let left = self.free.saturating_sub(fixed) as f64 * share;
        let fit = (left as usize / self.block).min(u32::MAX as usize / BLOCK - 1);
        let wanted = tokens.map_or(fit.min(MOST_BLOCKS), |tokens| tokens.div_ceil(BLOCK).max(1));
        if wanted <= fit && fit > 0 {
            return Ok(wanted);
        }
        Err(CudaError::Memory(format!(
            "the GPU has {} free; the model's weights need {}, a step {}, and {} of keys and values {}. {}",
            gigabytes(self.free),
            gigabytes(self.weights),
            gigabytes(self.workspace),
            if tokens.is_some() { "the asked-for tokens" } else { "a block" },
            gigabytes(wanted.max(1) * self.block),
            if fit > 0 {
                format!(
                    "{} tokens of keys and values would fit: `--kv-memory {}MiB`",
                    fit * BLOCK,
                    (fit * self.block) >> 20
                )
            } else {
                "Choose a smaller model, or run it on the CPU with `--device cpu`".to_owned()
            }
        )))
    }
}

/// Bytes for people.
pub(crate) fn gigabytes(bytes: usize) -> String {
    format!("{:.1} GB", bytes as f64 / 1e9)
}

/// Chooses how products are computed.
fn tune(program: &mut Program, device: &str, options: &CudaOptions) -> Result<(), CudaError> {
    let wanted = wanted(program);
    let bench = Bench {
        stream: &program.stream,
        kernels: &program.kernels.products,
        device,
        cache: options.cache.as_deref(),
    };
    program.products.tune(&bench, &wanted)
}

/// Every product of the plan in every class, with where its operands lie.
fn wanted(program: &Program) -> Vec<Wanted> {
    let mut wanted: Vec<Wanted> = Vec::new();
    let mut known: HashMap<ProductKey, usize> = HashMap::new();
    for op in program.plan.layers.iter().chain(&program.plan.head) {
        let Op::Linear { matrix, from, to, rows } = *op else { continue };
        let most = match rows {
            RowsOf::Tokens => program.step.tokens,
            RowsOf::Picked => program.step.rows,
            RowsOf::Pairs(_) => continue,
        };
        for class in RowClass::up_to(most) {
            let key = ProductKey::new(program.plan.matrix(matrix), class);
            let index = *known.entry(key).or_insert(wanted.len());
            if index == wanted.len() {
                let (input, output) = (program.workspace.slot(from), program.workspace.slot(to));
                wanted.push(Wanted { key, input, output, weights: Vec::new() });
            }
            wanted[index].weights.push(program.weights.matrix(matrix));
        }
    }
    wanted
}
