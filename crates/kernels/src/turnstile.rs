//! One at a time, in the order of coming: how several models share the same cores.
//!
//! Each model has compute threads of its own; two that compute at the same time would take the cores from each other in the
//! middle of every operation. So whoever computes a step goes through here first, and whoever computes something longer
//! steps aside now and then. It must never be held by anyone who waits for something else.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

/// Lets one through at a time, first come, first served.
#[derive(Debug, Default)]
pub struct Turnstile {
    tickets: Mutex<Tickets>,
    moved: Condvar,
}

#[derive(Clone, Copy, Debug, Default)]
struct Tickets {
    /// The next one to be drawn.
    next: u64,
    /// The one that is through.
    current: u64,
}

/// The right to compute; dropping it passes it on.
#[derive(Debug)]
pub struct Turn<'a>(&'a Turnstile);

impl Turnstile {
    /// Waits for a turn.
    pub fn enter(&self) -> Turn<'_> {
        let mut tickets = self.lock();
        let mine = tickets.next;
        tickets.next += 1;
        self.wait_for(mine, tickets);
        Turn(self)
    }

    /// Two numbers that are always consistent: a panic elsewhere does not spoil them.
    fn lock(&self) -> MutexGuard<'_, Tickets> {
        self.tickets.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wait_for(&self, mine: u64, mut tickets: MutexGuard<'_, Tickets>) {
        while tickets.current != mine {
            tickets = self.moved.wait(tickets).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

impl Turn<'_> {
    /// Lets those who wait go first, then goes on. Costs next to nothing when nobody does.
    pub fn step_aside(&mut self) {
        let mut tickets = self.0.lock();
        if tickets.next == tickets.current + 1 {
            return;
        }
        let mine = tickets.next;
        tickets.next += 1;
        tickets.current += 1;
        self.0.moved.notify_all();
        self.0.wait_for(mine, tickets);
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        self.0.lock().current += 1;
        self.0.moved.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    #[test]
    fn only_one_is_through_at_a_time_and_everyone_gets_through() {
        let (turnstile, inside, done) = (Turnstile::default(), AtomicUsize::new(0), AtomicUsize::new(0));
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..200 {
                        let mut turn = turnstile.enter();
                        for _ in 0..3 {
                            assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0);
                            inside.fetch_sub(1, Ordering::SeqCst);
                            turn.step_aside();
                        }
                        done.fetch_add(1, Ordering::SeqCst);
                    }
                });
            }
        });
        assert_eq!(done.into_inner(), 800);
    }

    #[test]
    fn who_steps_aside_lets_one_who_waits_go_first() {
        let (turnstile, order) = (Turnstile::default(), Mutex::new(Vec::new()));
        std::thread::scope(|scope| {
            let mut turn = turnstile.enter();
            scope.spawn(|| {
                let _turn = turnstile.enter();
                order.lock().expect("order").push("the other");
            });
            while turnstile.lock().next < 2 {
                std::thread::yield_now();
            }
            turn.step_aside();
            order.lock().expect("order").push("the first");
        });
        assert_eq!(order.into_inner().expect("order"), ["the other", "the first"]);
    }
}
