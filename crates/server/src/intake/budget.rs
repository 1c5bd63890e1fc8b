//! The memory of all requests that are being read and prepared, shared fairly between clients.
//!
//! ```text
//! small bodies   an eighth of it, so that they never wait for large ones
//! large bodies   the rest; a client that holds some already gets no more than half of it
//! freed          to the waiting client that holds least, the earliest first; nobody else passes it
//! ```
//! A request takes its part before its body is read and waits while it holds nothing, so that no two wait for each other.
//! Must never: let a request grow beyond what is left, or let more wait than its pools allow.

use std::sync::Arc;

use super::pool::{Pool, Share};
use crate::error::ApiError;
use crate::guard::clients::Owner;

/// Memory of requests in flight unless told otherwise: two bodies of the largest size, or some thousand usual ones.
pub const DEFAULT_MEMORY: usize = 256 << 20;

/// The smallest that makes sense.
pub const LEAST_MEMORY: usize = 8 << 20;

/// Memory up to which a request is small: a body of 64 KiB.
pub const SMALL: usize = 256 << 10;

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
        self.small.used() + self.large.used()
    }

    /// A part of it for a request of this client; waits for its turn.
    pub async fn take(&self, owner: Owner, bytes: usize) -> Result<Share, ApiError> {
        let pool = if bytes <= SMALL.min(self.small.total) { &self.small } else { &self.large };
        pool.take(owner, bytes).await
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;

    use super::*;
    use crate::error::{A_MOMENT, Kind};

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
        while budget.large.waiting() != count {
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
        assert_eq!(follows.await.unwrap().unwrap().bytes(), 4 * MIB);
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
        assert!(!budget.large.is_held());
    }
}
