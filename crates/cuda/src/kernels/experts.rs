//! The kernels of experts: how many rows and experts a block of the router has, and what the others are launched with.

use crate::driver::{Function, LaunchShape, Module};
use crate::error::CudaError;

/// Most experts of a layer that a model file may have: their shares of four rows lie in shared memory.
const MOST_EXPERTS: usize = 4096;

/// Rows of a block of `topk_experts`: a warp each.
const TOPK_ROWS: usize = 4;

/// Values that a block of `combine` adds up.
const COMBINED: usize = 4 * 128;

/// One form of the router, with the constants of `experts.cu`.
struct Form {
    name: &'static str,
    /// The least rows that it is the fastest for, as far as can be computed.
    from: usize,
    /// Rows and experts of a block.
    rows: usize,
    experts: usize,
    threads: u32,
    /// Inputs of a stage, and stages.
    chunk: usize,
    stages: usize,
}

/// By ascending rows. A block of many rows reads less, but there are few blocks.
const FORMS: [Form; 3] = [
    Form { name: "router_1", from: 0, rows: 1, experts: 4, threads: 128, chunk: 256, stages: 8 },
    Form { name: "router_8", from: 2, rows: 8, experts: 16, threads: 128, chunk: 128, stages: 6 },
    Form { name: "router_32", from: 1024, rows: 32, experts: 32, threads: 512, chunk: 128, stages: 3 },
];

impl Form {
    fn shared(&self) -> usize {
        self.stages * (self.experts + 1 + self.rows) * self.chunk * 4
    }
}

/// A form of the router, loaded.
#[derive(Debug)]
pub struct RouterKernel {
    /// The kernel.
    pub function: Function,
    from: usize,
    rows: usize,
    experts: usize,
    threads: u32,
    shared: usize,
}

impl RouterKernel {
    /// How it is launched for so many rows and experts.
    pub fn shape(&self, rows: usize, experts: usize) -> LaunchShape {
        let grid = [rows.div_ceil(self.rows) as u32, experts.div_ceil(self.experts) as u32, 1];
        LaunchShape { grid, threads: self.threads, shared_bytes: self.shared }
    }
}

/// The kernels of experts.
#[derive(Debug)]
#[allow(missing_docs, reason = "named as in the source")]
pub struct ExpertKernels {
    /// By ascending rows of a block.
    pub routers: Vec<RouterKernel>,
    pub topk: Function,
    pub sort: Function,
    pub combine: Function,
}

impl ExpertKernels {
    /// From the compiled `experts.cu`.
    pub(crate) fn load(module: &Module) -> Result<Self, CudaError> {
        let load = |form: &Form| {
            let Form { name, from, rows, experts, threads, .. } = *form;
            let shared = form.shared();
            let function = module.function(name, shared)?;
            Ok(RouterKernel { function, from, rows, experts, threads, shared })
        };
        Ok(Self {
            routers: FORMS.iter().map(load).collect::<Result<_, CudaError>>()?,
            topk: module.function("topk_experts", Self::topk_bytes(MOST_EXPERTS))?,
            sort: module.function("sort_by_expert", 0)?,
            combine: module.function("combine", 0)?,
        })
    }

    /// The form of the router for so many rows.
    pub fn router(&self, rows: usize) -> &RouterKernel {
        let suits = |kernel: &&RouterKernel| kernel.from <= rows;
        self.routers.iter().rev().find(suits).expect("the first form takes any number of rows")
    }

    /// How `topk` is launched.
    pub fn topk_shape(rows: usize, experts: usize) -> LaunchShape {
        let grid = [rows.div_ceil(TOPK_ROWS) as u32, 1, 1];
        LaunchShape { grid, threads: TOPK_ROWS as u32 * 32, shared_bytes: Self::topk_bytes(experts) }
    }

    fn topk_bytes(experts: usize) -> usize {
        TOPK_ROWS * experts * 4
    }

    /// How `sort_by_expert` is launched: a thread looks at eight pairs where there are enough threads.
    pub fn sort_shape(pairs: usize, experts: usize) -> LaunchShape {
        let threads = pairs.div_ceil(8).next_multiple_of(32).clamp(32, 1024);
        LaunchShape { grid: [experts as u32, 1, 1], threads: threads as u32, shared_bytes: 0 }
    }

    /// How `combine` is launched.
    pub fn combine_shape(rows: usize, width: usize) -> LaunchShape {
        LaunchShape { grid: [rows as u32, width.div_ceil(COMBINED) as u32, 1], threads: 128, shared_bytes: 0 }
    }
}

/// The tiles that pairs of tokens and experts are multiplied in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExpertTiles {
    /// Most pairs of a tile: the rows of a product's kernel.
    pub rows: usize,
    /// Tiles that there may be: no expert has more than one that is not full.
    pub most: usize,
}

impl ExpertTiles {
    /// For so many pairs, of one of some numbers of rows: twice an expert's usual share, since some have more, and another tile reads all
    /// weights again.
    pub fn new(pairs: usize, experts: usize, of_rows: &[usize]) -> Self {
        let usual = pairs.div_ceil(experts) * 2;
        let rows = of_rows.iter().find(|rows| usual <= **rows).or(of_rows.last());
        Self::of_rows(*rows.expect("every GPU has tiles for experts"), pairs, experts)
    }

    /// Tiles of so many rows.
    pub fn of_rows(rows: usize, pairs: usize, experts: usize) -> Self {
        Self { rows, most: ((pairs + experts * (rows - 1)) / rows).min(pairs) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_is_room_for_the_tiles_of_any_distribution() {
        for (rows, experts) in
            [8, 32, 64, 128].into_iter().flat_map(|rows| [1, 3, 128].map(|experts| (rows, experts)))
        {
            for pairs in [1_usize, 7, 8, 9, 500, 65_536] {
                // One pair on each of as many experts as possible, the rest on the last: the most tiles that are not full.
                let alone = pairs.min(experts) - 1;
                let worst = alone + (pairs - alone).div_ceil(rows);
                let most = ExpertTiles::of_rows(rows, pairs, experts).most;
                assert!(
                    most >= worst && most <= pairs.min(pairs / rows + experts),
                    "{rows} {experts} {pairs}: {most}"
                );
            }
        }
    }

    #[test]
    fn forms_of_the_router_fit_into_the_shared_memory_of_every_card() {
        assert!(FORMS.iter().all(|form| form.shared() <= 101_376));
    }
}
