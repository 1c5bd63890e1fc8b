//! All agents and sessions of a server: bounded, each tenant's apart.
//!
//! ```text
//! create     an agent; a session of that id becomes one and keeps what is known about it
//! learn      what a request did, after its end; unknown sessions are listed from then on
//! claim      one turn at a time of an agent whose conversation the server holds
//! ```
//! Sessions that were not used for longest make room for others; agents stay until they expire. Must never: show one tenant
//! anything of another, or hold the lock while something is generated or written.

mod state;

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use ropeway_engine::Handle;
use ropeway_engine::kv::BlockHash;
use ropeway_engine::tier::Tier;

pub use self::state::State;
use super::agent::{About, Agent, AgentKind, Figures, Listed, MOST_NAMES, Messages};
use super::id::AgentKey;
use crate::error::{ApiError, Kind};
use crate::guard::tenant::Tenant;

/// An agent's first description.
#[derive(Clone, Debug)]
pub struct NewAgent {
    /// What people call it.
    pub name: Option<String>,
    /// The model that it asks.
    pub model: String,
    /// What its conversation begins with.
    pub messages: Messages,
    /// Seconds without use after which it is forgotten.
    pub ttl: u64,
}

/// What a request did.
#[derive(Clone, Debug, Default)]
pub struct Lesson {
    /// The model that answered.
    pub model: String,
    /// The full blocks of prompt and answer.
    pub names: Vec<BlockHash>,
    /// Tokens of prompt and answer.
    pub tokens: usize,
    /// What is added to its figures.
    pub figures: Figures,
}

/// Where blocks can be pinned.
#[derive(Clone, Copy, Debug)]
pub struct PinBoard<'a> {
    /// The model's lower tier.
    pub tier: &'a dyn Tier,
    /// Bytes of a block.
    pub block_bytes: u64,
}

impl<'a> PinBoard<'a> {
    /// Below an engine's memory, if there is anything.
    pub fn of(engine: &'a Handle) -> Option<Self> {
        let tier = engine.tier()?;
        Some(Self { tier: &**tier, block_bytes: engine.limits().block_bytes as u64 })
    }
}

/// An agent whose next turn it is.
#[derive(Clone, Debug)]
pub struct Claimed {
    /// The model that it asks.
    pub model: String,
    /// What was said so far.
    pub messages: Messages,
}

/// All agents and sessions.
#[derive(Debug)]
pub struct Registry {
    state: Mutex<State>,
    /// Told when there is something to write, and when it is written.
    pub(super) changed: Condvar,
    /// Bytes that one tenant may have pinned.
    share: u64,
}

