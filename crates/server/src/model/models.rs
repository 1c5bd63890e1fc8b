//! All models of a server, and what they are called: their own names, aliases of the operator's, copies and derived models of
//! clients'.

use std::sync::{Arc, PoisonError, RwLock};
use std::time::{Duration, Instant};

use super::derived::Derived;
use super::promised::{Arrival, Promised};
use super::{Alias, Model, Visible, same_name};
use crate::error::ApiError;
use crate::guard::rights::Rights;

/// How long unknown names are said to be perhaps on their way: long enough for servers that start together.
const LONGEST_WAIT_FOR_SOURCES: Duration = Duration::from_secs(300);

/// Other servers whose models are not known yet.
#[derive(Clone, Copy, Debug)]
struct Awaited {
    /// Since when there are any.
    since: Instant,
}

/// The models that are served. Looking for one never loads or swaps any.
#[derive(Default)]
pub struct Models {
    served: RwLock<Vec<Arc<Model>>>,
    aliases: Vec<Alias>,
    /// Other names that clients gave to models on disk.
    copies: RwLock<Vec<Alias>>,
    /// Models made of others.
    derived: RwLock<Vec<Arc<Derived>>>,
    /// Models that the operator gave, loaded or not: how long they stay is not for clients to say.
    given: Vec<String>,
    /// Whether names that are not known mean the first model.
    takes_any_name: bool,
    /// Those that the operator promised.
    promised: RwLock<Vec<Promised>>,
    /// Other servers whose models are not known, because they were never reached.
    awaited_sources: RwLock<Option<Awaited>>,
}

impl Models {
    /// No models yet.
    pub fn new(aliases: Vec<Alias>) -> Self {
        Self { aliases, ..Self::default() }
    }

    /// These are the operator's.
    pub fn giving(mut self, names: impl IntoIterator<Item = String>) -> Self {
        self.given.extend(names);
        self
    }

    /// Whether the operator gave the model of this name.
    pub fn is_given(&self, name: &str) -> bool {
        self.given.iter().any(|given| given == name)
    }

    /// Names that are not known mean the first model.
    pub fn taking_any_name(mut self) -> Self {
        self.takes_any_name = true;
        self
    }

    /// Serves one more model, or a newer one of the same name.
    pub fn add(&self, model: Arc<Model>) {
        let mut served = self.served.write().unwrap_or_else(PoisonError::into_inner);
        served.retain(|other| other.name != model.name);
        let name = model.name.clone();
        served.push(model);
        drop(served);
        self.arrives(&name, Arrival::Arrived);
    }

    /// The operator promised a model; it will be loaded.
    pub fn promise(&self, name: &str) {
        let arrival = Arrival::Waiting { since: Instant::now() };
        let promised = Promised { name: name.to_owned(), arrival };
        self.promised.write().unwrap_or_else(PoisonError::into_inner).push(promised);
    }

    /// A promised model is so far; nothing for others.
    pub fn arrives(&self, name: &str, arrival: Arrival) {
        let mut promised = self.promised.write().unwrap_or_else(PoisonError::into_inner);
        if let Some(promised) = promised.iter_mut().find(|promised| promised.name == name) {
            promised.arrival = arrival;
        }
    }

    /// So much of a promised model is loaded, from 0 to 1.
    pub fn load_progress(&self, name: &str, share: f64) {
        let mut promised = self.promised.write().unwrap_or_else(PoisonError::into_inner);
        let arrival = promised.iter_mut().find(|promised| promised.name == name).map(|one| &mut one.arrival);
        if let Some(Arrival::Loading { done, .. }) = arrival {
            *done = Some(share);
        }
    }

