//! The kernels that decoded rows attend with. All give the same bits; which one runs depends on a step's rows and their segments.

use crate::compile::Source;
use crate::driver::{DriverError, Function, Module, Shape, Stream};
use crate::error::CudaError;
use crate::kernels::{self, Attend, AttendShape, Constants, FEW_WARPS};
use crate::sections::Decodes;

/// Blocks that merge segments, per multiprocessor at most: about as many as run at once. Each takes rows and heads in turn.
const MERGE_BLOCKS: usize = 8;

/// Decode attention, loaded.
#[derive(Debug)]
pub struct DecodeKernels {
    segments: Function,
    /// Runs after `segments`.
    merge: Function,
    rows: Function,
    /// None where keys and values of few rows don't fit into shared memory.
    few: Option<Function>,
    shape: AttendShape,
}

impl DecodeKernels {
    /// What is compiled: two modules.
    pub fn sources(constants: Constants, shape: &AttendShape) -> [Source; 2] {
        let shared = include_str!("../kernels/attend_decode.cuh");
        let decode =
            [shared, include_str!("../kernels/attend_decode.cu"), include_str!("../kernels/attend_merge.cu")];
        let whole =
            [shared, include_str!("../kernels/attend_rows.cu"), include_str!("../kernels/attend_few.cu")];
        [decode, whole].map(|texts| kernels::attend(constants, shape, &texts))
    }

    /// Finds the kernels in their modules.
    pub fn find(modules: [&Module; 2], shape: AttendShape) -> Result<Self, CudaError> {
        let [decode, whole] = modules;
        let few = (shape.few_blocks > 0).then(|| whole.function("attend_few", shape.few_shared));
        Ok(Self {
            segments: decode.function("attend_decode", shape.decode_shared)?,
            merge: decode.function("attend_merge", 0)?,
            rows: whole.function("attend_rows", shape.decode_shared)?,
            few: few.transpose()?,
            shape,
        })
    }

    /// Queues the kernels for a step's decoded rows; `rows` are those of the step's class.
    pub fn launch(
        &self,
        stream: &Stream,
        decodes: Decodes,
        rows: usize,
        arguments: &Attend,
    ) -> Result<(), CudaError> {
        match decodes {
            Decodes::None => Ok(()),
            Decodes::Few => {
                let missing = || CudaError::Shape("this GPU has less shared memory than expected".into());
                let few = self.few.as_ref().ok_or_else(missing)?;
                let blocks = rows * units_of_a_row(arguments);
                let shape = blocks_of(blocks, FEW_WARPS * 32, self.shape.few_shared);
                Ok(stream.launch(few, shape, arguments)?)
            }
            Decodes::Rows => Ok(self.launch_warps(stream, &self.rows, arguments)?),
            Decodes::Segments => {
                self.launch_warps(stream, &self.segments, arguments)?;
                let multiprocessors = stream.device().properties().multiprocessors as usize;
                let merging = (rows * arguments.heads as usize).min(multiprocessors * MERGE_BLOCKS);
                let shape = blocks_of(merging, self.shape.merge_threads, 0);
                Ok(stream.launch(&self.merge, shape, arguments)?)
            }
        }
    }

    /// Queues a kernel whose warps take units in turn: a block per multiprocessor.
    fn launch_warps(
        &self,
        stream: &Stream,
        function: &Function,
        arguments: &Attend,
    ) -> Result<(), DriverError> {
        let AttendShape { decode_warps, decode_shared, .. } = self.shape;
        let multiprocessors = stream.device().properties().multiprocessors as usize;
        stream.launch(function, blocks_of(multiprocessors, decode_warps * 32, decode_shared), arguments)
    }
}

fn blocks_of(blocks: usize, threads: usize, shared_bytes: usize) -> Shape {
    Shape { grid: [blocks as u32, 1, 1], threads: threads as u32, shared_bytes }
}

/// A row's groups of heads that share keys and values, 16 heads at most in each.
fn units_of_a_row(arguments: &Attend) -> usize {
    (arguments.kv_heads * (arguments.heads / arguments.kv_heads).div_ceil(16)) as usize
}
