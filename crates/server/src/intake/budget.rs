//! The memory of all requests that are being read and prepared, shared fairly between clients.
//!
//! ```text
//! small bodies   an eighth of it, so that they never wait for large ones
//! large bodies   the rest; a client that holds some already gets no more than half of it
//! freed          to the waiting client that holds least, the earliest first; nobody else passes it
//! ```
//! A request takes its part before its body is read and waits while it holds nothing, so that no two wait for each other.
//! Must never: let a request grow beyond what is left, or let more wait than [`MOST_WAITING`].

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::oneshot;

use crate::error::{A_MOMENT, ApiError, Kind};
use crate::guard::clients::Owner;

/// Memory of requests in flight unless told otherwise: two bodies of the largest size, or some thousand usual ones.
pub const DEFAULT_MEMORY: usize = 256 << 20;

/// The smallest that makes sense.
pub const LEAST_MEMORY: usize = 8 << 20;

/// Memory up to which a request is small: a body of 64 KiB.
pub const SMALL: usize = 256 << 10;

/// Requests that may wait in each pool; each holds a connection, and nothing else.
const MOST_WAITING: usize = 1024;

/// How long a request waits for memory; bodies are read and prepared within seconds.
const PATIENCE: Duration = Duration::from_secs(10);

/// The memory of requests in flight.
#[derive(Debug)]
pub struct Budget {
    small: Arc<Pool>,
    large: Arc<Pool>,
}

impl Default for Budget {
    fn default() -> Self {
        Self::new(DEFAULT_MEMORY)
    }
}

impl Budget {
    /// So many bytes in all.
    pub fn new(bytes: usize) -> Self {
        let small = bytes / 8;
        Self { small: Pool::new(small), large: Pool::new(bytes - small) }
    }

    /// The most that one request can have.
    pub fn largest(&self) -> usize {
        self.large.total
    }

    /// Bytes in use.
    pub fn used(&self) -> usize {
        self.small.lock().used + self.large.lock().used
    }

    /// A part of it for a request of this client; waits for its turn.
    pub async fn take(&self, owner: Owner, bytes: usize) -> Result<Share, ApiError> {
        let pool = if bytes <= SMALL.min(self.small.total) { &self.small } else { &self.large };
        let waiting = match pool.enter(owner, bytes)? {
            Entered::Taken(share) => return Ok(share),
            Entered::Waiting(waiting) => waiting,
        };
        waiting.granted().await
    }
}

