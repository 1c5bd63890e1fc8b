//! The kernels: their sources, compiled and loaded, and the arguments they take, field for field as in `kernels/*.cu`.
//!
//! `attention`: how attention fits into shared memory; `experts`: how their work is shared out; `products`: those of matrix products;
//! `prepare_qkv`: how heads are shared out.

#![allow(unsafe_code, reason = "the layouts are promised to the driver")]

mod attention;
mod experts;
mod prepare_qkv;
mod products;

use ropeway_model::spec::Activation;
use sha2::{Digest, Sha256};

pub use self::attention::AttendShape;
pub(crate) use self::attention::FEW_WARPS;
pub use self::experts::{ExpertKernels, ExpertTiles, RouterKernel};
pub use self::prepare_qkv::{PrepareQkvKernel, PrepareQkvShape};
pub(crate) use self::products::linear_source;
pub use self::products::{LinearKernel, ProductKernels, linear_warpgroups_source};

use crate::attention::{DecodeForm, DecodeKernels, PromptForm, PromptKernel};
use crate::compile::{Compiler, KernelSource};
use crate::driver::{Address, Device, Function, Module, TensorMap};
use crate::error::CudaError;
use crate::kv::KvForm;
use crate::packed::{PackedForm, PackedKernels, packed_source, warpgroups_source};

/// A token that the step before chooses: the bit says so, the rest is that step's row.
pub const SAMPLED_LAST_STEP: u32 = 1 << 31;
/// No token, no list, no place.
pub const NO_INDEX: u32 = u32::MAX;
/// Tokens of a KV block.
pub const BLOCK: usize = 32;
/// Keys of a segment of attention.
pub const SEGMENT: usize = 128;
/// Blocks of a segment.
pub const SEGMENT_BLOCKS: usize = SEGMENT / BLOCK;
/// Tokens that a block of the prompt kernel attends for.
pub const PROMPT_ROWS: usize = 128;
/// Logits that sampling looks at together.
pub const STRETCH: usize = 1024;
/// Stretches of one block of `partial_argmax`.
pub const ARGMAX_STRETCHES: usize = 8;
/// Most alternatives that a row can report.
pub const MOST_ALTERNATIVES: usize = 128;
/// Heads of one block of `prepare_qkv_any`.
pub const PREPARE_QKV_HEADS: usize = 8;

