//! The block pool: who holds which block, and which one goes next when a new one is needed.
//!
//! ```text
//! referenced   some sequences' tables hold it (counted)
//! cached       nobody holds it, but its content has a name and can be shared again     ┐ the free list,
//! free         nobody holds it, and nothing in it is worth keeping                     ┘ oldest first
//! ```
//! The free list is the eviction order: blocks are taken from its front, blocks worth keeping are put at its back.
//! Every operation costs the same however large the pool; nothing is allocated after [`Pool::new`].
//! `free + cached + referenced == total` always ([`Pool::audit`]).

use ropeway_executor::BlockId;

use super::prefix::{BlockHash, Index};

/// No block: the end of the free list.
const NONE: u32 = u32::MAX;

#[derive(Clone, Debug)]
struct Block {
    /// Tables that hold it.
    refs: u32,
    /// Scratch of [`Pool::held_only_by`]: 0 in between.
    seen: u32,
    /// The name of its content while it can be found.
    hash: Option<BlockHash>,
    /// Its neighbours in the free list while `refs` is 0.
    previous: u32,
    next: u32,
}

/// How many blocks are in which state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Nobody holds them and nothing is in them.
    pub free: usize,
    /// Nobody holds them, their content can be found.
    pub cached: usize,
    /// Some table holds them.
    pub referenced: usize,
}

impl Counts {
    /// Blocks that a table could get.
    pub fn available(self) -> usize {
        self.free + self.cached
    }

    /// All of them.
    pub fn total(self) -> usize {
        self.free + self.cached + self.referenced
    }
}

/// All blocks of an executor.
#[derive(Debug)]
pub struct Pool {
    blocks: Vec<Block>,
    front: u32,
    back: u32,
    index: Index,
    counts: Counts,
    /// What happened to names, for whoever keeps content elsewhere; `None` where nobody does.
    news: Option<News>,
}

/// A block and the name of what it holds.
pub type Named = (BlockId, BlockHash);

/// What happened to names since it was last looked at.
#[derive(Debug, Default)]
pub struct News {
    /// Blocks that got a name.
    pub named: Vec<Named>,
    /// Blocks that were taken for something else. They hold what they held until a step writes to them.
    pub evicted: Vec<Named>,
}

impl Pool {
    /// A pool of `total` free blocks.
    pub fn new(total: usize) -> Self {
        let block = Block { refs: 0, seen: 0, hash: None, previous: NONE, next: NONE };
        let mut index = Index::default();
        index.reserve(total);
        let counts = Counts { free: total, ..Counts::default() };
        let mut pool =
            Self { blocks: vec![block; total], front: NONE, back: NONE, index, counts, news: None };
        for block in 0..total as u32 {
            pool.link_back(block);
        }
        pool
    }

    /// Notes from now on what happens to names.
    pub fn watch(&mut self) {
        let named = Vec::with_capacity(self.blocks.len());
        self.news = Some(News { named: named.clone(), evicted: named });
    }

    /// What happened to names; whoever reads it empties it.
    pub fn news(&mut self) -> Option<&mut News> {
        self.news.as_mut()
    }

    /// The name of a block's content, while it can be found.
    pub fn name(&self, block: BlockId) -> Option<BlockHash> {
        self.blocks[block.0 as usize].hash
    }

    /// How many blocks are in which state.
    pub fn counts(&self) -> Counts {
        self.counts
    }

    /// Takes the block that was useless or unused for longest; `None` when every block is held.
    pub fn take(&mut self) -> Option<BlockId> {
        let block = self.front;
        if block == NONE {
            return None;
        }
        self.unlink(block);
        if let Some(hash) = self.blocks[block as usize].hash.take() {
            self.index.remove(&hash);
            self.counts.cached -= 1;
            if let Some(news) = &mut self.news {
                news.evicted.push((BlockId(block), hash));
            }
        } else {
            self.counts.free -= 1;
        }
        self.counts.referenced += 1;
        self.blocks[block as usize].refs = 1;
        Some(BlockId(block))
    }

    /// One more table holds `block`.
    pub fn share(&mut self, block: BlockId) {
        let index = block.0 as usize;
        if self.blocks[index].refs == 0 {
            self.unlink(block.0);
            self.leave_free_list(index);
            self.counts.referenced += 1;
        }
        self.blocks[index].refs += 1;
    }

    /// One table less holds `block`.
    pub fn release(&mut self, block: BlockId) {
        let index = block.0 as usize;
        assert!(self.blocks[index].refs > 0, "a block is released once per holder");
        self.blocks[index].refs -= 1;
        if self.blocks[index].refs > 0 {
            return;
        }
        self.counts.referenced -= 1;
        if self.blocks[index].hash.is_some() {
            self.counts.cached += 1;
            self.link_back(block.0);
        } else {
            self.counts.free += 1;
            self.link_front(block.0);
        }
    }

    /// Gives the content of a held, full block its name, unless another block has that name already.
    pub fn register(&mut self, block: BlockId, hash: BlockHash) {
        debug_assert!(self.blocks[block.0 as usize].refs > 0, "only a held block has content");
        let entry = self.index.entry(hash).or_insert(block);
        let is_new = *entry == block && self.blocks[block.0 as usize].hash.replace(hash).is_none();
        if is_new && let Some(news) = &mut self.news {
            news.named.push((block, hash));
        }
    }

