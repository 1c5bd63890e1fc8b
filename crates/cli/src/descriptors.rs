//! Open files: a connection is one, and systems hand out few unless asked.

/// Files that models, logs and clients of other servers need beside connections.
const OTHERS: u64 = 256;

/// Connections that this process's limit on open files leaves room for; `None` where there is no such limit.
pub fn room_for_connections() -> Option<u64> {
    #[cfg(unix)]
    {
        use nix::sys::resource::{Resource, getrlimit};
        let (soft, _) = getrlimit(Resource::RLIMIT_NOFILE).ok()?;
        Some(soft.saturating_sub(OTHERS).max(soft / 2))
    }
    #[cfg(not(unix))]
    None
}

/// Raises this process's limit on open files as far as it may; whoever needs more is told when they run out.
pub fn raise_limit() {
    #[cfg(unix)]
    {
        use nix::sys::resource::{Resource, getrlimit, setrlimit};
        if let Ok((soft, hard)) = getrlimit(Resource::RLIMIT_NOFILE)
            && soft < hard
        {
            let _ = setrlimit(Resource::RLIMIT_NOFILE, hard, hard);
        }
    }
}
