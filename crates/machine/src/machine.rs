//! The machine itself: one [`Compute`], the arbiter in front of it, and the leases.
//!
//! The arbiter's lock is held for a decision, never while anything is computed; whoever waits sleeps. A panic while a
//! lease is held ends the lease and nothing else: what lies in the scratch is overwritten by every operation.

use std::fmt;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use ropeway_executor::Class;
use ropeway_kernels::compute::ComputeSource;
use ropeway_kernels::{Compute, Isa};

use crate::arbiter::{Advance, Arbiter, TenantId};
use crate::tuner::Tuner;

/// How many threads compute.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Threads {
    /// As many as are fastest for each step, but no more than this.
    UpTo(usize),
    /// Always so many: for measurements.
    Exactly(usize),
}

impl Threads {
    /// Up to one per CPU that this process may use; affinity and the quota of a container count.
    pub fn available() -> Self {
        Self::UpTo(std::thread::available_parallelism().map_or(1, usize::from))
    }

    /// The largest number of threads.
    pub fn most(self) -> usize {
        match self {
            Self::UpTo(most) | Self::Exactly(most) => most.max(1),
        }
    }
}

/// The threads and scratch that all models of a process share. Clones are the same machine.
#[derive(Clone)]
pub struct Machine(Arc<Shared>);

struct Shared {
    isa: Isa,
    threads: Threads,
    arbiter: Mutex<Arbiter>,
    /// The arbiter granted a lease, or keeps the machine free until some time.
    changed: Condvar,
    /// Locked by the holder of the lease only, so nobody ever waits for it.
    compute: Mutex<Compute>,
    started: Instant,
}

impl Machine {
    /// Starts the threads.
    pub fn new(isa: Isa, threads: Threads) -> Self {
        Self(Arc::new(Shared {
            isa,
            threads,
            arbiter: Mutex::default(),
            changed: Condvar::new(),
            compute: Mutex::new(Compute::new(isa, threads.most())),
            started: Instant::now(),
        }))
    }

    /// The best instruction set of this CPU.
    pub fn with_threads(threads: Threads) -> Self {
        Self::new(Isa::best(), threads)
    }

    /// Its instruction set.
    pub fn isa(&self) -> Isa {
        self.0.isa
    }

    /// How many threads compute.
    pub fn threads(&self) -> Threads {
        self.0.threads
    }

    /// A separate pool to load a model with. Loading reads files and may wait for a disk, so it must not hold the machine.
    /// The scratch that is reserved in it tells [`join`](Self::join) what the model's steps need.
    pub fn loading_compute(&self) -> Compute {
        Compute::new(self.0.isa, self.0.threads.most())
    }

    /// A new user of the machine: a model of `layers` layers whose operations need `scratch` bytes per worker.
    pub fn join(&self, layers: usize, scratch: usize) -> Tenant {
        let id = self.0.lock().join();
        self.tenant(Arc::new(Seat { machine: self.clone(), id }), layers, scratch)
    }

    fn tenant(&self, seat: Arc<Seat>, layers: usize, scratch: usize) -> Tenant {
        let tuned = match self.0.threads {
            Threads::UpTo(_) => layers,
            // With no layers to compare, the tuner never leaves the largest number.
            Threads::Exactly(_) => 0,
        };
        let tuner = Tuner::new(self.0.threads.most(), tuned);
        Tenant { seat, tuner, scratch }
    }

    /// How many wait for a lease.
    pub fn waiting(&self) -> usize {
        self.0.lock().waiting()
    }
}

impl Shared {
    /// Every method of the arbiter leaves it consistent, so a panic elsewhere does not spoil it.
    fn lock(&self) -> MutexGuard<'_, Arbiter> {
        self.arbiter.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn now(&self) -> Duration {
        self.started.elapsed()
    }

    /// Sleeps until the tenant, which has asked for it, has the lease.
    fn wait(&self, mut arbiter: MutexGuard<'_, Arbiter>, tenant: TenantId) {
        loop {
            let now = self.now();
            let advance = arbiter.advance(now);
            if arbiter.holds(tenant) {
                return;
            }
            arbiter = match advance {
                Advance::ReservedUntil(until) => {
                    let time = until.saturating_sub(now);
                    self.changed.wait_timeout(arbiter, time).unwrap_or_else(PoisonError::into_inner).0
                }
                Advance::Granted(_) => {
                    self.changed.notify_all();
                    self.changed.wait(arbiter).unwrap_or_else(PoisonError::into_inner)
                }
                Advance::Nothing => self.changed.wait(arbiter).unwrap_or_else(PoisonError::into_inner),
            };
        }
    }

