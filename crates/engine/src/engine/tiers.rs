//! Blocks on their way to and from a lower tier, between two steps.
//!
//! ```text
//! keep     what arrived lands, what is a moment old is stored          before a step is planned
//! spill    what the plan evicts is stored; fetches of the plan begin   before the step is launched
//! ```
//! Streams wait while blocks are copied, so that only a small part of a step's time is spent on it; without streams nobody
//! waits.

use std::sync::Arc;
use std::time::Duration;

use super::Engine;
use crate::board::Board;
use crate::handle::Located;
use crate::kv::BlockHash;
use crate::scheduler::Plan;
use crate::sequence::Slot;
use crate::tier::{Keeper, Loading, Tier};

/// Share of the last step's time that copying may take while somebody streams.
const SHARE: f64 = 0.06;

/// At least this much, so that something arrives beside the shortest steps, and at most that.
const LEAST: Duration = Duration::from_micros(300);
const MOST: Duration = Duration::from_millis(20);

impl Engine {
    /// The same engine with a place for blocks that memory has no room for.
    pub(super) fn with_tier(mut self, tier: Arc<dyn Tier>) -> Self {
        let limits = *self.roster.limits();
        self.roster.pool.watch();
        self.roster.tier = Some(Arc::clone(&tier));
        self.scheduler.loading = Some(Loading::of(limits.block_bytes));
        self.keeper = Some(Keeper::new(tier, Arc::clone(&self.clock), limits.blocks));
        self
    }

    /// Takes what arrived, and stores what is a moment old.
    pub(super) fn keep(&mut self, now: Duration) {
        let time = self.time_to_copy();
        let Self { keeper: Some(keeper), roster, executor, scheduler, .. } = self else { return };
        let Some(loading) = &mut scheduler.loading else { return };
        keeper.land(roster, executor.as_mut(), loading, now.saturating_add(time));
        keeper.save(&mut roster.pool, executor.as_mut(), now.saturating_add(2 * time));
        self.metrics.tier = keeper.totals;
    }

    fn time_to_copy(&self) -> Duration {
        let streams = self.roster.running().iter().any(|slot| self.roster.get(*slot).is_decoding());
        if streams { self.executed.mul_f64(SHARE).clamp(LEAST, MOST) } else { MOST }
    }

    /// Stores what the plan evicts, and begins what it wants fetched.
    pub(super) fn spill(&mut self, plan: &Plan, now: Duration) {
        for slot in &plan.fetches {
            self.mark_started(*slot, now);
        }
        let Self { keeper: Some(keeper), roster, executor, scheduler, .. } = self else { return };
        keeper.spill(&mut roster.pool, executor.as_mut());
        let Some(loading) = &scheduler.loading else { return };
        for slot in &plan.fetches {
            keeper.begin(roster, *slot, loading);
        }
    }

    /// Takes a sequence's blocks out of the prefix cache, in every tier: what is in them is not to be trusted.
    pub(super) fn distrust(&mut self, slot: Slot) {
        let (sequence, pool) = self.roster.get_with_pool(slot);
        sequence.distrust(pool);
        if let Some(keeper) = &self.keeper {
            let names = (0..sequence.table.blocks().len()).filter_map(|block| sequence.chain.get(block));
            keeper.forget(names);
        }
    }

    pub(super) fn locate(&self, names: &[BlockHash]) -> Vec<Located> {
        let lower = |name: BlockHash| self.roster.tier.as_ref().is_some_and(|tier| tier.holds(name));
        let memory = |name: BlockHash| self.roster.pool.find(name).is_some();
        names.iter().map(|name| Located { memory: memory(*name), lower: lower(*name) }).collect()
    }

    pub(super) fn evict(&mut self, names: &[BlockHash], forget: bool) {
        for name in names {
            self.roster.pool.evict(*name);
        }
        let Self { keeper: Some(keeper), roster, executor, .. } = self else { return };
        keeper.spill(&mut roster.pool, executor.as_mut());
        if forget {
            keeper.forget(names.iter().copied());
        }
    }

    /// Whether sequences wait for a lower tier.
    pub(super) fn is_fetching(&self) -> bool {
        self.keeper.as_ref().is_some_and(Keeper::is_fetching)
    }

    /// Ends every request and stores everything that has a name, within that time.
    pub fn end(&mut self, within: Duration) {
        let everyone: Vec<_> = self.roster.everyone().collect();
        for slot in everyone {
            drop(self.roster.remove(slot));
        }
        let end = self.clock.now().saturating_add(within);
        let Self { keeper: Some(keeper), roster, executor, .. } = self else { return };
        keeper.save_all(&mut roster.pool, executor.as_mut(), end);
    }

    /// Tells whoever holds a handle that its thread is done, when it is dropped.
    pub(crate) fn goodbye(&self) -> Goodbye {
        Goodbye(Arc::clone(&self.board))
    }
}

/// Tells of the end of an engine's thread, however it ends.
pub(crate) struct Goodbye(Arc<Board>);

impl Drop for Goodbye {
    fn drop(&mut self) {
        self.0.end();
    }
}
