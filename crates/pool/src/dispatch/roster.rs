//! All upstreams, those with room by their load.
//!
//! ```text
//! upstreams   by id; a removed one stays until its last request ends
//! by_load     places of those with room: outstanding tokens / weight, then who was idle for longest
//! with_room   the same by id
//! returns     (time, id) of those that come back by themselves
//! ```
//! Every change of an upstream goes through [`Roster::change`], which compares its standing before and after and moves it
//! in the orders where they differ.

use std::collections::BTreeSet;
use std::time::Duration;

use super::avoided::Avoided;
use super::prefixes::Holder;
use super::share::Room;
use super::types::{Capacity, UpstreamId, UpstreamStatus};
use super::upstream::{Place, Upstream};

/// All upstreams.
#[derive(Debug, Default)]
pub struct Roster {
    upstreams: Vec<Option<Upstream>>,
    by_load: BTreeSet<Place>,
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
    room: Room,
}

impl Active {
    /// One of them has changed.
    fn exchange(&mut self, before: Active, after: Active) {
        self.count = self.count + after.count - before.count;
        self.weight += after.weight - before.weight;
        self.outstanding = self.outstanding + after.outstanding - before.outstanding;
        self.room.taken = self.room.taken + after.room.taken - before.room.taken;
        self.room.most = self.room.most + after.room.most - before.room.most;
    }
}

/// Where an upstream stands in the orders and sums; nowhere if it is gone.
#[derive(Clone, Copy, Debug, Default)]
struct Standing {
    room: Option<Place>,
    returns: Option<(Duration, UpstreamId)>,
    active: Active,
}

impl Standing {
    fn of(upstream: &Upstream) -> Self {
        let id = upstream.place().id;
        let active = if upstream.is_in() {
            Active {
                count: 1,
                weight: upstream.weight(),
                outstanding: upstream.outstanding_tokens(),
                room: upstream.room(),
            }
        } else {
            Active::default()
        };
        Self {
            room: upstream.has_room().then(|| upstream.place()),
            returns: upstream.returns_at().map(|at| (at, id)),
            active,
        }
    }
}

impl Roster {
    /// One more upstream.
    pub fn add(&mut self, capacity: Capacity) -> UpstreamId {
        let id = UpstreamId(self.upstreams.len() as u32);
        self.upstreams.push(Some(Upstream::new(id, capacity)));
        self.move_to(Standing::default(), self.standing(id));
        id
    }

    /// An upstream that was not removed.
    pub fn get(&self, id: UpstreamId) -> Option<&Upstream> {
        self.upstreams.get(id.index())?.as_ref()
    }

    /// Changes an upstream, if it was not removed.
    pub fn change(&mut self, id: UpstreamId, how: impl FnOnce(&mut Upstream)) {
        let before = self.standing(id);
        let Some(slot) = self.upstreams.get_mut(id.index()) else { return };
        if let Some(upstream) = slot {
            how(upstream);
        }
        if slot.as_ref().is_some_and(Upstream::is_gone) {
            *slot = None;
        }
        self.move_to(before, self.standing(id));
    }

    fn standing(&self, id: UpstreamId) -> Standing {
        self.get(id).map(Standing::of).unwrap_or_default()
    }

    /// Moves an upstream in the orders and sums.
    fn move_to(&mut self, before: Standing, after: Standing) {
        if before.room != after.room {
            before.room.inspect(|place| _ = self.by_load.remove(place));
            self.by_load.extend(after.room);
        }
        let ids = [before.room, after.room].map(|room| room.map(|place| place.id));
        if ids[0] != ids[1] {
            ids[0].inspect(|id| _ = self.with_room.remove(id));
            self.with_room.extend(ids[1]);
        }
        if before.returns != after.returns {
            before.returns.inspect(|at| _ = self.returns.remove(at));
            self.returns.extend(after.returns);
        }
        self.active.exchange(before.active, after.active);
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

    /// Requests at all that are given any, and how many there may be.
    pub fn room(&self) -> Room {
        self.active.room
    }

    /// Whether a request could be sent anywhere.
    pub fn has_room(&self) -> bool {
        !self.with_room.is_empty()
    }

    /// Whether a request that failed had better wait for another upstream to have room: for one where it did not fail, or at
    /// least for one where it did not fail last.
    pub fn should_wait(&self, avoided: &Avoided) -> bool {
        let failed_at = avoided.iter().filter(|id| self.get(*id).is_some_and(Upstream::is_in)).count();
        let is_elsewhere = |id: &UpstreamId| {
            if self.active.count > failed_at { !avoided.contains(*id) } else { avoided.latest() != Some(*id) }
        };
        self.active.count > 1 && !self.with_room.iter().take(failed_at + 1).any(is_elsewhere)
    }

    /// The upstream, if it has room and still holds what it held.
    pub fn ready(&self, holder: Holder) -> Option<&Upstream> {
        self.get(holder.upstream).filter(|upstream| upstream.holder() == holder && upstream.has_room())
    }

    /// The least loaded upstream that bears one more stream, with room or without, and at which it has not failed.
    pub fn bearing_one_more(&self, avoided: &Avoided) -> Option<UpstreamId> {
        let bearing = self.upstreams.iter().flatten().filter(|upstream| upstream.bears_one_more());
        let others = bearing.filter(|upstream| !avoided.contains(upstream.id()));
        others.min_by(|a, b| a.load().total_cmp(&b.load())).map(Upstream::id)
    }

    /// Outstanding tokens for their weight of all that are given requests, on the mean.
    pub fn mean_load(&self) -> f64 {
        if self.active.count == 0 { 0.0 } else { self.active.outstanding as f64 / self.active.weight }
    }

    /// Those with room, the least loaded first.
    pub fn least_loaded(&self) -> impl Iterator<Item = UpstreamId> {
        self.by_load.iter().map(|place| place.id)
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
