//! The kinds of blocks there are.

use crate::format::stride;
use crate::shelf::ShelfSpec;
use crate::status::Stock;

/// Number of a shelf, in this process only.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct ShelfId(pub(crate) u32);

#[derive(Debug)]
struct Entry {
    spec: ShelfSpec,
    blocks: u64,
}

/// All shelves, with how many blocks each has. Few: a search through the list is quick.
#[derive(Debug, Default)]
pub(crate) struct Shelves {
    entries: Vec<Entry>,
}

impl Shelves {
    pub(super) fn find_or_add(&mut self, spec: &ShelfSpec) -> ShelfId {
        let is_same = |entry: &Entry| {
            entry.spec.identity == spec.identity
                && entry.spec.block_bytes == spec.block_bytes
                && entry.spec.block_tokens == spec.block_tokens
        };
        let known = self.entries.iter().position(is_same);
        let index = known.unwrap_or_else(|| {
            self.entries.push(Entry { spec: spec.clone(), blocks: 0 });
            self.entries.len() - 1
        });
        ShelfId(index as u32)
    }

    fn entry(&self, id: ShelfId) -> &Entry {
        &self.entries[id.0 as usize]
    }

    pub(crate) fn spec(&self, id: ShelfId) -> &ShelfSpec {
        &self.entry(id).spec
    }

    /// Names change; what is written from now on has the new one.
    pub(crate) fn set_label(&mut self, id: ShelfId, label: &str) {
        self.entries[id.0 as usize].spec.label = label.to_string();
    }

    /// Bytes of a record.
    pub(crate) fn stride(&self, id: ShelfId) -> usize {
        stride(self.entry(id).spec.block_bytes)
    }

    pub(super) fn count(&mut self, id: ShelfId, change: i64) {
        let blocks = &mut self.entries[id.0 as usize].blocks;
        *blocks =
            blocks.checked_add_signed(change).expect("no more blocks leave a shelf than were put there");
    }

    pub(crate) fn stock(&self, id: ShelfId) -> Stock {
        let Entry { spec, blocks } = self.entry(id);
        let times = |each: usize| blocks.saturating_mul(each as u64);
        Stock { blocks: *blocks, tokens: times(spec.block_tokens), bytes: times(spec.block_bytes) }
    }

    pub(crate) fn ids(&self) -> impl Iterator<Item = ShelfId> + use<> {
        (0..self.entries.len() as u32).map(ShelfId)
    }

    /// What all shelves have.
    pub(crate) fn total(&self) -> Stock {
        self.ids().map(|id| self.stock(id)).fold(Stock::default(), |sum, stock| Stock {
            blocks: sum.blocks + stock.blocks,
            tokens: sum.tokens.saturating_add(stock.tokens),
            bytes: sum.bytes.saturating_add(stock.bytes),
        })
    }
}
