//! Agents and sessions: who comes back, what of their conversations is kept, and where.
//!
//! ```text
//! a request that names an agent or a session (id) ──> generation ──> Turn ──> Registry::learn, pins
//! /v1/agents...   manage: create, list, look, delete     generate: one more turn of a conversation held here
//! whereabouts     asks an engine which of the blocks are in memory and on disk
//! keeper, folder  agents as files, so that they are here after a restart
//! ```
//! An agent is a list of names of blocks, never a copy of them: a pinned block stays on disk until the agent expires, as
//! far as its tenant's share of the disk goes. What is in memory is the engine's to decide.

mod agent;
mod folder;
mod generate;
mod id;
mod keeper;
mod manage;
mod registry;
mod turn;
mod whereabouts;
mod wire;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use ropeway_kvdisk::Disk;
use tokio::sync::Semaphore;

pub use self::folder::FOLDER;
pub use self::id::{AgentId, AgentKey};
pub use self::turn::{AgentLink, Turn};

use self::folder::AgentFolder;
use self::keeper::Keeper;
use self::registry::Registry;
use crate::routes::Routes;

/// The part of the disk that one tenant's agents may have pinned: half of what all pins may take.
const TENANT_SHARE: u64 = 4;

/// All agents and sessions of a server.
pub struct Agents {
    registry: Arc<Registry>,
    keeper: Option<Keeper>,
    /// Whoever asks an engine where blocks are; one at a time, as it looks between two steps.
    looks: Semaphore,
}

impl Default for Agents {
    /// Agents that end with the process.
    fn default() -> Self {
        Self { registry: Arc::new(Registry::new(Vec::new(), 0)), keeper: None, looks: Semaphore::new(1) }
    }
}

impl Agents {
    /// Agents that are kept in a disk area's folder, with those that are there.
    pub fn on_disk(disk: &Disk) -> Self {
        let folder = AgentFolder::within(disk.dir());
        let registry = Arc::new(Registry::new(folder.load(), disk.status().size / TENANT_SHARE));
        let keeper = Keeper::start(&registry, folder, disk.clone());
        Self { registry, keeper: Some(keeper), looks: Semaphore::new(1) }
    }

    /// Waits until all agents are on disk, at most so long; whether they are.
    pub fn flush(&self, within: Duration) -> bool {
        self.keeper.as_ref().is_none_or(|keeper| keeper.flush(within))
    }
}

impl fmt::Debug for Agents {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Agents").finish_non_exhaustive()
    }
}

/// Its routes. Errors have OpenAI's shape.
pub fn routes() -> Routes {
    Routes::of("Agents")
        .post("/v1/agents", manage::create)
        .says("Make an agent: its conversation stays warm, on disk across restarts.")
        .takes::<wire::CreateAgent>(
            r#"{"id": "coder", "system": "You are a careful programmer.", "ttl_seconds": 86400}"#,
        )
        .get("/v1/agents", manage::list)
        .says("Your agents and sessions, the last used first: what of them is kept, and where.")
        .get("/v1/agents/stats", manage::stats)
        .says("Your agents and sessions together.")
        .get("/v1/agents/{id}", manage::one)
        .says("One of your agents or sessions.")
        .post("/v1/agents/{id}/generate", generate::create)
        .says("One more turn of an agent's conversation, which the server remembers.")
        .takes::<generate::AgentGenerateRequest>(r#"{"prompt": "What is a monad?", "max_tokens": 64}"#)
        .delete("/v1/agents/{id}", manage::delete)
        .says(
            "Forget an agent and its blocks; with evict_only=true only free the memory that its blocks take.",
        )
        .query("evict_only")
}