impl Registry {
    /// These agents; a tenant's may have so many bytes pinned.
    pub fn new(agents: Vec<(AgentKey, Agent)>, share: u64) -> Self {
        Self { state: Mutex::new(State::of(agents)), changed: Condvar::new(), share }
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, State> {
        // Whoever panicked left whole agents behind.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// As it is now, without what has expired.
    fn at(&self, now: u64) -> MutexGuard<'_, State> {
        let mut state = self.lock();
        state.expire(now);
        state
    }

    /// Notes that an agent has changed, for whoever writes.
    fn note(&self, mut state: MutexGuard<'_, State>, key: &AgentKey) {
        if state.is_kept {
            state.unwritten.insert(key.clone());
            drop(state);
            self.changed.notify_all();
        }
    }

    /// Makes an agent.
    pub fn create(&self, key: &AgentKey, new: NewAgent, now: u64) -> Result<Listed, ApiError> {
        let mut state = self.at(now);
        let session = state.agents.get(key).map(|agent| agent.about.clone());
        if session.as_ref().is_some_and(|about| about.kind == AgentKind::Agent) {
            let what = format!("there is an agent {} already; delete it first, or choose another id", key.id);
            return Err(ApiError::new(Kind::Conflict, what).about("id").coded("agent_exists"));
        }
        state.check_room(key.tenant, new.messages.bytes())?;
        let NewAgent { name, model, messages, ttl } = new;
        let known = session.unwrap_or_else(|| About::new(AgentKind::Agent, model, ttl, now));
        let about = About { kind: AgentKind::Agent, name, ttl, created: now, last_used: now, ..known };
        state.agents.insert(key.clone(), Agent { about, messages });
        let listed = state.listed(key);
        self.note(state, key);
        listed.ok_or_else(|| unknown(key))
    }

    /// One of them.
    pub fn get(&self, key: &AgentKey, now: u64) -> Result<Listed, ApiError> {
        self.at(now).listed(key).ok_or_else(|| unknown(key))
    }

    /// Those of a tenant, the last used first.
    pub fn of(&self, tenant: Tenant, now: u64) -> Vec<Listed> {
        let state = self.at(now);
        let own = state.agents.keys().filter(|key| key.tenant == tenant);
        let mut listed: Vec<_> = own.filter_map(|key| state.listed(key)).collect();
        listed.sort_by_key(|one| (std::cmp::Reverse(one.about.last_used), one.key.id.clone()));
        listed
    }

    /// Forgets one.
    pub fn remove(&self, key: &AgentKey, now: u64) -> Result<Listed, ApiError> {
        let mut state = self.at(now);
        let listed = state.listed(key).ok_or_else(|| unknown(key))?;
        state.agents.remove(key);
        self.note(state, key);
        Ok(listed)
    }

    /// Begins a turn of an agent, which ends with [`Registry::release`].
    pub fn claim(&self, key: &AgentKey, now: u64) -> Result<Claimed, ApiError> {
        let mut state = self.at(now);
        let agent = state.agents.get(key).filter(|agent| agent.about.kind == AgentKind::Agent);
        let Agent { about, messages } = agent.ok_or_else(|| unknown(key))?;
        let claimed = Claimed { model: about.model.clone(), messages: messages.clone() };
        if !state.busy.insert(key.clone()) {
            let what = format!("agent {} answers already; wait for its answer", key.id);
            let error = ApiError::new(Kind::Conflict, what).coded("agent_busy");
            return Err(error.retry_after(Duration::from_secs(1)));
        }
        Ok(claimed)
    }

    /// Ends a turn.
    pub fn release(&self, key: &AgentKey) {
        self.lock().busy.remove(key);
    }

    /// Whether there is room for a conversation of so many bytes in place of an agent's own.
    pub fn check_conversation(&self, key: &AgentKey, bytes: usize) -> Result<(), ApiError> {
        self.lock().check_bytes(key.tenant, Some(key), bytes)
    }

    /// An agent's conversation is this now. One that was deleted meanwhile stays so.
    pub fn set_conversation(&self, key: &AgentKey, messages: Messages) {
        let mut state = self.lock();
        if let Some(agent) = state.agents.get_mut(key) {
            agent.messages = messages;
            self.note(state, key);
        }
    }

    /// What a request did. Its blocks are pinned if it is an agent's.
    pub fn learn(&self, key: &AgentKey, lesson: Lesson, board: Option<PinBoard<'_>>, now: u64) {
        let mut state = self.at(now);
        state.ensure(key, &lesson.model, now);
        let room = state.room_for_names(key, lesson.names.len().min(MOST_NAMES));
        let Some(Agent { about, .. }) = state.agents.get_mut(key) else { return };
        about.last_used = now;
        about.model = lesson.model;
        about.figures = about.figures.plus(lesson.figures);
        about.tokens = lesson.tokens;
        about.names = lesson.names.into_iter().take(room).collect();
        if about.kind == AgentKind::Agent {
            state.pin(key, board, self.share);
            self.note(state, key);
        }
    }

    /// Pins an agent's blocks.
    pub fn pin(&self, key: &AgentKey, board: PinBoard<'_>) {
        self.lock().pin(key, Some(board), self.share);
    }

    /// The blocks of a conversation that no other agent or session begins with.
    pub fn own_names(&self, of: &Listed) -> Vec<BlockHash> {
        let state = self.lock();
        let others = state.agents.iter().filter(|(key, _)| **key != of.key);
        let shared = others.map(|(_, agent)| common(&of.about.names, &agent.about.names)).max();
        of.about.names[shared.unwrap_or(0)..].to_vec()
    }
}

/// What an agent's blocks are pinned under.
pub fn pin_name(key: &AgentKey) -> String {
    format!("agent:{}", key.file_stem())
}

/// There is no such agent, or it is another's: nobody learns which.
fn unknown(key: &AgentKey) -> ApiError {
    let what = format!("you have no agent {:?}; GET /v1/agents lists yours", key.id.as_str());
    ApiError::new(Kind::NotFound, what).about("id").coded("agent_not_found")
}

/// How many blocks two conversations begin with in common; after these they have none in common, as a block's name
/// depends on all before it.
fn common(one: &[BlockHash], other: &[BlockHash]) -> usize {
    one.iter().zip(other).take_while(|(one, other)| one == other).count()
}

#[cfg(test)]
mod tests;
