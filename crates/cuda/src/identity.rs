//! What keys and values on a GPU depend on besides the tokens: whoever keeps blocks beyond the life of an executor must not give them to
//! one that would have computed others, on a CPU for one.

use ropeway_executor::{Executor, ExecutorError, sample_block};
use sha2::{Digest, Sha256};

use crate::CudaExecutor;

/// Raised whenever blocks are laid out in another way.
const LAYOUT: u32 = 2;

impl CudaExecutor {
    /// A digest of everything that decides the bits of a block: the weights (by their files' digest), the model as it is run, the form of
    /// keys and values, the GPU, the machine code of the kernels, and the block that all of these give for some tokens. Runs a step that overwrites
    /// block 0: to be called before any sequence has blocks.
    pub fn kv_identity(&mut self, weights: &[u8; 32]) -> Result<[u8; 32], ExecutorError> {
        let Some(program) = self.program() else {
            return Err(ExecutorError::Lost("it has to be restarted".into()));
        };
        let properties = program.stream.device().properties();
        let mut digest = Sha256::new_with_prefix("ropeway keys and values on a GPU");
        digest.update(LAYOUT.to_le_bytes());
        digest.update(weights);
        digest.update(format!("{:?} {} {}", self.spec(), properties.name, properties.capability));
        digest.update(format!("{:?}", program.model.kv));
        digest.update(program.kernels.digest);
        digest.update(sample_block(self as &mut dyn Executor)?);
        Ok(digest.finalize().into())
    }
}
