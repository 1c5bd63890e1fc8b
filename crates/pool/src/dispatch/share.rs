//! How much of the upstreams one account may have at a time.
//!
//! ```text
//! may start    own + 1 <= SHARE * (most - taken)        in requests at upstreams; most: what all limits allow together
//! ```
//! The same rule as for places in the queue: an account alone may have 8 of 9 parts, two greedy ones 8 of 17 parts each. So
//! whoever comes next finds room at once, instead of waiting for one of many long answers to end. Pools with few places,
//! where a free one would be a large part of the whole, are filled.

use std::collections::HashMap;

/// Parts that an account may have for each part that is free.
const SHARE: usize = 8;

/// Requests at upstreams, and how many there may be.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Room {
    /// At upstreams that are given requests.
    pub taken: usize,
    /// What their limits allow.
    pub most: usize,
}

/// Requests of accounts at upstreams. Accounts without any are not kept.
#[derive(Debug, Default)]
pub struct Shares(HashMap<u64, usize>);

impl Shares {
    /// A request of an account is sent.
    pub fn start(&mut self, account: u64) {
        *self.0.entry(account).or_default() += 1;
    }

    /// A request of an account ended or came back.
    pub fn end(&mut self, account: u64) {
        if let Some(own) = self.0.get_mut(&account) {
            *own -= 1;
            if *own == 0 {
                self.0.remove(&account);
            }
        }
    }

    /// Whether an account may have one more.
    pub fn may_start(&self, account: u64, room: Room) -> bool {
        let own = self.0.get(&account).copied().unwrap_or(0);
        own < SHARE * room.most.saturating_sub(room.taken)
    }

    /// Whether nobody has any.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What each of these greedy accounts gets of so many places, one after another.
    fn held(accounts: usize, most: usize) -> Vec<usize> {
        let (mut shares, mut held, mut taken) = (Shares::default(), vec![0; accounts], 0);
        loop {
            let before = taken;
            for (account, own) in held.iter_mut().enumerate() {
                if taken < most && shares.may_start(account as u64, Room { taken, most }) {
                    shares.start(account as u64);
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
        assert_eq!(held(2, 170), [80, 80]);
        assert_eq!(held(1, 8), [8]);
        assert_eq!(held(1, 1), [1]);
    }

    #[test]
    fn what_ends_is_given_back() {
        let mut shares = Shares::default();
        shares.start(1);
        shares.end(1);
        assert!(shares.is_empty());
    }
}
