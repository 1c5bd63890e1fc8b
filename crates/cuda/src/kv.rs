//! The forms of keys and values on a device, and the bytes they take; the constants of `kernels/kv.cuh` and `attend.cuh`.

use crate::kernels::BLOCK;

/// Bytes of the scale that a token's quants of one head are multiplied by.
const SCALE: usize = 4;

/// The number format of keys and values.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum KvForm {
    /// 16-bit floats.
    #[default]
    Bf16,
    /// 8-bit integers with a scale per token and head: half the memory.
    Q8,
}

impl KvForm {
    /// All of them.
    pub const ALL: [Self; 2] = [Self::Bf16, Self::Q8];

    /// Bytes of a value, without its scale.
    pub fn value_bytes(self) -> usize {
        match self {
            Self::Bf16 => 2,
            Self::Q8 => 1,
        }
    }

    /// Bytes of a block's keys or values of one head.
    pub fn half_bytes(self, head_dim: usize) -> usize {
        BLOCK * (head_dim * self.value_bytes() + self.scale_bytes())
    }

    /// The same in shared memory, where tokens are an odd number of 16-byte pieces apart.
    pub fn shared_half_bytes(self, head_dim: usize) -> usize {
        let pieces = head_dim * self.value_bytes() / 16;
        BLOCK * ((pieces | 1) * 16 + self.scale_bytes())
    }

    fn scale_bytes(self) -> usize {
        match self {
            Self::Bf16 => 0,
            Self::Q8 => SCALE,
        }
    }

    /// What its kernels are compiled with.
    pub(crate) fn define(self) -> String {
        format!("KV8={}", u32::from(self == Self::Q8))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn eight_bits_take_half_the_bytes_and_a_scale() {
        for head_dim in [16, 64, 80, 128, 256] {
            let (wide, narrow) = (KvForm::Bf16.half_bytes(head_dim), KvForm::Q8.half_bytes(head_dim));
            assert_eq!(narrow, wide / 2 + BLOCK * SCALE, "{head_dim}");
        }
    }
}
