//! What a pass computes in: places on the device, and its arrays of words as they are uploaded.

use ropeway_model::encoder::{EncoderSpec, Texts};

use super::kernels::TILE;
use crate::blas::Scratch;
use crate::driver::{Address, Buffer, Device, Pinned, Stream};
use crate::error::CudaError;
use crate::products::ProductMemory;
use crate::shape::RowClass;
use crate::workspace::{BumpAllocator, PRODUCT_BYTES, PRODUCT_TILES};

/// Places of a pass's values.
#[derive(Clone, Copy, Debug)]
#[allow(missing_docs, reason = "named as in the kernels' arguments")]
pub(super) struct Memory {
    pub(super) hidden: Address,
    pub(super) ready: Address,
    pub(super) projections: Address,
    pub(super) qkv: Address,
    pub(super) attended: Address,
    pub(super) branch: Address,
    pub(super) inner: Address,
    pub(super) activated: Address,
    pub(super) pooled: Address,
    pub(super) pooled_ready: Address,
    pub(super) dense: Address,
    product_bytes: Address,
    product_finished: Address,
    arrays: Address,
    tokens: usize,
}

impl Memory {
    /// Bytes for passes of so many tokens.
    pub(super) fn bytes(spec: &EncoderSpec, tokens: usize) -> usize {
        let mut allocator = BumpAllocator { base: 0, used: 0 };
        Self::cut(spec, tokens, &mut allocator);
        allocator.used
    }

    /// Cuts `buffer` up, and clears it.
    pub(super) fn new(
        spec: &EncoderSpec,
        tokens: usize,
        buffer: &Buffer,
        stream: &Stream,
    ) -> Result<Self, CudaError> {
        stream.memset(buffer.address(), 0, buffer.bytes())?;
        Ok(Self::cut(spec, tokens, &mut BumpAllocator { base: buffer.address().0, used: 0 }))
    }

    fn cut(spec: &EncoderSpec, tokens: usize, allocator: &mut BumpAllocator) -> Self {
        let (hidden, width) = (tokens * spec.hidden, tokens * spec.width());
        let inner = tokens * spec.intermediate;
        Self {
            hidden: allocator.allocate(hidden * 4),
            ready: allocator.allocate(hidden * 2),
            projections: allocator.allocate(width * 3 * 4),
            qkv: allocator.allocate(width * 3 * 2),
            attended: allocator.allocate(width * 2),
            branch: allocator.allocate(hidden * 4),
            inner: allocator.allocate(inner * if spec.gated { 2 } else { 1 } * 4),
            activated: allocator.allocate(inner * 2),
            pooled: allocator.allocate(hidden * 4),
            pooled_ready: allocator.allocate(hidden * 2),
            dense: allocator.allocate(hidden * 4),
            product_bytes: allocator.allocate(PRODUCT_BYTES),
            product_finished: allocator.allocate(PRODUCT_TILES * 4),
            arrays: allocator.allocate(Section::words(tokens) * 4),
            tokens,
        }
    }

    /// What products use; nothing is unpacked for them.
    pub(super) fn products(&self) -> ProductMemory {
        ProductMemory {
            scratch: Scratch { address: self.product_bytes, bytes: PRODUCT_BYTES },
            unpacked: Scratch { address: Address::NULL, bytes: 0 },
            finished: self.product_finished,
        }
    }

    /// Where an array of the pass lies.
    pub(super) fn array(&self, section: Section) -> Address {
        self.arrays.plus(section.start(self.tokens) * 4)
    }
}

/// The arrays of a pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Section {
    /// `[rows]`.
    Tokens,
    /// `[rows]`.
    Types,
    /// `[rows]`, within the text.
    PositionIds,
    /// `[items][text, len, start]`.
    Items,
    /// `[texts][first row, rows]`.
    Texts,
    /// How many items there are.
    Count,
}

impl Section {
    const ALL: [Self; 6] =
        [Self::Tokens, Self::Types, Self::PositionIds, Self::Items, Self::Texts, Self::Count];

    /// Words per token of a pass; items and texts have at least one token each.
    fn width(self) -> usize {
        match self {
            Self::Tokens | Self::Types | Self::PositionIds | Self::Count => 1,
            Self::Items => 3,
            Self::Texts => 2,
        }
    }

    /// Its first word.
    fn start(self, tokens: usize) -> usize {
        Self::ALL.iter().take_while(|section| **section != self).map(|section| section.width() * tokens).sum()
    }

    fn words(tokens: usize) -> usize {
        Self::ALL.iter().map(|section| section.width() * tokens).sum()
    }
}

/// A pass's arrays on the host.
pub(super) struct Arrays {
    pinned: Pinned,
    tokens: usize,
}

impl Arrays {
    /// For passes of so many tokens.
    pub(super) fn new(device: &Device, tokens: usize) -> Result<Self, CudaError> {
        Ok(Self { pinned: device.allocate_pinned(Section::words(tokens) * 4)?, tokens })
    }

    /// Writes a pass's arrays, padded to its class, and queues their upload.
    pub(super) fn upload(
        &mut self,
        stream: &Stream,
        memory: &Memory,
        texts: &Texts<'_>,
        class: RowClass,
    ) -> Result<(), CudaError> {
        let rows = class.rows();
        let padded = |values: &mut dyn Iterator<Item = u32>| {
            let mut values: Vec<u32> = values.collect();
            values.resize(rows, 0);
            values
        };
        let kinds = &mut texts.types.iter().map(|kind| u32::from(*kind));
        let places = &mut texts.rows.iter().flat_map(|text| 0..text.len() as u32);
        let items: Vec<u32> = items(texts).collect();
        let firsts = texts.rows.iter().flat_map(|text| [text.start as u32, text.len() as u32]).collect();
        let count = vec![(items.len() / 3) as u32];
        for (section, words) in [
            (Section::Tokens, padded(&mut texts.tokens.iter().copied())),
            (Section::Types, padded(kinds)),
            (Section::PositionIds, padded(places)),
            (Section::Items, items),
            (Section::Texts, firsts),
            (Section::Count, count),
        ] {
            let start = section.start(self.tokens);
            self.pinned.words_mut()[start..start + words.len()].copy_from_slice(&words);
            stream.upload(memory.array(section), &self.pinned, start * 4, words.len() * 4)?;
        }
        Ok(())
    }
}

/// Texts in pieces of attention.
fn items<'a>(texts: &'a Texts<'_>) -> impl Iterator<Item = u32> + 'a {
    texts.rows.iter().flat_map(|text| {
        let (first, len) = (text.start as u32, text.len() as u32);
        (0..len).step_by(TILE).flat_map(move |start| [first, len, start])
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_cut_into_items_that_cover_them() {
        let texts = Texts { tokens: &[0; 133], types: &[], rows: &[0..3, 3..133] };
        let items: Vec<u32> = items(&texts).collect();
        assert_eq!(items, [0, 3, 0, 3, 130, 0, 3, 130, 64, 3, 130, 128]);
    }

    #[test]
    fn sections_follow_each_other() {
        assert_eq!(Section::ALL.map(|section| section.start(10)), [0, 10, 20, 30, 60, 80]);
        assert_eq!(Section::words(10), 90);
    }
}
