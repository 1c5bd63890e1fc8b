//! Everything on the device that a step computes in: one allocation, cut up once.

use crate::blas::Scratch;
use crate::driver::{Address, Buffer, Stream};
use crate::error::CudaError;
use crate::kernels::MOST_ALTERNATIVES;
use crate::plan::Slot;
use crate::sections::Sections;
use crate::shape::{ModelShape, RowClass, StepShape};

/// Bytes that products may use: partial sums of slices, and the library's own. A decoder has more, for slices side by side.
pub const PRODUCT_BYTES: usize = 64 << 20;

/// Tiles of a product whose slices are counted.
pub const PRODUCT_TILES: usize = 1 << 18;

/// Blocks that adjust logits at a time; each has a table of marks over the vocabulary.
pub const ADJUST_BLOCKS: usize = 64;

/// Places of a step's values.
#[derive(Clone, Copy, Debug)]
#[allow(missing_docs, reason = "`plan::Slot` and the kernels' arguments say what they are")]
pub struct Workspace {
    pub hidden: Address,
    pub normed: Address,
    pub projections: Address,
    pub queries: Address,
    pub attended: Address,
    /// Of rows whose logits are wanted.
    pub picked_hidden: Address,
    pub picked_attended: Address,
    pub branch: Address,
    pub gate_up: Address,
    pub gated: Address,
    pub logits: Address,
    pub adjusted_logits: Address,
    pub expert_results: Address,
    pub expert_logits: Address,
    pub experts_of: Address,
    pub expert_weights: Address,
    pub expert_lists: Address,
    pub expert_counts: Address,
    pub expert_work: Address,
    pub partial_values: Address,
    pub partial_stats: Address,
    /// Counters, zero between launches: of products' tiles, of sampling's marks.
    pub product_finished: Address,
    pub marks: Address,
    pub product_scratch: Scratch,
    /// A packed matrix as bf16, for the library.
    pub unpacked: Address,
    pub peaks: Address,
    pub adjusted_peaks: Address,
    pub chosen: Address,
    pub outcomes: Address,
    pub alternatives: Address,
    /// A step's arrays, laid out by [`Sections`].
    pub arrays: Address,
}

/// Cuts one allocation into places.
pub(crate) struct BumpAllocator {
    pub(crate) base: u64,
    pub(crate) used: usize,
}

impl BumpAllocator {
    /// The next place.
    pub(crate) fn allocate(&mut self, bytes: usize) -> Address {
        let address = Address(self.base + self.used as u64);
        self.used += bytes.next_multiple_of(256);
        address
    }
}

impl Workspace {
    /// Bytes that it takes.
    pub fn bytes(model: &ModelShape, step: &StepShape) -> usize {
        let mut allocator = BumpAllocator { base: 0, used: 0 };
        Self::cut(model, step, &mut allocator);
        allocator.used
    }

    /// Cuts `buffer` up, and clears it.
    pub fn new(
        model: &ModelShape,
        step: &StepShape,
        buffer: &Buffer,
        stream: &Stream,
    ) -> Result<Self, CudaError> {
        let mut allocator = BumpAllocator { base: buffer.address().0, used: 0 };
        let workspace = Self::cut(model, step, &mut allocator);
        stream.memset(buffer.address(), 0, buffer.bytes())?;
        Ok(workspace)
    }

    fn cut(model: &ModelShape, step: &StepShape, allocator: &mut BumpAllocator) -> Self {
        let (tokens, rows, pairs) = (step.tokens, step.rows, step.tokens * model.top_k);
        let product_bytes = PRODUCT_BYTES + model.branch_slices * tokens * model.hidden * 4;
        let mut take = |bytes| allocator.allocate(bytes);
        Self {
            hidden: take(tokens * model.hidden * 4),
            normed: take(tokens * model.hidden * 2),
            projections: take(tokens * model.projections() * 4),
            queries: take(tokens * model.queries() * 2),
            attended: take(tokens * model.queries() * 2),
            picked_hidden: take(rows * model.hidden * 4),
            picked_attended: take(rows * model.queries() * 2),
            branch: take(tokens * model.hidden * 4),
            gate_up: take(tokens * 2 * model.gated * 2),
            gated: take(tokens * model.gated * 2),
            logits: take(rows * model.vocab * 4),
            adjusted_logits: take(rows * model.vocab * 4),
            expert_results: take(pairs * model.hidden * 4),
            expert_logits: take(tokens * model.experts * 4),
            experts_of: take(pairs * 4),
            expert_weights: take(pairs * 4),
            expert_lists: take(pairs * 4),
            expert_counts: take(model.experts * 4),
            // Where tiles have 8 rows, and fewer where they have more.
            expert_work: take((pairs / 8 + model.experts).min(pairs) * 16),
            partial_values: take(step.items * model.queries() * 4),
            partial_stats: take(step.items * model.heads * 8),
            product_finished: take(PRODUCT_TILES * 4),
            marks: take(ADJUST_BLOCKS * model.vocab * 4),
            product_scratch: Scratch { address: take(product_bytes), bytes: product_bytes },
            unpacked: take(model.unpacked),
            peaks: take(rows * model.stretches() * 8),
            adjusted_peaks: take(rows * 8),
            chosen: take(rows * 4),
            outcomes: take(rows * 16),
            alternatives: take(rows * MOST_ALTERNATIVES * 8),
            arrays: take(Sections::new(model, step, RowClass::of(tokens)).bytes()),
        }
    }

    /// The place of a plan's slot.
    pub fn slot(&self, slot: Slot) -> Address {
        match slot {
            Slot::Normed => self.normed,
            Slot::Projections => self.projections,
            Slot::Attended => self.attended,
            Slot::PickedAttended => self.picked_attended,
            Slot::Branch => self.branch,
            Slot::GateUp => self.gate_up,
            Slot::Gated => self.gated,
            Slot::Logits => self.logits,
            Slot::ExpertResults => self.expert_results,
        }
    }
}
