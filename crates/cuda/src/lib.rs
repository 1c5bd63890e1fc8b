//! The executor on an NVIDIA GPU.
//!
//! ```text
//! DecoderSpec ── plan ──┬── shape, workspace, sections: sizes and places
//! files ── weights ─────┤
//! kernels/*.cu ── compile ── kernels ──┴── program: operations to launches ── executor: batches to results
//! cuBLASLt ── blas ── products
//! ```
//! It relies on NVIDIA's driver, NVRTC and (for speed) cuBLASLt, all opened when a model is loaded; building needs none of them. Only `libraries`,
//! `driver`, `compile` and `blas` call them. A row's bits depend on its sequence alone: not on its batch, the class of the step or the chunks of its prompt.
//!
//! # Layout
//! - [`libraries`], [`driver`], [`compile`], [`blas`]: what NVIDIA brings, behind safe owners.
//! - [`plan`]: what a step computes, as plain data; [`shape`]: sizes; [`kv`]: forms of keys and values; [`sections`]: a step's arrays.
//! - [`kernels`]: what is launched; [`attention`]: its forms for prompts and decoded rows; [`products`]: how matrix products are computed;
//!   [`program`]: the plan as launches.
//! - [`weights`], [`packed`], [`workspace`], [`load`]: what lies on the device, and how it gets there.
//! - [`encoder`]: encoders, which need none of what decoders keep between steps.
//! - [`sampling`]: rows to tokens; [`flight`]: a step between launch and collection; `steps`: what is queued and read; `transfers`: blocks
//!   to the host and back; `identity`: what blocks on disk depend on; `pair`: a model and its draft model; `guess`: what a step may cost;
//!   [`error`]: why a model can't be run; [`executor`]: the executor itself.

pub mod attention;
pub mod blas;
pub mod compile;
pub mod driver;
pub mod encoder;
pub mod error;
pub mod executor;
pub mod flight;
mod guess;
mod identity;
pub mod kernels;
pub mod kv;
pub mod libraries;
pub mod load;
pub mod packed;
mod pair;
pub mod plan;
pub mod products;
pub mod program;
pub mod sampling;
pub mod sections;
pub mod shape;
mod steps;
mod transfers;
pub mod weights;
pub mod workspace;

pub use driver::{end_process, needs_new_process};
pub use encoder::{CudaEncoder, CudaTextDecoder};
pub use error::CudaError;
pub use executor::{CudaExecutor, CudaOptions};
pub use kv::KvForm;
pub use pair::Pair;
