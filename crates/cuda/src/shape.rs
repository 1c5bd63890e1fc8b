//! The sizes that everything on the device follows from: of the model, of a step, and the classes that row counts are rounded up to.
//!
//! Work is launched for a whole class of rows: graphs, tuned products and buffers exist once per class. Rows beyond a step's own are
//! computed like others and never looked at.

use ropeway_executor::StepSizes;
use ropeway_model::DecoderSpec;
use ropeway_model::spec::MlpSpec;

use crate::attention::DecodeForm;
use crate::driver::Properties;
use crate::error::CudaError;
use crate::kernels::{AttendShape, BLOCK, PREPARE_QKV_HEADS, SEGMENT, SEGMENT_BLOCKS, STRETCH};
use crate::kv::KvForm;
use crate::plan::Plan;
use crate::sections::MOST_WINDOWS;

/// Row counts that products are measured with: those of small steps, and some of large ones.
const MEASURED: [usize; 30] = [
    1, 8, 16, 32, 48, 64, 96, 128, 192, 256, 384, 512, 640, 768, 1024, 1280, 1536, 1792, 2048, 2560, 3072,
    3584, 4096, 4608, 5120, 5632, 6144, 6656, 7168, 8192,
];

/// Up to `LISTED_UP_TO` rows, classes are the numbers of `MEASURED`; beyond, they lie `LARGE_CLASS_STEP` rows apart, and a prompt's last
/// piece is padded by half of that on average.
const LISTED_UP_TO: usize = 1024;
const LARGE_CLASS_STEP: usize = 128;

/// Row counts that work is launched for. Small steps are latency; above, rows that nobody asked for cost as much as others. A step of one row
/// has its own class: products of packed weights read a good part less without the other rows of a tile.
const CLASSES: [usize; 71] = {
    let (mut classes, mut index) = ([0; 71], 0);
    while index < classes.len() {
        classes[index] = if index == 0 || classes[index - 1] < LISTED_UP_TO {
            MEASURED[index]
        } else {
            classes[index - 1] + LARGE_CLASS_STEP
        };
        index += 1;
    }
    classes
};

/// Most rows of a class whose launches are captured.
const MOST_CAPTURED: usize = 768;

/// Rows that every buffer holds at least: in classes of fewer rows, cuBLASLt still multiplies as many.
pub const LEAST_ROWS: usize = 8;

/// Tenths of a warp per multiprocessor from which a warp takes all segments of a row and a KV head: with fewer, too few reads are in flight to
/// keep memory busy. By counting, not measured.
const ROW_WARPS: usize = 15;

/// Query heads of a KV head that such a warp has room for, as in `attend_rows.cu`.
const ROW_HEADS: usize = 8;

/// Bytes for partial sums of decode attention: 8,192 segments of an 8B model, i.e. a million keys in one step.
const PARTIAL_BYTES: usize = 128 << 20;

/// Most entries of all block tables of a step.
const MOST_TABLE_ENTRIES: usize = 4 << 20;

/// Most inputs of a matrix: a row of it is uploaded in one piece.
const MOST_INPUTS: usize = 1 << 20;

/// A number of rows that work is launched for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RowClass(usize);

impl RowClass {
    /// Their numbers of rows, for the engine.
    pub const SIZES: StepSizes = StepSizes::Listed(&CLASSES);

    /// The smallest class that holds so many rows.
    pub fn of(rows: usize) -> Self {
        let class = CLASSES.iter().find(|class| **class >= rows);
        Self(class.copied().unwrap_or_else(|| rows.next_multiple_of(CLASSES[CLASSES.len() - 1])))
    }

    /// All classes up to the one that holds `most` rows.
    pub fn up_to(most: usize) -> impl Iterator<Item = RowClass> {
        let last = Self::of(most);
        CLASSES.iter().map(|class| Self(*class)).filter(move |class| *class <= last)
    }

