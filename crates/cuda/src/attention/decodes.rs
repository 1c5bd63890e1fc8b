//! The kernels that decoded rows attend with. All give the same bits. Which one runs depends on a step's rows and their segments; in which
//! form is decided when kernels are compiled.

use crate::compile::KernelSource;
use crate::driver::{Function, LaunchShape, Module, Stream};
use crate::error::CudaError;
use crate::kernels::{self, Attend, AttendShape, FEW_WARPS, KernelConstants, MappedAttend};
use crate::kv::KvForm;
use crate::sections::StepKind;

/// Blocks that merge segments, per multiprocessor at most: about as many as run at once. Each takes rows and heads in turn.
const MERGE_BLOCKS: usize = 8;

/// Bytes of a barrier that says that TMA has brought something.
const BARRIER: usize = 8;

/// How decoded rows attend. All ways give the same bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum DecodeStrategy {
    /// There are none.
    None,
    /// Few rows of few segments: a block per row and KV head, all at once.
    Few,
    /// Many rows of few segments: a warp per row and KV head.
    Rows,
    /// A warp per segment and KV head.
    Segments,
}

/// Who brings decoded rows' keys and values into shared memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum DecodeForm {
    /// The threads that multiply them: on every GPU.
    Threads,
    /// TMA: on Hopper alone, keys and values in bf16, heads of whole panels of 64 values.
    Tma,
}

impl DecodeForm {
    /// The forms that there are for a GPU's capability, a head dimension and a form of keys and values.
    pub fn possible(capability: u32, head_dim: usize, kv: KvForm) -> &'static [Self] {
        match (capability, head_dim % 64, kv) {
            (90, 0, KvForm::Bf16) => &[Self::Threads, Self::Tma],
            _ => &[Self::Threads],
        }
    }

    /// Bytes of shared memory for a block's keys or values of one head.
    pub(crate) fn slot_bytes(self, head_dim: usize, kv: KvForm) -> usize {
        match self {
            Self::Threads => kv.shared_half_bytes(head_dim),
            Self::Tma => kv.half_bytes(head_dim) + BARRIER,
        }
    }

    /// What its kernels are written in, beside what all attention kernels are.
    fn texts(self) -> &'static [&'static str] {
        match self {
            Self::Threads => &[include_str!("../../kernels/attend_decode.cuh")],
            Self::Tma => {
                &[include_str!("../../kernels/hopper.cuh"), include_str!("../../kernels/attend_decode.cuh")]
            }
        }
    }

    /// What they are compiled with.
    fn define(self) -> String {
        format!("KV_BY_TMA={}", u32::from(self == Self::Tma))
    }
}

/// Decode attention, loaded.
#[derive(Debug)]
pub struct DecodeKernels {
    form: DecodeForm,
    segments: Function,
    /// Runs after `segments`.
    merge: Function,
    rows: Function,
    /// None where keys and values of few rows don't fit into shared memory.
    few: Option<Function>,
    head_dim: usize,
    shape: AttendShape,
}

impl DecodeKernels {
    /// What is compiled: two modules.
    pub fn sources(constants: KernelConstants) -> Result<[KernelSource; 2], CudaError> {
        let form = constants.decode_form;
        let shape = constants.attend_shape()?;
        let segments =
            [include_str!("../../kernels/attend_decode.cu"), include_str!("../../kernels/attend_merge.cu")];
        let whole =
            [include_str!("../../kernels/attend_rows.cu"), include_str!("../../kernels/attend_few.cu")];
        Ok([segments, whole].map(|texts| {
            let texts = [form.texts(), &texts].concat();
            let mut source = kernels::attend(constants, &shape, &texts);
            source.defines.push(form.define());
            source
        }))
    }

    /// Finds the kernels in their modules.
    pub fn find(modules: [&Module; 2], constants: KernelConstants) -> Result<Self, CudaError> {
        let [decode, whole] = modules;
        let form = constants.decode_form;
        let shape = constants.attend_shape()?;
        let few = (shape.few_blocks > 0).then(|| whole.function("attend_few", shape.few_shared));
        Ok(Self {
            form,
            segments: decode.function("attend_decode", shape.decode_shared)?,
            merge: decode.function("attend_merge", 0)?,
            rows: whole.function("attend_rows", shape.decode_shared)?,
            few: few.transpose()?,
            head_dim: constants.head_dim,
            shape,
        })
    }

    /// Queues the kernels for a step's decoded rows, in a layer of so many blocks of keys and values.
    pub fn launch(
        &self,
        stream: &Stream,
        filled: StepKind,
        arguments: &Attend,
        blocks: usize,
    ) -> Result<(), CudaError> {
        let rows = filled.class.rows();
        let queue = |function, shape| match self.form {
            DecodeForm::Threads => stream.launch(function, shape, arguments),
            DecodeForm::Tma => {
                let kv = arguments.map_kv(stream.device(), self.head_dim, blocks)?;
                stream.launch(function, shape, &MappedAttend { attend: *arguments, kv })
            }
        };
        let multiprocessors = stream.device().properties().multiprocessors as usize;
        // Warps take units in turn: a block per multiprocessor.
        let AttendShape { decode_warps, decode_shared, few_shared, merge_threads, .. } = self.shape;
        let everywhere = blocks_of(multiprocessors, decode_warps * 32, decode_shared);
        match filled.decodes {
            DecodeStrategy::None => {}
            DecodeStrategy::Few => {
                let missing = || CudaError::Step("this GPU has less shared memory than expected".into());
                let few = self.few.as_ref().ok_or_else(missing)?;
                queue(few, blocks_of(rows * units_of_a_row(arguments), FEW_WARPS * 32, few_shared))?;
            }
            DecodeStrategy::Rows => queue(&self.rows, everywhere)?,
            DecodeStrategy::Segments => {
                queue(&self.segments, everywhere)?;
                let merging = (rows * arguments.heads as usize).min(multiprocessors * MERGE_BLOCKS);
                stream.launch(&self.merge, blocks_of(merging, merge_threads, 0), arguments)?;
            }
        }
        Ok(())
    }
}

fn blocks_of(blocks: usize, threads: usize, shared_bytes: usize) -> LaunchShape {
    LaunchShape { grid: [blocks as u32, 1, 1], threads: threads as u32, shared_bytes }
}

/// A row's groups of heads that share keys and values, 16 heads at most in each.
fn units_of_a_row(arguments: &Attend) -> usize {
    (arguments.kv_heads * (arguments.heads / arguments.kv_heads).div_ceil(16)) as usize
}
