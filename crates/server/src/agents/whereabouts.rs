//! Where an agent's blocks are.

use std::collections::BTreeMap;
use std::time::Duration;

use ropeway_engine::Located;
use ropeway_engine::kv::BlockHash;
use ropeway_generation::AnyBackend;
use tokio::sync::oneshot;
use tokio::time::timeout;

use super::agent::Listed;
use crate::app::App;
use crate::model::Visible;

/// How long an engine may take to answer: it does so after its current step.
const PATIENCE: Duration = Duration::from_secs(2);

/// Blocks that are looked for at a time: what an engine finds in less than a millisecond, so that nobody's tokens are late
/// because of someone who looks.
const MOST_LOOKED_FOR: usize = 8192;

/// What of a conversation could be used again, from its first block on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Whereabouts {
    /// Tokens that are in memory, and may be on disk as well.
    pub memory_tokens: usize,
    /// Tokens that are on disk only.
    pub disk_tokens: usize,
    /// Bytes of all of these.
    pub bytes: u64,
}

impl Whereabouts {
    fn of(places: &[Located], block_tokens: usize, block_bytes: u64) -> Self {
        let found = places.iter().take_while(|place| place.memory || place.lower);
        let (memory, disk): (Vec<&Located>, Vec<&Located>) = found.partition(|place| place.memory);
        Self {
            memory_tokens: memory.len() * block_tokens,
            disk_tokens: disk.len() * block_tokens,
            bytes: (memory.len() + disk.len()) as u64 * block_bytes,
        }
    }

    /// Tokens in any tier.
    pub fn tokens(&self) -> usize {
        self.memory_tokens + self.disk_tokens
    }

    /// The tier's name in the API.
    pub fn tier(&self) -> &'static str {
        match (self.memory_tokens, self.disk_tokens) {
            (0, 0) => "none",
            (_, 0) => "memory",
            (0, _) => "disk",
            _ => "mixed",
        }
    }
}

/// Where the conversations of these agents are; `None` for one that nobody knows of: its model is not loaded, the engine
/// is too busy to say, or there are too many blocks to look for.
pub async fn find(app: &App, models: Visible<'_>, agents: &[Listed]) -> Vec<Option<Whereabouts>> {
    let mut found = vec![None; agents.len()];
    let Ok(Ok(_permit)) = timeout(PATIENCE, app.agents.looks.acquire()).await else { return found };
    for (model, asked) in by_model(agents) {
        let Some(backend) = models.loaded(model).map(|model| model.engine()) else { continue };
        let names = asked.iter().flat_map(|index| agents[*index].about.names.iter().copied());
        let Some(limits) = backend.limits() else { continue };
        let Some(places) = places(&backend, names.collect()).await else { continue };
        let mut rest = places.as_slice();
        for index in asked {
            let (own, others) = rest.split_at(agents[index].about.names.len().min(rest.len()));
            found[index] = Some(Whereabouts::of(own, limits.block_tokens, limits.block_bytes as u64));
            rest = others;
        }
    }
    found
}

/// The positions of the agents of each model, as far as their blocks may be looked for.
fn by_model(agents: &[Listed]) -> BTreeMap<&str, Vec<usize>> {
    let mut left = MOST_LOOKED_FOR;
    let mut by_model: BTreeMap<&str, Vec<usize>> = BTreeMap::new();
    for (index, agent) in agents.iter().enumerate() {
        if let Some(rest) = left.checked_sub(agent.about.names.len()) {
            left = rest;
            by_model.entry(&agent.about.model).or_default().push(index);
        }
    }
    by_model
}

/// Asks an engine. One that has no room for the question drops it.
async fn places(backend: &AnyBackend, names: Vec<BlockHash>) -> Option<Vec<Located>> {
    if names.is_empty() {
        return Some(Vec::new());
    }
    let (tell, told) = oneshot::channel();
    backend.engine()?.locate(names, move |places| {
        let _ = tell.send(places);
    });
    timeout(PATIENCE, told).await.ok()?.ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(places: &str) -> Whereabouts {
        let place = |letter| Located { memory: "mb".contains(letter), lower: "db".contains(letter) };
        Whereabouts::of(&places.chars().map(place).collect::<Vec<_>>(), 16, 100)
    }

    #[test]
    fn only_what_can_be_used_again_counts_and_memory_counts_before_disk() {
        assert_eq!(at(""), Whereabouts::default());
        assert_eq!(at("mbd-dd"), Whereabouts { memory_tokens: 32, disk_tokens: 16, bytes: 300 });
        let tiers = ["", "-m", "mm", "mb", "dd", "md", "dm"].map(|places| at(places).tier());
        assert_eq!(tiers, ["none", "none", "memory", "memory", "disk", "mixed", "mixed"]);
    }
}
