//! Which hardware a model runs on, and the start on a GPU.
//!
//! ```text
//! auto       the first GPU if there is one, the model fits and no option asks for what only the CPU does; else the CPU
//! cpu        the CPU
//! cuda[:N]   that GPU, or an error that says why not
//! ```

use std::path::PathBuf;
use std::str::FromStr;

use ropeway_cuda::driver::driver_major;
use ropeway_cuda::libraries::{LibraryError, Search};
use ropeway_cuda::{CudaError, CudaExecutor, CudaOptions, KvForm, Pair};
use ropeway_hub::Config;
use ropeway_model::{DecoderSpec, LoadError, Quantize, RopeScalingChoice, StepLimits};
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

/// How much memory keys and values get on a GPU.
#[derive(Clone, Copy, Debug)]
pub enum GpuRoom {
    /// One whole window.
    Window,
    /// Most of what is free.
    Free,
    /// So many tokens.
    Tokens(usize),
    /// So many bytes, for the model and the one that drafts for it together.
    Bytes(u64),
}

/// A start on a GPU.
pub struct OnGpu<'a> {
    /// What was asked for.
    pub device: Device,
    /// An option that only the CPU has, if one was given.
    pub only_cpu: Option<&'static str>,
    /// The model.
    pub checkpoint: &'a Checkpoint,
    /// The one that drafts for it.
    pub draft: Option<&'a Checkpoint>,
    /// Window; `None` takes the model's own.
    pub context: Option<usize>,
    /// How to stretch it.
    pub rope_scaling: Option<RopeScalingChoice>,
    /// How float weights are packed.
    pub quantize: Option<Quantize>,
    /// The form of keys and values, of both models.
    pub kv: KvForm,
    /// Memory for keys and values.
    pub room: GpuRoom,
    /// Most tokens and rows of logits in one step; `None` takes the defaults.
    pub step: Option<StepLimits>,
}

/// Models on a GPU.
pub struct GpuModels {
    /// The model.
    pub target: CudaExecutor,
    /// The one that drafts for it.
    pub draft: Option<CudaExecutor>,
}

impl OnGpu<'_> {
    /// The model on the GPU; `None` where it is to run on the CPU.
    pub fn load(&self) -> Result<Option<GpuModels>, Failure> {
        self.device.choose(self.only_cpu, |ordinal| self.load_on(ordinal))
    }

    fn load_on(&self, ordinal: usize) -> Result<GpuModels, CudaError> {
        let options = self.options(ordinal)?;
        let bar = LoadBar::new();
        let mut show = |done, total| bar.show(done, total);
        match self.draft {
            None => {
                let target = CudaExecutor::load(self.checkpoint, options, &mut show)?;
                Ok(GpuModels { target, draft: None })
            }
            Some(draft) => {
                let Pair { target, draft } = Pair::load(self.checkpoint, draft, &options, &mut show)?;
                Ok(GpuModels { target, draft: Some(draft) })
            }
        }
    }

    fn options(&self, ordinal: usize) -> Result<CudaOptions, CudaError> {
        let defaults = CudaOptions::default();
        let step = self.step.unwrap_or(StepLimits { tokens: defaults.step_tokens, rows: defaults.step_rows });
        Ok(CudaOptions {
            ordinal,
            context: self.context,
            rope_scaling: self.rope_scaling,
            quantize: self.quantize,
            kv: self.kv,
            kv_tokens: self.kv_tokens()?,
            step_tokens: step.tokens,
            step_rows: step.rows,
            search: search(),
            cache: cache(),
            ..defaults
        })
    }

    fn kv_tokens(&self) -> Result<Option<usize>, CudaError> {
        Ok(match self.room {
            GpuRoom::Free => None,
            GpuRoom::Tokens(tokens) => Some(tokens),
            GpuRoom::Window => {
                let spec = DecoderSpec::from_checkpoint(self.checkpoint).map_err(LoadError::from)?;
                Some(self.context.unwrap_or(spec.context))
            }
            GpuRoom::Bytes(bytes) => {
                let models = std::iter::once(self.checkpoint).chain(self.draft);
                Some(CudaOptions::kv_tokens_in(bytes, self.kv, models)?)
            }
        })
    }
}

/// Where libraries are looked for: as the environment says, and where `ropeway pull cuda` puts them.
pub fn search() -> Search {
    let search = Search::from_environment();
    match Config::from_env() {
        Ok(config) => search.with_folder(config.cuda_libraries()),
        Err(_) => search,
    }
}

/// Compiled kernels and tuned products are kept beside the models.
pub fn cache() -> Option<PathBuf> {
    Some(Config::from_env().ok()?.home.join("cuda"))
}

impl Device {
    /// What `load` brings onto a GPU; `None` where it is to run on the CPU. `only_cpu` is an option that only the CPU has, if one was given.
    pub fn choose<T>(
        self,
        only_cpu: Option<&str>,
        load: impl Fn(usize) -> Result<T, CudaError>,
    ) -> Result<Option<T>, Failure> {
        match (self, only_cpu) {
            (Device::Cpu, _) | (Device::Auto, Some(_)) => Ok(None),
            (Device::Cuda(_), Some(option)) => {
                let problem = format!("{option} works on the CPU only");
                Err(Failure::new(problem, format!("leave {option} out, or use --device cpu")))
            }
            (Device::Cuda(ordinal), None) => load(ordinal).map(Some).map_err(from_cuda),
            (Device::Auto, None) => Ok(try_first(load)),
        }
    }
}

/// What the first GPU can run; whoever has a GPU is told why it is not used.
fn try_first<T>(load: impl Fn(usize) -> Result<T, CudaError>) -> Option<T> {
    if matches!(driver_major(&search()), Err(LibraryError::NoDriver(_))) {
        return None;
    }
    match load(0) {
        Ok(models) => Some(models),
        Err(error) if error.has_no_gpu() => None,
        Err(error) => {
            tell(&format!("the GPU is not used, the CPU is: {error}"));
            None
        }
    }
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
