//! How attention's kernels fit into a GPU's shared memory: warps, stages and segments of a block. No row's bits depend on them.

use super::{Attend, BLOCK, SEGMENT_BLOCKS};
use crate::attention::DecodeForm;
use crate::driver::{Device, DriverError, Matrix, TensorMap};
use crate::error::CudaError;
use crate::kv::KvForm;

/// Halves of blocks that a warp of the kernel for few rows has in flight, as in `attend_few.cu`, and that one of the decode kernels has at
/// most.
const FEW_RING: usize = 6;

/// Halves that a warp of a decode kernel has in flight at least.
const LEAST_RING: usize = 3;

/// Warps of a block of the kernel for few rows, as in `attend_few.cu`.
pub(crate) const FEW_WARPS: usize = 4;

/// Shapes of the attention kernels for a head dimension and a GPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AttendShape {
    /// Warps of a block of the decode kernels.
    pub decode_warps: usize,
    /// Halves of blocks that each of them has in flight.
    pub decode_ring: usize,
    /// Its shared memory.
    pub decode_shared: usize,
    /// Threads of a block that merges segments, one per column.
    pub merge_threads: usize,
    /// Blocks of the kernel for few rows that a multiprocessor has room for, at most two.
    pub few_blocks: usize,
    /// Its shared memory.
    pub few_shared: usize,
    /// Segments of keys and values that a block of the prompt kernel holds.
    pub prompt_stages: usize,
    /// Its shared memory.
    pub prompt_shared: usize,
}

impl AttendShape {
    /// For heads of so many values in this form, and so many bytes of shared memory in a block.
    pub fn new(
        head_dim: usize,
        kv: KvForm,
        decodes: DecodeForm,
        shared_bytes: usize,
    ) -> Result<Self, CudaError> {
        let half = kv.shared_half_bytes(head_dim);
        let stages: &[usize] = if head_dim <= 128 { &[2, 1] } else { &[1] };
        let prompt = |stages: usize| 2 * stages * SEGMENT_BLOCKS * half;
        let Some(prompt_stages) = stages.iter().copied().find(|stages| prompt(*stages) <= shared_bytes)
        else {
            return Err(CudaError::Shape(format!(
                "attention with heads of {head_dim} values needs {} KiB of shared memory per multiprocessor, this GPU has {}",
                prompt(1).div_ceil(1024),
                shared_bytes / 1024
            )));
        };
        let slot = decodes.slot_bytes(head_dim, kv);
        let decode_warps = (shared_bytes / (LEAST_RING * slot)).min(most_decode_warps(head_dim));
        let decode_ring = (shared_bytes / (decode_warps * slot)).min(FEW_RING);
        let few_shared = FEW_WARPS * FEW_RING * slot;
        Ok(Self {
            decode_warps,
            decode_ring,
            decode_shared: decode_warps * decode_ring * slot,
            merge_threads: head_dim.next_multiple_of(32),
            few_blocks: (shared_bytes / few_shared).min(2),
            few_shared,
            prompt_stages,
            prompt_shared: prompt(prompt_stages),
        })
    }
}

impl Attend {
    /// A layer's keys and values of so many blocks as TMA takes them: a block's of one head at once. A row has 128 bytes or more,
    /// so that rows of 256 GB can be counted.
    pub(crate) fn map_kv(
        &self,
        device: &Device,
        head_dim: usize,
        blocks: usize,
    ) -> Result<TensorMap, DriverError> {
        device.tensor_map(Matrix {
            address: self.kv,
            columns: head_dim,
            rows: blocks * self.kv_heads as usize * 2 * BLOCK,
            box_rows: BLOCK,
        })
    }
}

/// Warps of a block of the decode kernels whose registers fit into a multiprocessor: it has 64 Ki of them.
fn most_decode_warps(head_dim: usize) -> usize {
    match head_dim {
        0..=64 => 12,
        65..=128 => 8,
        _ => 4,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOPPER: usize = 232_448;
    const AMPERE: usize = 166_912;
    const GAMING: usize = 101_376;

    #[test]
    fn smaller_gpus_have_fewer_warps_and_stages() {
        let shape_with = |decodes, head_dim, shared| {
            let shape = AttendShape::new(head_dim, KvForm::Bf16, decodes, shared).unwrap();
            assert!(shape.decode_shared <= shared && shape.decode_ring >= LEAST_RING);
            ([shape.decode_warps, shape.decode_ring], shape.few_blocks, shape.prompt_stages)
        };
        for (head_dim, wanted) in [(128, [8, 3]), (64, [12, 4]), (256, [4, 3])] {
            assert_eq!(shape_with(DecodeForm::Tma, head_dim, HOPPER).0, wanted);
        }
        let shape = |head_dim, shared| shape_with(DecodeForm::Threads, head_dim, shared);
        assert_eq!(shape(128, HOPPER), ([8, 3], 1, 2));
        assert_eq!(shape(64, HOPPER), ([12, 4], 2, 2));
        assert_eq!(shape(256, HOPPER), ([4, 3], 0, 1));
        assert_eq!(shape(128, AMPERE), ([6, 3], 0, 2));
        assert_eq!(shape(256, AMPERE), ([3, 3], 0, 1));
        assert_eq!(shape(128, GAMING), ([3, 3], 0, 1));
        assert_eq!(shape(64, GAMING), ([7, 3], 0, 2));
    }

    #[test]
    fn heads_that_do_not_fit_are_told_what_they_need() {
        let error = AttendShape::new(256, KvForm::Bf16, DecodeForm::Threads, GAMING).unwrap_err().to_string();
        assert!(error.contains("needs 132 KiB") && error.contains("has 99"), "{error}");
    }
}
