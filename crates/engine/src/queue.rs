//! Places in the queue: who holds how many, and how long until one becomes free.
//!
//! A request holds one place per sequence from its submission until its first step. No account can take all places: the
//! more of the queue is taken, the fewer an account may hold.
//!
//! ```text
//! admitted   taken + n <= most  and  own + n <= SHARE * (most - taken);  an empty queue with places takes any request
//! wait       (taken + n - most) * waiting time / sequences that ended in that time
//! ```
//! Time is counted only while somebody waits, so that quiet hours do not make the machine look slow. Older time counts
//! less. All times are given by the caller: there is no clock in here.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// An account alone may fill 8 of 9 parts of the queue, two greedy ones 8 of 17 parts each: whoever comes next finds
/// places free.
const SHARE: usize = 8;

/// Seconds of waiting after which a measurement counts 1/e: long enough for a few requests of a slow machine to end.
const MEMORY: f64 = 60.0;

/// The shortest time worth telling: clients count whole seconds.
pub const SHORTEST_WAIT: Duration = Duration::from_secs(1);

/// The longest time told: beyond it nobody can foresee how busy the machine will be.
pub const LONGEST_WAIT: Duration = Duration::from_secs(600);

/// Why there is no place for a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueueFull {
    /// Places that are taken: all of them, or those of the account where it holds its share.
    pub waiting: usize,
    /// When places should be free, at the speed of the recent past.
    pub retry_after: Duration,
}

/// The places of an engine's queue.
#[derive(Debug, Default)]
pub struct Queue(Mutex<Places>);

#[derive(Debug, Default)]
struct Places {
    taken: usize,
    /// Places per account; accounts without any are not kept.
    accounts: HashMap<u64, usize>,
    speed: Speed,
}

/// How fast sequences end while others wait.
#[derive(Debug, Default)]
struct Speed {
    /// Seconds in which somebody waited.
    seconds: f64,
    /// Sequences that ended in these seconds.
    ended: f64,
    /// Up to when this was counted.
    at: Duration,
}

impl Speed {
    fn advance(&mut self, now: Duration, somebody_waits: bool) {
        let passed = now.saturating_sub(self.at).as_secs_f64();
        self.at = self.at.max(now);
        if somebody_waits {
            let fades = (-passed / MEMORY).exp();
            self.seconds = self.seconds * fades + passed;
            self.ended *= fades;
        }
    }

    /// Time until so many places are free. Before anything ended, as long as it took so far: one may be about to end.
    fn wait(&self, places: usize) -> Duration {
        let seconds = places as f64 * self.seconds / self.ended.max(1.0);
        Duration::try_from_secs_f64(seconds).unwrap_or(LONGEST_WAIT).clamp(SHORTEST_WAIT, LONGEST_WAIT)
    }
}

/// Too few places for a request.
struct Shortage {
    /// How many have to become free.
    lacking: usize,
    /// How many are taken: all, or those of the account where only its share is used up.
    waiting: usize,
}

impl Places {
    /// What stands in the way of `n` more places for an account.
    fn shortage(&self, account: u64, n: usize, most: usize) -> Option<Shortage> {
        let own = self.accounts.get(&account).copied().unwrap_or(0);
        let free = most.saturating_sub(self.taken);
        let over = (self.taken + n).saturating_sub(most);
        let over_share = (own + n).saturating_sub(SHARE * free);
        match (self.taken, over, over_share) {
            (0, ..) if most > 0 => None,
            (_, 0, 0) => None,
            (waiting, 1.., _) => Some(Shortage { lacking: over, waiting }),
            // A place of its own that becomes free raises the share by SHARE and lowers what it holds by one.
            _ => Some(Shortage { lacking: over_share.div_ceil(SHARE + 1), waiting: own }),
        }
    }
}

impl Queue {
    fn places(&self) -> MutexGuard<'_, Places> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes `n` of `most` places for an account.
    pub fn enter(&self, account: u64, n: usize, most: usize, now: Duration) -> Result<(), QueueFull> {
        let mut places = self.places();
        let somebody_waits = places.taken > 0;
        places.speed.advance(now, somebody_waits);
        if let Some(shortage) = places.shortage(account, n, most) {
            let retry_after = places.speed.wait(shortage.lacking);
            return Err(QueueFull { waiting: shortage.waiting, retry_after });
        }
        places.taken += n;
        *places.accounts.entry(account).or_default() += n;
        Ok(())
    }

    /// Gives `n` places of an account back.
    pub fn leave(&self, account: u64, n: usize, now: Duration) {
        let mut places = self.places();
        let somebody_waits = places.taken > 0;
        places.speed.advance(now, somebody_waits);
        places.taken -= n;
        if let Some(own) = places.accounts.get_mut(&account) {
            *own -= n;
            if *own == 0 {
                places.accounts.remove(&account);
            }
        }
    }