    /// The class that products were measured with to know how this one is computed.
    pub fn measured(self) -> Self {
        let class = MEASURED.iter().find(|class| **class >= self.0);
        class.map_or(self, |class| Self(*class))
    }

    /// Whether its launches are captured in a graph. Larger steps take many times longer than their launches, and capturing makes the first
    /// of them wait.
    pub fn is_captured(self) -> bool {
        self.0 <= MOST_CAPTURED
    }

    /// How many rows it has.
    pub fn rows(self) -> usize {
        self.0
    }
}

/// The sizes of a model on a device.
#[derive(Clone, Copy, Debug, PartialEq)]
#[allow(missing_docs, reason = "as in `DecoderSpec`")]
pub struct ModelShape {
    pub vocab: usize,
    pub hidden: usize,
    pub heads: usize,
    pub kv_heads: usize,
    pub head_dim: usize,
    pub kv: KvForm,
    pub layers: usize,
    pub context: usize,
    /// Widest MLP of a token: the sum over its experts where it has some.
    pub gated: usize,
    /// Most experts that a layer holds, and that a token goes to; 0 without.
    pub experts: usize,
    pub top_k: usize,
    pub windows: usize,
    /// Bytes of the largest packed matrix of a layer as bf16; 0 where nothing is packed.
    pub unpacked: usize,
    /// Slices of bf16 matrices that may lie side by side until they are added to the residual stream; 0 where none is cut.
    pub branch_slices: usize,
}

impl ModelShape {
    /// The sizes of a model, if the kernels can run it.
    pub fn new(spec: &DecoderSpec, plan: &Plan, kv: KvForm) -> Result<Self, CudaError> {
        let refuse = |problem: String| Err(CudaError::Shape(problem));
        if !spec.head_dim.is_multiple_of(16) || spec.head_dim > 256 {
            return refuse(format!("heads of {} values are not a multiple of 16 up to 256", spec.head_dim));
        }
        if let Some(matrix) =
            plan.matrices.iter().find(|m| !m.inputs.is_multiple_of(8) || !m.outputs.is_multiple_of(4))
        {
            return refuse(format!("a matrix of {} x {} is not aligned", matrix.outputs, matrix.inputs));
        }
        if let Some(matrix) = plan.matrices.iter().find(|matrix| matrix.inputs > MOST_INPUTS) {
            return refuse(format!("a matrix of {} inputs is longer than {MOST_INPUTS}", matrix.inputs));
        }
        if plan.windows.len() > MOST_WINDOWS {
            let windows = plan.windows.len();
            return refuse(format!(
                "{windows} different windows of attention, at most {MOST_WINDOWS} are supported"
            ));
        }
        if spec.hidden > 16384 {
            return refuse(format!("a residual stream of {} values is wider than 16384", spec.hidden));
        }
        let (mut gated, mut experts, mut top_k) = (0, 0, 0);
        for layer in &spec.layers {
            match layer.mlp {
                MlpSpec::Dense { intermediate } => gated = gated.max(intermediate),
                MlpSpec::Experts(spec) => {
                    gated = gated.max(spec.intermediate * spec.top_k);
                    (experts, top_k) = (experts.max(spec.experts), top_k.max(spec.top_k));
                }
            }
        }
        Ok(Self {
            vocab: spec.vocab,
            hidden: spec.hidden,
            heads: spec.heads,
            kv_heads: spec.kv_heads,
            head_dim: spec.head_dim,
            kv,
            layers: spec.layers.len(),
            context: spec.context,
            gated,
            experts,
            top_k,
            windows: plan.windows.len(),
            unpacked: plan.unpacked_bytes(),
            branch_slices: plan.branch_slices(),
        })
    }

    /// Values of a token's queries.
    pub fn queries(&self) -> usize {
        self.heads * self.head_dim
    }

    /// Values of a token's queries, keys and values.
    pub fn projections(&self) -> usize {
        (self.heads + 2 * self.kv_heads) * self.head_dim
    }

