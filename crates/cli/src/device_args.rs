//! Which hardware a model runs on, and the start on a GPU.
//!
//! ```text
//! auto       the first GPU if there is one, the model fits and no option asks for what only the CPU does; else the CPU
//! cpu        the CPU
//! cuda[:N]   that GPU, or an error that says why not
//! ```

use std::path::PathBuf;
use std::str::FromStr;

use ropeway_cuda::{CudaError, CudaExecutor, CudaOptions};
use ropeway_hub::Config;
use ropeway_model::{Quantize, RopeScalingChoice};
use ropeway_weights::Checkpoint;

use crate::failure::Failure;
use crate::model_args::LoadBar;
use crate::output::tell;

/// Which hardware a model runs on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Device {
    /// The best there is.
    #[default]
    Auto,
    /// The CPU.
    Cpu,
    /// A GPU, by its number.
    Cuda(usize),
}

impl FromStr for Device {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let number = |text: &str| {
            text.parse().map_err(|_| format!("`{text}` is no number of a GPU; the first is cuda:0"))
        };
        match text.split_once(':').unwrap_or((text, "0")) {
            ("auto", "0") if text == "auto" => Ok(Self::Auto),
            ("cpu", "0") if text == "cpu" => Ok(Self::Cpu),
            ("cuda", index) => Ok(Self::Cuda(number(index)?)),
            _ => Err("use auto, cpu, cuda, or cuda:N for one of several GPUs".into()),
        }
    }
}

/// A start on a GPU.
pub struct OnGpu<'a> {
    /// What was asked for.
    pub device: Device,
    /// An option that only the CPU has, if one was given.
    pub only_cpu: Option<&'static str>,
    /// The model.
    pub checkpoint: &'a Checkpoint,
    /// Window; `None` takes the model's own.
    pub context: Option<usize>,
    /// How to stretch it.
    pub rope_scaling: Option<RopeScalingChoice>,
    /// How float weights are packed.
    pub quantize: Option<Quantize>,
    /// Tokens of KV memory; `None` takes most of what is free.
    pub kv_tokens: Option<usize>,
}

impl OnGpu<'_> {
    /// The model on the GPU; `None` where it is to run on the CPU.
    pub fn load(&self) -> Result<Option<CudaExecutor>, Failure> {
        match (self.device, self.only_cpu) {
            (Device::Cpu, _) | (Device::Auto, Some(_)) => Ok(None),
            (Device::Cuda(_), Some(option)) => {
                let problem = format!("{option} works on the CPU only");
                Err(Failure::new(problem, format!("leave {option} out, or use --device cpu")))
            }
            (Device::Cuda(ordinal), None) => self.load_on(ordinal).map(Some).map_err(from_cuda),
            (Device::Auto, None) => Ok(self.try_first()),
        }
    }

    /// The first GPU, if it can run the model; whoever has a GPU is told why it is not used.
    fn try_first(&self) -> Option<CudaExecutor> {
        match self.load_on(0) {
            Ok(executor) => Some(executor),
            Err(error) if error.has_no_gpu() => None,
            Err(error) => {
                tell(&format!("the GPU is not used, the CPU is: {error}"));
                None
            }
        }
    }

    fn load_on(&self, ordinal: usize) -> Result<CudaExecutor, CudaError> {
        let options = CudaOptions {
            ordinal,
            context: self.context,
            rope_scaling: self.rope_scaling,
            quantize: self.quantize,
            kv_tokens: self.kv_tokens,
            cache: cache(),
            ..CudaOptions::default()
        };
        let bar = LoadBar::new();
        CudaExecutor::load(self.checkpoint, options, &mut |done, total| bar.show(done, total))
    }
}

/// Compiled kernels and tuned products are kept beside the models.
fn cache() -> Option<PathBuf> {
    Some(Config::from_env().ok()?.home.join("cuda"))
}

fn from_cuda(error: CudaError) -> Failure {
    Failure::new(error, "`--device cpu` runs it on the CPU; docs/gpu.md says what a GPU needs")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn devices_are_named_as_the_help_says_and_nothing_else_is_taken() {
        assert_eq!("auto".parse(), Ok(Device::Auto));
        assert_eq!("cpu".parse(), Ok(Device::Cpu));
        assert_eq!("cuda".parse(), Ok(Device::Cuda(0)));
        assert_eq!("cuda:3".parse(), Ok(Device::Cuda(3)));
        for wrong in ["gpu", "cuda:", "cuda:x", "cpu:1", "auto:0", ""] {
            assert!(wrong.parse::<Device>().is_err(), "{wrong}");
        }
    }
}
