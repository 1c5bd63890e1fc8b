//! Bringing a model to this machine.
//!
//! ```text
//! whole already      nothing is locked, nothing is written
//! missing, damaged   lock -> staging -> a source -> checked -> one rename shows it
//! ```
//! What is stopped, killed or cut leaves a store in which the model is as it was before; its transfer is continued by the
//! next pull.

use crate::cancel::Cancel;
use crate::error::{Attempt, HubError, SourceError};
use crate::manifest::Manifest;
use crate::model_files::ModelFiles;
use crate::progress::{Progress, Report};
use crate::reference::{ModelId, ModelRef};
use crate::source::origin::Origin;
use crate::source::{Fetched, Surroundings};
use crate::staging::Staging;
use crate::store::Installed;
use crate::verify::Check;
use crate::{Config, Hub};

/// How a pull is done.
#[derive(Debug, Clone, Default)]
pub struct PullOptions {
    /// How closely a model that is here already is looked at.
    pub check: Check,
    /// The word to stop.
    pub cancel: Cancel,
}

/// What a pull did.
#[derive(Debug, Clone)]
pub struct Pulled {
    /// The model, ready to open.
    pub files: ModelFiles,
    /// Whether anything had to be fetched.
    pub outcome: Outcome,
}

/// Whether a pull had anything to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// The model was on this machine, whole.
    AlreadyThere,
    /// The model, or what was damaged of it, was fetched and checked now.
    Fetched,
}

/// One pull at work.
struct Pull<'a> {
    hub: &'a Hub,
    id: &'a ModelId,
    options: &'a PullOptions,
}

impl Hub {
    /// Makes sure a model is on this machine, fetching it when it is missing or a file has changed its size. Two pulls of
    /// the same model do not collide: the second waits, then finds it there.
    pub fn pull(&self, name_or_path: &str, report: Report<'_>) -> Result<Pulled, HubError> {
        self.pull_model(&self.parse(name_or_path)?, &PullOptions::default(), report)
    }

    /// The same for a name that is understood already, as closely as the options say and until they say stop.
    pub fn pull_model(
        &self,
        model: &ModelRef,
        options: &PullOptions,
        report: Report<'_>,
    ) -> Result<Pulled, HubError> {
        if let ModelRef::Local(path) = model {
            return Ok(Pulled { files: ModelFiles::local(path)?, outcome: Outcome::AlreadyThere });
        }
        let id = &model.id()?;
        Pull { hub: self, id, options }.run(model, report)
    }
}

impl Pull<'_> {
    fn run(&self, model: &ModelRef, report: Report<'_>) -> Result<Pulled, HubError> {
        if let Some(whole) = self.whole(report)? {
            return Ok(Pulled { files: whole.files(), outcome: Outcome::AlreadyThere });
        }
        let store = &self.hub.store;
        let _lock = store.lock(self.id, &self.options.cancel, report)?;
        // Whoever held the lock may have done the work.
        if let Some(whole) = self.whole(report)? {
            return Ok(Pulled { files: whole.files(), outcome: Outcome::AlreadyThere });
        }
        let before = self.without_damage(report)?;
        store.sweep_leftovers();
        let staging = store.stage(self.id)?;
        let fetched = self.fetch(model, &staging, report)?;
        let manifest = Manifest::new(self.id, fetched).keep_owners(before.as_ref());
        let installed = store.install(&staging, manifest, self.id)?;
        Ok(Pulled { files: installed.files(), outcome: Outcome::Fetched })
    }

    /// The model, if it is here and nothing is wrong with it.
    fn whole(&self, report: Report<'_>) -> Result<Option<Installed>, HubError> {
        let Ok(Some(installed)) = self.hub.store.find(self.id) else { return Ok(None) };
        let damage = installed.damage(self.options.check, &self.options.cancel, report);
        let is_whole = damage.map_err(|_| HubError::Cancelled)?.is_empty();
        Ok(is_whole.then_some(installed))
    }

    /// Takes away what is damaged, so that a source brings it anew and nothing else; gives the manifest there was.
    fn without_damage(&self, report: Report<'_>) -> Result<Option<Manifest>, HubError> {
        let Ok(Some(installed)) = self.hub.store.read(self.id) else { return Ok(None) };
        let damage = installed.damage(self.options.check, &self.options.cancel, report);
        self.hub.store.drop_damaged(&installed, &damage.map_err(|_| HubError::Cancelled)?);
        Ok(Some(installed.manifest))
    }

    fn around(&self) -> Surroundings<'_> {
        let config: &Config = &self.hub.config;
        Surroundings { config, cancel: &self.options.cancel }
    }

    /// Tries the model's sources in order; the error names them all.
    fn fetch(&self, model: &ModelRef, staging: &Staging, report: Report<'_>) -> Result<Fetched, HubError> {
        let (origins, around) = (Origin::all_of(model)?, self.around());
        let mut attempts = Vec::new();
        for origin in &origins {
            let Some(label) = origin.label(&around) else { continue };
            report(Progress::Trying { source: &label });
            match origin.fetch(&around, staging, report) {
                Ok(fetched) => return Ok(fetched),
                Err(SourceError::Cancelled) => return Err(HubError::Cancelled),
                Err(error) => {
                    if origins.len() > 1 {
                        report(Progress::SourceFailed { source: &label, error: &error });
                    }
                    attempts.push(Attempt { source: label, error });
                }
            }
        }
        Err(HubError::all_failed(&self.id.name, attempts))
    }
}
