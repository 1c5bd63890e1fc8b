//! The kernels of encoders, and the arguments they take, field for field as in `kernels/encode.cu`.

#![allow(unsafe_code, reason = "the layouts are promised to the driver")]

use ropeway_model::encoder::EncoderSpec;

use crate::compile::{Compiler, KernelSource};
use crate::driver::{Address, Device, Function};
use crate::error::CudaError;
use crate::kernels::{
    ProductKernels, arguments, compile_all, linear_source, load_all, row_threads, source, with_activation,
};

/// Tokens of an item of attention, and of a tile of keys.
pub const TILE: usize = 64;

/// Tiles of keys, and of values, in shared memory.
const TILES: usize = 4;

arguments! {
    /// `encode.cu`.
    Norm { weight: Address, bias: Address, eps: f32, width: u32, }
    /// `encode.cu`.
    EncodeEmbed {
        tokens: Address, types: Address, position_ids: Address, word_embeddings: Address, position_embeddings: Address, type_embeddings: Address,
        hidden: Address, ready: Address, norm: Norm, first: u32, unused: u32,
    }
    /// `encode.cu`.
    EncodeNorm {
        hidden: Address, branch: Address, bias: Address, ready: Address, norm: Norm, norms_residual: u32, unused: u32,
    }
    /// `encode.cu`.
    EncodePrepareQkv {
        projections: Address, bias: Address, cos_sin: Address, position_ids: Address, qkv: Address,
        width: u32, pairs: u32, interleaved: u32, unused: u32,
    }
    /// `encode.cu`.
    EncodeAttend {
        qkv: Address, out: Address, items: Address, count: Address, relative_bias: Address,
        heads: u32, longest: u32, reach: u32, scale: f32,
    }
    /// `encode.cu`.
    EncodeActivate { inner: Address, bias: Address, out: Address, width: u32, kind: u32, gated: u32, unused: u32, }
    /// `encode.cu`.
    EncodePool { hidden: Address, texts: Address, out: Address, ready: Address, width: u32, how: u32, }
}

/// What kernels are compiled for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EncoderConstants {
    /// Values of the residual stream.
    pub hidden: usize,
    /// Values of a head.
    pub head_dim: usize,
    /// Bytes of shared memory that a block may have.
    pub shared_bytes: usize,
}

/// All sources of an encoder.
pub fn sources(constants: EncoderConstants) -> Vec<KernelSource> {
    let EncoderConstants { hidden, head_dim, shared_bytes } = constants;
    let threads = row_threads(hidden);
    let defines = vec![
        format!("ROW_THREADS={threads}"),
        format!("GROUPS={}", hidden.div_ceil(4 * threads)),
        format!("HEAD_DIM={head_dim}"),
    ];
    let encode = source("encode", &with_activation(include_str!("../../kernels/encode.cu")), defines);
    vec![encode, linear_source(shared_bytes)]
}

/// Every kernel of an encoder, loaded.
#[derive(Debug)]
#[allow(missing_docs, reason = "named as in the sources")]
pub struct EncoderKernels {
    pub embed: Function,
    pub norm: Function,
    pub prepare_qkv: Function,
    pub attend: Function,
    pub activate: Function,
    pub pool: Function,
    pub products: ProductKernels,
    /// Threads of `embed` and `norm`.
    pub row_threads: u32,
    /// Shared memory of `attend`.
    pub attend_shared: usize,
}

impl EncoderKernels {
    /// Compiles what the cache does not have, and loads all.
    pub fn load(device: &Device, compiler: &Compiler, spec: &EncoderSpec) -> Result<Self, CudaError> {
        let shared_bytes = device.properties().shared_bytes;
        let constants = EncoderConstants { hidden: spec.hidden, head_dim: spec.head_dim, shared_bytes };
        let modules = load_all(device, &compile_all(compiler, &sources(constants))?)?;
        let [encode, linear] = &modules[..] else { unreachable!("every source makes a module") };
        let attend_shared = TILES * TILE * (spec.head_dim * 2 + 16);
        Ok(Self {
            embed: encode.function("encode_embed", 0)?,
            norm: encode.function("encode_norm", 0)?,
            prepare_qkv: encode.function("encode_prepare_qkv", 0)?,
            attend: encode.function("encode_attend", attend_shared)?,
            activate: encode.function("encode_activate", 0)?,
            pool: encode.function("encode_pool", 0)?,
            products: ProductKernels::load(linear, None, Vec::new(), shared_bytes)?,
            row_threads: row_threads(spec.hidden) as u32,
            attend_shared,
        })
    }
}