/// Declares arguments of kernels.
macro_rules! arguments {
    ($($(#[$doc:meta])* $name:ident { $($field:ident: $type:ty,)* })*) => {
        $($(#[$doc])*
        #[derive(Clone, Copy, Debug)]
        #[repr(C)]
        #[allow(missing_docs, reason = "documented beside the kernel")]
        pub struct $name { $(pub $field: $type,)* }
        // SAFETY: `repr(C)`, plain data; debug builds compare its size with the kernel's parameter at every launch (`Stream::launch`).
        unsafe impl $crate::driver::Arguments for $name {})*
    };
}

pub(crate) use arguments;

arguments! {
    /// `rows.cu`.
    Embed { tokens: Address, chosen: Address, table: Address, hidden: Address, width: u32, vocab: u32, scale: f32, }
    /// `rows.cu`.
    Residual {
        hidden: Address, branch: Address, bias: Address, post: Address, weight: Address, out: Address,
        width: u32, slices: u32, fours: u32, eps: f32,
    }
    /// `rows.cu`.
    Pick {
        picked: Address, hidden: Address, attended: Address, picked_hidden: Address, picked_attended: Address,
        width: u32, queries: u32,
    }
    /// `rows.cu`.
    Gate { gate_up: Address, bias: Address, out: Address, width: u32, kind: u32, }
    /// `rows.cu`.
    CopyBlocks { kv: Address, pairs: Address, layer_bytes: u64, block_bytes: u32, }
    /// `rows.cu`.
    MoveBlock { kv: Address, packed: Address, layer_bytes: u64, block_bytes: u32, block: u32, into_pool: u32, }
    /// `linear.cu`.
    Randomise { values: Address, count: u64, seed: u32, amount: f32, }
    /// `product.cuh`.
    Linear {
        w: Address, strip_scales: Address, x: Address, y: Address, partial: Address, finished: Address, lists: Address, work: Address,
        n: u32, rows: u32, k: u32, slices: u32, rows_per_input: u32, bf16_results: u32,
    }
    /// `prepare_qkv.cu`.
    PrepareQkv {
        projections: Address, bias: Address, query_norm: Address, key_norm: Address, cos_sin: Address, positions: Address,
        slots: Address, queries: Address, kv: Address,
        heads: u32, kv_heads: u32, head_dim: u32, pairs: u32, interleaved: u32, whole: u32, eps: f32,
    }
    /// `attend.cuh`.
    Attend {
        queries: Address, kv: Address, out: Address, tables: Address, counts: Address, items: Address,
        prompts: Address, partial_values: Address, partial_stats: Address,
        heads: u32, kv_heads: u32, window: u32, scale: f32, cap: f32,
    }
    /// `attend_hopper.cu`, `attend_decode.cuh`.
    MappedAttend { attend: Attend, kv: TensorMap, }
    /// `experts.cu`.
    Router {
        hidden: Address, norm: Address, w: Address, logits: Address, counts: Address,
        width: u32, rows: u32, experts: u32, eps: f32,
    }
    /// `experts.cu`.
    TopkExperts {
        logits: Address, experts_of: Address, weights: Address, counts: Address, lists: Address, work: Address,
        rows: u32, experts: u32, top_k: u32, normalise: u32,
    }
    /// `experts.cu`.
    SortByExpert {
        experts_of: Address, counts: Address, lists: Address, work: Address,
        pairs: u32, experts: u32, tile: u32, items: u32,
    }
    /// `experts.cu`.
    Combine { results: Address, weights: Address, branch: Address, width: u32, top_k: u32, }
    /// `sample.cu`.
    Sample {
        logits: Address, adjusted_logits: Address, rows: Address, words: Address, adjusted_rows: Address, marks: Address, peaks: Address,
        adjusted_peaks: Address, chosen_before: Address, chosen: Address, outcomes: Address, alternatives: Address,
        vocab: u32, stretches: u32, adjusted: u32, cap: f32,
    }
}

const PRELUDE: &str = include_str!("../../kernels/prelude.cuh");

pub(crate) fn source(name: &'static str, text: &str, defines: Vec<String>) -> KernelSource {
    KernelSource { name, text: format!("{PRELUDE}\n{text}"), defines }
}

/// A source of products.
pub(crate) fn product_source(name: &'static str, text: &str, defines: Vec<String>) -> KernelSource {
    source(name, &format!("{}\n{text}", include_str!("../../kernels/product.cuh")), defines)
}

/// A source that uses the non-linearities of MLPs.
pub(crate) fn with_activation(text: &str) -> String {
    format!("{}\n{text}", include_str!("../../kernels/activation.cuh"))
}

/// What `activation.cuh` calls a non-linearity.
pub(crate) fn activation_kind(activation: Activation) -> u32 {
    match activation {
        Activation::Silu => 0,
        Activation::GeluTanh => 1,
        Activation::Gelu => 2,
    }
}

/// What kernels are compiled for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct KernelConstants {
    /// Values of a head.
    pub head_dim: usize,
    /// Values of the residual stream.
    pub hidden: usize,
    /// Whether attention's scores are capped.
    pub capped: bool,
    /// Bytes of shared memory that a block may have.
    pub shared_bytes: usize,
    /// The form of keys and values.
    pub kv: KvForm,
    /// Who brings those of decoded rows.
    pub decode_form: DecodeForm,
}

impl KernelConstants {
    /// How attention fits into shared memory.
    pub fn attend_shape(&self) -> Result<AttendShape, CudaError> {
        AttendShape::new(self.head_dim, self.kv, self.decode_form, self.shared_bytes)
    }

    /// Threads that share a row of the residual stream, four values each where they are enough.
    pub fn row_threads(&self) -> usize {
        row_threads(self.hidden)
    }
}

/// Threads that share a row of so many values.
pub(crate) fn row_threads(width: usize) -> usize {
    (width / 4).next_multiple_of(32).clamp(32, 1024)
}

/// A source that reads or writes keys and values.
fn kv_source(name: &'static str, text: &str, constants: KernelConstants) -> KernelSource {
    let defines = vec![format!("HEAD_DIM={}", constants.head_dim), constants.kv.define()];
    source(name, &format!("{}\n{text}", include_str!("../../kernels/kv.cuh")), defines)
}

/// Some of the attention kernels: these texts after what all of them share.
pub(crate) fn attend(constants: KernelConstants, shape: &AttendShape, texts: &[&str]) -> KernelSource {
    let text = [&[include_str!("../../kernels/attend.cuh")], texts].concat().join("\n");
    let mut source = kv_source("attend", &text, constants);
    source.defines.extend([
        format!("CAPPED={}", u32::from(constants.capped)),
        format!("DECODE_WARPS={}", shape.decode_warps),
        format!("DECODE_RING={}", shape.decode_ring),
        format!("PROMPT_STAGES={}", shape.prompt_stages),
    ]);
    source
}

/// All sources of a model.
pub fn sources(constants: KernelConstants, prompts: PromptForm) -> Result<Vec<KernelSource>, CudaError> {
    let shape = constants.attend_shape()?;
    let threads = constants.row_threads();
    let groups = constants.hidden.div_ceil(4 * threads);
    let rows = vec![format!("ROW_THREADS={threads}"), format!("GROUPS={groups}")];
    let [decode, whole_rows] = DecodeKernels::sources(constants)?;
    Ok(vec![
        source("rows", &with_activation(include_str!("../../kernels/rows.cu")), rows),
        linear_source(constants.shared_bytes),
        kv_source("prepare_qkv", include_str!("../../kernels/prepare_qkv.cu"), constants),
        decode,
        whole_rows,
        prompts.source(constants, &shape),
        source("experts", include_str!("../../kernels/experts.cu"), Vec::new()),
        source("sample", include_str!("../../kernels/sample.cu"), Vec::new()),
    ])
}

/// Every kernel, loaded.
#[derive(Debug)]
#[allow(missing_docs, reason = "named as in the sources")]
pub struct Kernels {
    /// Of their machine code.
    pub digest: [u8; 32],
    pub embed: Function,
    pub residual: Function,
    pub pick: Function,
    /// Threads of `residual`.
    pub row_threads: u32,
    pub gate: Function,
    pub copy_blocks: Function,
    pub move_block: Function,
    pub products: ProductKernels,
    /// For heads whose values fit into registers evenly.
    pub prepare_qkv: Option<PrepareQkvKernel>,
    pub prepare_qkv_any: Function,
    pub attend_decode: DecodeKernels,
    pub attend_prompt: PromptKernel,
    pub experts: ExpertKernels,
    pub partial_argmax: Function,
    pub adjust: Function,
    pub sample_tokens: Function,
}

/// Which of several kernels for the same work are loaded.
#[derive(Clone, Copy, Debug)]
pub struct Variants<'a> {
    /// Packed forms that products are needed of.
    pub forms: &'a [PackedForm],
    /// Whether products by warpgroups are loaded, too.
    pub warpgroups: bool,
    /// Whether there are experts, who alone multiply plain weights so.
    pub experts: bool,
    /// What prompts attend with.
    pub prompts: PromptForm,
}

impl Kernels {
    /// Compiles what the cache does not have, and loads all.
    pub fn load(
        device: &Device,
        compiler: &Compiler,
        constants: KernelConstants,
        variants: Variants<'_>,
    ) -> Result<Self, CudaError> {
        let Variants { forms, warpgroups, experts, prompts } = variants;
        let mut sources = sources(constants, prompts)?;
        sources.extend(forms.iter().map(|form| packed_source(*form, constants.shared_bytes)));
        sources.extend(forms.iter().filter(|_| warpgroups).map(|form| warpgroups_source(*form)));
        sources.extend((warpgroups && experts).then(linear_warpgroups_source));
        let images = compile_all(compiler, &sources)?;
        let modules = load_all(device, &images)?;
        let [rows, linear, prepare_qkv, decode, whole_rows, prompt, mixture, sample, packed @ ..] =
            &modules[..]
        else {
            unreachable!("every source makes a module")
        };
        let shared_bytes = constants.shared_bytes;
        let (packed, by_warpgroups) = packed.split_at(forms.len());
        let linear_by_warpgroups = by_warpgroups.get(forms.len());
        let packed = packed.iter().zip(forms).enumerate().map(|(index, (module, form))| {
            PackedKernels::load(module, by_warpgroups.get(index), *form, shared_bytes)
        });
        Ok(Self {
            digest: images.iter().fold(Sha256::new(), Sha256::chain_update).finalize().into(),
            embed: rows.function("embed", 0)?,
            residual: rows.function("residual", 0)?,
            pick: rows.function("pick", 0)?,
            row_threads: constants.row_threads() as u32,
            gate: rows.function("gate", 0)?,
            copy_blocks: rows.function("copy_blocks", 0)?,
            move_block: rows.function("move_block", 0)?,
            products: ProductKernels::load(
                linear,
                linear_by_warpgroups,
                packed.collect::<Result<_, _>>()?,
                shared_bytes,
            )?,
            prepare_qkv: PrepareQkvKernel::load(prepare_qkv, constants.head_dim)?,
            prepare_qkv_any: prepare_qkv.function("prepare_qkv_any", 0)?,
            attend_decode: DecodeKernels::find([decode, whole_rows], constants)?,
            attend_prompt: PromptKernel::find(prompts, prompt, constants)?,
            experts: ExpertKernels::load(mixture)?,
            partial_argmax: sample.function("partial_argmax", 0)?,
            adjust: sample.function("adjust", 0)?,
            sample_tokens: sample.function("sample_tokens", 0)?,
        })
    }
}

/// Machine code, loaded.
pub(crate) fn load_all(device: &Device, images: &[Vec<u8>]) -> Result<Vec<Module>, CudaError> {
    images.iter().map(|image| Ok(device.module(image)?)).collect()
}

/// Compiles all sources side by side; their machine code, in order.
pub(crate) fn compile_all(compiler: &Compiler, sources: &[KernelSource]) -> Result<Vec<Vec<u8>>, CudaError> {
    let compiled: Vec<_> = std::thread::scope(|scope| {
        let threads: Vec<_> =
            sources.iter().map(|source| scope.spawn(|| compiler.compiled(source))).collect();
        threads.into_iter().map(|thread| thread.join().expect("a compiler does not panic")).collect()
    });
    compiled.into_iter().map(|compiled| Ok(compiled?.image)).collect()
}
