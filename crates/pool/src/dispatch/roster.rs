//! All upstreams, those with room by their load.
//!
//! ```text
//! upstreams   by id; a removed one stays until its last request ends
//! by_load     (outstanding tokens / weight, id) of those with room
//! with_room   the same by id
//! returns     (time, id) of those that come back by themselves
//! ```
//! Every change of an upstream goes through [`Roster::change`], which takes it out of the orders and puts it back: two steps
//! in sets of a thousand.

use std::collections::BTreeSet;
use std::time::Duration;

use super::ordered::Ordered;
use super::prefixes::Holder;
use super::types::{Capacity, UpstreamId, UpstreamStatus};
use super::upstream::Upstream;

/// All upstreams.
#[derive(Debug, Default)]
pub struct Roster {
    upstreams: Vec<Option<Upstream>>,
    by_load: BTreeSet<(Ordered, UpstreamId)>,
    with_room: BTreeSet<UpstreamId>,
    returns: BTreeSet<(Duration, UpstreamId)>,
    active: Active,
}

/// Those that are given requests, with or without room, added up.
#[derive(Clone, Copy, Debug, Default)]
struct Active {
    count: usize,
    weight: f64,
    outstanding: usize,
}

impl Roster {
    /// One more upstream.
    pub fn add(&mut self, capacity: Capacity) -> UpstreamId {
        let id = UpstreamId(self.upstreams.len() as u32);
        self.upstreams.push(Some(Upstream::new(id, capacity)));
        self.enter(id);
        id
    }

    /// An upstream that was not removed.
    pub fn get(&self, id: UpstreamId) -> Option<&Upstream> {
        self.upstreams.get(id.index())?.as_ref()
    }

    /// Changes an upstream, if it was not removed.
    pub fn change(&mut self, id: UpstreamId, how: impl FnOnce(&mut Upstream)) {
        self.leave(id);
        let Some(slot) = self.upstreams.get_mut(id.index()) else { return };
        if let Some(upstream) = slot {
            how(upstream);
        }
        if slot.as_ref().is_some_and(Upstream::is_gone) {
            *slot = None;
        }
        self.enter(id);
    }

    /// Takes an upstream out of the orders.
    fn leave(&mut self, id: UpstreamId) {
        let Some(Some(upstream)) = self.upstreams.get(id.index()) else { return };
        if upstream.has_room() {
            self.by_load.remove(&(Ordered(upstream.load()), id));
            self.with_room.remove(&id);
        }
        if let Some(at) = upstream.returns_at() {
            self.returns.remove(&(at, id));
        }
        if upstream.is_in() {
            self.active.count -= 1;
            self.active.weight -= upstream.weight();
            self.active.outstanding -= upstream.outstanding_tokens();
        }
    }

    /// Puts an upstream into the orders.
    fn enter(&mut self, id: UpstreamId) {
        let Some(Some(upstream)) = self.upstreams.get(id.index()) else { return };
        if upstream.has_room() {
            self.by_load.insert((Ordered(upstream.load()), id));
            self.with_room.insert(id);
        }
        if let Some(at) = upstream.returns_at() {
            self.returns.insert((at, id));
        }
        if upstream.is_in() {
            self.active.count += 1;
            self.active.weight += upstream.weight();
            self.active.outstanding += upstream.outstanding_tokens();
        }
    }

    /// Lets those come back whose time it is.
    pub fn advance(&mut self, now: Duration) {
        while let Some((at, id)) = self.returns.first().copied() {
            if at > now {
                break;
            }
            self.change(id, |upstream| upstream.advance(now));
        }
    }

    /// When the next one comes back by itself.
    pub fn next_return(&self) -> Option<Duration> {
        self.returns.first().map(|(at, _)| *at)
    }

    /// Whether a request could be sent anywhere.
    pub fn has_room(&self) -> bool {
        !self.with_room.is_empty()
    }

    /// Whether a request that had better not go to `avoided` should wait for another upstream to have room.
    pub fn should_wait(&self, avoided: UpstreamId) -> bool {
        self.active.count > 1 && self.with_room.len() == 1 && self.with_room.contains(&avoided)
    }

    /// The upstream, if it has room and still holds what it held.
    pub fn ready(&self, holder: Holder) -> Option<&Upstream> {
        self.get(holder.upstream).filter(|upstream| upstream.holder() == holder && upstream.has_room())
    }

    /// Outstanding tokens for their weight of all that are given requests, on the mean.
    pub fn mean_load(&self) -> f64 {
        if self.active.count == 0 { 0.0 } else { self.active.outstanding as f64 / self.active.weight }
    }

    /// Those with room, the least loaded first.
    pub fn least_loaded(&self) -> impl Iterator<Item = UpstreamId> {
        self.by_load.iter().map(|(_, id)| *id)
    }

    /// Those with room, from a number on and around.
    pub fn starting_at(&self, number: u32) -> impl Iterator<Item = UpstreamId> {
        let from = UpstreamId(number);
        self.with_room.range(from..).chain(self.with_room.range(..from)).copied()
    }

    /// How many were ever added.
    pub fn ever(&self) -> usize {
        self.upstreams.len()
    }

    /// All that were not removed.
    pub fn statuses(&self) -> impl Iterator<Item = UpstreamStatus> {
        self.upstreams.iter().flatten().map(Upstream::status)
    }
}
