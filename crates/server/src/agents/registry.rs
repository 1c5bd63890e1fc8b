//! All agents and sessions of a server: bounded, each tenant's apart.
//!
//! ```text
//! create     an agent; a session of that id becomes one and keeps what is known about it
//! learn      what a request did, after its end; unknown sessions are listed from then on
//! claim      one turn at a time of an agent whose conversation the server holds
//! ```
//! Sessions that were not used for longest make room for others; agents stay until they expire. Must never: show one tenant
//! anything of another, or hold the lock while something is generated or written.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, UNIX_EPOCH};

use ropeway_engine::Handle;
use ropeway_engine::kv::BlockHash;
use ropeway_engine::tier::Tier;

use super::agent::{About, Agent, AgentKind, Figures, Listed, MOST_NAMES, Messages, Pinned};
use super::id::AgentKey;
use crate::error::{ApiError, Kind};
use crate::guard::tenant::Tenant;

/// Agents of one tenant: with a conversation each, what one may fill is a small part of the whole.
const MOST_AGENTS: usize = 64;

/// Agents of all tenants.
const MOST_AGENTS_IN_ALL: usize = 1024;

/// Sessions of one tenant: more than anyone reads through.
const MOST_SESSIONS: usize = 128;

/// Sessions of all tenants.
const MOST_SESSIONS_IN_ALL: usize = 1024;

/// Bytes of one tenant's conversations.
const MOST_MESSAGE_BYTES: usize = 16 << 20;

/// Bytes of all conversations.
const MOST_MESSAGE_BYTES_IN_ALL: usize = 128 << 20;

/// Names of blocks of all agents and sessions: 16 MiB.
const MOST_NAMES_IN_ALL: usize = 1 << 19;

/// A session is listed for a day after its last request.
const SESSION_TTL: u64 = 24 * 60 * 60;

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

#[derive(Debug, Default)]
pub(super) struct State {
    agents: HashMap<AgentKey, Agent>,
    /// Agents that have a turn.
    busy: HashSet<AgentKey>,
    /// Whether agents are written to disk.
    pub(super) is_kept: bool,
    /// Agents that are not on disk as they are.
    pub(super) unwritten: BTreeSet<AgentKey>,
    /// Whether one is being written.
    pub(super) is_writing: bool,
    /// Whether nobody asks for more.
    pub(super) is_over: bool,
}

