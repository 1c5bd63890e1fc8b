//! What the registry holds, and how much of it there may be.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::time::{Duration, UNIX_EPOCH};

use super::super::agent::{About, Agent, AgentKind, Listed, Messages, Pinned};
use super::super::id::AgentKey;
use super::{PinBoard, pin_name};
use crate::error::{ApiError, Kind};
use crate::guard::tenant::Tenant;

/// Agents of one tenant: with a conversation each, what one may fill is a small part of the whole.
pub const MOST_AGENTS: usize = 64;

/// Agents of all tenants.
pub const MOST_AGENTS_IN_ALL: usize = 1024;

/// Sessions of one tenant: more than anyone reads through.
pub const MOST_SESSIONS: usize = 128;

/// Sessions of all tenants.
pub const MOST_SESSIONS_IN_ALL: usize = 1024;

/// Bytes of one tenant's conversations.
const MOST_MESSAGE_BYTES: usize = 16 << 20;

/// Bytes of all conversations.
const MOST_MESSAGE_BYTES_IN_ALL: usize = 128 << 20;

/// Names of blocks of all agents and sessions: 16 MiB.
pub const MOST_NAMES_IN_ALL: usize = 1 << 19;

/// A session is listed for a day after its last request.
pub const SESSION_TTL: u64 = 24 * 60 * 60;

#[derive(Debug, Default)]
pub struct State {
    pub agents: HashMap<AgentKey, Agent>,
    /// Agents that have a turn.
    pub busy: HashSet<AgentKey>,
    /// Whether agents are written to disk.
    pub is_kept: bool,
    /// Agents that are not on disk as they are.
    pub unwritten: BTreeSet<AgentKey>,
    /// Whether one is being written.
    pub is_writing: bool,
    /// Whether nobody asks for more.
    pub is_over: bool,
}

impl State {
    /// These agents, as many as there may be.
    pub fn of(agents: Vec<(AgentKey, Agent)>) -> Self {
        Self { agents: agents.into_iter().take(MOST_AGENTS_IN_ALL).collect(), ..Self::default() }
    }

    pub fn listed(&self, key: &AgentKey) -> Option<Listed> {
        let Agent { about, messages } = self.agents.get(key)?;
        Some(Listed { key: key.clone(), about: about.clone(), messages: messages.all().len() })
    }

    /// The agent as it is to be written; `None` if its file is to go.
    pub fn to_write(&self, key: &AgentKey) -> Option<Agent> {
        self.agents.get(key).filter(|agent| agent.about.kind == AgentKind::Agent).cloned()
    }

    pub fn expire(&mut self, now: u64) {
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
    pub fn check_room(&self, tenant: Tenant, bytes: usize) -> Result<(), ApiError> {
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
    pub fn check_bytes(
        &self,
        tenant: Tenant,
        instead: Option<&AgentKey>,
        bytes: usize,
    ) -> Result<(), ApiError> {
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
    pub fn ensure(&mut self, key: &AgentKey, model: &str, now: u64) {
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
    pub fn room_for_names(&mut self, key: &AgentKey, wanted: usize) -> usize {
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
    pub fn pin(&mut self, key: &AgentKey, board: Option<PinBoard<'_>>, share: u64) {
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

fn sum_bytes<'a>(agents: impl Iterator<Item = (&'a AgentKey, &'a Agent)>) -> usize {
    agents.map(|(_, agent)| agent.messages.bytes()).sum()
}
