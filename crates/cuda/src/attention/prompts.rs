//! The kernels that prompts attend with. All forms give the same bits; which one runs is decided when kernels are loaded.

use crate::compile::KernelSource;
use crate::driver::{DriverError, Function, LaunchShape, Module, Properties, Stream, TensorMap};
use crate::error::CudaError;
use crate::kernels::{self, Attend, AttendShape, KernelConstants, MappedAttend, PROMPT_ROWS, SEGMENT};
use crate::kv::KvForm;

/// Which instructions a prompt's products are computed by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum PromptForm {
    /// Those of a warp: on every GPU, for every head dimension.
    Warps,
    /// Those of a warpgroup: on Hopper alone, for heads of 64 and 128 values.
    Warpgroups,
}

impl PromptForm {
    /// The fastest form for a GPU and a head dimension. Heads of 80, 96 and 256 values fill no whole panels, or too many registers.
    pub fn fastest(properties: &Properties, head_dim: usize) -> Self {
        match (properties.capability, head_dim) {
            (90, 64 | 128) => Self::Warpgroups,
            _ => Self::Warps,
        }
    }

    /// What is compiled for it.
    pub fn source(self, constants: KernelConstants, shape: &AttendShape) -> KernelSource {
        let texts: &[&str] = match self {
            Self::Warps => &[include_str!("../../kernels/attend_prompt.cu")],
            Self::Warpgroups => {
                &[include_str!("../../kernels/hopper.cuh"), include_str!("../../kernels/attend_hopper.cu")]
            }
        };
        kernels::attend(constants, shape, texts)
    }

    /// Shared memory of a block.
    pub fn shared_bytes(
        self,
        KernelConstants { head_dim, kv, .. }: KernelConstants,
        shape: &AttendShape,
    ) -> usize {
        match self {
            Self::Warps => shape.prompt_shared,
            // Two slots of queries, keys and values each, and their barriers.
            Self::Warpgroups => {
                let slots = 2 * (PROMPT_ROWS + 2 * SEGMENT) * head_dim * 2 + 12 * 8;
                match kv {
                    KvForm::Bf16 => slots,
                    // Scales of two slots of keys and values each; quants of one.
                    KvForm::Q8 => slots + 2 * 2 * SEGMENT * 4 + 2 * SEGMENT * head_dim,
                }
            }
        }
    }

    fn threads(self) -> u32 {
        match self {
            Self::Warps => 256,
            Self::Warpgroups => 384,
        }
    }

    fn entry(self) -> &'static str {
        match self {
            Self::Warps => "attend_prompt",
            Self::Warpgroups => "attend_prompt_hopper",
        }
    }
}

/// A prompt kernel, loaded.
#[derive(Debug)]
pub struct PromptKernel {
    function: Function,
    form: PromptForm,
    head_dim: usize,
    kv: KvForm,
    shared_bytes: usize,
}

impl PromptKernel {
    /// Finds a form's kernel in its module.
    pub fn find(form: PromptForm, module: &Module, constants: KernelConstants) -> Result<Self, CudaError> {
        let KernelConstants { head_dim, kv, .. } = constants;
        let shared_bytes = form.shared_bytes(constants, &constants.attend_shape()?);
        let function = module.function(form.entry(), shared_bytes)?;
        Ok(Self { function, form, head_dim, kv, shared_bytes })
    }

    /// Queues it for a layer of so many blocks of keys and values: a block per multiprocessor, which takes pieces of prompts in turn.
    pub fn launch(&self, stream: &Stream, arguments: &Attend, blocks: usize) -> Result<(), DriverError> {
        let grid = [stream.device().properties().multiprocessors, 1, 1];
        let shape = LaunchShape { grid, threads: self.form.threads(), shared_bytes: self.shared_bytes };
        match self.form {
            PromptForm::Warps => stream.launch(&self.function, shape, arguments),
            PromptForm::Warpgroups => {
                let kv = match self.kv {
                    KvForm::Bf16 => arguments.map_kv(stream.device(), self.head_dim, blocks)?,
                    // Quants pass through threads.
                    KvForm::Q8 => TensorMap::NONE,
                };
                stream.launch(&self.function, shape, &MappedAttend { attend: *arguments, kv })
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::attention::DecodeForm;

    fn fastest(capability: u32, head_dim: usize) -> PromptForm {
        let properties = Properties {
            name: String::new(),
            capability,
            multiprocessors: 132,
            shared_bytes: 227 << 10,
            driver_version: 13000,
        };
        PromptForm::fastest(&properties, head_dim)
    }

    #[test]
    fn hopper_alone_attends_by_warpgroups_and_only_heads_that_fill_panels() {
        for head_dim in [64, 128] {
            let form = fastest(90, head_dim);
            assert_eq!(form, PromptForm::Warpgroups);
            for kv in KvForm::ALL {
                let shared_bytes = 227 << 10;
                let constants = KernelConstants {
                    head_dim,
                    hidden: 64,
                    capped: false,
                    kv,
                    decode_form: DecodeForm::Threads,
                    shared_bytes,
                };
                assert!(form.shared_bytes(constants, &constants.attend_shape().unwrap()) <= shared_bytes);
            }
        }
        for (capability, head_dim) in
            [(80, 128), (89, 64), (100, 128), (90, 16), (90, 80), (90, 96), (90, 256)]
        {
            assert_eq!(fastest(capability, head_dim), PromptForm::Warps, "{capability} {head_dim}");
        }
    }
}
