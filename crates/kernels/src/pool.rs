//! The compute pool: a fixed set of threads that runs one parallel operation after another.
//!
//! A decode step has hundreds of operations of a few microseconds, so a worker that has nothing to do spins
//! for a while before it parks; the caller is itself a worker. Nothing is allocated and nothing is queued: one
//! operation at a time, finished when [`Pool::run`] returns. The pool must never run client code.
//!
//! An operation runs on the first [`Pool::active`] workers only. The others are not woken for it, and one that is awake
//! parks at once: on a CPU with two hardware threads per core a spinning thread slows its sibling down.

#![allow(unsafe_code, reason = "lends a borrowed closure to threads that are joined before it ends")]

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{JoinHandle, Thread};

/// Spins before a thread that waits lets others run: about 50 microseconds, longer than most gaps between two operations
/// of a step.
const SPINS_BEFORE_YIELD: usize = 4_000;

/// Times a worker lets others run before it sleeps: a millisecond or so, longer than the gap between two steps, because
/// waking up costs more than an operation takes; far shorter than the gap between two requests.
const YIELDS_BEFORE_PARK: usize = 2_000;

/// One operation: called once per worker with the worker's index.
type Job = *const (dyn Fn(usize) + Sync);

/// Bits of an epoch that hold how many workers take part in the operation; the bits above count operations.
const ACTIVE_BITS: u32 = 16;

/// A value of [`Shared::epoch`].
#[derive(Clone, Copy, PartialEq, Eq)]
struct Epoch(u64);

impl Epoch {
    /// The operation after this one, for `active` workers, the caller included.
    fn next(self, active: usize) -> Self {
        Self((self.0 >> ACTIVE_BITS).wrapping_add(1) << ACTIVE_BITS | active as u64)
    }

    /// Whether worker `index` (0 is the first besides the caller) takes part.
    fn includes(self, index: usize) -> bool {
        index + 1 < (self.0 & ((1 << ACTIVE_BITS) - 1)) as usize
    }
}

struct Shared {
    /// The current operation and its workers, as an [`Epoch`]; a change is the call to work.
    epoch: AtomicU64,
    /// Workers that have not finished the current operation.
    busy: AtomicUsize,
    /// Written by the caller before `epoch` changes, read by workers after.
    job: Mutex<Option<SendJob>>,
    stop: AtomicBool,
    parked: Vec<AtomicBool>,
    /// First panic of a worker in the current operation.
    panic: Mutex<Option<Box<dyn Any + Send>>>,
}

#[derive(Clone, Copy)]
struct SendJob(Job);
// SAFETY: the closure behind the pointer is `Sync`, and `run` outlives its use.
unsafe impl Send for SendJob {}

/// Most workers of a pool, the caller included.
pub const MOST_THREADS: usize = (1 << ACTIVE_BITS) - 1;

/// A set of compute threads.
pub struct Pool {
    shared: Arc<Shared>,
    active: usize,
    workers: Vec<JoinHandle<()>>,
    handles: Vec<Thread>,
}

impl Pool {
    /// A pool of `threads` workers, the caller included.
    pub fn new(threads: usize) -> Self {
        let threads = threads.clamp(1, MOST_THREADS);
        let others = threads - 1;
        let shared = Arc::new(Shared {
            epoch: AtomicU64::new(0),
            busy: AtomicUsize::new(0),
            job: Mutex::new(None),
            stop: AtomicBool::new(false),
            parked: (0..others).map(|_| AtomicBool::new(false)).collect(),
            panic: Mutex::new(None),
        });
        let workers: Vec<_> = (0..others).map(|index| spawn_worker(index, Arc::clone(&shared))).collect();
        let handles = workers.iter().map(|worker| worker.thread().clone()).collect();
        Self { shared, active: threads, workers, handles }
    }

    /// Has the operations from now on run on the first `threads` workers only, the caller included.
    pub fn set_active(&mut self, threads: usize) {
        self.active = threads.clamp(1, self.threads());
    }

    /// How many workers run an operation, the caller included.
    pub fn active(&self) -> usize {
        self.active
    }

