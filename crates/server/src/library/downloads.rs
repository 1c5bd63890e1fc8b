//! Downloads that clients asked for.
//!
//! ```text
//! first client of a model    starts its download, or waits for one of the few that may run
//! further clients            follow the same download
//! last client leaves         it is stopped; the next one who asks goes on where it was
//! ```
//! Must never: run for nobody, or let those that hang keep others from being told where they stand.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore, broadcast};

use super::crashed;
use crate::error::{A_MOMENT, ApiError, Kind};

/// Downloads at a time: they share one network and one disk.
const AT_ONCE: usize = 4;

/// Downloads that run or wait. Each that waits takes a task and the connection of whoever asked; more are turned away.
const MOST: usize = 32;

/// Lines about a download that wait for a slow reader. One that is slower misses lines; the next one says more.
const LINES: usize = 64;

/// A model on its way to the disk.
pub trait Download: Send + Sync + 'static {
    /// The model's own name: two downloads of the same name are one.
    fn model(&self) -> &str;

    /// Brings it here; may take long.
    fn run(&self, report: &mut dyn FnMut(Fetching)) -> Result<(), ApiError>;

    /// Ends [`Download::run`] soon, or before it has begun. What came so far is kept.
    fn stop(&self);
}

/// How far a download is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fetching {
    /// What is done now.
    pub status: String,
    /// How far a file is, where it is about one.
    pub file: Option<FileProgress>,
}

/// How far a file is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileProgress {
    /// What tells it from the model's other files: `sha256:` and 64 digits, which need not be of its content, because that
    /// is known at the end only.
    pub digest: String,
    /// Bytes that are here.
    pub done: u64,
    /// Bytes in all.
    pub total: u64,
}

impl Fetching {
    /// A line that is about no file.
    pub fn words(status: &str) -> Self {
        Self { status: status.into(), file: None }
    }
}

/// How far it is, or why it ended.
pub type Line = Result<Fetching, ApiError>;

/// All downloads of a server.
#[derive(Clone)]
pub(super) struct Downloads(Arc<Shared>);

struct Shared {
    state: Mutex<State>,
    slots: Arc<Semaphore>,
}

#[derive(Default)]
struct State {
    by_model: HashMap<String, Entry>,
    begun: u64,
    closed: bool,
}

/// A download that someone follows.
struct Entry {
    /// Tells it from an earlier one of the same model.
    number: u64,
    download: Arc<dyn Download>,
    lines: broadcast::Sender<Line>,
    followers: usize,
    stopped: Arc<Notify>,
}

/// A client's view of a download; when the last one is dropped, it is stopped.
pub struct Follower {
    downloads: Downloads,
    model: String,
    number: u64,
    lines: broadcast::Receiver<Line>,
}

impl Default for Downloads {
    fn default() -> Self {
        Self(Arc::new(Shared { state: Mutex::default(), slots: Arc::new(Semaphore::new(AT_ONCE)) }))
    }
}

impl Downloads {
    /// Follows the download of this model that there is, or starts this one.
    pub fn follow(&self, download: Arc<dyn Download>) -> Result<Follower, ApiError> {
        let mut state = self.state();
        if state.closed {
            return Err(ApiError::new(Kind::Overloaded, "this server ends").retry_after(A_MOMENT));
        }
        let model = download.model().to_owned();
        if !state.by_model.contains_key(&model) && state.by_model.len() >= MOST {
            let what = format!("{MOST} downloads run or wait already; try again when one is done");
            return Err(ApiError::new(Kind::Overloaded, what).retry_after(A_MOMENT));
        }
        state.begun += 1;
        let number = state.begun;
        let entry = state.by_model.entry(model.clone()).or_insert_with(|| self.begin(download, number));
        entry.followers += 1;
        let (number, lines) = (entry.number, entry.lines.subscribe());
        Ok(Follower { downloads: self.clone(), model, number, lines })
    }

    /// Stops all of them and begins no more.
    pub fn close(&self) {
        let mut state = self.state();
        state.closed = true;
        state.by_model.values().for_each(Entry::stop);
    }

    fn begin(&self, download: Arc<dyn Download>, number: u64) -> Entry {
        let (lines, _) = broadcast::channel(LINES);
        let stopped = Arc::new(Notify::new());
        let entry = Entry { number, download, lines, followers: 0, stopped };
        let work = self.clone().conduct(
            number,
            Arc::clone(&entry.download),
            entry.lines.clone(),
            Arc::clone(&entry.stopped),
        );
        tokio::spawn(work);
        entry
    }

    /// Waits for a turn, downloads, and tells the end.
    async fn conduct(
        self,
        number: u64,
        download: Arc<dyn Download>,
        lines: broadcast::Sender<Line>,
        stopped: Arc<Notify>,
    ) {
        let model = download.model().to_owned();
        let slot = tokio::select! {
            slot = self.turn(&lines) => slot,
            () = stopped.notified() => return self.end(&model, number, Err(stopped_early())),
        };
        let done = tokio::task::spawn_blocking(move || {
            let done = download.run(&mut |line| drop(lines.send(Ok(line))));
            drop(slot);
            done
        });
        let done = done.await.unwrap_or_else(|_| Err(crashed()));
        self.end(&model, number, done.map(|()| Fetching::words("success")));
    }

    async fn turn(&self, lines: &broadcast::Sender<Line>) -> Option<OwnedSemaphorePermit> {
        let slots = &self.0.slots;
        if let Ok(slot) = Arc::clone(slots).try_acquire_owned() {
            return Some(slot);
        }
        let what = format!("waiting: {AT_ONCE} other downloads run");
        let _ = lines.send(Ok(Fetching::words(&what)));
        Arc::clone(slots).acquire_owned().await.ok()
    }

    /// Tells the last line; whoever asks from now on begins anew.
    fn end(&self, model: &str, number: u64, last: Line) {
        let mut state = self.state();
        if state.by_model.get(model).is_some_and(|entry| entry.number == number)
            && let Some(entry) = state.by_model.remove(model)
        {
            let _ = entry.lines.send(last);
        }
    }

    fn leave(&self, model: &str, number: u64) {
        let mut state = self.state();
        let Some(entry) = state.by_model.get_mut(model).filter(|entry| entry.number == number) else {
            return;
        };
        entry.followers -= 1;
        if entry.followers == 0 {
            entry.stop();
            state.by_model.remove(model);
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Entry {
    fn stop(&self) {
        self.download.stop();
        self.stopped.notify_one();
    }
}

impl Follower {
    /// The next line; nothing after the last one.
    pub async fn next(&mut self) -> Option<Line> {
        loop {
            match self.lines.recv().await {
                Ok(line) => return Some(line),
                Err(broadcast::error::RecvError::Lagged(_)) => {}
                Err(broadcast::error::RecvError::Closed) => return None,
            }
        }
    }
}

impl Drop for Follower {
    fn drop(&mut self) {
        self.downloads.leave(&self.model, self.number);
    }
}

fn stopped_early() -> ApiError {
    ApiError::new(Kind::Overloaded, "the download was stopped before its turn came; ask for it again")
        .retry_after(A_MOMENT)
}
