//! The pool, the cache and block tables against the plainest model of them: vectors that are searched.

use std::collections::VecDeque;

use proptest::prelude::*;
use ropeway_executor::BlockId;

use super::{BlockHash, BlockTable, Chain, Counts, OutOfBlocks, Pool};

const BLOCKS: usize = 6;
const BLOCK_TOKENS: usize = 4;

/// A pool in which everything is looked for: who holds what, what is named how, and in which order blocks go.
struct Plain {
    /// Holders per block.
    refs: [usize; BLOCKS],
    names: [Option<u8>; BLOCKS],
    /// Blocks that nobody holds, the next to be taken first.
    free: VecDeque<usize>,
}

impl Plain {
    fn new() -> Self {
        Self { refs: [0; BLOCKS], names: [None; BLOCKS], free: (0..BLOCKS).collect() }
    }

    fn take(&mut self) -> Option<usize> {
        let block = self.free.pop_front()?;
        (self.refs[block], self.names[block]) = (1, None);
        Some(block)
    }

    fn find(&self, name: u8) -> Option<usize> {
        self.names.iter().position(|own| *own == Some(name))
    }

    fn share(&mut self, block: usize) {
        self.free.retain(|free| *free != block);
        self.refs[block] += 1;
    }

    fn release(&mut self, block: usize) {
        self.refs[block] -= 1;
        match (self.refs[block], self.names[block]) {
            (0, Some(_)) => self.free.push_back(block),
            (0, None) => self.free.push_front(block),
            _ => {}
        }
    }

    fn register(&mut self, block: usize, name: u8) {
        if self.find(name).is_none() {
            self.names[block] = Some(name);
        }
    }

    fn counts(&self) -> Counts {
        let cached = self.free.iter().filter(|block| self.names[**block].is_some()).count();
        Counts { free: self.free.len() - cached, cached, referenced: BLOCKS - self.free.len() }
    }
}

/// What can be done to a pool. Blocks are chosen among those held, by a number that is reduced to fit.
#[derive(Clone, Copy, Debug)]
enum Move {
    Take,
    Adopt(u8),
    ShareHeld(usize),
    Release(usize),
    Register(usize, u8),
    Forget,
}

fn moves() -> impl Strategy<Value = Vec<Move>> {
    let one = prop_oneof![
        6 => Just(Move::Take),
        4 => (0..8u8).prop_map(Move::Adopt),
        2 => any::<usize>().prop_map(Move::ShareHeld),
        8 => any::<usize>().prop_map(Move::Release),
        6 => (any::<usize>(), 0..8u8).prop_map(|(held, name)| Move::Register(held, name)),
        1 => Just(Move::Forget),
    ];
    proptest::collection::vec(one, 1..120)
}

fn name(name: u8) -> BlockHash {
    BlockHash::root(&[name])
}

fn block(index: usize) -> BlockId {
    BlockId(index as u32)
}

proptest! {
    #[test]
    fn the_pool_does_what_the_plain_one_does(moves in moves()) {
        let (mut pool, mut plain) = (Pool::new(BLOCKS), Plain::new());
        let mut held: Vec<usize> = Vec::new();
        for next in moves {
            let chosen = |number: usize| held.get(number % held.len().max(1)).copied();
            match next {
                Move::Take => {
                    let taken = plain.take();
                    prop_assert_eq!(pool.take(), taken.map(block));
                    held.extend(taken);
                }
                Move::Adopt(content) => {
                    let found = plain.find(content);
                    prop_assert_eq!(pool.find(name(content)), found.map(block));
                    if let Some(found) = found {
                        plain.share(found);
                        pool.share(block(found));
                        held.push(found);
                    }
                }
                Move::ShareHeld(number) => if let Some(one) = chosen(number) {
                    plain.share(one);
                    pool.share(block(one));
                    held.push(one);
                },
                Move::Release(number) => if let Some(one) = chosen(number) {
                    plain.release(one);
                    pool.release(block(one));
                    held.swap_remove(number % held.len());
                },
                // A block gets a name once, when it becomes full.
                Move::Register(number, content) => if let Some(one) = chosen(number).filter(|one| plain.names[*one].is_none()) {
                    plain.register(one, content);
                    pool.register(block(one), name(content));
                },
                Move::Forget => {
                    plain.names = [None; BLOCKS];
                    pool.forget();
                }
            }
            let all: Vec<_> = held.iter().map(|held| block(*held)).collect();
            pool.audit(std::iter::once(all.as_slice()));
            prop_assert_eq!(pool.counts(), plain.counts());
            for index in 0..BLOCKS {
                prop_assert_eq!(pool.is_shared(block(index)), plain.refs[index] > 1);
            }
        }
    }
}

/// A sequence as the cache sees it: tokens, how many are computed, and its table.
struct Line {
    tokens: Vec<u8>,
    computed: usize,
    table: BlockTable,
}

/// What can be done with sequences over a pool.
#[derive(Clone, Debug)]
enum Act {
    /// A sequence with this prompt comes, and takes over what is cached.
    Come(Vec<u8>),
    /// A sequence computes so many more of its tokens.
    Compute(usize, usize),
    /// A sequence that computed everything gets another token.
    Say(usize, u8),
    /// A copy of a sequence goes its own way from here.
    Fork(usize),
    /// A sequence goes.
    Go(usize),
}