    /// How many workers there are, the caller included.
    pub fn threads(&self) -> usize {
        self.workers.len() + 1
    }

    /// Calls `job` once on every active worker and returns when all are done. `&mut self` because operations do not
    /// nest and do not overlap.
    pub fn run(&mut self, job: &(dyn Fn(usize) + Sync)) {
        if self.active == 1 {
            return job(0);
        }
        self.start(job);
        let mine = catch_unwind(AssertUnwindSafe(|| job(0)));
        self.wait();
        // Taken in any case, so that a panic never surfaces in a later operation.
        let theirs = self.shared.panic.lock().expect("panic slot").take();
        if let Some(panic) = mine.err().or(theirs) {
            resume_unwind(panic);
        }
    }

    /// Calls `job` with ranges that together cover `0..items`, in pieces of about `grain`, each piece on
    /// whichever worker is free.
    pub fn for_each(&mut self, items: usize, grain: usize, job: &(dyn Fn(std::ops::Range<usize>) + Sync)) {
        let grain = grain.max(1);
        if items <= grain || self.active == 1 {
            return job(0..items);
        }
        let next = AtomicUsize::new(0);
        self.run(&|_| {
            loop {
                let start = next.fetch_add(grain, Ordering::Relaxed);
                if start >= items {
                    break;
                }
                job(start..(start + grain).min(items));
            }
        });
    }

