//! Two models on one GPU, of which the smaller one drafts for the other.
//!
//! Both have room for keys and values of as many tokens, side by side in one context.

use ropeway_weights::Checkpoint;

use crate::driver::Device;
use crate::error::CudaError;
use crate::executor::{CudaExecutor, CudaOptions};
use crate::kernels::BLOCK;
use crate::load::{Budget, step_shape};
use crate::packed::choose_forms;
use crate::plan::Plan;
use crate::shape::ModelShape;
use crate::weights::WeightSource;
use crate::workspace::Workspace;

/// Estimated bytes of device memory that kernels and libraries will take: they are loaded after the memory is divided.
const CODE_BYTES: usize = 600 << 20;

/// A model, and one that drafts for it.
pub struct Pair {
    /// The model.
    pub target: CudaExecutor,
    /// The one that drafts.
    pub draft: CudaExecutor,
}

impl Pair {
    /// Loads both. Their weights are uploaded one after the other, and `progress` is told of each.
    pub fn load(
        target: &Checkpoint,
        draft: &Checkpoint,
        options: &CudaOptions,
        progress: &mut dyn FnMut(usize, usize),
    ) -> Result<Self, CudaError> {
        let tokens = shared_tokens([target, draft], options)?;
        let options = CudaOptions { kv_tokens: Some(tokens), ..options.clone() };
        let target = CudaExecutor::load(target, options.clone(), progress)?;
        Ok(Self { target, draft: CudaExecutor::load(draft, options, progress)? })
    }
}

/// Tokens whose keys and values fit beside both models: as many as asked for, or most of what is left.
fn shared_tokens(models: [&Checkpoint; 2], options: &CudaOptions) -> Result<usize, CudaError> {
    let device = Device::open(&options.search, options.ordinal)?;
    let free = device.memory()?.free.saturating_sub(CODE_BYTES);
    let mut together = Budget { free, weights: 0, workspace: 0, block: 0 };
    for checkpoint in models {
        let spec = options.spec_of(checkpoint)?;
        let mut plan = Plan::new(&spec);
        choose_forms(&mut plan, &spec, &WeightSource::Checkpoint(checkpoint), options.quantize)?;
        let model = ModelShape::new(&spec, &plan, options.kv)?;
        let step = step_shape(&device, &model, options)?;
        together.weights += plan.weight_bytes();
        together.workspace += Workspace::bytes(&model, &step);
        together.block += model.block_bytes();
    }
    Ok(together.blocks(options.kv_tokens)? * BLOCK)
}
