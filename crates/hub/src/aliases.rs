//! Other names for models in the store: one small file, `$ROPEWAY_HOME/aliases.json`, from name to model.
//!
//! A file that can't be understood harms nothing but those names: reading goes on without them, and the file is left as it is,
//! since whoever edited it can mend it. Must never: shadow a name of the catalogue or of a pulled model, be half written, or
//! be written over when it could not be read.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::path::PathBuf;

use crate::cancel::Cancel;
use crate::error::HubError;
use crate::lock::Lock;

/// The longest name.
const LONGEST_NAME: usize = 128;

/// Most names. Whoever makes more makes them by mistake.
const MOST: usize = 1024;

/// A file larger than this is not ours.
const LARGEST: u64 = 1 << 20;

/// The names, and the lock around changes to them.
#[derive(Debug, Clone)]
pub(crate) struct Aliases {
    pub file: PathBuf,
    pub lock: PathBuf,
}

impl Aliases {
    /// All names and what they mean.
    pub(crate) fn all(&self) -> Result<BTreeMap<String, String>, HubError> {
        let mut text = String::new();
        match File::open(&self.file).and_then(|file| file.take(LARGEST).read_to_string(&mut text)) {
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(BTreeMap::new()),
            Err(error) => return Err(self.broken(&error)),
        }
        serde_json::from_str(&text).map_err(|error| self.broken(&error))
    }

    fn broken(&self, problem: &dyn std::fmt::Display) -> HubError {
        HubError::BrokenAliases { path: self.file.clone(), problem: problem.to_string() }
    }

    /// Changes the names in one go.
    pub(crate) fn change(&self, change: impl FnOnce(&mut BTreeMap<String, String>)) -> Result<(), HubError> {
        let _lock = Lock::acquire(&self.lock, &Cancel::default(), || ())?;
        let mut all = self.all()?;
        change(&mut all);
        if all.len() > MOST {
            return Err(HubError::BadAlias { name: String::new(), why: "there are too many names already" });
        }
        let new = self.file.with_extension("json.new");
        let write = || {
            let mut file = File::create(&new)?;
            serde_json::to_writer_pretty(&mut file, &all)?;
            file.write_all(b"\n")?;
            file.sync_all()?;
            fs::rename(&new, &self.file)
        };
        write().map_err(HubError::io("write", &self.file))
    }
}

/// Checks that a name looks like one: words of letters, digits, `.`, `_` and `-`, perhaps with `/` and one `:tag`.
pub(crate) fn check_name(name: &str) -> Result<(), HubError> {
    let word = |part: &str| {
        let allowed = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
        part.starts_with(|c: char| c.is_ascii_alphanumeric()) && part.chars().all(allowed)
    };
    let (base, tag) = name.split_once(':').map_or((name, "latest"), |(base, tag)| (base, tag));
    if name.len() <= LONGEST_NAME && word(tag) && base.split('/').all(word) {
        return Ok(());
    }
    let why = "a name is made of letters, digits, dots and dashes, as in mine:7b";
    Err(HubError::BadAlias { name: name.into(), why })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_cannot_be_a_path() {
        for bad in ["", ":x", "../x", "/x", "a/../b", "a b", "a:b:c", "a/", "~/x", ".x"] {
            assert!(check_name(bad).is_err(), "{bad}");
        }
        for good in ["mine", "mine:7b", "team/mine:q4_k-m", "gpt-4o"] {
            assert!(check_name(good).is_ok(), "{good}");
        }
    }
}
