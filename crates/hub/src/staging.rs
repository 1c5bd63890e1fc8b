//! The place where a model is put together before it is shown.
//!
//! ```text
//! staging/<folder>/model/     becomes models/<folder> by one rename
//!                 /scratch/   downloads and whatever pip leaves behind
//! ```
//! Relies on the model's lock being held. Gone when dropped; what a crash leaves is swept by the next pull.

use std::fs::{self, File};
use std::path::{Path, PathBuf};

use crate::error::HubError;

/// An empty staging folder of one model.
#[derive(Debug)]
pub(crate) struct Staging {
    root: PathBuf,
}

impl Staging {
    /// Creates it anew, throwing away what a crashed pull left.
    pub(crate) fn create(root: PathBuf) -> Result<Staging, HubError> {
        if root.exists() {
            fs::remove_dir_all(&root).map_err(HubError::io("clear the folder", &root))?;
        }
        let staging = Staging { root };
        for folder in [staging.model(), staging.scratch()] {
            fs::create_dir_all(&folder).map_err(HubError::io("create the folder", &folder))?;
        }
        Ok(staging)
    }

    /// The folder that will be the model's.
    pub(crate) fn model(&self) -> PathBuf {
        self.root.join("model")
    }

    /// The folder for everything that will not stay.
    pub(crate) fn scratch(&self) -> PathBuf {
        self.root.join("scratch")
    }
}

impl Drop for Staging {
    fn drop(&mut self) {
        // What cannot be removed now is swept by the next pull.
        let _ = fs::remove_dir_all(&self.root);
    }
}

/// Waits until a folder's entries are on disk, so that a power cut cannot undo a rename into it.
pub(crate) fn sync_folder(folder: &Path) -> Result<(), HubError> {
    if cfg!(unix) {
        File::open(folder).and_then(|file| file.sync_all()).map_err(HubError::io("sync", folder))?;
    }
    Ok(())
}
