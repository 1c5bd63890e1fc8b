//! A lane: works that wait, clients in turn, and the threads that do them.

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use ropeway_text::Interrupt;

use super::pace;
use crate::guard::clients::Owner;

type Work = Box<dyn FnOnce(&Interrupt) + Send>;

/// How a lane's threads compete with others for the cores.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Manner {
    /// As everyone.
    Usual,
    /// They take what the model leaves: at a core that it wants, one part in seventy, and a millisecond at a time.
    GivesWay,
}

impl Manner {
    /// The interrupt of a work, which also paces it.
    fn interrupt(self) -> Interrupt {
        match self {
            Manner::Usual => Interrupt::default(),
            Manner::GivesWay => Interrupt::with_pauses(pace::opportunity),
        }
    }

    /// Does a work; the next one may have to wait for this thread's rest.
    fn work(self, Waiting { work, interrupt, .. }: Waiting) {
        pace::begin();
        work(&interrupt);
        if self == Manner::GivesWay {
            pace::rest_if_due();
        }
    }
}

/// Niceness of threads that give way: Linux weighs them at one in seventy of others.
#[cfg(unix)]
const NICE: i32 = 19;

/// Works that wait, and the threads that do them.
pub struct Lane {
    shared: Arc<Shared>,
    manner: Manner,
}

#[derive(Default)]
struct Shared {
    queue: Mutex<Queue>,
    changed: Condvar,
}

#[derive(Default)]
struct Queue {
    /// Clients with work, whoever is next first. None has an empty list.
    clients: VecDeque<ClientWorks>,
    arrived: u64,
    is_over: bool,
}

struct ClientWorks {
    owner: Owner,
    works: VecDeque<Waiting>,
}

struct Waiting {
    number: u64,
    work: Work,
    interrupt: Interrupt,
}

impl Queue {
    fn push(&mut self, owner: Owner, waiting: Waiting) {
        match self.clients.iter_mut().find(|client| client.owner == owner) {
            Some(client) => client.works.push_back(waiting),
            None => self.clients.push_back(ClientWorks { owner, works: VecDeque::from([waiting]) }),
        }
    }

    /// The first work of the client whose turn it is; it goes to the end.
    fn pop(&mut self) -> Option<Waiting> {
        let mut client = self.clients.pop_front()?;
        let next = client.works.pop_front();
        if !client.works.is_empty() {
            self.clients.push_back(client);
        }
        next
    }

    fn remove(&mut self, number: u64) -> Option<Waiting> {
        let mut found = None;
        for client in &mut self.clients {
            if let Some(index) = client.works.iter().position(|waiting| waiting.number == number) {
                found = client.works.remove(index);
            }
        }
        self.clients.retain(|client| !client.works.is_empty());
        found
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The next work; `None` when the lane is closed.
    fn next(&self) -> Option<Waiting> {
        let mut queue = self.lock();
        loop {
            if queue.is_over {
                return None;
            }
            if let Some(waiting) = queue.pop() {
                return Some(waiting);
            }
            queue = self.changed.wait(queue).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

impl Lane {
    /// A lane with so many threads.
    pub fn start(name: &str, threads: usize, manner: Manner) -> Self {
        let shared = Arc::new(Shared::default());
        for _ in 0..threads {
            let shared = Arc::clone(&shared);
            let spawned = std::thread::Builder::new().name(name.into()).spawn(move || {
                give_way(manner);
                while let Some(waiting) = shared.next() {
                    manner.work(waiting);
                }
            });
            if let Err(error) = spawned {
                tracing::error!(target: "serve", name, %error, "a thread can't be started");
            }
        }
        Self { shared, manner }
    }

    /// Adds work of a client. It is thrown away, or told to stop, when the ticket is dropped.
    pub fn enqueue(&self, owner: Owner, work: impl FnOnce(&Interrupt) + Send + 'static) -> Ticket {
        let interrupt = self.manner.interrupt();
        let mut queue = self.shared.lock();
        queue.arrived += 1;
        let number = queue.arrived;
        queue.push(owner, Waiting { number, work: Box::new(work), interrupt: interrupt.clone() });
        drop(queue);
        self.shared.changed.notify_one();
        Ticket { shared: Arc::clone(&self.shared), number, interrupt }
    }

    /// Works that have not begun.
    #[cfg(test)]
    pub fn waiting(&self) -> usize {
        self.shared.lock().clients.iter().map(|client| client.works.len()).sum()
    }
}

impl Drop for Lane {
    fn drop(&mut self) {
        self.shared.lock().is_over = true;
        self.shared.changed.notify_all();
    }
}

/// A work of someone who waits for it.
pub struct Ticket {
    shared: Arc<Shared>,
    number: u64,
    interrupt: Interrupt,
}

impl Drop for Ticket {
    fn drop(&mut self) {
        self.interrupt.raise();
        let thrown_away = self.shared.lock().remove(self.number);
        // What it holds is freed without the lock.
        drop(thrown_away);
    }
}

/// Lowers this thread's priority where the system lets it; without, it is as everyone.
fn give_way(manner: Manner) {
    #[cfg(unix)]
    if manner == Manner::GivesWay {
        // On Linux a thread has its own niceness; elsewhere the whole process would get it.
        if cfg!(target_os = "linux") {
            let _ = rustix::process::nice(NICE);
        }
    }
    #[cfg(not(unix))]
    let _ = manner;
}
