//! Agents on disk: one file each, so that a turn writes its own agent only.
//!
//! ```text
//! <folder of the disk area>/agents/<tenant>-<digest of the id>.json     written anew (.tmp) and renamed
//! ```
//! A file that can't be read is left alone and told of; its agent is gone. Conversations stand in these files, so that
//! only the server's own user may read them.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::agent::{Agent, AgentKind, MOST_CONVERSATION_BYTES, MOST_NAMES};
use super::id::{AgentId, AgentKey};

/// The folder's name among the files of the disk area, which leaves it alone.
pub const FOLDER: &str = "agents";

/// What files of this form say.
const VERSION: u32 = 1;

/// Bytes of the longest file: a conversation, the names of its blocks, and a little more.
const MOST_BYTES: u64 = (MOST_CONVERSATION_BYTES + 64 * MOST_NAMES + (64 << 10)) as u64;

/// The folder of agents.
#[derive(Clone, Debug)]
pub struct AgentFolder(PathBuf);

#[derive(Serialize)]
struct Saved<'a> {
    version: u32,
    tenant: String,
    id: &'a AgentId,
    agent: &'a Agent,
}

#[derive(Deserialize)]
struct Found {
    version: u32,
    tenant: String,
    id: AgentId,
    agent: Agent,
}

impl AgentFolder {
    /// The folder within that of a disk area.
    pub fn within(dir: &Path) -> Self {
        Self(dir.join(FOLDER))
    }

    /// All agents in it.
    pub fn load(&self) -> Vec<(AgentKey, Agent)> {
        let Ok(entries) = fs::read_dir(&self.0) else { return Vec::new() };
        let paths = entries.filter_map(|entry| Some(entry.ok()?.path()));
        let files = paths.filter(|path| path.extension().is_some_and(|extension| extension == "json"));
        files
            .filter_map(|path| {
                let told = |error: &io::Error| {
                    tracing::warn!(target: "agents", file = %path.display(), %error, "an agent can't be read");
                };
                read(&path).inspect_err(told).ok()
            })
            .collect()
    }

    /// Writes an agent in place of what was written before.
    pub fn save(&self, key: &AgentKey, agent: &Agent) -> io::Result<()> {
        fs::create_dir_all(&self.0)?;
        let path = self.path(key);
        let saved = Saved { version: VERSION, tenant: key.tenant.to_string(), id: &key.id, agent };
        let unfinished = path.with_extension("tmp");
        let mut file = private(&unfinished)?;
        file.write_all(&serde_json::to_vec(&saved)?)?;
        file.sync_data()?;
        fs::rename(unfinished, path)
    }

    /// Deletes an agent's file.
    pub fn remove(&self, key: &AgentKey) -> io::Result<()> {
        match fs::remove_file(self.path(key)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        }
    }

    fn path(&self, key: &AgentKey) -> PathBuf {
        self.0.join(key.file_stem()).with_extension("json")
    }
}

/// A new file that nobody else may read.
fn private(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.write(true).create(true).truncate(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options.open(path)
}

fn read(path: &Path) -> io::Result<(AgentKey, Agent)> {
    let wrong = |what: &str| io::Error::new(io::ErrorKind::InvalidData, what);
    if fs::metadata(path)?.len() > MOST_BYTES {
        return Err(wrong("it is longer than any agent's"));
    }
    let found: Found = serde_json::from_slice(&fs::read(path)?)?;
    let tenant = found.tenant.parse().map_err(|_| wrong("its tenant makes no sense"))?;
    let key = AgentKey { tenant, id: found.id };
    let is_meant = path.file_stem().is_some_and(|stem| *stem == *key.file_stem());
    if found.version != VERSION || found.agent.about.kind != AgentKind::Agent || !is_meant {
        return Err(wrong("it is of another version, or was renamed"));
    }
    Ok((key, found.agent))
}

#[cfg(test)]
mod tests {
    use super::super::agent::{About, Messages};
    use super::*;
    use crate::guard::tenant::Tenant;

    fn agent() -> Agent {
        let about = About::new(AgentKind::Agent, "smollm2:135m".into(), 60, 1000);
        Agent { about, messages: Messages::default() }
    }

    fn key(id: &str) -> AgentKey {
        AgentKey { tenant: Tenant::local(), id: AgentId::chosen(id).unwrap() }
    }

    #[test]
    fn agents_are_found_again_and_damaged_files_cost_nobody_else() {
        let dir = tempfile::tempdir().unwrap();
        let folder = AgentFolder::within(dir.path());
        assert!(folder.load().is_empty());
        for id in ["a", "A", "b"] {
            folder.save(&key(id), &agent()).unwrap();
        }
        folder.remove(&key("b")).unwrap();
        folder.remove(&key("b")).unwrap();
        fs::write(folder.0.join("0-0.json"), "{").unwrap();
        fs::copy(folder.path(&key("a")), folder.0.join("renamed.json")).unwrap();
        let mut found: Vec<_> = folder.load().into_iter().map(|(key, _)| key).collect();
        found.sort();
        assert_eq!(found, [key("A"), key("a")]);
    }

    #[cfg(unix)]
    #[test]
    fn nobody_else_may_read_a_conversation() {
        use std::os::unix::fs::PermissionsExt;
        let dir = tempfile::tempdir().unwrap();
        let folder = AgentFolder::within(dir.path());
        folder.save(&key("a"), &agent()).unwrap();
        assert_eq!(fs::metadata(folder.path(&key("a"))).unwrap().permissions().mode() & 0o77, 0);
    }
}
