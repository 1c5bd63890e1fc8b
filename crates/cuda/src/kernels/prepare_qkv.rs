//! The kernel that prepares heads in registers, and how a token's heads are shared out.

use crate::driver::{Function, Module};
use crate::error::CudaError;

/// Most threads of a block.
const MOST_THREADS: usize = 256;

/// The kernel that prepares heads in registers; the constants of `prepare_qkv.cu`.
#[derive(Debug)]
pub struct PrepareQkvKernel {
    /// The kernel.
    pub function: Function,
    lanes_of_head: usize,
    heads_at_once: usize,
}

impl PrepareQkvKernel {
    /// From the compiled source; `None` for heads that don't fit.
    pub fn load(module: &Module, head_dim: usize) -> Result<Option<Self>, CudaError> {
        let (lanes_of_head, heads_at_once) = match head_dim {
            64 => (16, 4),
            128 => (32, 4),
            256 => (32, 2),
            _ => return Ok(None),
        };
        Ok(Some(Self { function: module.function("prepare_qkv", 0)?, lanes_of_head, heads_at_once }))
    }

    /// The blocks of so many heads.
    pub fn shape(&self, heads: usize) -> PrepareQkvShape {
        let threads = heads.div_ceil(self.heads_at_once) * self.lanes_of_head;
        let blocks = threads.div_ceil(MOST_THREADS);
        PrepareQkvShape { blocks, threads: threads.div_ceil(blocks).next_multiple_of(32) as u32 }
    }
}

/// How a token's heads are shared out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PrepareQkvShape {
    /// Blocks of each token.
    pub blocks: usize,
    /// Threads of a block.
    pub threads: u32,
}
