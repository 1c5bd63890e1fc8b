//! The cache of pulled models.
//!
//! ```text
//! $ROPEWAY_HOME/models/<folder>/manifest.json   the note about the model (see `manifest`)
//!                              /...             its files, unless they are in the Hugging Face cache
//!              /staging/<folder>/               a pull in progress (see `staging`)
//!              /locks/<folder>.lock             one pull or removal at a time (see `lock`)
//! ```
//! A model folder appears by one rename, whole and checked. Must never: delete outside the store and the Hugging Face
//! cache, or fail as a whole because one model is broken.

use std::fs::{self, File};
use std::io::{Read, Write};
use std::path::{Path, PathBuf};

use crate::cancel::Cancel;
use crate::error::HubError;
use crate::lock::Lock;
use crate::manifest::{self, FileRecord, Manifest, Owner};
use crate::model_files::{ModelFile, ModelFiles};
use crate::progress::{Progress, Report};
use crate::reference::ModelId;
use crate::staging::{Staging, sync_folder};
use crate::verify::Damage;

/// The cache of pulled models.
#[derive(Debug, Clone)]
pub struct Store {
    home: PathBuf,
    hugging_face_cache: PathBuf,
}

/// A model in the store.
#[derive(Debug, Clone)]
pub struct Installed {
    /// The note about it.
    pub manifest: Manifest,
    /// Its folder in the store.
    pub folder: PathBuf,
}

/// What is in the store.
#[derive(Debug, Default)]
pub struct Listing {
    /// The models, by name.
    pub models: Vec<Installed>,
    /// Models that can't be opened: a manifest that makes no sense, or a file that is missing or has changed its size.
    pub broken: Vec<HubError>,
}

/// What a removal did.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Removed {
    /// The model's name.
    pub name: String,
    /// Bytes given back to the disk.
    pub freed: u64,
    /// Bytes left where they are because others put them there.
    pub kept: u64,
}

impl Store {
    /// The store at `home`, which need not exist yet.
    pub fn new(home: PathBuf, hugging_face_cache: PathBuf) -> Store {
        Store { home, hugging_face_cache }
    }

    /// The model, if it was pulled; [`HubError::Damaged`] if a file of it is missing or has changed its size.
    pub fn find(&self, id: &ModelId) -> Result<Option<Installed>, HubError> {
        let installed = self.read(id)?;
        installed.map(|installed| installed.check().map(|()| installed)).transpose()
    }

    /// The model as its manifest describes it, whatever state its files are in.
    pub(crate) fn read(&self, id: &ModelId) -> Result<Option<Installed>, HubError> {
        let folder = self.models().join(&id.folder);
        if !folder.is_dir() {
            return Ok(None);
        }
        Installed::read(folder, &id.name).map(Some)
    }

    /// Every model, by name. `name_of` gives the name of a model whose folder holds no readable one.
    pub(crate) fn list(&self, name_of: impl Fn(&str) -> String) -> Result<Listing, HubError> {
        let mut listing = Listing::default();
        for folder in folders_of(&self.models())? {
            let name = name_of(&folder.file_name().unwrap_or_default().to_string_lossy());
            let read = Installed::read(folder, &name);
            match read.and_then(|installed| installed.check().map(|()| installed)) {
                Ok(installed) => listing.models.push(installed),
                Err(error) => listing.broken.push(error),
            }
        }
        listing.models.sort_by(|a, b| a.manifest.name.cmp(&b.manifest.name));
        Ok(listing)
    }

    /// Deletes the model, whole or damaged. The caller holds its lock.
    pub(crate) fn remove(&self, id: &ModelId) -> Result<Removed, HubError> {
        let folder = self.models().join(&id.folder);
        if !folder.is_dir() {
            return Err(HubError::NotPulled { name: id.name.clone() });
        }
        let mut removed = Removed { name: id.name.clone(), freed: 0, kept: 0 };
        if let Ok(installed) = Installed::read(folder.clone(), &id.name) {
            self.remove_shared_files(&installed.manifest, &mut removed);
            if installed.manifest.shared_root.is_none() {
                removed.freed += installed.manifest.bytes();
            }
        }
        fs::remove_dir_all(&folder).map_err(HubError::io("delete", &folder))?;
        Ok(removed)
    }

    /// Takes the model's lock, telling when that means waiting.
    pub(crate) fn lock(&self, id: &ModelId, cancel: &Cancel, report: Report<'_>) -> Result<Lock, HubError> {
        Lock::acquire(&self.lock_path(&id.folder), cancel, || report(Progress::Waiting))
    }

    /// Deletes files of ours that are not what they should be, where a pull would keep whatever it finds: in the shared cache.
    pub(crate) fn drop_damaged(&self, installed: &Installed, damage: &[Damage]) {
        let Some(root) = &installed.manifest.shared_root else { return };
        for damage in damage.iter().filter(|damage| damage.record.owner == Owner::Ropeway) {
            // A file that stays is found wrong again when it was fetched.
            let _ = self.remove_shared_file(root, &damage.record);
        }
    }

    /// An empty place to put the model together.
    pub(crate) fn stage(&self, id: &ModelId) -> Result<Staging, HubError> {
        Staging::create(self.staging().join(&id.folder))
    }