impl Registry {
    /// These agents; a tenant's may have so many bytes pinned.
    pub fn new(agents: Vec<(AgentKey, Agent)>, share: u64) -> Self {
        let agents = agents.into_iter().take(MOST_AGENTS_IN_ALL).collect();
        Self { state: Mutex::new(State { agents, ..State::default() }), changed: Condvar::new(), share }
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

impl State {
    fn listed(&self, key: &AgentKey) -> Option<Listed> {
        let Agent { about, messages } = self.agents.get(key)?;
        Some(Listed { key: key.clone(), about: about.clone(), messages: messages.all().len() })
    }

    /// The agent as it is to be written; `None` if its file is to go.
    pub(super) fn to_write(&self, key: &AgentKey) -> Option<Agent> {
        self.agents.get(key).filter(|agent| agent.about.kind == AgentKind::Agent).cloned()
    }

    fn expire(&mut self, now: u64) {
        let Self { agents, busy, unwritten, is_kept, .. } = self;
        agents.retain(|key, agent| {
            let stays = agent.about.expires() > now || busy.contains(key);
            if !stays && *is_kept && agent.about.kind == AgentKind::Agent {
                unwritten.insert(key.clone());
            }
            stays
        });
    }

    fn count(&self, is_meant: impl Fn(&AgentKey, &About) -> bool) -> usize {
        self.agents.iter().filter(|(key, agent)| is_meant(key, &agent.about)).count()
    }

    /// Whether one more agent has room.
    fn check_room(&self, tenant: Tenant, bytes: usize) -> Result<(), ApiError> {
        let is_agent = |about: &About| about.kind == AgentKind::Agent;
        if self.count(|key, about| key.tenant == tenant && is_agent(about)) >= MOST_AGENTS {
            let what = format!("you have {MOST_AGENTS} agents, as many as may be; delete one");
            return Err(ApiError::invalid(what).coded("too_many_agents"));
        }
        if self.count(|_, about| is_agent(about)) >= MOST_AGENTS_IN_ALL {
            let what = format!("all clients together have {MOST_AGENTS_IN_ALL} agents, as many as may be");
            return Err(ApiError::new(Kind::NoRoom, what).coded("too_many_agents"));
        }
        self.check_bytes(tenant, None, bytes)
    }

    /// Whether a conversation of so many bytes has room, in place of that of `instead`.
    fn check_bytes(&self, tenant: Tenant, instead: Option<&AgentKey>, bytes: usize) -> Result<(), ApiError> {
        let others = || self.agents.iter().filter(|(key, _)| Some(*key) != instead);
        let own = others().filter(|(key, _)| key.tenant == tenant);
        if sum_bytes(own) + bytes > MOST_MESSAGE_BYTES {
            let what = format!(
                "your agents' conversations have at most {MOST_MESSAGE_BYTES} bytes together; delete agents, or begin \
                 one anew with \"reset\": true"
            );
            return Err(ApiError::invalid(what).coded("too_many_messages"));
        }
        if sum_bytes(others()) + bytes > MOST_MESSAGE_BYTES_IN_ALL {
            let what = "the conversations of all clients together have no room for more";
            return Err(ApiError::new(Kind::NoRoom, what).coded("too_many_messages"));
        }
        Ok(())
    }

    /// Lists a session that is not known yet.
    fn ensure(&mut self, key: &AgentKey, model: &str, now: u64) {
        if self.agents.contains_key(key) {
            return;
        }
        let is_session = |about: &About| about.kind == AgentKind::Session;
        if self.count(|other, about| other.tenant == key.tenant && is_session(about)) >= MOST_SESSIONS {
            self.drop_oldest_session(|other| other.tenant == key.tenant);
        }
        if self.count(|_, about| is_session(about)) >= MOST_SESSIONS_IN_ALL {
            self.drop_oldest_session(|_| true);
        }
        let about = About::new(AgentKind::Session, model.to_owned(), SESSION_TTL, now);
        self.agents.insert(key.clone(), Agent { about, messages: Messages::default() });
    }

    /// Forgets the session that was not used for longest; whether there was one.
    fn drop_oldest_session(&mut self, is_meant: impl Fn(&AgentKey) -> bool) -> bool {
        let sessions = self.agents.iter().filter(|(key, agent)| {
            agent.about.kind == AgentKind::Session && is_meant(key) && !self.busy.contains(key)
        });
        let oldest = sessions.min_by_key(|(_, agent)| agent.about.last_used).map(|(key, _)| key.clone());
        oldest.is_some_and(|key| self.agents.remove(&key).is_some())
    }

    /// How many of the names that are wanted for an agent may be kept; sessions make room.
    fn room_for_names(&mut self, key: &AgentKey, wanted: usize) -> usize {
        loop {
            let others = self.agents.iter().filter(|(other, _)| *other != key);
            let taken: usize = others.map(|(_, agent)| agent.about.names.len()).sum();
            let room = MOST_NAMES_IN_ALL.saturating_sub(taken);
            if room >= wanted || !self.drop_oldest_session(|other| other != key) {
                return wanted.min(room);
            }
        }
    }

    /// Pins an agent's blocks as far as its tenant's share goes.
    fn pin(&mut self, key: &AgentKey, board: Option<PinBoard<'_>>, share: u64) {
        let others = self.agents.iter().filter(|(other, _)| other.tenant == key.tenant && *other != key);
        let taken: u64 = others.map(|(_, agent)| agent.about.pinned.bytes).sum();
        let Some(Agent { about, .. }) = self.agents.get_mut(key) else { return };
        let Some(PinBoard { tier, block_bytes }) = board else {
            about.pinned = Pinned::default();
            return;
        };
        let room = share.saturating_sub(taken) / block_bytes.max(1);
        let most = about.names.len().min(usize::try_from(room).unwrap_or(usize::MAX));
        let until = UNIX_EPOCH.checked_add(Duration::from_secs(about.expires())).unwrap_or(UNIX_EPOCH);
        let blocks = tier.pin(&pin_name(key), &about.names[..most], until);
        about.pinned = Pinned { blocks, bytes: blocks as u64 * block_bytes };
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

fn sum_bytes<'a>(agents: impl Iterator<Item = (&'a AgentKey, &'a Agent)>) -> usize {
    agents.map(|(_, agent)| agent.messages.bytes()).sum()
}

/// How many blocks two conversations begin with in common; after these they have none in common, as a block's name
/// depends on all before it.
fn common(one: &[BlockHash], other: &[BlockHash]) -> usize {
    one.iter().zip(other).take_while(|(one, other)| one == other).count()
}

#[cfg(test)]
#[path = "registry_tests.rs"]
mod tests;
