//! Stopping a pull from another thread.
//!
//! Whoever waits for something registers how that wait is ended ([`Cancel::on_cancel`]), so that stopping does not
//! depend on anybody looking at a flag: a silent connection is closed, a child process is killed.

use std::fmt;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use crate::error::SourceError;

/// The word to stop. Clones are the same word; once given it stays given.
#[derive(Clone, Default)]
pub struct Cancel {
    shared: Arc<Shared>,
}

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    cancelled: bool,
    hooks: Vec<Box<dyn FnOnce() + Send>>,
    /// Words that are given with this one, as long as someone listens to them.
    children: Vec<Weak<Shared>>,
}

impl Cancel {
    /// A word of its own that is given with this one, too.
    pub fn child(&self) -> Cancel {
        let child = Cancel::default();
        let mut state = self.state();
        if state.cancelled {
            drop(state);
            child.cancel();
            return child;
        }
        state.children.retain(|other| other.strong_count() > 0);
        state.children.push(Arc::downgrade(&child.shared));
        drop(state);
        child
    }

    /// Stops everything that was started with this word. When it returns, connections are closed and child processes
    /// are killed.
    pub fn cancel(&self) {
        let (hooks, children) = {
            let mut state = self.state();
            state.cancelled = true;
            (std::mem::take(&mut state.hooks), std::mem::take(&mut state.children))
        };
        self.shared.changed.notify_all();
        for hook in hooks {
            hook();
        }
        for shared in children.iter().filter_map(Weak::upgrade) {
            Cancel { shared }.cancel();
        }
    }

    /// Whether the word was given.
    pub fn is_cancelled(&self) -> bool {
        self.state().cancelled
    }

    /// Runs `hook` when the word is given; at once if it was given already.
    pub fn on_cancel(&self, hook: impl FnOnce() + Send + 'static) {
        let mut state = self.state();
        if state.cancelled {
            drop(state);
            return hook();
        }
        state.hooks.push(Box::new(hook));
    }

    pub(crate) fn check(&self) -> Result<(), SourceError> {
        if self.is_cancelled() { Err(SourceError::Cancelled) } else { Ok(()) }
    }

    /// Waits for so long, or until the word is given.
    pub(crate) fn pause(&self, time: Duration) -> Result<(), SourceError> {
        let state = self.state();
        let waited = self.shared.changed.wait_timeout_while(state, time, |state| !state.cancelled);
        drop(waited);
        self.check()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.shared.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Cancel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cancel").field("cancelled", &self.is_cancelled()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;
    use std::thread;

    use super::*;

    #[test]
    fn the_word_ends_pauses_and_runs_hooks_once_early_and_late_ones() {
        let cancel = Cancel::default();
        let (told, hooks) = mpsc::channel();
        let early = told.clone();
        cancel.on_cancel(move || early.send("early").unwrap());
        let other = cancel.clone();
        let pausing = thread::spawn(move || other.pause(Duration::from_secs(3600)));
        cancel.cancel();
        cancel.cancel();
        assert!(matches!(pausing.join().unwrap(), Err(SourceError::Cancelled)));
        cancel.on_cancel(move || told.send("late").unwrap());
        assert_eq!(hooks.iter().collect::<Vec<_>>(), ["early", "late"]);
    }

    #[test]
    fn a_child_hears_its_parent_and_not_the_other_way_round() {
        let parent = Cancel::default();
        let (first, second) = (parent.child(), parent.child());
        first.cancel();
        assert!(!parent.is_cancelled() && !second.is_cancelled());
        parent.cancel();
        assert!(second.is_cancelled() && parent.child().is_cancelled());
    }

    #[test]
    fn a_pause_that_nobody_ends_is_over_in_time() {
        assert!(Cancel::default().pause(Duration::from_millis(1)).is_ok());
    }
}