    /// Removes what crashed pulls of other models left: staging folders whose lock nobody holds.
    pub(crate) fn sweep_leftovers(&self) {
        for folder in folders_of(&self.staging()).unwrap_or_default() {
            let name = folder.file_name().unwrap_or_default().to_string_lossy().into_owned();
            if let Some(_lock) = Lock::try_acquire(&self.lock_path(&name)) {
                // A folder that resists today is tried again by the next pull.
                let _ = fs::remove_dir_all(&folder);
            }
        }
    }

    /// Shows the model: its manifest is written beside its files, all on disk, then one rename.
    pub(crate) fn install(
        &self,
        staging: &Staging,
        manifest: Manifest,
        id: &ModelId,
    ) -> Result<Installed, HubError> {
        write_manifest(&staging.model(), &manifest)?;
        sync_folder(&staging.model())?;
        let folder = self.models().join(&id.folder);
        fs::create_dir_all(self.models()).map_err(HubError::io("create the folder", &self.models()))?;
        if folder.exists() {
            fs::remove_dir_all(&folder).map_err(HubError::io("replace", &folder))?;
        }
        fs::rename(staging.model(), &folder).map_err(HubError::io("create", &folder))?;
        sync_folder(&self.models())?;
        Ok(Installed { manifest, folder })
    }

    fn models(&self) -> PathBuf {
        self.home.join("models")
    }

    fn staging(&self) -> PathBuf {
        self.home.join("staging")
    }

    fn lock_path(&self, folder: &str) -> PathBuf {
        self.home.join("locks").join(format!("{folder}.lock"))
    }

    /// Deletes the files Ropeway fetched into the shared cache; those of others stay.
    fn remove_shared_files(&self, manifest: &Manifest, removed: &mut Removed) {
        let Some(root) = &manifest.shared_root else { return };
        for file in &manifest.files {
            let gone = file.owner == Owner::Ropeway && self.remove_shared_file(root, file).is_some();
            *(if gone { &mut removed.freed } else { &mut removed.kept }) += file.bytes;
        }
    }

    /// Deletes a link and the blob it leads to, if both are really inside the Hugging Face cache.
    fn remove_shared_file(&self, root: &Path, file: &FileRecord) -> Option<()> {
        let cache = self.hugging_face_cache.canonicalize().ok()?;
        let link = file.path.below(root);
        let blob = link.canonicalize().ok()?;
        let link_folder = link.parent()?.canonicalize().ok()?;
        if !blob.starts_with(&cache) || !link_folder.starts_with(&cache) {
            return None;
        }
        fs::remove_file(&link).ok()?;
        // Where links are not to be had, the link was the blob.
        let _ = fs::remove_file(blob);
        Some(())
    }
}

impl Installed {
    /// The model, ready to open.
    pub fn files(&self) -> ModelFiles {
        let root = self.root();
        let file = |record: &FileRecord| ModelFile { path: record.path.below(root), bytes: record.bytes };
        ModelFiles {
            name: self.manifest.name.clone(),
            root: root.to_owned(),
            files: self.manifest.files.iter().map(file).collect(),
        }
    }

    /// The folder the files lie in.
    pub(crate) fn root(&self) -> &Path {
        self.manifest.shared_root.as_deref().unwrap_or(&self.folder)
    }

    fn read(folder: PathBuf, name: &str) -> Result<Installed, HubError> {
        let damaged = |problem: String| HubError::Damaged { name: name.into(), problem };
        let path = folder.join(manifest::FILE_NAME);
        let mut text = String::new();
        File::open(&path)
            .and_then(|file| file.take(manifest::LARGEST).read_to_string(&mut text))
            .map_err(|error| damaged(format!("{} cannot be read: {error}", path.display())))?;
        let manifest = serde_json::from_str(&text)
            .map_err(|error| damaged(format!("{} makes no sense: {error}", path.display())))?;
        Ok(Installed { manifest, folder })
    }

    /// Looks at every file's size. Checksums were compared when it was pulled; reading gigabytes again at every start
    /// would cost more than it finds, and `ropeway verify` does it when asked.
    fn check(&self) -> Result<(), HubError> {
        match self.wrong_sizes().into_iter().next() {
            None => Ok(()),
            Some(damage) => {
                Err(HubError::Damaged { name: self.manifest.name.clone(), problem: damage.to_string() })
            }
        }
    }
}

fn write_manifest(folder: &Path, manifest: &Manifest) -> Result<(), HubError> {
    let path = folder.join(manifest::FILE_NAME);
    let write = || {
        let mut file = File::create(&path)?;
        serde_json::to_writer_pretty(&mut file, manifest)?;
        file.write_all(b"\n")?;
        file.sync_all()
    };
    write().map_err(HubError::io("write", &path))
}

/// The folders directly below `parent`; none if it does not exist yet.
fn folders_of(parent: &Path) -> Result<Vec<PathBuf>, HubError> {
    if !parent.exists() {
        return Ok(Vec::new());
    }
    let entries = fs::read_dir(parent).map_err(HubError::io("read the folder", parent))?;
    Ok(entries.filter_map(Result::ok).map(|entry| entry.path()).filter(|path| path.is_dir()).collect())
}
