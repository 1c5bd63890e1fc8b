//! Models that clients made of others, and the files they sent for them: beside the store, one small file per model.
//!
//! ```text
//! $ROPEWAY_HOME/derived/<sha256 of the name>.json     a model: its name, what it is made of, what it adds
//! $ROPEWAY_HOME/blobs/sha256-<digest>.gguf            a file that a client sent
//! ```
//! A file is written beside and renamed, so that none is ever half there, and two servers on one store can't spoil each
//! other's. One that can't be read harms nothing but its own model.

use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use ropeway_hub::checksum::Sha256;
use ropeway_server::error::ApiError;
use ropeway_server::library::BlobDigest;
use ropeway_server::model::derived::Derived;

use super::told::unusable_store;

/// A file larger than this is not ours: it holds some prompts.
const LARGEST: u64 = 16 << 20;

/// Files written so far: two at once have names of their own.
static WRITTEN: AtomicU64 = AtomicU64::new(0);

/// Where they are.
#[derive(Clone, Debug)]
pub struct DerivedModels {
    home: PathBuf,
}

impl DerivedModels {
    /// Those in this home.
    pub fn new(home: PathBuf) -> DerivedModels {
        DerivedModels { home }
    }

    /// All of them, oldest first. What can't be read is left out, and told to the log.
    pub fn all(&self) -> Vec<Derived> {
        let entries = fs::read_dir(self.folder()).into_iter().flatten().flatten();
        let paths = entries.map(|entry| entry.path());
        let files = paths.filter(|path| path.extension().is_some_and(|extension| extension == "json"));
        let mut all: Vec<_> = files.filter_map(|path| read(&path)).collect();
        all.sort_by(|a, b| (a.created, &a.name).cmp(&(b.created, &b.name)));
        all
    }

    /// Keeps a model, in the place of one of the same name.
    pub fn keep(&self, model: &Derived) -> Result<(), ApiError> {
        let path = self.path(&model.name);
        let number = WRITTEN.fetch_add(1, Ordering::Relaxed);
        let new = path.with_extension(format!("new-{}-{number}", std::process::id()));
        let text = serde_json::to_vec_pretty(model).map_err(|error| unwritten(&path, &error.into()))?;
        if text.len() as u64 >= LARGEST {
            let what =
                format!("a model has at most {LARGEST} bytes of texts; shorten its messages or license");
            return Err(ApiError::invalid(what));
        }
        let write = || {
            fs::create_dir_all(self.folder())?;
            let mut file = File::create(&new)?;
            file.write_all(&text)?;
            file.sync_all()?;
            fs::rename(&new, &path)
        };
        write().map_err(|error| unwritten(&path, &error))
    }

    /// Forgets a model, and the file it was made of if no other model is.
    pub fn forget(&self, name: &str) -> Result<(), ApiError> {
        let path = self.path(name);
        let gone = read(&path);
        fs::remove_file(&path).map_err(|error| unwritten(&path, &error))?;
        let digest: Option<BlobDigest> = gone.and_then(|gone| gone.from.parse().ok());
        if let Some(digest) = digest
            && self.all().iter().all(|other| other.from != digest.to_string())
        {
            let _ = fs::remove_file(self.blob(&digest));
        }
        Ok(())
    }

    /// Where a file that a client sends is kept.
    pub fn blob(&self, digest: &BlobDigest) -> PathBuf {
        self.home.join("blobs").join(format!("sha256-{}.gguf", digest.hex()))
    }

    fn folder(&self) -> PathBuf {
        self.home.join("derived")
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder().join(format!("{}.json", Sha256::of(name.as_bytes())))
    }
}

fn read(path: &Path) -> Option<Derived> {
    let mut text = String::new();
    let read = File::open(path).and_then(|file| file.take(LARGEST).read_to_string(&mut text));
    let model = read.and_then(|_| serde_json::from_str(&text).map_err(io::Error::from));
    model
        .inspect_err(|error| {
            tracing::warn!(target: "library", path = %path.display(), %error, "a derived model is left out; mend or delete its file");
        })
        .ok()
}

fn unwritten(path: &Path, error: &io::Error) -> ApiError {
    tracing::error!(target: "library", path = %path.display(), %error, "a derived model can't be written");
    unusable_store()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn model(name: &str, from: &str) -> Derived {
        Derived { name: name.into(), from: from.into(), ..Derived::default() }
    }

    #[test]
    fn models_are_kept_replaced_and_forgotten() {
        let home = tempfile::tempdir().unwrap();
        let models = DerivedModels::new(home.path().into());
        models.keep(&model("a/b:c", "m")).unwrap();
        models.keep(&model("d", "m")).unwrap();
        models.keep(&model("d", "n")).unwrap();
        assert_eq!(models.all(), [model("a/b:c", "m"), model("d", "n")]);
        models.forget("a/b:c").unwrap();
        assert_eq!(models.all(), [model("d", "n")]);
        assert!(models.forget("a/b:c").is_err());
    }

    #[test]
    fn a_file_that_was_spoiled_harms_no_other_model() {
        let home = tempfile::tempdir().unwrap();
        let models = DerivedModels::new(home.path().into());
        models.keep(&model("d", "m")).unwrap();
        fs::write(models.folder().join("x.json"), "{").unwrap();
        assert_eq!(models.all(), [model("d", "m")]);
    }

    #[test]
    fn a_file_goes_with_the_last_model_that_is_made_of_it() {
        let home = tempfile::tempdir().unwrap();
        let models = DerivedModels::new(home.path().into());
        let digest: BlobDigest = format!("sha256:{}", "a".repeat(64)).parse().unwrap();
        fs::create_dir_all(models.blob(&digest).parent().unwrap()).unwrap();
        fs::write(models.blob(&digest), "GGUF").unwrap();
        for name in ["a", "b"] {
            models.keep(&model(name, &digest.to_string())).unwrap();
        }
        models.forget("a").unwrap();
        assert!(models.blob(&digest).exists());
        models.forget("b").unwrap();
        assert!(!models.blob(&digest).exists());
    }
}
