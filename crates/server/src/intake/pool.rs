//! A pool of memory: who holds how much of it, and who waits for some.
//!
//! What is freed goes to the waiting client that holds least, the earliest first; nobody else passes it.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::oneshot;

use crate::error::{A_MOMENT, ApiError, Kind};
use crate::guard::clients::Owner;

/// Requests that may wait; each holds a connection, and nothing else.
const MOST_WAITING: usize = 1024;

/// How long a request waits for memory; bodies are read and prepared within seconds.
const PATIENCE: Duration = Duration::from_secs(10);

/// Memory that requests take shares of.
#[derive(Debug)]
pub(super) struct Pool {
    pub(super) total: usize,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    used: usize,
    held: HashMap<Owner, usize>,
    /// In the order of their arrival.
    waiting: Vec<Waiter>,
    arrived: u64,
}

#[derive(Debug)]
struct Waiter {
    number: u64,
    owner: Owner,
    bytes: usize,
    grant: oneshot::Sender<Share>,
}

enum Entered {
    Taken(Share),
    Waiting(Waiting),
}

impl Pool {
    pub(super) fn new(total: usize) -> Arc<Self> {
        Arc::new(Self { total, state: Mutex::default() })
    }

    /// Bytes in use.
    pub(super) fn used(&self) -> usize {
        self.lock().used
    }

    /// Requests that wait.
    #[cfg(test)]
    pub(super) fn waiting(&self) -> usize {
        self.lock().waiting.len()
    }

    /// Whether anyone holds some.
    #[cfg(test)]
    pub(super) fn is_held(&self) -> bool {
        !self.lock().held.is_empty()
    }

    /// A part of it for a request of this client; waits for its turn.
    pub(super) async fn take(self: &Arc<Self>, owner: Owner, bytes: usize) -> Result<Share, ApiError> {
        match self.enter(owner, bytes)? {
            Entered::Taken(share) => Ok(share),
            Entered::Waiting(waiting) => waiting.granted().await,
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn enter(self: &Arc<Self>, owner: Owner, bytes: usize) -> Result<Entered, ApiError> {
        let mut state = self.lock();
        if state.waiting.is_empty() && state.fits(owner, bytes, self.total) {
            return Ok(Entered::Taken(self.share(&mut state, owner, bytes)));
        }
        if state.waiting.len() >= MOST_WAITING {
            return Err(full());
        }
        state.arrived += 1;
        let (number, (grant, granted)) = (state.arrived, oneshot::channel());
        state.waiting.push(Waiter { number, owner, bytes, grant });
        let waiting = Waiting { pool: Arc::clone(self), number, granted };
        let unclaimed = self.serve(&mut state);
        drop(state);
        drop(unclaimed);
        Ok(Entered::Waiting(waiting))
    }

    fn share(self: &Arc<Self>, state: &mut State, owner: Owner, bytes: usize) -> Share {
        state.used += bytes;
        *state.held.entry(owner).or_default() += bytes;
        Share { pool: Arc::clone(self), owner, bytes }
    }

    /// Gives what is free to those who wait; shares that nobody takes any more come back, to be dropped without the lock.
    fn serve(self: &Arc<Self>, state: &mut State) -> Vec<Share> {
        let mut unclaimed = Vec::new();
        while let Some(index) = state.next(self.total) {
            let Waiter { owner, bytes, grant, .. } = state.waiting.remove(index);
            let share = self.share(state, owner, bytes);
            unclaimed.extend(grant.send(share).err());
        }
        unclaimed
    }

    fn give_back(self: &Arc<Self>, owner: Owner, bytes: usize) {
        let mut state = self.lock();
        state.used -= bytes;
        if let Some(held) = state.held.get_mut(&owner) {
            *held -= bytes;
            if *held == 0 {
                state.held.remove(&owner);
            }
        }
        let unclaimed = self.serve(&mut state);
        drop(state);
        drop(unclaimed);
    }
}

impl State {
    fn held(&self, owner: Owner) -> usize {
        self.held.get(&owner).copied().unwrap_or(0)
    }

    /// Whether a client may have this much beside what it holds. Alone, a request may be larger than a share.
    fn is_share(&self, owner: Owner, bytes: usize, total: usize) -> bool {
        let held = self.held(owner);
        held == 0 || held + bytes <= total / 2
    }

    fn fits(&self, owner: Owner, bytes: usize, total: usize) -> bool {
        self.used + bytes <= total && self.is_share(owner, bytes, total)
    }

    /// Who is next, if there is room for it: of those within their share, whoever holds least.
    fn next(&self, total: usize) -> Option<usize> {
        let may = |(_, waiter): &(usize, &Waiter)| self.is_share(waiter.owner, waiter.bytes, total);
        let waiting = self.waiting.iter().enumerate().filter(may);
        let (index, first) = waiting.min_by_key(|(_, waiter)| (self.held(waiter.owner), waiter.number))?;
        (self.used + first.bytes <= total).then_some(index)
    }
}

/// A request that waits for its share. Dropping it leaves the queue.
struct Waiting {
    pool: Arc<Pool>,
    number: u64,
    granted: oneshot::Receiver<Share>,
}

impl Waiting {
    async fn granted(mut self) -> Result<Share, ApiError> {
        match tokio::time::timeout(PATIENCE, &mut self.granted).await {
            Ok(Ok(share)) => Ok(share),
            _ => Err(self.refusal()),
        }
    }

    /// Whether the client itself or everyone together asks for too much.
    fn refusal(&self) -> ApiError {
        let state = self.pool.lock();
        let own = state.waiting.iter().find(|waiter| waiter.number == self.number);
        let is_share = own.is_none_or(|own| state.is_share(own.owner, own.bytes, self.pool.total));
        if is_share { full() } else { over_share() }
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        let mut state = self.pool.lock();
        state.waiting.retain(|waiter| waiter.number != self.number);
        // It may have held up others, and a share may have arrived that nobody will take.
        let unclaimed = self.pool.serve(&mut state);
        drop(state);
        drop((unclaimed, self.granted.try_recv()));
    }
}

/// What a request holds of the budget. Dropping it gives it back.
#[derive(Debug)]
pub struct Share {
    pool: Arc<Pool>,
    owner: Owner,
    bytes: usize,
}

impl Share {
    #[cfg(test)]
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Takes more for a request that turned out to be larger, up to `bytes`. Does not wait: it holds some already, and two
    /// that grow could wait for each other.
    pub fn grow_to(&mut self, bytes: usize) -> Result<(), ApiError> {
        let more = bytes.saturating_sub(self.bytes);
        let mut state = self.pool.lock();
        if state.used + more > self.pool.total {
            return Err(full());
        }
        let held = state.held(self.owner);
        if more > 0 && held > self.bytes && held + more > self.pool.total / 2 {
            return Err(over_share());
        }
        state.used += more;
        *state.held.entry(self.owner).or_default() += more;
        self.bytes += more;
        Ok(())
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        self.pool.give_back(self.owner, self.bytes);
    }
}

fn full() -> ApiError {
    let what = "as many requests are being read as memory allows (--memory-in-flight); try again in a moment";
    ApiError::new(Kind::Overloaded, what).coded("memory_in_flight").retry_after(A_MOMENT)
}

fn over_share() -> ApiError {
    let what =
        "your other requests that are being read hold your share of --memory-in-flight; send fewer at once";
    ApiError::new(Kind::RateLimited, what).coded("memory_in_flight").retry_after(A_MOMENT)
}
