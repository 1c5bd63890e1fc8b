//! What becomes known of a request while it is answered; the log and the traces are written from it.
//!
//! One HTTP request may run several answers: tokens add up, times are those of the first to get there.

use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Instant;

use ropeway_engine::{Class, Usage};

use crate::guard::clients::Permit;

/// Placements that are kept of a request. One that is moved more often has other problems.
const MOST_PLACEMENTS: usize = 64;

/// Another server that computes a request, from a moment on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Placement {
    /// The server's name.
    pub upstream: Arc<str>,
    /// Since when.
    pub since: Instant,
}

/// What is known so far.
#[derive(Clone, Debug, Default)]
pub struct Facts {
    /// Holder of the key.
    pub client: Option<Arc<str>>,
    /// The model that answers.
    pub model: Option<String>,
    /// How urgent it is.
    pub class: Option<Class>,
    /// Tokens of all prompts.
    pub prompt_tokens: usize,
    /// Of these, how many came from the cache.
    pub cached_tokens: usize,
    /// Of these, how many were on disk.
    pub disk_tokens: usize,
    /// Tokens of all answers.
    pub output_tokens: usize,
    /// Tokens drafted for all answers.
    pub drafted_tokens: usize,
    /// Of these, how many were right.
    pub accepted_tokens: usize,
    /// When the engine was asked.
    pub submitted: Option<Instant>,
    /// When it began.
    pub started: Option<Instant>,
    /// When the first token came.
    pub first_token: Option<Instant>,
    /// When the last answer was over.
    pub ended: Option<Instant>,
    /// The other servers that computed it, in order; one that follows itself is listed once.
    pub placements: Vec<Placement>,
}

impl Facts {
    /// The names of the other servers that computed it, each once; `None` if it was this process.
    pub fn upstreams(&self) -> Option<String> {
        let mut names: Vec<&str> = Vec::new();
        for placement in &self.placements {
            if !names.contains(&&*placement.upstream) {
                names.push(&placement.upstream);
            }
        }
        (!names.is_empty()).then(|| names.join(","))
    }
}

/// A request's facts, shared by all who learn some.
#[derive(Clone, Debug, Default)]
pub struct Progress {
    facts: Arc<Mutex<Facts>>,
    /// The request's place among its client's, which is given back when nobody answers or watches it any more.
    permit: Arc<OnceLock<Arc<Permit>>>,
}

impl Progress {
    fn facts(&self) -> MutexGuard<'_, Facts> {
        self.facts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What is known so far.
    pub fn snapshot(&self) -> Facts {
        self.facts().clone()
    }

    /// The request counts as its client's for as long as it is answered and watched.
    pub fn hold(&self, permit: &Arc<Permit>) {
        let _ = self.permit.set(Arc::clone(permit));
    }

    /// Who asks.
    pub fn client(&self, name: &Arc<str>) {
        self.facts().client = Some(Arc::clone(name));
    }

    /// Which model is asked.
    pub fn model(&self, name: &str) {
        self.facts().model = Some(name.to_owned());
    }

    /// A prompt was handed to the engine.
    pub fn submitted(&self, class: Class, prompt_tokens: usize) {
        let mut facts = self.facts();
        facts.class = Some(class);
        facts.prompt_tokens += prompt_tokens;
        facts.submitted.get_or_insert_with(Instant::now);
    }

    /// A prompt that was taken for so many tokens has so many.
    pub fn recounted(&self, estimated: usize, counted: usize) {
        let mut facts = self.facts();
        facts.prompt_tokens = (facts.prompt_tokens + counted).saturating_sub(estimated);
    }

    /// Another server computes it since this moment.
    pub fn placed(&self, upstream: &Arc<str>, since: Instant) {
        let placements = &mut self.facts().placements;
        let is_there = placements.last().is_some_and(|last| last.upstream == *upstream);
        if !is_there && placements.len() < MOST_PLACEMENTS {
            placements.push(Placement { upstream: Arc::clone(upstream), since });
        }
    }

    /// The engine works on it.
    pub fn started(&self) {
        self.facts().started.get_or_insert_with(Instant::now);
    }

    /// The first token is there.
    pub fn first_token(&self) {
        let mut facts = self.facts();
        let now = Instant::now();
        facts.started.get_or_insert(now);
        facts.first_token.get_or_insert(now);
    }

    /// The engine's own figures about an answer: they are more exact than what was seen from here.
    pub fn finished(&self, usage: &Usage) {
        let mut facts = self.facts();
        facts.disk_tokens += usage.fetched;
        facts.drafted_tokens += usage.drafting.drafted;
        facts.accepted_tokens += usage.drafting.accepted;
        if let Some(submitted) = facts.submitted.filter(|_| !usage.first_token.is_zero()) {
            let began = submitted + usage.queued;
            facts.started = Some(facts.started.map_or(began, |seen| seen.min(began)));
        }
    }

    /// An answer is over, or nobody waits for it any more.
    pub fn ended(&self, cached_tokens: usize, output_tokens: usize) {
        let mut facts = self.facts();
        facts.cached_tokens += cached_tokens;
        facts.output_tokens += output_tokens;
        facts.ended = Some(Instant::now());
    }
}

#[cfg(test)]
mod tests {
    use ropeway_engine::draft::DraftTotals;

    use super::*;

    #[test]
    fn tokens_from_disk_are_told_apart_from_all_that_were_cached() {
        let progress = Progress::default();
        progress.finished(&Usage { cached: 96, fetched: 64, ..Usage::default() });
        progress.ended(96, 4);
        let Facts { cached_tokens, disk_tokens, .. } = progress.snapshot();
        assert_eq!((cached_tokens, disk_tokens), (96, 64));
    }

    #[test]
    fn a_server_that_follows_itself_is_one_placement_and_every_name_is_told_once() {
        let progress = Progress::default();
        assert_eq!(progress.snapshot().upstreams(), None);
        for name in ["a", "a", "b", "a"] {
            progress.placed(&name.into(), Instant::now());
        }
        let facts = progress.snapshot();
        assert_eq!((facts.placements.len(), facts.upstreams().as_deref()), (3, Some("a,b")));
        for number in 0..200 {
            progress.placed(&number.to_string().into(), Instant::now());
        }
        assert_eq!(progress.snapshot().placements.len(), MOST_PLACEMENTS);
    }

    #[test]
    fn an_estimate_gives_way_to_what_was_counted() {
        let progress = Progress::default();
        progress.submitted(Class::Default, 10);
        progress.submitted(Class::Default, 5);
        progress.recounted(10, 12);
        assert_eq!(progress.snapshot().prompt_tokens, 17);
    }

    #[test]
    fn drafts_of_all_answers_add_up() {
        let progress = Progress::default();
        for accepted in [3, 4] {
            let drafting = DraftTotals { drafts: 2, drafted: 10, accepted, ..DraftTotals::default() };
            progress.finished(&Usage { drafting, ..Usage::default() });
        }
        let Facts { drafted_tokens, accepted_tokens, .. } = progress.snapshot();
        assert_eq!((drafted_tokens, accepted_tokens), (20, 7));
    }
}
