//! Carries blocks between memory and a tier, a little between any two steps.
//!
//! ```text
//! young       named blocks that the tier does not have yet, the oldest first; stored once they are a moment old
//! evicted     stored at once, before a step writes to their memory; lost if the tier does not take them
//! transfers   blocks that come back, each straight into its sequence's memory
//! ```

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use ropeway_executor::Executor;

use super::{Arrival, Loading, Stored, Tier, TierTotals, Transfer};
use crate::clock::Clock;
use crate::engine::recover::confined;
use crate::kv::{BlockHash, Named, Pool};
use crate::roster::Roster;
use crate::sequence::{Fetching, Slot};
use crate::stream::Event;

/// How long a block has its name before it is stored: many are evicted, or found again, before anybody needs them on disk;
/// this is also what a crash costs.
const MOMENT: Duration = Duration::from_secs(1);

/// Longest silence of a transfer before its sequence computes the rest instead, and how many times its expected length.
const PATIENCE: Duration = Duration::from_secs(2);
const PATIENCE_FACTOR: f64 = 4.0;

/// The engine's part in keeping blocks.
pub(crate) struct Keeper {
    tier: Arc<dyn Tier>,
    clock: Arc<dyn Clock>,
    young: VecDeque<(Duration, Named)>,
    transfers: Vec<Underway>,
    begun: u64,
    pub(crate) totals: TierTotals,
}

/// A transfer, and whom it is for.
struct Underway {
    number: u64,
    slot: Slot,
    transfer: Box<dyn Transfer>,
    /// Blocks that have landed.
    landed: usize,
    began: Duration,
    /// When it was last looked at and had nothing.
    missing: Option<Duration>,
    /// When it is given up, unless something arrives before.
    until: Duration,
    patience: Duration,
}

impl Keeper {
    pub(crate) fn new(tier: Arc<dyn Tier>, clock: Arc<dyn Clock>, blocks: usize) -> Self {
        let young = VecDeque::with_capacity(2 * blocks);
        Self { tier, clock, young, transfers: Vec::new(), begun: 0, totals: TierTotals::default() }
    }

    /// When it has something to do, if nothing else happens.
    pub(crate) fn next(&self) -> Option<Duration> {
        let stores = self.young.front().map(|(since, _)| *since + MOMENT);
        self.transfers.iter().map(|underway| underway.until).chain(stores).min()
    }

    /// Whether sequences wait for blocks.
    pub(crate) fn is_fetching(&self) -> bool {
        !self.transfers.is_empty()
    }

    /// Stores what was evicted since it was last called: the next step may write to its memory.
    pub(crate) fn spill(&mut self, pool: &mut Pool, executor: &mut dyn Executor) {
        let Some(news) = pool.news() else { return };
        if news.evicted.is_empty() {
            return;
        }
        let began = self.clock.now();
        for (block, hash) in news.evicted.drain(..) {
            if !self.tier.holds(hash) && self.store((block, hash), executor) != Stored::Kept {
                self.totals.lost_blocks += 1;
            }
        }
        self.totals.copying += self.clock.now().saturating_sub(began);
    }

    /// Stores blocks that have been there for a moment, until `end`.
    pub(crate) fn save(&mut self, pool: &mut Pool, executor: &mut dyn Executor, end: Duration) {
        let began = self.clock.now();
        self.hear(pool, began);
        let is_due = |since: Duration| since + MOMENT <= began;
        while let Some((_, named)) = self.young.front().copied().filter(|(since, _)| is_due(*since)) {
            if self.clock.now() >= end || self.save_one(named, pool, executor) == Stored::Full {
                break;
            }
            self.young.pop_front();
        }
        self.totals.copying += self.clock.now().saturating_sub(began);
    }

    /// Takes in which blocks got names. Those that lost theirs again are forgotten before there are too many: while the tier
    /// takes nothing, the list is no longer than twice the blocks.
    fn hear(&mut self, pool: &mut Pool, now: Duration) {
        let Some(news) = pool.news() else { return };
        let named = news.named.len();
        if self.young.len() + named > self.young.capacity() {
            self.young.retain(|(_, (block, hash))| pool.name(*block) == Some(*hash));
        }
        let Some(news) = pool.news() else { return };
        self.young.extend(news.named.drain(..).map(|named| (now, named)));
    }

    fn save_one(&mut self, (block, hash): Named, pool: &Pool, executor: &mut dyn Executor) -> Stored {
        // It may hold something else by now.
        if pool.name(block) != Some(hash) || self.tier.holds(hash) {
            return Stored::Kept;
        }
        self.store((block, hash), executor)
    }

    fn store(&mut self, (block, hash): Named, executor: &mut dyn Executor) -> Stored {
        let mut exported = true;
        let stored = self.tier.store(hash, &mut |bytes| {
            exported = confined(|| executor.export(block, bytes)).is_ok();
        });
        if !exported {
            self.tier.forget(hash);
            return Stored::Refused;
        }
        self.totals.stored_blocks += u64::from(stored == Stored::Kept);
        stored
    }