    /// Those that the operator promised.
    pub fn promised(&self) -> Vec<Promised> {
        self.promised.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Other servers whose models are not known yet: a name that nobody knows may be one of theirs.
    pub fn await_sources(&self, count: usize) {
        let mut awaited = self.awaited_sources.write().unwrap_or_else(PoisonError::into_inner);
        let since = awaited.as_ref().map_or_else(Instant::now, |awaited| awaited.since);
        *awaited = (count > 0).then_some(Awaited { since });
    }

    /// Whether a name that nobody knows may be a model of another server. One that is silent for long is not waited for any more.
    pub fn awaits_sources(&self) -> bool {
        let awaited = self.awaited_sources.read().unwrap_or_else(PoisonError::into_inner);
        awaited.as_ref().is_some_and(|awaited| awaited.since.elapsed() < LONGEST_WAIT_FOR_SOURCES)
    }

    /// The models that exist for a client.
    pub fn visible_to<'a>(&'a self, rights: &'a Rights) -> Visible<'a> {
        Visible::new(self, rights)
    }

    /// Serves it no longer; whether it was served.
    pub fn remove(&self, model: &Arc<Model>) -> bool {
        let mut served = self.served.write().unwrap_or_else(PoisonError::into_inner);
        let before = served.len();
        served.retain(|other| !Arc::ptr_eq(other, model));
        served.len() < before
    }

    /// All of them, in the order they were added.
    pub fn all(&self) -> Vec<Arc<Model>> {
        self.served.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// One more name for a model.
    pub fn add_copy(&self, copy: Alias) {
        self.remove_copy(&copy.pattern);
        self.copies.write().unwrap_or_else(PoisonError::into_inner).push(copy);
    }

    /// The name means nothing any more.
    pub fn remove_copy(&self, name: &str) {
        self.copies.write().unwrap_or_else(PoisonError::into_inner).retain(|copy| copy.pattern != name);
    }

    /// One more model made of another, or a newer one of the same name.
    pub fn add_derived(&self, model: Derived) {
        self.remove_derived(&model.name);
        self.derived.write().unwrap_or_else(PoisonError::into_inner).push(Arc::new(model));
    }

    /// The name means nothing any more; whether it did.
    pub fn remove_derived(&self, name: &str) -> bool {
        let mut derived = self.derived.write().unwrap_or_else(PoisonError::into_inner);
        let before = derived.len();
        derived.retain(|model| model.name != name);
        derived.len() < before
    }

    /// All models made of others, in the order they were made.
    pub fn derived(&self) -> Vec<Arc<Derived>> {
        self.derived.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The derived model of this name, which may leave out its tag.
    pub fn derived_named(&self, name: &str) -> Option<Arc<Derived>> {
        let all = self.derived();
        let exact = all.iter().find(|model| model.name == name);
        exact.or_else(|| all.iter().find(|model| same_name(&model.name, name))).cloned()
    }

    /// The model on disk that a name, an alias or a derived model's name stands for in the end.
    pub fn base_of(&self, name: &str) -> String {
        let meant = self.derived_named(name).map(|derived| derived.from.clone());
        let aliased = || {
            let model = self.aliased(name)?;
            Some(self.derived_named(&model).map_or(model, |derived| derived.from.clone()))
        };
        meant.or_else(aliased).unwrap_or_else(|| name.to_owned())
    }

    /// The operator's aliases.
    pub fn aliases(&self) -> &[Alias] {
        &self.aliases
    }

    /// The model that an alias of the operator's stands for.
    pub fn alias_of(&self, name: &str) -> Option<String> {
        self.aliases.iter().find(|alias| alias.covers(name)).map(|alias| alias.model.clone())
    }

    /// Whether names that are not known mean the first model.
    pub fn takes_any_name(&self) -> bool {
        self.takes_any_name
    }

    /// The full name that an alias, of the operator's or of a client's, stands for.
    pub(super) fn aliased(&self, name: &str) -> Option<String> {
        let copies = || self.copies.read().unwrap_or_else(PoisonError::into_inner);
        let of_client =
            |name: &str| copies().iter().find(|copy| copy.covers(name)).map(|copy| copy.model.clone());
        let meant = |name: &str| self.alias_of(name).or_else(|| of_client(name));
        meant(name).or_else(|| meant(name.strip_suffix(":latest")?))
    }

    /// The model of this name or alias, if it is served.
    pub fn loaded(&self, name: &str) -> Option<Arc<Model>> {
        self.visible_to(&Rights::everything()).loaded(name)
    }

    /// The model that someone with all rights means.
    pub fn find(&self, name: &str) -> Result<Arc<Model>, ApiError> {
        self.visible_to(&Rights::everything()).find(name)
    }

    /// The model to use when none is named.
    pub fn first(&self) -> Result<Arc<Model>, ApiError> {
        self.visible_to(&Rights::everything()).first()
    }
}
