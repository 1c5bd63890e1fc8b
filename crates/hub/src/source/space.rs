//! Whether the disk has room for a download, asked before it begins.

use std::path::Path;

use crate::error::SourceError;

/// Fails if fewer than `needed` bytes are free where `folder` is, or will be.
pub(crate) fn check(folder: &Path, needed: u64) -> Result<(), SourceError> {
    match free(folder) {
        Some(free) if free < needed => Err(SourceError::NoSpace { path: folder.to_owned(), needed, free }),
        _ => Ok(()),
    }
}

/// Bytes that an ordinary user may still write there; `None` where the system does not say.
#[cfg(unix)]
fn free(folder: &Path) -> Option<u64> {
    let existing = folder.ancestors().find(|folder| folder.exists())?;
    let about = nix::sys::statvfs::statvfs(existing).ok()?;
    #[allow(clippy::useless_conversion, reason = "the width differs between systems")]
    let (blocks, size) = (u64::from(about.blocks_available()), u64::from(about.fragment_size()));
    blocks.checked_mul(size)
}

#[cfg(not(unix))]
fn free(_folder: &Path) -> Option<u64> {
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_download_larger_than_the_disk_is_refused_with_both_figures() {
        let folder = std::env::temp_dir().join("no/such/folder/yet");
        assert!(check(&folder, 1).is_ok());
        let error = check(&folder, u64::MAX).unwrap_err();
        assert!(matches!(error, SourceError::NoSpace { needed: u64::MAX, .. }), "{error}");
    }
}
