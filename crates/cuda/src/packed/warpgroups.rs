//! Products of a packed form by warpgroups: `packed_hopper.cu`, for Hopper alone. Which tile computes a product is measured.

use ropeway_weights::Bits;

use super::{PackedForm, STRIP};
use crate::compile::KernelSource;
use crate::driver::{Module, Properties};
use crate::error::CudaError;
use crate::kernels::{LinearKernel, product_source};

/// The only capability with these instructions.
const HOPPER: u32 = 90;

/// Outputs of a warpgroup.
const GROUP_OUTPUTS: usize = 64;

/// Shared memory of a block of which a multiprocessor holds four, three, two and one. Blocks are spread evenly where a multiprocessor has no
/// room for more than its share: they come while the kernel before still runs, wherever there is room.
const FOUR_BLOCKS: usize = 56 << 10;
const THREE_BLOCKS: usize = 74 << 10;
const TWO_BLOCKS: usize = 112 << 10;
const ONE_BLOCK: usize = 200 << 10;

/// What a block computes, as in `packed_hopper.cu`.
struct Tile {
    name: &'static str,
    /// Warpgroups of 64 outputs each.
    groups: usize,
    rows: usize,
    /// Records of a stage, for quants of 4 bits; half as many for those of 8.
    records: usize,
    /// Shared memory that stages may fill.
    shared: usize,
}

const TILES: [Tile; 11] = [
    Tile { name: "warpgroups_64x8", groups: 1, rows: 8, records: 4, shared: FOUR_BLOCKS },
    Tile { name: "warpgroups_64x8_deep", groups: 1, rows: 8, records: 4, shared: TWO_BLOCKS },
    Tile { name: "warpgroups_64x16", groups: 1, rows: 16, records: 4, shared: THREE_BLOCKS },
    Tile { name: "warpgroups_64x32", groups: 1, rows: 32, records: 2, shared: THREE_BLOCKS },
    Tile { name: "warpgroups_64x32_deep", groups: 1, rows: 32, records: 2, shared: TWO_BLOCKS },
    Tile { name: "warpgroups_64x64", groups: 1, rows: 64, records: 2, shared: TWO_BLOCKS },
    Tile { name: "warpgroups_128x64", groups: 2, rows: 64, records: 2, shared: TWO_BLOCKS },
    Tile { name: "warpgroups_64x128", groups: 1, rows: 128, records: 1, shared: TWO_BLOCKS },
    Tile { name: "warpgroups_128x128", groups: 2, rows: 128, records: 1, shared: TWO_BLOCKS },
    Tile { name: "warpgroups_256x128", groups: 4, rows: 128, records: 1, shared: ONE_BLOCK },
    Tile { name: "warpgroups_128x256", groups: 2, rows: 256, records: 1, shared: ONE_BLOCK },
];

/// Whether a device can run them.
pub(crate) fn has_wgmma(properties: &Properties) -> bool {
    properties.capability == HOPPER
}

impl Tile {
    fn records(&self, form: PackedForm) -> usize {
        match form.bits {
            Bits::Four => self.records,
            Bits::Eight => (self.records / 2).max(1),
        }
    }

    /// Steps of 16 inputs that are unpacked at a time: as many as registers allow, and an even number of such parts to a stage.
    fn steps(&self, form: PackedForm) -> usize {
        if self.rows < 64 && self.records(form) > 1 { 4 } else { 2 }
    }

    fn stage_bytes(&self, form: PackedForm) -> usize {
        self.records(form) * (self.groups * GROUP_OUTPUTS / STRIP * form.record_bytes() + self.rows * 128)
    }

    fn stages(&self, form: PackedForm) -> usize {
        self.shared / self.stage_bytes(form)
    }

    /// The kernel's definition.
    fn text(&self, form: PackedForm) -> String {
        let Tile { name, groups, rows, .. } = *self;
        let (records, stages, steps) = (self.records(form), self.stages(form), self.steps(form));
        format!("TILE({name}, {groups}, {rows}, {records}, {stages}, {steps})\n")
    }

    fn load(&self, module: &Module, form: PackedForm) -> Result<LinearKernel, CudaError> {
        let shared = self.stages(form) * self.stage_bytes(form);
        // One kernel writes both kinds of results, as its arguments say.
        let (f32, bf16) = (module.function(self.name, shared)?, module.function(self.name, shared)?);
        let (outputs, threads) = (self.groups * GROUP_OUTPUTS, self.groups as u32 * 128);
        Ok(LinearKernel { name: self.name, f32, bf16, outputs, rows: self.rows, threads, shared })
    }
}

/// The source for a form.
pub fn warpgroups_source(form: PackedForm) -> KernelSource {
    let defines = vec![format!("BITS={}", form.width()), format!("PARTS={}", form.parts())];
    let parts = [
        include_str!("../../kernels/packed.cuh"),
        include_str!("../../kernels/hopper.cuh"),
        include_str!("../../kernels/packed_hopper.cu"),
    ];
    let tiles: String = TILES.iter().map(|tile| tile.text(form)).collect();
    product_source("packed_hopper", &format!("{}\n{tiles}", parts.join("\n")), defines)
}

/// All tiles, from the compiled [`warpgroups_source`].
pub(super) fn load_warpgroups(module: &Module, form: PackedForm) -> Result<Vec<LinearKernel>, CudaError> {
    TILES.iter().map(|tile| tile.load(module, form)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_tile_has_a_stage_to_compute_one_to_copy_and_one_whose_products_still_run() {
        for (tile, form) in TILES.iter().flat_map(|tile| PackedForm::ALL.map(|form| (tile, form))) {
            assert!(tile.stages(form) >= 3, "{} {form:?}", tile.name);
            assert!(tile.records(form) * 4 / tile.steps(form) % 2 == 0, "{} {form:?}", tile.name);
        }
    }
}
