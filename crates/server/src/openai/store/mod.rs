//! Responses and conversations that clients come back to: in memory, bounded, each tenant's apart.
//!
//! ```text
//! admit          texts -> items, which count as long as anyone holds them
//! put, finish    a response: its own input and output, and the items of all turns before it
//! append         a conversation grows by a turn
//! shelf          what one tenant has, in order of last use
//! ```
//! An item is one JSON text, shared by every response and conversation that it is part of; its bytes are given back with its
//! last holder. Whatever was not used for longest makes room, but for responses that are still being written. Must never: show one
//! tenant anything of another, or hold the lock while something is generated or written as JSON.

mod bounds;
mod item;
mod kept;
mod shelf;
#[cfg(test)]
mod tests;

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde_json::Value;

pub use self::bounds::{Bound, Bounds};
pub use self::item::{Item, Items};
pub use self::kept::{Cancel, Entry, KeptConversation, KeptResponse, NewConversation, NewResponse, Stage};

use self::item::{Charge, Meter};
use self::shelf::Shelf;
use crate::error::{ApiError, Kind};
use crate::guard::tenant::Tenant;

/// Responses and conversations of all tenants.
#[derive(Debug)]
pub struct Store {
    bounds: Bounds,
    /// Bytes of all tenants.
    all: Meter,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    shelves: HashMap<Tenant, Shelf>,
    /// Counts uses, to order them.
    uses: u64,
}

impl Default for Store {
    fn default() -> Self {
        Self::new(Bounds::default())
    }
}

impl Store {
    /// An empty store with these bounds.
    pub fn new(bounds: Bounds) -> Self {
        Self { bounds, all: Meter::default(), state: Mutex::default() }
    }

