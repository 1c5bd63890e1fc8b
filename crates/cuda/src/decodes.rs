//! The kernels that decoded rows attend with. All give the same bits; which one runs depends on a step's rows and their segments.

use crate::compile::Source;
use crate::driver::{DriverError, Function, Module, Shape, Stream};
use crate::error::CudaError;
use crate::kernels::{self, Attend, AttendShape, Constants};
use crate::sections::Decodes;

/// Kernels for rows of up to one, two, three and four segments.
const SHORT: [&str; 4] = ["attend_short_1", "attend_short_2", "attend_short_3", "attend_short_4"];

/// Blocks that merge segments, per multiprocessor at most: about as many as run at once. Each takes rows and heads in turn.
const MERGE_BLOCKS: usize = 8;

/// Decode attention, loaded.
#[derive(Debug)]
pub struct DecodeKernels {
    segments: Function,
    /// Runs after `segments`.
    merge: Function,
    /// None where keys and values of few rows don't fit into shared memory.
    few: Option<Function>,
    /// For rows of up to one, two, three and four segments, as far as these fit into shared memory.
    short: Vec<Function>,
    shape: AttendShape,
}

impl DecodeKernels {
    /// What is compiled: two modules.
    pub fn sources(constants: Constants, shape: &AttendShape) -> [Source; 2] {
        let shared = include_str!("../kernels/attend_decode.cuh");
        let decode =
            [shared, include_str!("../kernels/attend_decode.cu"), include_str!("../kernels/attend_merge.cu")];
        let short = [shared, include_str!("../kernels/attend_short.cu")];
        [&decode[..], &short[..]].map(|texts| kernels::attend(constants, shape, texts))
    }

    /// Finds the kernels in their modules.
    pub fn find(modules: [&Module; 2], shape: AttendShape) -> Result<Self, CudaError> {
        let [decode, short] = modules;
        let few = (shape.few_blocks > 0).then(|| decode.function("attend_few", shape.few_shared));
        let short_of = |(name, segments)| short.function(name, segments * shape.short_shared);
        Ok(Self {
            segments: decode.function("attend_decode", shape.decode_shared)?,
            merge: decode.function("attend_merge", 0)?,
            few: few.transpose()?,
            short: SHORT.into_iter().zip(1..=shape.short_segments).map(short_of).collect::<Result<_, _>>()?,
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
        let (function, warps, shared_bytes) = match decodes {
            Decodes::None => return Ok(()),
            Decodes::Segments => return Ok(self.launch_segments(stream, rows, arguments)?),
            Decodes::Few => {
                let missing = || CudaError::Shape("this GPU has less shared memory than expected".into());
                (self.few.as_ref().ok_or_else(missing)?, 4, self.shape.few_shared)
            }
            Decodes::Short(segments) => {
                (&self.short[segments - 1], segments, segments * self.shape.short_shared)
            }
        };
        let units = rows as u32 * units_of_a_row(arguments);
        let shape = Shape { grid: [units, 1, 1], threads: warps as u32 * 32, shared_bytes };
        Ok(stream.launch(function, shape, arguments)?)
    }

    /// Queues the kernel for any number of segments, a block per multiprocessor, and the one that merges what it leaves.
    fn launch_segments(&self, stream: &Stream, rows: usize, arguments: &Attend) -> Result<(), DriverError> {
        let properties = stream.device().properties();
        let AttendShape { decode_warps, decode_shared, merge_threads, .. } = self.shape;
        let multiprocessors = properties.multiprocessors as usize;
        let shape = |blocks, threads, shared_bytes| Shape {
            grid: [blocks as u32, 1, 1],
            threads: threads as u32,
            shared_bytes,
        };
        stream.launch(&self.segments, shape(multiprocessors, decode_warps * 32, decode_shared), arguments)?;
        let merging = (rows * arguments.heads as usize).min(multiprocessors * MERGE_BLOCKS);
        stream.launch(&self.merge, shape(merging, merge_threads, 0), arguments)
    }
}

/// A row's groups of heads that share keys and values, 16 heads at most in each.
fn units_of_a_row(arguments: &Attend) -> u32 {
    arguments.kv_heads * (arguments.heads / arguments.kv_heads).div_ceil(16)
}