    /// Parts of a group of query heads that share a KV head, 16 heads each.
    pub fn parts(&self) -> usize {
        (self.heads / self.kv_heads).div_ceil(16)
    }

    /// Bytes of a KV block in one layer.
    pub fn layer_block_bytes(&self) -> usize {
        self.kv_heads * 2 * self.kv.half_bytes(self.head_dim)
    }

    /// Bytes of a KV block in all layers.
    pub fn block_bytes(&self) -> usize {
        self.layers * self.layer_block_bytes()
    }

    /// Stretches of a row of logits.
    pub fn stretches(&self) -> usize {
        self.vocab.div_ceil(STRETCH)
    }

    /// Blocks of `prepare_qkv` for one token.
    pub fn prepare_qkv_blocks(&self) -> usize {
        (self.heads + 2 * self.kv_heads).div_ceil(PREPARE_QKV_HEADS)
    }
}

/// The sizes of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StepShape {
    /// Most tokens: a class.
    pub tokens: usize,
    /// Most rows of logits: a class, at most `tokens`.
    pub rows: usize,
    /// Most (row, segment) items of decode attention in one window's list.
    pub items: usize,
    /// Most entries of all block tables.
    pub table_entries: usize,
    /// Rows that count as few: all of their blocks of decode attention run at once.
    pub few_rows: usize,
    /// Rows from which a warp takes all segments of a row and a KV head; `usize::MAX` where it would have too many query heads.
    pub many_rows: usize,
}

impl StepShape {
    /// For steps of at most so many tokens and rows.
    pub fn new(
        model: &ModelShape,
        device: &Properties,
        tokens: usize,
        rows: usize,
    ) -> Result<Self, CudaError> {
        let attend = AttendShape::new(model.head_dim, model.kv, DecodeForm::Threads, device.shared_bytes)?;
        let multiprocessors = device.multiprocessors as usize;
        let tokens = RowClass::of(tokens.max(LEAST_ROWS)).measured().rows();
        let rows = RowClass::of(rows.min(tokens).max(LEAST_ROWS)).measured().rows();
        let most_segments = rows * model.context.div_ceil(SEGMENT);
        let few_rows = attend.few_blocks * multiprocessors / (model.kv_heads * model.parts());
        let items = (PARTIAL_BYTES / (model.queries() * 4)).min(most_segments).max(SEGMENT_BLOCKS * rows);
        let table_entries = ((rows + 64) * model.context.div_ceil(BLOCK)).min(MOST_TABLE_ENTRIES);
        let heads_fit = model.heads / model.kv_heads <= ROW_HEADS;
        let units = (multiprocessors * ROW_WARPS).div_ceil(10);
        let many_rows = if heads_fit { units.div_ceil(model.kv_heads) } else { usize::MAX };
        Ok(Self { tokens, rows, items, table_entries, few_rows, many_rows })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_class_holds_the_rows_it_is_for_and_wastes_at_most_half_from_eight_rows_on() {
        for rows in 8..=8192 {
            let class = RowClass::of(rows).rows();
            assert!(class >= rows && class < 2 * rows, "{rows}: {class}");
        }
        assert_eq!([1, 2].map(|rows| RowClass::of(rows).rows()), [1, 8]);
        assert_eq!(RowClass::of(9000).rows(), 16384);
    }

    #[test]
    fn large_classes_lie_close_together_and_are_computed_as_the_next_one_that_was_measured() {
        for rows in 1025..=8192 {
            assert!(RowClass::of(rows).rows() < rows + LARGE_CLASS_STEP, "{rows}");
        }
        let measured = |rows| RowClass::of(rows).measured().rows();
        assert_eq!([700, 1024, 1025, 2256, 8192, 9000].map(measured), [768, 1024, 1280, 2560, 8192, 16384]);
        let all: Vec<usize> = RowClass::up_to(8192).map(RowClass::rows).collect();
        assert!(MEASURED.iter().all(|class| all.contains(class)) && all.is_sorted());
    }
}