    /// Passes the machine on after it became free.
    fn pass_on(&self, mut arbiter: MutexGuard<'_, Arbiter>) {
        if arbiter.advance(self.now()) != Advance::Nothing {
            drop(arbiter);
            self.changed.notify_all();
        }
    }

    fn compute(&self) -> MutexGuard<'_, Compute> {
        self.compute.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Machine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Machine({}, {:?})", self.0.isa, self.0.threads)
    }
}

/// What a lease is for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LeaseRequest {
    /// How urgent it is.
    pub class: Class,
    /// How long it is expected to take; zero where nothing is known.
    pub budget: Duration,
    /// How much is computed, in tokens; attention to many positions counts as further tokens.
    pub size: usize,
    /// Whether others may compute between two layers.
    pub yields: bool,
}

/// A place in front of the machine. Models that compute in turn for the same requests, on one thread, share one: to the
/// arbiter they are one user.
#[derive(Debug)]
pub struct Seat {
    machine: Machine,
    id: TenantId,
}

impl Seat {
    /// Another model on this seat; see [`Machine::join`].
    pub fn share(self: &Arc<Self>, layers: usize, scratch: usize) -> Tenant {
        self.machine.tenant(Arc::clone(self), layers, scratch)
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        self.machine.0.lock().leave(self.id);
    }
}

/// A user of the machine: one model.
#[derive(Debug)]
pub struct Tenant {
    seat: Arc<Seat>,
    tuner: Tuner,
    scratch: usize,
}

impl Tenant {
    /// The machine.
    pub fn machine(&self) -> &Machine {
        &self.seat.machine
    }

    /// Its place, for a model that computes in turn with it.
    pub fn seat(&self) -> &Arc<Seat> {
        &self.seat
    }

    /// Threads that a step of this size runs on, as far as is known.
    pub fn threads_for(&self, size: usize) -> usize {
        self.tuner.best(size)
    }

    /// Whether the threads of a step of this size were measured.
    pub fn is_settled(&self, size: usize) -> bool {
        self.tuner.is_settled(size)
    }

    /// Waits for the machine. Dropping the lease gives it back; a thread must not ask for a second one before.
    pub fn lease(&mut self, request: LeaseRequest) -> Lease<'_> {
        let Self { seat, tuner, scratch } = self;
        let (shared, id) = (&*seat.machine.0, seat.id);
        let asked = shared.now();
        let mut arbiter = shared.lock();
        arbiter.request(id, request.class, request.budget, asked);
        shared.wait(arbiter, id);
        let mut compute = shared.compute();
        compute.reserve_scratch(*scratch);
        compute.set_threads(tuner.begin(request.size));
        let waited = shared.now().saturating_sub(asked);
        Lease { shared, id, tuner, yields: request.yields, compute: Some(compute), waited }
    }
}

/// The right to compute.
pub struct Lease<'a> {
    shared: &'a Shared,
    id: TenantId,
    tuner: &'a mut Tuner,
    yields: bool,
    /// `None` only while others compute.
    compute: Option<MutexGuard<'a, Compute>>,
    waited: Duration,
}

impl Lease<'_> {
    /// Time spent waiting for the machine so far, layers in between included.
    pub fn waited(&self) -> Duration {
        self.waited
    }

    /// Lets whoever ranks before this lease compute first.
    fn yield_to_others(&mut self) {
        let asked = self.shared.now();
        let mut arbiter = self.shared.lock();
        if !arbiter.yield_lease(asked) {
            return;
        }
        let threads = self.compute().threads();
        self.compute = None;
        self.shared.wait(arbiter, self.id);
        self.compute.insert(self.shared.compute()).set_threads(threads);
        self.waited += self.shared.now().saturating_sub(asked);
        self.tuner.disturb();
    }
}

impl ComputeSource for Lease<'_> {
    fn compute(&mut self) -> &mut Compute {
        self.compute.as_mut().expect("held outside of `yield_to_others`")
    }

    fn start_layer(&mut self) {
        if self.yields {
            self.yield_to_others();
        }
        if let Some(threads) = self.tuner.start_layer(self.shared.now()) {
            self.compute().set_threads(threads);
        }
    }
}

impl Drop for Lease<'_> {
    fn drop(&mut self) {
        self.tuner.end();
        self.compute = None;
        let mut arbiter = self.shared.lock();
        arbiter.release(self.shared.now());
        self.shared.pass_on(arbiter);
    }
}
