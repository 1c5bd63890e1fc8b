//! What one tenant has, in order of last use.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use super::item::{Item, Meter};
use super::kept::{Entry, KeptConversation, KeptResponse};

/// What one tenant has.
#[derive(Debug, Default)]
pub struct Shelf {
    slots: HashMap<String, Slot>,
    /// Ids by last use, the oldest first.
    order: BTreeMap<u64, String>,
    /// Bytes of everything that is held of this tenant, here or by its requests.
    pub meter: Meter,
}

#[derive(Debug)]
struct Slot {
    entry: Entry,
    /// Its place in the order.
    used: u64,
    /// Seconds since 1970.
    used_at: u64,
}

impl Shelf {
    pub fn len(&self) -> usize {
        self.slots.len()
    }

    /// Whether nothing of the tenant is left anywhere.
    pub fn is_unused(&self) -> bool {
        self.slots.is_empty() && self.meter.is_alone()
    }

    pub fn running(&self) -> usize {
        self.slots.values().filter(|slot| slot.is_running()).count()
    }

    pub fn insert(&mut self, id: String, entry: Entry, used: u64, now: u64) {
        self.remove(&id);
        self.order.insert(used, id.clone());
        self.slots.insert(id, Slot { entry, used, used_at: now });
    }

    pub fn touch(&mut self, id: &str, used: u64, now: u64) {
        if let Some(slot) = self.slots.get_mut(id) {
            self.order.remove(&slot.used);
            self.order.insert(used, id.to_owned());
            (slot.used, slot.used_at) = (used, now);
        }
    }

    pub fn remove(&mut self, id: &str) -> Option<Entry> {
        let slot = self.slots.remove(id)?;
        self.order.remove(&slot.used);
        Some(slot.entry)
    }

    pub fn response(&self, id: &str) -> Option<&Arc<KeptResponse>> {
        match &self.slots.get(id)?.entry {
            Entry::Response(kept) => Some(kept),
            Entry::Conversation(_) => None,
        }
    }

    pub fn response_mut(&mut self, id: &str) -> Option<&mut Arc<KeptResponse>> {
        match &mut self.slots.get_mut(id)?.entry {
            Entry::Response(kept) => Some(kept),
            Entry::Conversation(_) => None,
        }
    }

    pub fn conversation_mut(&mut self, id: &str) -> Option<&mut KeptConversation> {
        match &mut self.slots.get_mut(id)?.entry {
            Entry::Conversation(kept) => Some(kept),
            Entry::Response(_) => None,
        }
    }

    /// Items of its conversations, and those that its responses were given or gave; the last used come last.
    pub fn items(&self) -> impl Iterator<Item = &Arc<Item>> {
        self.order.values().filter_map(|id| self.slots.get(id)).flat_map(|slot| {
            let (input, output) = match &slot.entry {
                Entry::Response(kept) => (&kept.input[..], &kept.output[..]),
                Entry::Conversation(kept) => (&kept.items[..], &[][..]),
            };
            input.iter().chain(output)
        })
    }

    /// The least recent use of anything that may go.
    pub fn oldest(&self) -> Option<u64> {
        self.order.iter().find(|(_, id)| !self.slots[*id].is_running()).map(|(used, _)| *used)
    }

    /// Forgets what was not used for longest; whether there was anything.
    pub fn forget_oldest(&mut self) -> bool {
        let Some(id) = self.oldest().and_then(|used| self.order.remove(&used)) else { return false };
        self.slots.remove(&id).is_some()
    }

    /// Forgets what was not used since then.
    pub fn expire(&mut self, since: u64) {
        while let Some(used) = self.oldest() {
            let is_old = self.slots[&self.order[&used]].used_at < since;
            if !is_old || !self.forget_oldest() {
                break;
            }
        }
    }
}

impl Slot {
    fn is_running(&self) -> bool {
        matches!(&self.entry, Entry::Response(kept) if kept.is_running())
    }
}
