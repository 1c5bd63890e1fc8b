//! The kernels that decoded rows attend with. All give the same bits; which one runs depends on a step's rows and their segments.

use crate::compile::Source;
use crate::driver::{Function, Module, Shape, Stream};
use crate::error::CudaError;
use crate::kernels::{self, Attend, AttendShape, Constants};
use crate::sections::Decodes;

/// Kernels for rows of up to one, two, three and four segments.
const SHORT: [&str; 4] = ["attend_short_1", "attend_short_2", "attend_short_3", "attend_short_4"];

/// Decode attention, loaded.
#[derive(Debug)]
pub struct DecodeKernels {
    segments: Function,
    /// None where keys and values of few rows don't fit into shared memory.
    few: Option<Function>,
    /// For rows of up to one, two, three and four segments, as far as these fit into shared memory.
    short: Vec<Function>,
    shape: AttendShape,
}

impl DecodeKernels {
    /// What is compiled: two modules.
    pub fn sources(constants: Constants, shape: &AttendShape) -> [Source; 2] {
        ["DECODE", "SHORT"].map(|part| kernels::attend(constants, shape, part))
    }

    /// Finds the kernels in their modules.
    pub fn find(modules: [&Module; 2], shape: AttendShape) -> Result<Self, CudaError> {
        let [decode, short] = modules;
        let few = (shape.few_blocks > 0).then(|| decode.function("attend_few", shape.few_shared));
        let short_of = |(name, segments)| short.function(name, segments * shape.short_shared);
        Ok(Self {
            segments: decode.function("attend_decode", shape.decode_shared)?,
            few: few.transpose()?,
            short: SHORT.into_iter().zip(1..=shape.short_segments).map(short_of).collect::<Result<_, _>>()?,
            shape,
        })
    }

    /// Queues the kernel for a step's decoded rows. `units` are those of the step's class: a row's heads that share keys, 16 at most.
    pub fn launch(
        &self,
        stream: &Stream,
        decodes: Decodes,
        units: usize,
        arguments: &Attend,
    ) -> Result<(), CudaError> {
        let (function, blocks, warps, shared_bytes) = match decodes {
            Decodes::None => return Ok(()),
            Decodes::Few => {
                let missing = || CudaError::Shape("this GPU has less shared memory than expected".into());
                (self.few.as_ref().ok_or_else(missing)?, units, 4, self.shape.few_shared)
            }
            Decodes::Short(segments) => {
                (&self.short[segments - 1], units, segments, segments * self.shape.short_shared)
            }
            Decodes::Segments => (
                &self.segments,
                self.blocks_at_once(stream),
                self.shape.decode_warps,
                self.shape.decode_shared,
            ),
        };
        let shape = Shape { grid: [blocks as u32, 1, 1], threads: warps as u32 * 32, shared_bytes };
        Ok(stream.launch(function, shape, arguments)?)
    }

    /// As many blocks of the kernel for any number of segments as run at once: each takes items in turn.
    fn blocks_at_once(&self, stream: &Stream) -> usize {
        let properties = stream.device().properties();
        properties.multiprocessors as usize * (properties.shared_bytes / self.shape.decode_shared).clamp(1, 2)
    }
}