    #[allow(clippy::transmute_ptr_to_ptr, reason = "a cast cannot lengthen a trait object's lifetime")]
    fn start(&mut self, job: &(dyn Fn(usize) + Sync)) {
        let job: *const (dyn Fn(usize) + Sync + '_) = job;
        // SAFETY: only the lifetime is erased; `wait` returns after the last worker dropped its use of it.
        let job = unsafe { std::mem::transmute::<*const (dyn Fn(usize) + Sync + '_), Job>(job) };
        *self.shared.job.lock().expect("job slot") = Some(SendJob(job));
        self.shared.busy.store(self.active - 1, Ordering::Relaxed);
        self.announce(self.active);
        for (parked, handle) in self.shared.parked.iter().zip(&self.handles).take(self.active - 1) {
            if parked.load(Ordering::SeqCst) {
                handle.unpark();
            }
        }
    }

    /// Moves on to the next epoch. Only the pool's owner does, so a load and a store make up one change.
    fn announce(&mut self, active: usize) {
        let epoch = Epoch(self.shared.epoch.load(Ordering::Relaxed)).next(active);
        self.shared.epoch.store(epoch.0, Ordering::SeqCst);
    }

    fn wait(&self) {
        let mut spins = 0;
        while self.shared.busy.load(Ordering::Acquire) != 0 {
            relax(spins);
            spins += 1;
        }
    }
}

/// Waits a moment: on the core at first, then letting others have it.
fn relax(spins: usize) {
    if spins < SPINS_BEFORE_YIELD { std::hint::spin_loop() } else { std::thread::yield_now() }
}

impl Drop for Pool {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::SeqCst);
        self.announce(self.threads());
        for worker in self.workers.drain(..) {
            worker.thread().unpark();
            let _ = worker.join();
        }
    }
}

fn spawn_worker(index: usize, shared: Arc<Shared>) -> JoinHandle<()> {
    std::thread::Builder::new()
        .name(format!("compute-{}", index + 1))
        .spawn(move || work(index, &shared))
        .expect("the system refuses another thread; lower --threads")
}

fn work(index: usize, shared: &Shared) {
    let mut seen = Epoch(0);
    loop {
        seen = wait_for_job(index, shared, seen);
        if shared.stop.load(Ordering::SeqCst) {
            return;
        }
        let job = shared.job.lock().expect("job slot").expect("a job before its epoch");
        // SAFETY: this worker takes part in the current operation, so `run` keeps the closure alive until `busy` reaches
        // zero, which happens after this call.
        let result = catch_unwind(AssertUnwindSafe(|| unsafe { (*job.0)(index + 1) }));
        if let Err(panic) = result {
            *shared.panic.lock().expect("panic slot") = Some(panic);
        }
        shared.busy.fetch_sub(1, Ordering::Release);
    }
}

/// Waits for an operation after `seen` that this worker takes part in. An operation that it takes part in cannot be
/// missed, because it does not end without it.
fn wait_for_job(index: usize, shared: &Shared, seen: Epoch) -> Epoch {
    for spins in 0..SPINS_BEFORE_YIELD + YIELDS_BEFORE_PARK {
        let epoch = Epoch(shared.epoch.load(Ordering::Acquire));
        if epoch != seen {
            if epoch.includes(index) {
                return epoch;
            }
            break;
        }
        relax(spins);
    }
    shared.parked[index].store(true, Ordering::SeqCst);
    loop {
        let epoch = Epoch(shared.epoch.load(Ordering::SeqCst));
        if epoch != seen && epoch.includes(index) {
            shared.parked[index].store(false, Ordering::SeqCst);
            return epoch;
        }
        std::thread::park();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicU32;

    #[test]
    fn every_item_is_visited_exactly_once() {
        for threads in [1, 2, 3, 7] {
            let mut pool = Pool::new(threads);
            for items in [0, 1, 5, 1000] {
                let visits: Vec<AtomicU32> = (0..items).map(|_| AtomicU32::new(0)).collect();
                pool.for_each(items, 3, &|range| {
                    for i in range {
                        visits[i].fetch_add(1, Ordering::Relaxed);
                    }
                });
                assert!(visits.iter().all(|v| v.load(Ordering::Relaxed) == 1));
            }
        }
    }

    #[test]
    fn a_parked_worker_wakes_for_the_next_operation() {
        let mut pool = Pool::new(2);
        let calls = AtomicU32::new(0);
        for _ in 0..3 {
            while !pool.shared.parked[0].load(Ordering::SeqCst) {
                std::thread::yield_now();
            }
            pool.run(&|_| {
                calls.fetch_add(1, Ordering::Relaxed);
            });
        }
        assert_eq!(calls.load(Ordering::Relaxed), 6);
    }

    #[test]
    fn a_panic_in_a_worker_reaches_the_caller_and_the_pool_lives_on() {
        let mut pool = Pool::new(2);
        let caught =
            catch_unwind(AssertUnwindSafe(|| pool.run(&|worker| assert!(worker == 0, "worker crashed"))));
        assert!(caught.is_err());
        let calls = AtomicU32::new(0);
        pool.run(&|_| {
            calls.fetch_add(1, Ordering::Relaxed);
        });
        assert_eq!(calls.load(Ordering::Relaxed), 2);
    }

    #[test]
    fn a_panic_of_caller_and_worker_surfaces_once() {
        let mut pool = Pool::new(2);
        let both = catch_unwind(AssertUnwindSafe(|| pool.run(&|_| panic!("all crashed"))));
        assert!(both.is_err());
        pool.run(&|_| {});
    }

    #[test]
    fn only_active_workers_take_part_however_the_number_changes() {
        let mut pool = Pool::new(5);
        for round in 0..2000 {
            let active = [5, 1, 3, 2, 4][round % 5];
            pool.set_active(active);
            let calls: Vec<AtomicU32> = (0..5).map(|_| AtomicU32::new(0)).collect();
            pool.run(&|worker| {
                calls[worker].fetch_add(1, Ordering::Relaxed);
            });
            for (worker, calls) in calls.iter().enumerate() {
                assert_eq!(calls.load(Ordering::Relaxed), u32::from(worker < active), "worker {worker}");
            }
        }
    }

    #[test]
    fn a_worker_that_is_left_out_parks_and_wakes_when_it_is_wanted_again() {
        let mut pool = Pool::new(3);
        pool.set_active(2);
        while !pool.shared.parked[1].load(Ordering::SeqCst) {
            pool.run(&|_| {});
        }
        pool.run(&|_| {});
        assert!(pool.shared.parked[1].load(Ordering::SeqCst));
        pool.set_active(3);
        let calls = AtomicU32::new(0);
        pool.run(&|_| {
            calls.fetch_add(1, Ordering::Relaxed);
        });
        assert_eq!(calls.load(Ordering::Relaxed), 3);
    }
}
