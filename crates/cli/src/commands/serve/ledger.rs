//! Who has how much memory. KV memory is touched only as it is used, so that what the system calls free is promised to
//! somebody already: the ledger counts promises.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// How long to wait for models that are leaving before there is said to be no room.
const PATIENCE: Duration = Duration::from_secs(2);

/// Promises of memory.
#[derive(Debug)]
pub struct Ledger {
    /// What there was before the first promise; `None` where the system does not tell.
    total: Option<u64>,
    promised: Mutex<u64>,
    returned: Condvar,
}

/// A promise; dropping it gives the memory back.
#[derive(Debug)]
pub struct Promise {
    ledger: Arc<Ledger>,
    bytes: u64,
}

impl Ledger {
    /// Nothing of `total` is promised yet.
    pub fn new(total: Option<u64>) -> Arc<Ledger> {
        Arc::new(Ledger { total, promised: Mutex::new(0), returned: Condvar::new() })
    }

    fn promised(&self) -> MutexGuard<'_, u64> {
        self.promised.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Bytes that are not promised; `None` where nobody knows.
    pub fn free(&self) -> Option<u64> {
        Some(self.total?.saturating_sub(*self.promised()))
    }

    /// Waits a moment for `bytes` to be free; whether they are.
    pub fn wait_for(&self, bytes: u64) -> bool {
        let Some(total) = self.total else { return true };
        let full = |promised: &mut u64| total.saturating_sub(*promised) < bytes;
        let waited = self.returned.wait_timeout_while(self.promised(), PATIENCE, full);
        let (mut promised, _) = waited.unwrap_or_else(PoisonError::into_inner);
        !full(&mut promised)
    }

    /// Promises so many, whether they are there or not.
    pub fn promise(self: &Arc<Self>, bytes: u64) -> Promise {
        *self.promised() += bytes;
        Promise { ledger: Arc::clone(self), bytes }
    }

    /// Counts so many as taken for as long as the server runs.
    pub fn take(&self, bytes: u64) {
        *self.promised() += bytes;
    }
}

impl Drop for Promise {
    fn drop(&mut self) {
        *self.ledger.promised() -= self.bytes;
        self.ledger.returned.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_free_again_when_the_promise_is_gone() {
        let ledger = Ledger::new(Some(100));
        let promise = ledger.promise(80);
        assert_eq!(ledger.free(), Some(20));
        let waiting = Arc::clone(&ledger);
        let waiter = std::thread::spawn(move || waiting.wait_for(60));
        drop(promise);
        assert!(waiter.join().expect("no panic"));
        assert_eq!(ledger.free(), Some(100));
    }

    #[test]
    fn more_may_be_promised_than_there_is() {
        let ledger = Ledger::new(Some(10));
        ledger.take(5);
        assert_eq!(ledger.free(), Some(5));
        let _promise = ledger.promise(30);
        assert_eq!(ledger.free(), Some(0));
        assert_eq!(Ledger::new(None).free(), None);
    }
}
