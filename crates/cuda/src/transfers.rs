//! Blocks of keys and values on their way to the host and back.
//!
//! ```text
//! pool [layer][block] ── move_block ── packed [layer] ── one copy ── pinned memory ── the caller's bytes
//! ```
//! Exports have a stream of their own, so that they neither wait for the step in flight nor hold it up: none writes to a block that is
//! exported. Imports are queued behind the steps launched so far, which may still write to a block that was given back since.

use ropeway_executor::BlockId;

use crate::driver::{Buffer, Device, DriverError, Event, LaunchShape, Pinned, Stream};
use crate::error::CudaError;
use crate::kernels::MoveBlock;
use crate::program::Program;

/// Imports that may be queued before the first one has to be done.
const IMPORTS: usize = 4;

/// Thread blocks that move one layer's part of a block.
const PARTS: u32 = 4;

/// Which way a block goes.
#[derive(Clone, Copy)]
enum Direction {
    Out = 0,
    In = 1,
}

/// Memory that a block passes through.
struct Staging {
    packed: Buffer,
    pinned: Pinned,
    /// Passed when the device is done with both.
    done: Event,
}

impl Staging {
    fn new(device: &Device, bytes: usize) -> Result<Self, DriverError> {
        let (packed, pinned) = (device.allocate(bytes)?, device.allocate_pinned(bytes)?);
        Ok(Self { packed, pinned, done: device.event()? })
    }
}

/// Where blocks pass through.
pub(crate) struct Transfers {
    exports: Stream,
    out: Staging,
    imports: [Staging; IMPORTS],
    /// Of the imports, the one whose memory was used longest ago.
    next: usize,
}

impl Transfers {
    /// For blocks of so many bytes.
    pub(crate) fn new(device: &Device, bytes: usize) -> Result<Self, DriverError> {
        let staging = || Staging::new(device, bytes);
        let imports = [staging()?, staging()?, staging()?, staging()?];
        Ok(Self { exports: device.stream()?, out: staging()?, imports, next: 0 })
    }

    /// Writes what a block holds into `bytes`.
    pub(crate) fn export(
        &mut self,
        program: &Program,
        block: BlockId,
        bytes: &mut [u8],
    ) -> Result<(), CudaError> {
        // The exports' stream does not wait for the steps'; a block may have been imported just now.
        self.imports.iter().try_for_each(|import| import.done.synchronize())?;
        let Staging { packed, pinned, .. } = &mut self.out;
        move_block(program, &self.exports, block, packed, Direction::Out)?;
        self.exports.download(pinned, packed.address(), bytes.len())?;
        self.exports.synchronize()?;
        bytes.copy_from_slice(pinned.bytes());
        Ok(())
    }

    /// Makes a block hold `bytes`, before the next step that is launched.
    pub(crate) fn import(
        &mut self,
        program: &Program,
        block: BlockId,
        bytes: &[u8],
    ) -> Result<(), CudaError> {
        let Staging { packed, pinned, done } = &mut self.imports[self.next];
        self.next = (self.next + 1) % IMPORTS;
        done.synchronize()?;
        pinned.bytes_mut().copy_from_slice(bytes);
        program.stream.upload(packed.address(), pinned, 0, bytes.len())?;
        move_block(program, &program.stream, block, packed, Direction::In)?;
        Ok(program.stream.record(done)?)
    }
}

/// Queues the move of a block between the pool and packed memory.
fn move_block(
    program: &Program,
    stream: &Stream,
    block: BlockId,
    packed: &Buffer,
    direction: Direction,
) -> Result<(), DriverError> {
    let Program { kernels, kv, model, blocks, .. } = program;
    let arguments = MoveBlock {
        kv: kv.address(),
        packed: packed.address(),
        layer_bytes: (blocks * model.layer_block_bytes()) as u64,
        block_bytes: model.layer_block_bytes() as u32,
        block: block.0,
        into_pool: direction as u32,
    };
    let shape = LaunchShape { grid: [PARTS, model.layers as u32, 1], threads: 256, shared_bytes: 0 };
    stream.launch(&kernels.move_block, shape, &arguments)
}
