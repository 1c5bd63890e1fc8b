//! The kernels of matrix products.

use crate::compile::KernelSource;
use crate::driver::{Function, Module};
use crate::error::CudaError;
use crate::packed::{PackedForm, PackedKernels};
use crate::plan::Form;
use crate::shape::LEAST_ROWS;

use super::product_source;

/// Bytes of 64 inputs of one output or row.
const BLOCK_BYTES: usize = 128;

/// The source of products of plain weights, for so many bytes of shared memory in a block.
pub(crate) fn linear_source(shared_bytes: usize) -> KernelSource {
    let defines = vec![format!("WIDE_STAGES={}", WIDE.stages_in(shared_bytes))];
    product_source("linear", include_str!("../../kernels/linear.cu"), defines)
}

/// The source of products of plain weights by warpgroups, for Hopper alone.
pub fn linear_warpgroups_source() -> KernelSource {
    let parts = [include_str!("../../kernels/hopper.cuh"), include_str!("../../kernels/linear_hopper.cu")];
    product_source("linear_hopper", &parts.join("\n"), Vec::new())
}

/// One form of the own product: rows that a block computes.
#[derive(Debug)]
pub struct LinearKernel {
    /// What it is remembered by.
    pub name: &'static str,
    /// Results in f32.
    pub f32: Function,
    /// Results in bf16.
    pub bf16: Function,
    /// Outputs of a block.
    pub outputs: usize,
    /// Rows of a block.
    pub rows: usize,
    /// Threads of a block.
    pub threads: u32,
    /// Its shared memory.
    pub shared: usize,
}

/// Tiles along the rows that a kernel is tried with: each of them reads all weights.
const MOST_TILES: usize = 4;

impl LinearKernel {
    /// Whether it may be the fastest with so many rows: its tiles are neither mostly empty nor many times smaller than the product.
    pub fn suits(&self, rows: usize) -> bool {
        self.rows < 2 * rows.max(LEAST_ROWS) && rows <= MOST_TILES * self.rows
    }
}

/// The constants of one form in `linear.cu`.
struct Tile {
    names: [&'static str; 2],
    outputs: usize,
    rows: usize,
    stages: usize,
}

const WIDE: Tile = Tile { names: ["linear_128_f32", "linear_128_bf16"], outputs: 128, rows: 128, stages: 4 };

const TILES: [Tile; 3] = [
    Tile { names: ["linear_8_f32", "linear_8_bf16"], outputs: 64, rows: 8, stages: 6 },
    Tile { names: ["linear_32_f32", "linear_32_bf16"], outputs: 64, rows: 32, stages: 6 },
    WIDE,
];

/// As in `linear_hopper.cu`. A multiprocessor holds two blocks.
const WARPGROUPS: [Tile; 2] = [
    Tile { names: ["linear_128x64"; 2], outputs: 128, rows: 64, stages: 4 },
    Tile { names: ["linear_128x128"; 2], outputs: 128, rows: 128, stages: 3 },
];

/// Rows of the tiles that experts' products of every form have, on any GPU and on Hopper.
const EXPERT_ROWS: [usize; 3] = [8, 32, 128];
const EXPERT_ROWS_BY_WARPGROUPS: [usize; 4] = [8, 32, 64, 128];

/// Outputs of a block of warpgroups that experts' products use: most of them have some hundred.
const EXPERT_OUTPUTS: usize = 128;

impl Tile {
    /// Stages that fit, all of them on large GPUs.
    fn stages_in(&self, shared_bytes: usize) -> usize {
        self.stages.min(shared_bytes / self.stage_bytes())
    }

    fn stage_bytes(&self) -> usize {
        (self.outputs + self.rows) * BLOCK_BYTES
    }

    fn load(&self, module: &Module, threads: u32, shared_bytes: usize) -> Result<LinearKernel, CudaError> {
        let Tile { names: [name, narrow], outputs, rows, .. } = *self;
        let shared = self.stages_in(shared_bytes) * self.stage_bytes();
        let (f32, bf16) = (module.function(name, shared)?, module.function(narrow, shared)?);
        Ok(LinearKernel { name, f32, bf16, outputs, rows, threads, shared })
    }
}

/// The kernels of products.
#[derive(Debug)]
pub struct ProductKernels {
    /// Of plain weights, by ascending rows of a block.
    pub linear: Vec<LinearKernel>,
    /// Of plain weights by warpgroups, for experts; empty on other GPUs than Hopper.
    pub warpgroups: Vec<LinearKernel>,
    /// Random weights and inputs.
    pub randomise: Function,
    /// Those of each packed form that the model has.
    pub packed: Vec<PackedKernels>,
}

impl ProductKernels {
    /// From the compiled [`linear_source`] and, on Hopper, [`linear_warpgroups_source`].
    pub(crate) fn load(
        module: &Module,
        warpgroups: Option<&Module>,
        packed: Vec<PackedKernels>,
        shared_bytes: usize,
    ) -> Result<Self, CudaError> {
        let by_warpgroups = WARPGROUPS.iter().filter_map(|tile| Some((tile, warpgroups?)));
        Ok(Self {
            linear: TILES
                .iter()
                .map(|tile| tile.load(module, 128, shared_bytes))
                .collect::<Result<_, _>>()?,
            warpgroups: by_warpgroups
                .map(|(tile, module)| tile.load(module, 256, shared_bytes))
                .collect::<Result<_, _>>()?,
            randomise: module.function("randomise", 0)?,
            packed,
        })
    }

    /// Rows of the tiles that experts' products may have, ascending.
    pub fn expert_rows(&self) -> &'static [usize] {
        if self.warpgroups.is_empty() { &EXPERT_ROWS } else { &EXPERT_ROWS_BY_WARPGROUPS }
    }

    /// What multiplies tiles of so many rows for experts: warpgroups where there are many, since reading weights takes longer than few.
    pub fn of_experts(&self, form: Form, rows: usize) -> &LinearKernel {
        let by_warpgroups = match form {
            Form::Bf16 => &self.warpgroups,
            Form::Packed(form) => &self.packed(form).warpgroups,
        };
        let many = by_warpgroups.iter().find(|tile| tile.rows == rows && tile.outputs == EXPERT_OUTPUTS);
        let tile = many.or_else(|| self.tiles(form).iter().find(|tile| tile.rows == rows));
        tile.expect("every form has the tiles of experts")
    }

    /// Those of a packed form.
    pub fn packed(&self, form: PackedForm) -> &PackedKernels {
        let found = self.packed.iter().find(|kernels| kernels.form == form);
        found.expect("kernels are compiled for every form of the plan")
    }

    /// Every own product of a form: those of every GPU, then those of this one.
    pub fn every_tile(&self, form: Form) -> impl Iterator<Item = &LinearKernel> {
        let more = match form {
            Form::Bf16 => &[][..],
            Form::Packed(form) => &self.packed(form).warpgroups,
        };
        self.tiles(form).iter().chain(more)
    }

    /// The own products of a form that every GPU has, by ascending rows of a block.
    pub fn tiles(&self, form: Form) -> &[LinearKernel] {
        match form {
            Form::Bf16 => &self.linear,
            Form::Packed(form) => &self.packed(form).linear,
        }
    }
}