/// A part of the budget.
#[derive(Debug)]
struct Pool {
    total: usize,
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
    fn new(total: usize) -> Arc<Self> {
        Arc::new(Self { total, state: Mutex::default() })
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

fn full() -> ApiError {
    let what = "as many requests are being read as memory allows (--memory-in-flight); try again in a moment";
    ApiError::new(Kind::Overloaded, what).coded("memory_in_flight").retry_after(A_MOMENT)
}

fn over_share() -> ApiError {
    let what =
        "your other requests that are being read hold your share of --memory-in-flight; send fewer at once";
    ApiError::new(Kind::RateLimited, what).coded("memory_in_flight").retry_after(A_MOMENT)
}

/// What a request holds of the budget. Dropping it gives it back.
#[derive(Debug)]
pub struct Share {
    pool: Arc<Pool>,
    owner: Owner,
    bytes: usize,
}

impl Share {
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

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;

    use super::*;

    const MIB: usize = 1 << 20;
    const A: Owner = Owner::Key(0);
    const B: Owner = Owner::Key(1);
    const C: Owner = Owner::Key(2);

    /// 16 MiB, of which 14 are for large requests.
    fn budget() -> Arc<Budget> {
        Arc::new(Budget::new(16 * MIB))
    }

    fn begin(
        budget: &Arc<Budget>,
        owner: Owner,
        bytes: usize,
    ) -> tokio::task::JoinHandle<Result<Share, ApiError>> {
        let budget = Arc::clone(budget);
        tokio::spawn(async move { budget.take(owner, bytes).await })
    }

    async fn waiting(budget: &Budget, count: usize) {
        while budget.large.lock().waiting.len() != count {
            tokio::task::yield_now().await;
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_gets_at_most_half_beside_what_it_holds_and_others_the_rest() {
        let budget = budget();
        let _first = budget.take(A, 5 * MIB).await.unwrap();
        let second = budget.take(A, 5 * MIB).await.unwrap_err();
        assert_eq!((second.kind, second.retry_after), (Kind::RateLimited, Some(A_MOMENT)));
        assert!(budget.take(A, 2 * MIB).now_or_never().is_some());
        let other = budget.take(B, 9 * MIB).await.expect("the rest");
        let third = budget.take(C, MIB).await.unwrap_err();
        assert_eq!((third.kind, third.retry_after), (Kind::Overloaded, Some(A_MOMENT)));
        drop(other);
        assert!(budget.take(C, MIB).now_or_never().is_some());
    }

    #[tokio::test]
    async fn small_requests_do_not_wait_for_large_ones() {
        let budget = budget();
        let _all = budget.take(A, 14 * MIB).await.unwrap();
        assert!(budget.take(A, SMALL).now_or_never().is_some());
        assert!(budget.take(B, SMALL).now_or_never().is_some());
        assert!(budget.take(B, SMALL + 1).now_or_never().is_none());
    }

    #[tokio::test]
    async fn what_is_freed_goes_to_whoever_holds_least_and_nobody_passes_it() {
        let budget = budget();
        let held = budget.take(A, 4 * MIB).await.unwrap();
        let rest = budget.take(B, 9 * MIB).await.unwrap();
        let more_of_a = begin(&budget, A, 2 * MIB);
        waiting(&budget, 1).await;
        let large_of_c = begin(&budget, C, 12 * MIB);
        waiting(&budget, 2).await;
        drop(rest);
        // C needs more than is free; A, which holds some, does not pass it.
        assert!(budget.take(A, 2 * MIB).now_or_never().is_none());
        assert_eq!(budget.used(), 4 * MIB);
        drop(held);
        let large = large_of_c.await.unwrap().unwrap();
        waiting(&budget, 0).await;
        drop(large);
        drop(more_of_a.await.unwrap().unwrap());
        assert_eq!(budget.used(), 0);
    }

    #[tokio::test]
    async fn a_client_that_leaves_while_it_waits_holds_up_nobody() {
        let budget = budget();
        let held = budget.take(A, 6 * MIB).await.unwrap();
        let leaves = begin(&budget, B, 12 * MIB);
        waiting(&budget, 1).await;
        let follows = begin(&budget, C, 4 * MIB);
        waiting(&budget, 2).await;
        leaves.abort();
        assert_eq!(follows.await.unwrap().unwrap().bytes, 4 * MIB);
        drop(held);
        assert_eq!(budget.used(), 0);
    }

    #[tokio::test]
    async fn a_request_grows_as_far_as_there_is_room() {
        let budget = budget();
        let mut share = budget.take(A, MIB).await.unwrap();
        share.grow_to(10 * MIB).unwrap();
        assert_eq!(share.grow_to(15 * MIB).unwrap_err().kind, Kind::Overloaded);
        assert_eq!(budget.used(), 10 * MIB);
        let mut other = budget.take(B, MIB).await.unwrap();
        let second = budget.take(B, MIB).await.unwrap();
        other.grow_to(2 * MIB).unwrap();
        drop((other, second, share));
        let mut first = budget.take(A, 3 * MIB).await.unwrap();
        let second = budget.take(A, 3 * MIB).await.unwrap();
        assert_eq!(first.grow_to(5 * MIB).unwrap_err().kind, Kind::RateLimited);
        drop((first, second));
        assert_eq!(budget.used(), 0);
        assert!(budget.large.lock().held.is_empty());
    }
}
