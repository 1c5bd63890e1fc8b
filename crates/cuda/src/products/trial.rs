//! One packed product by itself, on random weights and inputs: for tests and measurements.

use super::tune::time_calls;
use super::{Launch, ProductKey, ProductMemory, Products};
use crate::blas::{Operands, Scratch};
use crate::compile::Compiler;
use crate::driver::{Buffer, Device, LaunchShape, Stream};
use crate::error::CudaError;
use crate::executor::CudaOptions;
use crate::kernels::{LinearKernel, ProductKernels, Randomise, compile_all, linear_source, load_all};
use crate::packed::{PackedForm, PackedKernels, has_wgmma, packed_source, randomise, warpgroups_source};
use crate::plan::{Form, MatrixPlan, MatrixRole, Results};
use crate::shape::RowClass;
use crate::workspace::{PRODUCT_BYTES, PRODUCT_TILES};

/// Bytes of all copies of a matrix: several times the cache of any GPU.
const WEIGHT_BYTES: usize = 256 << 20;

/// Products of one measurement, and measurements of which the fastest counts.
const CALLS: usize = 32;
const ROUNDS: usize = 5;

/// A GPU with the products of packed forms.
pub struct ProductBench {
    stream: Stream,
    kernels: ProductKernels,
}

/// A product.
#[derive(Clone, Copy, Debug)]
pub struct ProductCase {
    /// How the matrix is packed.
    pub form: PackedForm,
    /// Rows of the matrix.
    pub outputs: usize,
    /// Its columns.
    pub inputs: usize,
    /// Pieces of its inputs that are summed apart.
    pub slices: usize,
    /// The form of the results.
    pub results: Results,
    /// How many rows it is multiplied with: one of the classes that steps have.
    pub rows: usize,
}

impl ProductBench {
    /// Opens the GPU that the options name, with the kernels of these forms.
    pub fn open(options: &CudaOptions, forms: &[PackedForm]) -> Result<Self, CudaError> {
        let device = Device::open(&options.search, options.ordinal)?;
        let properties = device.properties();
        let library = options.search.compiler(properties.driver_version / 1000)?;
        let compiler = Compiler::new(library, properties.capability, options.cache.clone())?;
        let shared_bytes = properties.shared_bytes;
        let mut sources = vec![linear_source(shared_bytes)];
        sources.extend(forms.iter().map(|form| packed_source(*form, shared_bytes)));
        let more = forms.iter().filter(|_| has_wgmma(properties));
        sources.extend(more.map(|form| warpgroups_source(*form)));
        let modules = load_all(&device, &compile_all(&compiler, &sources)?)?;
        let (packed, warpgroups) = modules[1..].split_at(forms.len());
        let packed = packed.iter().zip(forms).enumerate().map(|(index, (module, form))| {
            PackedKernels::load(module, warpgroups.get(index), *form, shared_bytes)
        });
        let kernels =
            ProductKernels::load(&modules[0], None, packed.collect::<Result<_, _>>()?, shared_bytes)?;
        let stream = device.stream()?;
        Ok(Self { stream, kernels })
    }

    /// Every kernel that computes products of a form, the reference first.
    pub fn kernels(&self, form: PackedForm) -> impl Iterator<Item = &LinearKernel> {
        self.kernels.every_tile(Form::Packed(form))
    }

    /// Brings a trial onto the GPU.
    pub fn prepare(&self, trial: ProductCase) -> Result<Prepared<'_>, CudaError> {
        let device = self.stream.device();
        let copies = WEIGHT_BYTES.div_ceil(trial.matrix().bytes()).clamp(2, CALLS);
        let weights = (0..copies).map(|_| device.allocate(trial.matrix().bytes()));
        let prepared = Prepared {
            laboratory: self,
            trial,
            weights: weights.collect::<Result<_, _>>()?,
            x: device.allocate(trial.rows * trial.inputs * 2)?,
            y: device.allocate(trial.rows * trial.outputs * trial.results.bytes())?,
            scratch: device.allocate(PRODUCT_BYTES)?,
            finished: device.allocate(PRODUCT_TILES * 4)?,
        };
        prepared.fill()?;
        Ok(prepared)
    }
}

impl ProductCase {
    fn matrix(&self) -> MatrixPlan {
        let Self { form, outputs, inputs, slices, results, .. } = *self;
        MatrixPlan {
            role: MatrixRole::Head,
            outputs,
            inputs,
            copies: 1,
            slices,
            results,
            form: Form::Packed(form),
        }
    }
}

/// A trial on a GPU.
pub struct Prepared<'a> {
    laboratory: &'a ProductBench,
    trial: ProductCase,
    /// Several matrices, so that none is in the cache when its turn comes.
    weights: Vec<Buffer>,
    x: Buffer,
    y: Buffer,
    scratch: Buffer,
    finished: Buffer,
}

impl Prepared<'_> {
    fn fill(&self) -> Result<(), CudaError> {
        let ProductBench { stream, kernels } = self.laboratory;
        for (seed, w) in self.weights.iter().enumerate() {
            let packed = kernels.packed(self.trial.form);
            randomise(stream, packed, &self.trial.matrix(), w.address(), seed as u32)?;
        }
        let count = (self.trial.rows * self.trial.inputs) as u64;
        let arguments = Randomise { values: self.x.address(), count, seed: 1, amount: 1.0 };
        let shape = LaunchShape { grid: [256, 1, 1], threads: 256, shared_bytes: 0 };
        stream.launch(&kernels.randomise, shape, &arguments)?;
        Ok(stream.memset(self.finished.address(), 0, self.finished.bytes())?)
    }

    /// Queues the product by a kernel, with the matrices in turn.
    fn launch(&self, kernel: &LinearKernel, call: usize) -> Result<(), CudaError> {
        let ProductBench { stream, kernels } = self.laboratory;
        let nothing = Scratch { address: self.scratch.address(), bytes: 0 };
        let memory = ProductMemory {
            scratch: Scratch { address: self.scratch.address(), bytes: PRODUCT_BYTES },
            unpacked: nothing,
            finished: self.finished.address(),
        };
        let key = ProductKey::new(&self.trial.matrix(), RowClass::of(self.trial.rows));
        let w = self.weights[call % self.weights.len()].address();
        let operands = Operands { w, x: self.x.address(), y: self.y.address() };
        Products::new(None, memory).own(Launch { stream, kernels, key, operands }, kernel)
    }

    /// Bytes of one matrix.
    pub fn bytes(&self) -> usize {
        self.trial.matrix().bytes()
    }

    /// The bytes of a kernel's results. Values that it does not write are NaN.
    pub fn results(&self, kernel: &LinearKernel) -> Result<Vec<u8>, CudaError> {
        let stream = &self.laboratory.stream;
        stream.memset(self.y.address(), 0xff, self.y.bytes())?;
        self.launch(kernel, 0)?;
        let mut pinned = stream.device().allocate_pinned(self.y.bytes())?;
        stream.download(&mut pinned, self.y.address(), self.y.bytes())?;
        stream.synchronize()?;
        Ok(pinned.bytes()[..self.y.bytes()].to_vec())
    }

    /// Microseconds of one product by a kernel.
    pub fn microseconds(&self, kernel: &LinearKernel) -> Result<f64, CudaError> {
        time_calls(&self.laboratory.stream, CALLS, ROUNDS, |call| self.launch(kernel, call))
    }
}