    /// As it is now, without what has expired.
    fn at(&self, now: u64) -> MutexGuard<'_, State> {
        // Whoever panicked left whole entries behind.
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let oldest = now.saturating_sub(self.bounds.age);
        for shelf in state.shelves.values_mut() {
            shelf.expire(oldest);
        }
        state.shelves.retain(|_, shelf| !shelf.is_unused());
        state
    }

    /// Takes items in, which have ids; others make room for them.
    pub fn admit(&self, tenant: Tenant, values: &[Value], now: u64) -> Result<Items, ApiError> {
        let meter = self.meter(tenant, now);
        let items: Items = values.iter().map(|value| Item::new(value, self.charges(&meter))).collect();
        self.make_room(&mut self.at(now), tenant);
        let bytes: usize = items.iter().map(|item| item.bytes()).sum();
        if meter.get() <= self.bounds.tenant.bytes && self.all.get() <= self.bounds.all.bytes {
            return Ok(items);
        }
        let most = self.bounds.tenant.bytes;
        if bytes > most {
            let what = format!(
                "the input has {bytes} bytes, more than the {most} that are stored for a client; send \"store\": false, or less"
            );
            return Err(ApiError::new(Kind::TooLarge, what).about("input"));
        }
        let what = "too much is being stored at once; wait for responses to end, or send \"store\": false";
        Err(ApiError::new(Kind::Overloaded, what).retry_after(crate::error::A_MOMENT))
    }

    /// What counts the tenant's bytes.
    fn meter(&self, tenant: Tenant, now: u64) -> Meter {
        self.at(now).shelf(tenant).meter.clone()
    }

    fn charges(&self, tenant: &Meter) -> impl Fn(usize) -> Charge {
        let (tenant, all) = (tenant.clone(), self.all.clone());
        move |bytes| Charge::new(bytes, [tenant.clone(), all.clone()])
    }

    /// Keeps a response. One that runs in the background is refused if too many do.
    pub fn put(&self, tenant: Tenant, new: NewResponse, now: u64) -> Result<(), ApiError> {
        let (id, kept) = self.kept(tenant, new, now);
        let mut state = self.at(now);
        if kept.is_running() {
            let running = state.running();
            if state.shelf(tenant).running() >= self.bounds.tenant.background
                || running >= self.bounds.all.background
            {
                return Err(too_many_in_background());
            }
        }
        self.insert(&mut state, tenant, id, Entry::Response(Arc::new(kept)), now);
        Ok(())
    }

    /// Keeps a response that ran in the background, unless it was cancelled or deleted meanwhile.
    pub fn finish(&self, tenant: Tenant, new: NewResponse, now: u64) -> bool {
        let (id, kept) = self.kept(tenant, new, now);
        let mut state = self.at(now);
        let is_running = state.shelf(tenant).response(&id).is_some_and(|kept| kept.is_running());
        if is_running {
            self.insert(&mut state, tenant, id, Entry::Response(Arc::new(kept)), now);
        }
        is_running
    }

    fn kept(&self, tenant: Tenant, new: NewResponse, now: u64) -> (String, KeptResponse) {
        let meter = self.meter(tenant, now);
        let charge = self.charges(&meter);
        let output = new.output.iter().map(|value| Item::new(value, &charge)).collect();
        new.keep(output, &charge)
    }

    fn insert(&self, state: &mut State, tenant: Tenant, id: String, entry: Entry, now: u64) {
        state.insert(tenant, id, entry, now);
        self.make_room(state, tenant);
    }

    /// Says that a response is no longer waiting.
    pub fn begin(&self, tenant: Tenant, id: &str, now: u64) {
        let mut state = self.at(now);
        if let Some(kept) = state.shelf(tenant).response_mut(id).filter(|kept| kept.stage == Stage::Queued) {
            Arc::make_mut(kept).stage = Stage::InProgress;
        }
    }

    /// Ends a response that runs in the background, with this in place of its status; others stay as they are.
    pub fn cancel(&self, tenant: Tenant, id: &str, now: u64) -> Option<Arc<KeptResponse>> {
        let mut state = self.at(now);
        let kept = state.shelf(tenant).response_mut(id)?;
        if let Some(cancel) = kept.cancel.clone() {
            let kept = Arc::make_mut(kept);
            (kept.stage, kept.cancel) = (Stage::Cancelled, None);
            cancel.notify_one();
        }
        Some(Arc::clone(kept))
    }

    /// A response of this tenant.
    pub fn response(&self, tenant: Tenant, id: &str, now: u64) -> Option<Arc<KeptResponse>> {
        let mut state = self.at(now);
        let kept = state.shelf(tenant).response(id).cloned()?;
        state.touch(tenant, id, now);
        Some(kept)
    }

    /// Keeps a new conversation.
    pub fn start(&self, tenant: Tenant, new: NewConversation, now: u64) {
        let (id, kept) = new.keep(self.charges(&self.meter(tenant, now)));
        self.insert(&mut self.at(now), tenant, id, Entry::Conversation(kept), now);
    }

    /// A conversation of this tenant.
    pub fn conversation(&self, tenant: Tenant, id: &str, now: u64) -> Option<KeptConversation> {
        self.change_conversation(tenant, id, now, |kept| kept.clone())
    }

    /// Changes a conversation of this tenant, if there is one.
    pub fn change_conversation<T>(
        &self,
        tenant: Tenant,
        id: &str,
        now: u64,
        change: impl FnOnce(&mut KeptConversation) -> T,
    ) -> Option<T> {
        let mut state = self.at(now);
        let changed = state.shelf(tenant).conversation_mut(id).map(change)?;
        state.touch(tenant, id, now);
        self.make_room(&mut state, tenant);
        Some(changed)
    }

    /// Forgets a response, which ends if it runs; `None` if there is none.
    pub fn delete_response(&self, tenant: Tenant, id: &str, now: u64) -> Option<()> {
        self.cancel(tenant, id, now)?;
        self.at(now).shelf(tenant).remove(id).map(drop)
    }

    /// Forgets a conversation; `None` if there is none.
    pub fn delete_conversation(&self, tenant: Tenant, id: &str, now: u64) -> Option<()> {
        let mut state = self.at(now);
        state.shelf(tenant).conversation_mut(id)?;
        state.shelf(tenant).remove(id).map(drop)
    }

    /// Those of the tenant's items that have these ids. Of several with the same id, which clients may choose, the last used.
    pub fn items(&self, tenant: Tenant, ids: &HashSet<&str>, now: u64) -> HashMap<String, Arc<Item>> {
        if ids.is_empty() {
            return HashMap::new();
        }
        let mut state = self.at(now);
        let found = state.shelf(tenant).items().filter(|item| ids.contains(item.id()));
        found.map(|item| (item.id().to_owned(), Arc::clone(item))).collect()
    }

    /// Forgets what was not used for longest until the bounds hold.
    fn make_room(&self, state: &mut State, tenant: Tenant) {
        let Bound { objects, bytes, .. } = self.bounds.tenant;
        let shelf = state.shelf(tenant);
        while shelf.len() > objects || shelf.meter.get() > bytes {
            if !shelf.forget_oldest() {
                break;
            }
        }
        let Bound { objects, bytes, .. } = self.bounds.all;
        while state.len() > objects || self.all.get() > bytes {
            let oldest = state.shelves.values_mut().filter_map(|shelf| Some((shelf.oldest()?, shelf)));
            let Some((_, shelf)) = oldest.min_by_key(|(used, _)| *used) else { break };
            shelf.forget_oldest();
        }
    }
}

impl State {
    fn shelf(&mut self, tenant: Tenant) -> &mut Shelf {
        self.shelves.entry(tenant).or_default()
    }

    fn len(&self) -> usize {
        self.shelves.values().map(Shelf::len).sum()
    }

    fn running(&self) -> usize {
        self.shelves.values().map(Shelf::running).sum()
    }

    fn next_use(&mut self) -> u64 {
        self.uses += 1;
        self.uses
    }

    fn insert(&mut self, tenant: Tenant, id: String, entry: Entry, now: u64) {
        let used = self.next_use();
        self.shelf(tenant).insert(id, entry, used, now);
    }

    fn touch(&mut self, tenant: Tenant, id: &str, now: u64) {
        let used = self.next_use();
        self.shelf(tenant).touch(id, used, now);
    }
}

fn too_many_in_background() -> ApiError {
    let what = "too many responses run in the background; wait for one to end, or cancel one";
    ApiError::new(Kind::RateLimited, what).about("background").retry_after(crate::error::A_MOMENT)
}
