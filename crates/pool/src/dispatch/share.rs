//! How much of the upstreams one account may have at a time.
//!
//! ```text
//! may start    own + 1 <= parts * (most - taken)        in requests at upstreams; most: what all limits allow together
//!              parts: ALONE, or BESIDE if another account asked lately
//! ```
//! An account alone may have 8 of 9 parts, so that whoever comes next finds room at once, instead of waiting for one of many long
//! answers to end. Beside others a greedy one has at most 2 of 3: every step of a server takes longer with more streams, and who has
//! one question is not to wait for steps twice as long as those of its share. Pools with few places, where a free one would be a
//! large part of the whole, are filled.

use std::collections::HashMap;
use std::time::Duration;

/// Parts that an account may have for each part that is free, if no other is there.
const ALONE: usize = 8;

/// The same beside others.
const BESIDE: usize = 2;

/// An account counts as there for so long after its latest request was sent: longer than people take between two questions.
const LATELY: Duration = Duration::from_secs(30);

/// Places up to which a pool is filled whoever is there.
const FEW: usize = 8;

/// Requests at upstreams, and how many there may be.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Room {
    /// At upstreams that are given requests.
    pub taken: usize,
    /// What their limits allow.
    pub most: usize,
}

/// Requests of accounts at upstreams. Accounts without any are not kept, but for the two that were sent one last.
#[derive(Debug, Default)]
pub struct Shares {
    running: HashMap<u64, usize>,
    latest: Option<Seen>,
    /// The latest of another account.
    before: Option<Seen>,
}

/// An account, and when its latest request was sent.
#[derive(Clone, Copy, Debug)]
struct Seen {
    account: u64,
    at: Duration,
}

impl Shares {
    /// A request of an account is sent.
    pub fn start(&mut self, account: u64, now: Duration) {
        *self.running.entry(account).or_default() += 1;
        if self.latest.is_some_and(|latest| latest.account != account) {
            self.before = self.latest;
        }
        self.latest = Some(Seen { account, at: now });
    }

    /// Whether another account asked lately.
    fn has_others(&self, account: u64, now: Duration) -> bool {
        let other = self.latest.filter(|latest| latest.account != account).or(self.before);
        other.is_some_and(|other| other.account != account && now.saturating_sub(other.at) < LATELY)
    }

    /// A request of an account ended or came back.
    pub fn end(&mut self, account: u64) {
        if let Some(own) = self.running.get_mut(&account) {
            *own -= 1;
            if *own == 0 {
                self.running.remove(&account);
            }
        }
    }

    /// Whether an account may have one more.
    pub fn may_start(&self, account: u64, room: Room, now: Duration) -> bool {
        let own = self.running.get(&account).copied().unwrap_or(0);
        let parts = if room.most > FEW && self.has_others(account, now) { BESIDE } else { ALONE };
        own < parts * room.most.saturating_sub(room.taken)
    }

    /// Whether nobody has any.
    pub fn is_empty(&self) -> bool {
        self.running.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Duration = Duration::from_secs(100);

    /// What each of these greedy accounts gets of so many places, one after another.
    fn held(accounts: usize, most: usize) -> Vec<usize> {
        let (mut shares, mut held, mut taken) = (Shares::default(), vec![0; accounts], 0);
        loop {
            let before = taken;
            for (account, own) in held.iter_mut().enumerate() {
                if taken < most && shares.may_start(account as u64, Room { taken, most }, NOW) {
                    shares.start(account as u64, NOW);
                    *own += 1;
                    taken += 1;
                }
            }
            if before == taken {
                return held;
            }
        }
    }

    #[test]
    fn greedy_accounts_leave_room_for_the_next_unless_there_are_few_places() {
        assert_eq!(held(1, 90), [80]);
        assert_eq!(held(2, 50), [20, 20]);
        assert_eq!(held(1, 8), [8]);
        assert_eq!(held(1, 1), [1]);
    }

    #[test]
    fn a_greedy_account_has_less_while_another_asks_now_and_then() {
        let mut shares = Shares::default();
        let most = |shares: &Shares, now: Duration| {
            (0..90).rfind(|taken| {
                let mut greedy = Shares { running: HashMap::from([(1, *taken)]), ..Shares::default() };
                (greedy.latest, greedy.before) = (shares.latest, shares.before);
                greedy.may_start(1, Room { taken: *taken, most: 90 }, now)
            })
        };
        shares.start(1, NOW);
        assert_eq!(most(&shares, NOW), Some(79));
        shares.start(2, NOW);
        shares.start(1, NOW);
        assert_eq!(most(&shares, NOW), Some(59));
        assert_eq!(most(&shares, NOW + LATELY), Some(79));
    }

    #[test]
    fn what_ends_is_given_back() {
        let mut shares = Shares::default();
        shares.start(1, NOW);
        shares.end(1);
        assert!(shares.is_empty());
    }
}