fn acts() -> impl Strategy<Value = Vec<Act>> {
    // Two different tokens only, so that prefixes are often the same.
    let prompt = proptest::collection::vec(0..2u8, 1..14);
    let one = prop_oneof![
        3 => prompt.prop_map(Act::Come),
        8 => (any::<usize>(), 1..9usize).prop_map(|(who, tokens)| Act::Compute(who, tokens)),
        6 => (any::<usize>(), 0..2u8).prop_map(|(who, token)| Act::Say(who, token)),
        2 => any::<usize>().prop_map(Act::Fork),
        2 => any::<usize>().prop_map(Act::Go),
    ];
    proptest::collection::vec(one, 1..80)
}

/// What every position of every block really holds: the tokens up to and with it. A wrongly shared or too early
/// reused block shows as another text.
struct Memory(Vec<Vec<u8>>);

impl Memory {
    fn at(table: &BlockTable, position: usize) -> usize {
        table.blocks()[position / BLOCK_TOKENS].0 as usize * BLOCK_TOKENS + position % BLOCK_TOKENS
    }

    fn copy(&mut self, (from, to): (BlockId, BlockId)) {
        for offset in 0..BLOCK_TOKENS {
            self.0[to.0 as usize * BLOCK_TOKENS + offset] =
                self.0[from.0 as usize * BLOCK_TOKENS + offset].clone();
        }
    }

    fn check(&self, line: &Line) {
        for position in 0..line.computed {
            let held = &self.0[Self::at(&line.table, position)];
            assert_eq!(*held, line.tokens[..=position], "position {position}");
        }
    }
}

struct Cache {
    pool: Pool,
    lines: Vec<Line>,
    memory: Memory,
}

impl Cache {
    fn chain(line: &Line) -> Chain {
        let tokens: Vec<u32> = line.tokens.iter().map(|token| u32::from(*token)).collect();
        Chain::new(BlockHash::root(b""), BLOCK_TOKENS, &tokens)
    }

    fn come(&mut self, tokens: Vec<u8>) {
        let mut line = Line { tokens, computed: 0, table: BlockTable::default() };
        let chain = Self::chain(&line);
        while line.computed + BLOCK_TOKENS < line.tokens.len() {
            let Some(found) = chain.get(line.computed / BLOCK_TOKENS).and_then(|hash| self.pool.find(hash))
            else {
                break;
            };
            line.table.adopt(&mut self.pool, found);
            line.computed += BLOCK_TOKENS;
        }
        self.lines.push(line);
    }

    fn compute(&mut self, who: usize, tokens: usize) {
        let line = &mut self.lines[who];
        let (start, end) = (line.computed, (line.computed + tokens).min(line.tokens.len()));
        if start == end {
            return;
        }
        match line.table.prepare(&mut self.pool, start, end, BLOCK_TOKENS) {
            Ok(copy) => copy.into_iter().for_each(|copy| self.memory.copy(copy)),
            Err(OutOfBlocks) => return self.go(who),
        }
        for position in start..end {
            self.memory.0[Memory::at(&line.table, position)] = line.tokens[..=position].to_vec();
        }
        line.computed = end;
        let chain = Self::chain(line);
        for full in start / BLOCK_TOKENS..end / BLOCK_TOKENS {
            self.pool.register(line.table.blocks()[full], chain.get(full).expect("full"));
        }
    }

    fn fork(&mut self, who: usize) {
        let source = &self.lines[who];
        let mut table = BlockTable::default();
        table.fork_from(&mut self.pool, &source.table);
        self.lines.push(Line { tokens: source.tokens.clone(), computed: source.computed, table });
    }

    fn go(&mut self, who: usize) {
        let mut line = self.lines.swap_remove(who);
        line.table.release(&mut self.pool);
    }

    fn act(&mut self, act: Act) {
        let count = self.lines.len();
        match act {
            Act::Come(prompt) => self.come(prompt),
            _ if count == 0 => {}
            Act::Compute(who, tokens) => self.compute(who % count, tokens),
            Act::Say(who, token) => {
                let line = &mut self.lines[who % count];
                if line.computed == line.tokens.len() {
                    line.tokens.push(token);
                }
            }
            Act::Fork(who) => self.fork(who % count),
            Act::Go(who) => self.go(who % count),
        }
    }
}

proptest! {
    #[test]
    fn every_sequence_finds_its_own_text_in_its_blocks_whoever_shares_them(acts in acts()) {
        let memory = Memory(vec![Vec::new(); 3 * BLOCKS * BLOCK_TOKENS]);
        let mut cache = Cache { pool: Pool::new(3 * BLOCKS), lines: Vec::new(), memory };
        for act in acts {
            cache.act(act);
            cache.pool.audit(cache.lines.iter().map(|line| line.table.blocks()));
            cache.lines.iter().for_each(|line| cache.memory.check(line));
        }
        while !cache.lines.is_empty() {
            cache.go(0);
        }
        prop_assert_eq!(cache.pool.counts().referenced, 0);
    }
}
