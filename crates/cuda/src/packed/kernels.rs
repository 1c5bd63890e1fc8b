//! The kernels of one packed form, compiled where a model has matrices of it.

#![allow(unsafe_code, reason = "the layouts are promised to the driver")]

use super::PackedForm;
use super::warpgroups::load_warpgroups;
use crate::compile::KernelSource;
use crate::driver::{Address, Function, Module};
use crate::error::CudaError;
use crate::kernels::{LinearKernel, arguments, product_source};

arguments! {
    /// `packed.cu`.
    Unpack { w: Address, strip_scales: Address, out: Address, n: u32, k: u32, }
    /// `packed.cu`.
    EmbedPacked {
        tokens: Address, chosen: Address, table: Address, strip_scales: Address, hidden: Address, width: u32, vocab: u32, scale: f32,
    }
    /// `packed.cu`.
    RandomisePacked { w: Address, strip_scales: Address, words: u64, strips: u32, low: u32, high: u32, strip_scale: f32, seed: u32, }
}

/// The source for a form, for so many bytes of shared memory in a block.
pub fn packed_source(form: PackedForm, shared_bytes: usize) -> KernelSource {
    let defines = vec![
        format!("BITS={}", form.width()),
        format!("PARTS={}", form.parts()),
        format!("WIDE_SHARED={}", WIDE.shared.min(shared_bytes)),
    ];
    let parts = [include_str!("../../kernels/packed.cuh"), include_str!("../../kernels/packed.cu")];
    product_source("packed", &parts.join("\n"), defines)
}

/// What a block of the product computes, as in `packed.cu`.
struct Tile {
    name: &'static str,
    outputs: usize,
    rows: usize,
    /// Records of a stage.
    records: usize,
    /// Shared memory that stages may fill.
    shared: usize,
}

const WIDE: Tile = Tile { name: "packed_128", outputs: 128, rows: 128, records: 1, shared: 104 << 10 };

const TILES: [Tile; 4] = [
    Tile { name: "packed_8", outputs: 64, rows: 8, records: 2, shared: 52 << 10 },
    Tile { name: "packed_32", outputs: 64, rows: 32, records: 2, shared: 72 << 10 },
    Tile { name: "packed_64", outputs: 64, rows: 64, records: 1, shared: 72 << 10 },
    WIDE,
];

impl Tile {
    fn load(
        &self,
        module: &Module,
        form: PackedForm,
        shared_bytes: usize,
    ) -> Result<LinearKernel, CudaError> {
        let stage = self.records * (self.outputs / 16 * form.record_bytes() + self.rows * 128);
        let shared = self.shared.min(shared_bytes) / stage * stage;
        // One kernel writes both kinds of results, as its arguments say.
        let (f32, bf16) = (module.function(self.name, shared)?, module.function(self.name, shared)?);
        Ok(LinearKernel {
            name: self.name,
            f32,
            bf16,
            outputs: self.outputs,
            rows: self.rows,
            threads: 128,
            shared,
        })
    }
}

/// The kernels of one form.
#[derive(Debug)]
#[allow(missing_docs, reason = "named as in the source")]
pub struct PackedKernels {
    /// What they read.
    pub form: PackedForm,
    /// Products, by ascending rows of a block.
    pub linear: Vec<LinearKernel>,
    /// Products by warpgroups; empty on other GPUs than Hopper.
    pub warpgroups: Vec<LinearKernel>,
    pub unpack: Function,
    pub embed: Function,
    pub randomise: Function,
}

impl PackedKernels {
    /// From the compiled [`packed_source`] and, on Hopper, [`warpgroups_source`](super::warpgroups_source).
    pub(crate) fn load(
        module: &Module,
        warpgroups: Option<&Module>,
        form: PackedForm,
        shared_bytes: usize,
    ) -> Result<Self, CudaError> {
        let warpgroups = warpgroups.map(|module| load_warpgroups(module, form)).transpose()?;
        Ok(Self {
            form,
            linear: TILES
                .iter()
                .map(|tile| tile.load(module, form, shared_bytes))
                .collect::<Result<_, _>>()?,
            warpgroups: warpgroups.unwrap_or_default(),
            unpack: module.function("unpack", 0)?,
            embed: module.function("embed_packed", 0)?,
            randomise: module.function("randomise_packed", 0)?,
        })
    }
}