    /// `n` sequences ended, whether they had waited or not.
    pub fn ended(&self, n: usize, now: Duration) {
        let mut places = self.places();
        let somebody_waits = places.taken > 0;
        places.speed.advance(now, somebody_waits);
        if somebody_waits {
            places.speed.ended += n as f64;
        }
    }

    /// Places that are taken.
    pub fn taken(&self) -> usize {
        self.places().taken
    }

    /// Time until a place should be free if none is now, at the speed of the recent past.
    pub fn wait(&self, now: Duration) -> Duration {
        let mut places = self.places();
        let somebody_waits = places.taken > 0;
        places.speed.advance(now, somebody_waits);
        places.speed.wait(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    /// A full queue of 4 places, of which one ends every `every` seconds and is taken again at once.
    fn busy(every: u64) -> (Queue, u64) {
        let queue = Queue::default();
        for _ in 0..4 {
            queue.enter(1, 1, 4, at(0)).unwrap();
        }
        for round in 1..=5 {
            queue.ended(1, at(round * every));
            queue.leave(1, 1, at(round * every));
            queue.enter(1, 1, 4, at(round * every)).unwrap();
        }
        (queue, 5 * every)
    }

    #[test]
    fn five_ends_in_25_seconds_mean_5_seconds_until_a_place_is_free() {
        let (queue, now) = busy(5);
        let full = queue.enter(2, 1, 4, at(now)).unwrap_err();
        assert_eq!(full.waiting, 4);
        let seconds = full.retry_after.as_secs_f64();
        assert!((4.5..5.5).contains(&seconds), "{seconds}");
        let three = queue.enter(2, 3, 4, at(now)).unwrap_err().retry_after.as_secs_f64();
        assert!((13.5..16.5).contains(&three), "{three} for three sequences");
    }

    #[test]
    fn quiet_hours_do_not_make_the_machine_look_slow() {
        let (queue, now) = busy(5);
        queue.leave(1, 4, at(now));
        for _ in 0..4 {
            queue.enter(1, 1, 4, at(now + 36_000)).unwrap();
        }
        let wait = queue.enter(2, 1, 4, at(now + 36_000)).unwrap_err().retry_after.as_secs_f64();
        assert!((4.5..5.5).contains(&wait), "{wait}");
    }

    #[test]
    fn the_time_told_grows_while_nothing_ends_and_stays_within_its_bounds() {
        let queue = Queue::default();
        queue.enter(1, 1, 1, at(100)).unwrap();
        assert_eq!(queue.enter(1, 1, 1, at(100)).unwrap_err().retry_after, SHORTEST_WAIT);
        let later = queue.enter(1, 1, 1, at(110)).unwrap_err().retry_after;
        assert_eq!(later, at(10));
        assert_eq!(queue.enter(1, 4000, 1, at(160)).unwrap_err().retry_after, LONGEST_WAIT);
    }

    #[test]
    fn one_account_never_takes_all_places() {
        let queue = Queue::default();
        let mut held = 0;
        while queue.enter(1, 1, 1024, at(0)).is_ok() {
            held += 1;
        }
        assert_eq!(held, 1024 * SHARE / (SHARE + 1) + 1);
        assert_eq!(queue.enter(1, 1, 1024, at(0)).unwrap_err().waiting, held);
        assert_eq!(queue.enter(2, 16, 1024, at(0)), Ok(()));
        queue.leave(1, held, at(1));
        queue.leave(2, 16, at(1));
        assert_eq!((queue.taken(), queue.places().accounts.len()), (0, 0));
    }

    #[test]
    fn a_request_counts_as_many_places_as_it_has_sequences_and_an_empty_queue_takes_any() {
        let queue = Queue::default();
        assert_eq!(queue.enter(1, 100, 8, at(0)), Ok(()));
        assert!(queue.enter(2, 1, 8, at(0)).is_err());
        queue.leave(1, 100, at(0));
        assert_eq!(queue.enter(2, 5, 8, at(0)), Ok(()));
        assert_eq!(queue.enter(3, 4, 8, at(0)).unwrap_err().waiting, 5);
        assert_eq!(queue.enter(3, 3, 8, at(0)), Ok(()));
    }

    #[test]
    fn a_queue_without_places_takes_nothing() {
        let none = QueueFull { waiting: 0, retry_after: SHORTEST_WAIT };
        assert_eq!(Queue::default().enter(1, 1, 0, at(0)), Err(none));
    }
}
