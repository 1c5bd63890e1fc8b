//! Integers and bytes in and out of flat memory.

/// Appends to a buffer.
pub(crate) trait Put {
    fn put(&mut self, bytes: &[u8]);

    fn put_u32(&mut self, value: u32) {
        self.put(&value.to_le_bytes());
    }

    fn put_u64(&mut self, value: u64) {
        self.put(&value.to_le_bytes());
    }

    /// A text with its length before it.
    fn put_text(&mut self, text: &str) {
        self.put_u32(text.len() as u32);
        self.put(text.as_bytes());
    }
}

impl Put for Vec<u8> {
    fn put(&mut self, bytes: &[u8]) {
        self.extend_from_slice(bytes);
    }
}

/// Takes from the beginning of a slice; `None` when too little is left.
pub(crate) trait Take<'a> {
    fn take(&mut self, bytes: usize) -> Option<&'a [u8]>;

    fn take_array<const N: usize>(&mut self) -> Option<[u8; N]> {
        self.take(N)?.try_into().ok()
    }

    fn take_u32(&mut self) -> Option<u32> {
        self.take_array().map(u32::from_le_bytes)
    }

    fn take_u64(&mut self) -> Option<u64> {
        self.take_array().map(u64::from_le_bytes)
    }

    /// A text of at most `limit` bytes, as [`Put::put_text`] wrote it.
    fn take_text(&mut self, limit: usize) -> Option<String> {
        let bytes = self.take_u32()? as usize;
        let text = if bytes <= limit { self.take(bytes)? } else { return None };
        String::from_utf8(text.to_vec()).ok()
    }
}

impl<'a> Take<'a> for &'a [u8] {
    fn take(&mut self, bytes: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.split_at_checked(bytes)?;
        *self = rest;
        Some(taken)
    }
}
