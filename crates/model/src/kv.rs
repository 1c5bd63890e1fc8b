//! The memory behind block tables: one array of blocks per layer.

use ropeway_kernels::kv::{BLOCK, KvFormat, KvLayout};
use ropeway_kernels::memory::Buffer;

use crate::DecoderSpec;

/// All KV blocks of a model. Memory is reserved at once and touched only as blocks are used.
#[derive(Debug)]
pub struct KvCache {
    layout: KvLayout,
    layers: Vec<Buffer<u8>>,
    blocks: usize,
}

impl KvCache {
    /// Room for `blocks` blocks of 32 tokens.
    pub fn new(spec: &DecoderSpec, format: KvFormat, blocks: usize) -> Self {
        let layout = Self::layout_of(spec, format);
        let layers = spec.layers.iter().map(|_| Buffer::zeroed(blocks * layout.block_bytes())).collect();
        Self { layout, layers, blocks }
    }

    /// Shape of the blocks a model needs.
    pub fn layout_of(spec: &DecoderSpec, format: KvFormat) -> KvLayout {
        KvLayout { format, kv_heads: spec.kv_heads, head_dim: spec.head_dim }
    }

    /// Bytes that `blocks` blocks take over all layers.
    pub fn bytes_for(spec: &DecoderSpec, format: KvFormat, blocks: usize) -> usize {
        Self::layout_of(spec, format).block_bytes() * spec.layers.len() * blocks
    }

    /// Shape of a block.
    pub fn layout(&self) -> KvLayout {
        self.layout
    }

    /// How many blocks there are.
    pub fn blocks(&self) -> usize {
        self.blocks
    }

    /// How many tokens they hold.
    pub fn tokens(&self) -> usize {
        self.blocks * BLOCK
    }

    /// Copies what block `from` holds into block `to`.
    pub fn copy(&mut self, from: usize, to: usize) {
        let bytes = self.layout.block_bytes();
        for layer in &mut self.layers {
            layer.copy_within(from * bytes..(from + 1) * bytes, to * bytes);
        }
    }

    /// Bytes of one block over all layers.
    pub fn block_bytes(&self) -> usize {
        self.layout.block_bytes() * self.layers.len()
    }

    /// Writes what a block holds, layer after layer; `bytes` has exactly [`KvCache::block_bytes`].
    pub fn export(&self, block: usize, bytes: &mut [u8]) {
        let each = self.layout.block_bytes();
        for (layer, part) in self.layers.iter().zip(bytes.chunks_exact_mut(each)) {
            part.copy_from_slice(&layer[block * each..(block + 1) * each]);
        }
    }

    /// Makes a block hold what was exported.
    pub fn import(&mut self, block: usize, bytes: &[u8]) {
        let each = self.layout.block_bytes();
        for (layer, part) in self.layers.iter_mut().zip(bytes.chunks_exact(each)) {
            layer[block * each..(block + 1) * each].copy_from_slice(part);
        }
    }

    /// One layer's blocks.
    pub(crate) fn layer(&mut self, layer: usize) -> &mut [u8] {
        &mut self.layers[layer]
    }
}