    /// The block that holds this content.
    pub fn find(&self, hash: BlockHash) -> Option<BlockId> {
        self.index.get(&hash).copied()
    }

    /// Takes the name of a held block's content away: nobody else shall find it.
    pub fn unname(&mut self, block: BlockId) {
        debug_assert!(self.blocks[block.0 as usize].refs > 0, "only a held block loses its name");
        if let Some(hash) = self.blocks[block.0 as usize].hash.take() {
            self.index.remove(&hash);
        }
    }

    /// Takes the name of this content away, whether or not somebody holds it: nobody shall find it, in any tier.
    pub fn discredit(&mut self, hash: BlockHash) {
        let Some(block) = self.find(hash) else { return };
        if self.blocks[block.0 as usize].refs > 0 {
            return self.unname(block);
        }
        self.free_cached(block, hash);
    }

    /// Gives up content that nobody holds, as if its block were needed; whether there was any.
    pub fn evict(&mut self, hash: BlockHash) -> bool {
        let unheld = |block: &BlockId| self.blocks[block.0 as usize].refs == 0;
        let Some(block) = self.find(hash).filter(unheld) else { return false };
        self.free_cached(block, hash);
        if let Some(news) = &mut self.news {
            news.evicted.push((block, hash));
        }
        true
    }

    fn free_cached(&mut self, block: BlockId, hash: BlockHash) {
        self.index.remove(&hash);
        self.blocks[block.0 as usize].hash = None;
        self.unlink(block.0);
        self.link_front(block.0);
        self.counts.cached -= 1;
        self.counts.free += 1;
    }

    /// Whether more than one table holds `block`, so that none may write to it.
    pub fn is_shared(&self, block: BlockId) -> bool {
        self.blocks[block.0 as usize].refs > 1
    }

    /// Blocks that would be free if these tables gave theirs back: those that nobody else holds.
    pub fn held_only_by<'a>(&mut self, tables: impl Iterator<Item = &'a [BlockId]> + Clone) -> usize {
        let mut only = 0;
        for block in tables.clone().flatten() {
            let block = &mut self.blocks[block.0 as usize];
            block.seen += 1;
            only += usize::from(block.seen == block.refs);
        }
        for block in tables.flatten() {
            self.blocks[block.0 as usize].seen = 0;
        }
        only
    }

    /// Forgets all content that nobody holds, and the names of what is held.
    pub fn forget(&mut self) {
        self.index.clear();
        for block in &mut self.blocks {
            block.hash = None;
        }
        if let Some(News { named, evicted }) = &mut self.news {
            named.clear();
            evicted.clear();
        }
        self.counts.free += std::mem::take(&mut self.counts.cached);
    }

    /// Counts everything anew and compares; `tables` are all tables that hold blocks.
    pub fn audit<'a>(&self, tables: impl Iterator<Item = &'a [BlockId]>) {
        let mut counts = Counts::default();
        let held: u64 = self.blocks.iter().map(|block| u64::from(block.refs)).sum();
        let holding: usize = tables.map(<[BlockId]>::len).sum();
        assert_eq!(held, holding as u64, "every reference is a table's");
        for block in &self.blocks {
            match (block.refs, block.hash) {
                (0, None) => counts.free += 1,
                (0, Some(_)) => counts.cached += 1,
                _ => counts.referenced += 1,
            }
        }
        assert_eq!(counts, self.counts, "block counts");
        assert_eq!(counts.total(), self.blocks.len(), "every block has one state");
        assert_eq!(self.listed(), counts.available(), "the free list holds what nobody holds");
        let named = self.blocks.iter().filter(|block| block.hash.is_some()).count();
        assert_eq!(self.index.len(), named, "one name per block and one block per name");
    }

    fn listed(&self) -> usize {
        let (mut length, mut at) = (0, self.front);
        while at != NONE {
            assert_eq!(self.blocks[at as usize].refs, 0, "a held block is not in the free list");
            (length, at) = (length + 1, self.blocks[at as usize].next);
        }
        length
    }

    fn leave_free_list(&mut self, index: usize) {
        match self.blocks[index].hash {
            Some(_) => self.counts.cached -= 1,
            None => self.counts.free -= 1,
        }
    }

    fn link_back(&mut self, block: u32) {
        let last = std::mem::replace(&mut self.back, block);
        self.blocks[block as usize].previous = last;
        self.blocks[block as usize].next = NONE;
        match last {
            NONE => self.front = block,
            last => self.blocks[last as usize].next = block,
        }
    }

    fn link_front(&mut self, block: u32) {
        let first = std::mem::replace(&mut self.front, block);
        self.blocks[block as usize].previous = NONE;
        self.blocks[block as usize].next = first;
        match first {
            NONE => self.back = block,
            first => self.blocks[first as usize].previous = block,
        }
    }

    fn unlink(&mut self, block: u32) {
        let Block { previous, next, .. } = self.blocks[block as usize];
        match previous {
            NONE => self.front = next,
            previous => self.blocks[previous as usize].next = next,
        }
        match next {
            NONE => self.back = previous,
            next => self.blocks[next as usize].previous = previous,
        }
    }
}
