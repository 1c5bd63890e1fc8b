//! Many token ids in little memory: a byte for each seven bits of an id.
//!
//! ```text
//! id           0..128     128..16384     16384..2097152
//! bytes        1          2              3
//! ```
//! Texts with a token for every byte are made of the tokens of bytes, which come first in most vocabularies. With at most
//! three bytes an id, any text and its tokens take no more than four times the text.

/// Bytes of a block: full blocks are never moved, so that no id is held twice while the list grows.
const BLOCK: usize = 16 << 10;

/// Bytes of the largest id.
const LARGEST_ID: usize = 5;

/// A list of token ids.
#[derive(Clone, Debug, Default)]
pub struct PackedTokens {
    /// No id begins in one block and ends in another.
    blocks: Vec<Vec<u8>>,
    len: usize,
}

impl PackedTokens {
    /// How many there are.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Adds ids at the end.
    pub fn extend(&mut self, ids: &[u32]) {
        for id in ids {
            self.push(*id);
        }
    }

    /// Adds an id at the end.
    pub fn push(&mut self, mut id: u32) {
        if self.blocks.last().is_none_or(|block| block.len() + LARGEST_ID > BLOCK) {
            // Lists may be short and many: only the second block is as long as those before.
            let room = if self.blocks.is_empty() { 0 } else { BLOCK };
            self.blocks.push(Vec::with_capacity(room));
        }
        let Some(block) = self.blocks.last_mut() else { return };
        while id >= 0x80 {
            block.push(id as u8 | 0x80);
            id >>= 7;
        }
        block.push(id as u8);
        self.len += 1;
    }

    /// How many blocks they are in.
    pub fn blocks(&self) -> usize {
        self.blocks.len()
    }

    /// The ids of a block.
    pub fn block(&self, index: usize) -> impl Iterator<Item = u32> {
        let mut bytes = self.blocks.get(index).into_iter().flatten();
        std::iter::from_fn(move || {
            let (mut id, mut shift) = (0, 0);
            for byte in bytes.by_ref() {
                id |= u32::from(byte & 0x7f) << shift;
                shift += 7;
                if *byte < 0x80 {
                    return Some(id);
                }
            }
            None
        })
    }

    /// The ids, unpacked.
    pub fn into_vec(self) -> Vec<u32> {
        let mut ids = Vec::with_capacity(self.len);
        ids.extend((0..self.blocks()).flat_map(|block| self.block(block)));
        ids
    }
}

impl FromIterator<u32> for PackedTokens {
    fn from_iter<I: IntoIterator<Item = u32>>(ids: I) -> Self {
        let mut packed = Self::default();
        for id in ids {
            packed.push(id);
        }
        packed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_id_comes_back_in_order() {
        let widths = (0..32).flat_map(|bits| [(1_u32 << bits) - 1, 1 << bits, (1 << bits) + 1]);
        let ids: Vec<u32> = widths.chain([u32::MAX]).cycle().take(50_000).collect();
        let packed: PackedTokens = ids.iter().copied().collect();
        assert_eq!(packed.len(), ids.len());
        assert!(packed.blocks() > 5);
        assert_eq!(packed.into_vec(), ids);
    }

    #[test]
    fn an_id_of_any_real_vocabulary_takes_at_most_three_bytes() {
        let packed: PackedTokens = std::iter::repeat_n((1 << 21) - 1, 100_000).collect();
        assert!(packed.blocks() * BLOCK <= 3 * packed.len() + BLOCK + packed.blocks() * LARGEST_ID);
    }
}