    /// Stores everything that has a name, at the end of an engine's life.
    pub(crate) fn save_all(&mut self, pool: &mut Pool, executor: &mut dyn Executor, end: Duration) {
        self.transfers.clear();
        self.save(pool, executor, Duration::ZERO);
        while let Some((_, named)) = self.young.pop_front() {
            let left = end.saturating_sub(self.clock.now());
            if left.is_zero() {
                return;
            }
            if self.save_one(named, pool, executor) == Stored::Full {
                self.tier.flush(left);
                self.save_one(named, pool, executor);
            }
        }
        self.tier.flush(end.saturating_sub(self.clock.now()));
    }

    /// What these names stand for is not to be trusted.
    pub(crate) fn forget(&self, hashes: impl Iterator<Item = BlockHash>) {
        hashes.for_each(|hash| self.tier.forget(hash));
    }

    /// Begins to fetch what a sequence waits for; the memory is its own already.
    pub(crate) fn begin(&mut self, roster: &mut Roster, slot: Slot, loading: &Loading) {
        let block_tokens = roster.limits().block_tokens;
        let sequence = roster.get_mut(slot);
        let Some(Fetching { end, .. }) = sequence.fetching else { return };
        let blocks = sequence.computed / block_tokens..end;
        let hashes: Vec<_> = blocks.filter_map(|block| sequence.chain.get(block)).collect();
        let expected = Duration::from_secs_f64(PATIENCE_FACTOR * loading.seconds(hashes.len()));
        let (now, patience) = (self.clock.now(), PATIENCE.max(expected));
        self.begun += 1;
        let number = self.begun;
        sequence.fetching = Some(Fetching { transfer: Some(number), end });
        let transfer = self.tier.fetch(hashes);
        self.totals.transfers += 1;
        let until = now + patience;
        let underway =
            Underway { number, slot, transfer, landed: 0, began: now, missing: None, until, patience };
        self.transfers.push(underway);
    }

    /// Takes what arrived, until `end`; sequences whose blocks are all there, or will not come, go on.
    pub(crate) fn land(
        &mut self,
        roster: &mut Roster,
        executor: &mut dyn Executor,
        loading: &mut Loading,
        end: Duration,
    ) {
        if self.transfers.is_empty() {
            return;
        }
        let began = self.clock.now();
        let mut transfers = std::mem::take(&mut self.transfers);
        transfers.retain_mut(|underway| {
            if !waits_for(roster, underway) {
                return false;
            }
            let over = self.take_arrived(underway, roster, executor, end);
            if over {
                self.conclude(underway, roster, loading);
            }
            !over
        });
        self.transfers = transfers;
        self.totals.waiting = self.transfers.len();
        self.totals.copying += self.clock.now().saturating_sub(began);
    }

    /// Takes what one transfer has, until `end`; whether nothing more is coming.
    fn take_arrived(
        &mut self,
        underway: &mut Underway,
        roster: &mut Roster,
        executor: &mut dyn Executor,
        end: Duration,
    ) -> bool {
        let limits = *roster.limits();
        loop {
            let (sequence, pool) = roster.get_with_pool(underway.slot);
            let next = sequence.computed / limits.block_tokens;
            if sequence.fetching.is_none_or(|fetching| next >= fetching.end) {
                return true;
            }
            let now = self.clock.now();
            if now >= end {
                return false;
            }
            let (block, mut imported) = (sequence.table.blocks()[next], false);
            let arrival = underway.transfer.poll(&mut |bytes| {
                imported = confined(|| executor.import(block, bytes)).is_ok();
            });
            match arrival {
                Arrival::Block if imported => {
                    sequence.land_fetched(pool, &limits);
                    tell_progress(sequence);
                    (underway.landed, underway.until) = (underway.landed + 1, now + underway.patience);
                    self.totals.fetched_tokens += limits.block_tokens as u64;
                }
                Arrival::Pending if now < underway.until => {
                    underway.missing = Some(now);
                    return false;
                }
                _ => return true,
            }
        }
    }

    /// A transfer is over: its sequence goes on with what is there.
    fn conclude(&mut self, underway: &Underway, roster: &mut Roster, loading: &mut Loading) {
        let block_tokens = roster.limits().block_tokens;
        let sequence = roster.get_mut(underway.slot);
        let complete = sequence.fetching.is_some_and(|all| sequence.computed >= all.end * block_tokens);
        if !complete {
            sequence.fetch_failures += 1;
            self.totals.failed_transfers += 1;
        }
        roster.end_fetch(underway.slot);
        let since = |moment: Duration| moment.saturating_sub(underway.began);
        let now = self.clock.now();
        self.totals.fetching += since(now);
        match underway.missing {
            // A transfer that failed tells nothing but that it took its time.
            _ if !complete => loading.observe(underway.landed.max(1), since(now)),
            None => loading.observe_at_most(underway.landed, since(now)),
            // The rest came while a step was computed, nobody knows when.
            Some(missing) => loading.observe(underway.landed, since((missing + now) / 2)),
        }
    }
}

/// Whether its sequence is still here and waits for this very transfer.
fn waits_for(roster: &Roster, underway: &Underway) -> bool {
    let fetching = roster.find(underway.slot).and_then(|sequence| sequence.fetching);
    fetching.is_some_and(|fetching| fetching.transfer == Some(underway.number))
}

fn tell_progress(sequence: &crate::sequence::Sequence) {
    if sequence.is_prompt() {
        let computed = sequence.computed.min(sequence.ticket.prompt_len);
        let cached = sequence.cached.min(computed);
        sequence.tell(Event::Prefilled { computed, cached });
    }
}
