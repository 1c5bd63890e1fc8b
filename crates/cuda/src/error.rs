//! Why a model can't be run on a GPU.

use ropeway_executor::ExecutorError;
use ropeway_model::LoadError;

use crate::compile::CompileError;
use crate::driver::{DeviceError, DriverError};
use crate::libraries::LibraryError;

/// Why a model can't be run on a GPU.
#[derive(Debug, thiserror::Error)]
pub enum CudaError {
    /// The device.
    #[error(transparent)]
    Device(#[from] DeviceError),
    /// A library.
    #[error(transparent)]
    Library(#[from] LibraryError),
    /// A kernel.
    #[error(transparent)]
    Compile(#[from] CompileError),
    /// The model.
    #[error(transparent)]
    Load(#[from] LoadError),
    /// A call of the driver.
    #[error("the NVIDIA driver reports an error: {0}")]
    Driver(#[from] DriverError),
    /// A call of cuBLASLt.
    #[error("cuBLASLt reports status {status} from {call}")]
    Products {
        /// What was called.
        call: &'static str,
        /// What it returned.
        status: i32,
    },
    /// A shape that the kernels don't have.
    #[error("the GPU's kernels can't run this model: {0}; run it on the CPU with `--device cpu`")]
    Shape(String),
    /// A step that the memory set aside for steps has no room for.
    #[error("{0}")]
    Step(String),
    /// Not enough memory on the card.
    #[error("{0}")]
    Memory(String),
}

impl CudaError {
    /// Whether there simply is no GPU.
    pub fn has_no_gpu(&self) -> bool {
        matches!(
            self,
            Self::Library(LibraryError::NoDriver(_))
                | Self::Device(
                    DeviceError::Library(LibraryError::NoDriver(_)) | DeviceError::NoSuchDevice { .. }
                )
        )
    }

    /// As the engine's error: `Lost` if the context can't be used any more, else `Step`, which fails this step only.
    pub fn into_step_error(self) -> ExecutorError {
        match self {
            Self::Driver(error) if error.is_lost() => ExecutorError::Lost(error.to_string()),
            other => ExecutorError::Step(other.to_string()),
        }
    }
}
