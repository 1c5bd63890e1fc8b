//! The models as one client sees them: what it may not use does not exist.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::promised::Promised;
use super::{Model, Models, same_name};
use crate::error::{ApiError, Kind};
use crate::guard::rights::Rights;

/// When to ask again for what may be a model of a server that was not reached yet: it is tried more often than that.
const AWAITED: Duration = Duration::from_secs(5);

/// The models that exist for a client.
#[derive(Clone, Copy)]
pub struct Visible<'a> {
    models: &'a Models,
    rights: &'a Rights,
}

impl<'a> Visible<'a> {
    pub(super) fn new(models: &'a Models, rights: &'a Rights) -> Self {
        Self { models, rights }
    }

    /// Whether a model of this full name exists for the client.
    pub fn has(&self, name: &str) -> bool {
        self.rights.may_use(name)
    }

    /// Those that are served, in the order they were added.
    pub fn all(&self) -> Vec<Arc<Model>> {
        let mut served = self.models.all();
        served.retain(|model| self.has(&model.name));
        served
    }

    /// Those that the operator promised.
    pub fn promised(&self) -> Vec<Promised> {
        let mut promised = self.models.promised();
        promised.retain(|promised| self.has(&promised.name));
        promised
    }

    /// The model that an alias of the operator's stands for.
    pub fn alias_of(&self, name: &str) -> Option<String> {
        self.models.alias_of(name)
    }

    /// Whether names that are not known mean the first model.
    pub fn takes_any_name(&self) -> bool {
        self.models.takes_any_name()
    }

    /// The model of this name or alias, if it is served.
    pub fn loaded(&self, name: &str) -> Option<Arc<Model>> {
        self.by_name(name).or_else(|| self.by_name(&self.models.aliased(name)?))
    }

    fn by_name(&self, name: &str) -> Option<Arc<Model>> {
        let served = self.all();
        let exact = served.iter().find(|model| model.name == name).cloned();
        let untagged = || served.iter().find(|model| same_name(&model.name, name)).cloned();
        exact.or_else(|| self.derived(name)).or_else(untagged)
    }

    /// The derived model of this name, if the one that it is made of is served. That one need not exist for the client.
    fn derived(&self, name: &str) -> Option<Arc<Model>> {
        let derived = self.models.derived_named(name).filter(|derived| self.has(&derived.name))?;
        let base = self.models.all().into_iter().find(|model| model.name == derived.from)?;
        Some(Arc::new(base.derive(derived)))
    }

    /// The model a client means.
    pub fn find(&self, name: &str) -> Result<Arc<Model>, ApiError> {
        let any = || self.all().first().filter(|_| self.takes_any_name()).cloned();
        self.loaded(name).or_else(any).ok_or_else(|| self.absent(name))
    }

    /// The model of this name, or the one to use when a client names none.
    pub fn named(&self, name: Option<&str>) -> Result<Arc<Model>, ApiError> {
        match name {
            Some(name) => self.find(name),
            None => self.first(),
        }
    }

    /// The model to use when a client names none.
    pub fn first(&self) -> Result<Arc<Model>, ApiError> {
        self.all().first().cloned().ok_or_else(|| {
            let coming = self.promised().into_iter().find_map(|promised| Coming::of(&promised));
            coming.map_or_else(|| self.not_served(None), Coming::error)
        })
    }

    /// Why a model is not there: it is on its way, or nobody serves it.
    pub fn absent(&self, name: &str) -> ApiError {
        let meant = self.models.base_of(name);
        let is_meant = |promised: &Promised| same_name(&promised.name, &meant) || self.takes_any_name();
        let coming = self.promised().iter().filter(|promised| is_meant(promised)).find_map(Coming::of);
        coming.map_or_else(|| self.not_served(Some(name)), Coming::error)
    }

    fn not_served(&self, name: Option<&str>) -> ApiError {
        if self.models.awaits_sources() {
            let what = "another server was not reached yet, and nobody knows its models; try again in a few seconds, or have the \
                        operator look at `ropeway upstreams`";
            return ApiError::new(Kind::Overloaded, what).coded("upstream_unreachable").retry_after(AWAITED);
        }
        let names: Vec<_> = self.all().iter().map(|model| model.name.clone()).collect();
        let known = if names.is_empty() { "none is loaded".into() } else { names.join(", ") };
        let subject = match name {
            // Ollama's command line looks for "not found".
            Some(name) => format!("model {name:?} not found: it is not served here"),
            None => "no model is served here".into(),
        };
        let what = format!(
            "{subject}; served: {known}. POST /api/generate with only its name loads a model that is on disk; --alias \
             gives a model other names, --any-model all of them"
        );
        ApiError::new(Kind::NotFound, what).about("model").coded("model_not_found")
    }
}

/// A promised model that is not there yet.
struct Coming {
    name: String,
    wait: Duration,
}

impl Coming {
    fn of(promised: &Promised) -> Option<Self> {
        let wait = promised.arrival.wait(Instant::now())?;
        Some(Self { name: promised.name.clone(), wait })
    }

    fn error(self) -> ApiError {
        let what =
            format!("{} is still being loaded; try again in {} seconds", self.name, self.wait.as_secs());
        ApiError::new(Kind::Overloaded, what).coded("model_loading").retry_after(self.wait)
    }
}
