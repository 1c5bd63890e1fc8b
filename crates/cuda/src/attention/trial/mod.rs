//! Attention by itself, on random queries, keys and values: for tests and measurements.
//!
//! `case`: one step's attention as plain data; `uploaded`: a case on a GPU; `numbers`: random values.

mod case;
mod numbers;
mod uploaded;

pub use case::{AttentionCase, Bounds, Piece};
pub use uploaded::Uploaded;

use super::{DecodeForm, DecodeKernels, PromptForm, PromptKernel};
use crate::compile::Compiler;
use crate::driver::{Device, Properties, Stream};
use crate::error::CudaError;
use crate::executor::CudaOptions;
use crate::kernels::KernelConstants;
use crate::kv::KvForm;

/// A GPU and its compiler.
pub struct AttentionBench {
    /// The GPU's queue.
    pub stream: Stream,
    compiler: Compiler,
}

impl AttentionBench {
    /// Opens the GPU that the options name.
    pub fn open(options: &CudaOptions) -> Result<Self, CudaError> {
        let device = Device::open(&options.search, options.ordinal)?;
        let properties = device.properties();
        let library = options.search.compiler(properties.driver_version / 1000)?;
        let compiler = Compiler::new(library, properties.capability, options.cache.clone())?;
        Ok(Self { stream: device.stream()?, compiler })
    }

    /// Compiles forms of prompt kernels and all of decode kernels for every head dimension that has several, side by side, so that the
    /// cache has them.
    pub fn prepare(&self, forms: &[PromptForm]) -> Result<(), CudaError> {
        let shapes = [(64, false), (64, true), (128, false), (128, true)];
        let Properties { shared_bytes, capability, .. } = *self.stream.device().properties();
        let mut sources = Vec::new();
        for ((head_dim, capped), kv) in shapes.into_iter().flat_map(|one| KvForm::ALL.map(|kv| (one, kv))) {
            for &decode_form in DecodeForm::possible(capability, head_dim, kv) {
                let constants =
                    KernelConstants { head_dim, hidden: 0, capped, kv, decode_form, shared_bytes };
                let shape = constants.attend_shape()?;
                sources.extend(forms.iter().map(|form| form.source(constants, &shape)));
                sources.extend(DecodeKernels::sources(constants)?);
            }
        }
        let compiler = &self.compiler;
        std::thread::scope(|scope| {
            let compile = |source| scope.spawn(move || compiler.compiled(source).map(drop));
            let threads: Vec<_> = sources.iter().map(compile).collect();
            threads.into_iter().try_for_each(|thread| thread.join().expect("a compiler does not panic"))
        })?;
        Ok(())
    }

    /// A form's kernels for a trial's decoded rows.
    pub fn decode_kernels(
        &self,
        form: DecodeForm,
        trial: &AttentionCase,
    ) -> Result<DecodeKernels, CudaError> {
        let constants = KernelConstants { decode_form: form, ..trial.constants(self.stream.device()) };
        let load = |source| -> Result<_, CudaError> {
            let compiled = self.compiler.compiled(&source)?;
            Ok(self.stream.device().module(&compiled.image)?)
        };
        let [decode, whole_rows] = DecodeKernels::sources(constants)?.map(load);
        DecodeKernels::find([&decode?, &whole_rows?], constants)
    }

    /// A kernel for a trial's prompts.
    pub fn kernel(&self, form: PromptForm, trial: &AttentionCase) -> Result<PromptKernel, CudaError> {
        let constants = trial.constants(self.stream.device());
        let shape = constants.attend_shape()?;
        let compiled = self.compiler.compiled(&form.source(constants, &shape))?;
        let module = self.stream.device().module(&compiled.image)?;
        PromptKernel::find(form, &module, constants)
    }
}
