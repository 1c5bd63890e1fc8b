//! Random values for queries, keys and values.

/// Fills bytes with numbers.
pub(super) fn write<const N: usize>(bytes: &mut [u8], mut number: impl FnMut() -> [u8; N]) {
    for to in bytes.as_chunks_mut().0 {
        *to = number();
    }
}

/// Random numbers of a seed (xorshift).
pub(super) struct Numbers(u64);

impl Numbers {
    pub(super) fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 >> 11
    }

    pub(super) fn below(&mut self, end: usize) -> usize {
        (self.next() % end.max(1) as u64) as usize
    }

    /// Between -127 and 127.
    pub(super) fn quant(&mut self) -> i8 {
        ((self.next() % 255) as i16 - 127) as i8
    }

    /// What makes quants values between -2 and 2, or less.
    pub(super) fn scale(&mut self) -> f32 {
        (self.next() % 4096) as f32 / (4096.0 * 63.5)
    }

    /// Between -2 and 2.
    pub(super) fn bf16(&mut self) -> u16 {
        let value = (self.next() % 4096) as f32 / 1024.0 - 2.0;
        (value.to_bits() >> 16) as u16
    }
}
