//! How much may be tried again: enough for an upstream's death, never so much that retries are the load.
//!
//! ```text
//! first retry since the latest token     free: at most one attempt more per request, and none is lost when an upstream dies
//! further ones                           from a purse that gains SHARE per new request and LEAST a second, up to MOST
//! in a row without a token, or ever      at most ATTEMPTS and MOVES: a request that kills every server it meets must end
//! ```

use std::time::Duration;

use super::types::Spent;

/// Retries beyond the first, per request.
const SHARE: f64 = 0.2;

/// Retries beyond the first that are always possible, a second.
const LEAST: f64 = 10.0;

/// Most retries that are saved up.
const MOST: f64 = 100.0;

/// Attempts of a request in a row without a token.
const ATTEMPTS: u32 = 4;

/// Times that a request is tried again, with or without tokens between.
const MOVES: u32 = 32;

/// What a request used of the budget.
#[derive(Clone, Copy, Debug, Default)]
pub struct Tries {
    /// Since its latest token.
    in_a_row: u32,
    all: u32,
}

impl Tries {
    /// A token came: the next failure is another one.
    pub fn progressed(&mut self) {
        self.in_a_row = 0;
    }
}

/// The purse that all requests share.
#[derive(Debug)]
pub struct Budget {
    balance: f64,
    at: Duration,
}

impl Default for Budget {
    fn default() -> Self {
        Self { balance: MOST, at: Duration::ZERO }
    }
}

impl Budget {
    /// A request came.
    pub fn earn(&mut self) {
        self.balance = (self.balance + SHARE).min(MOST);
    }

    /// Pays for another attempt.
    pub fn spend(&mut self, tries: &mut Tries, now: Duration) -> Result<(), Spent> {
        self.refill(now);
        if tries.in_a_row + 1 >= ATTEMPTS || tries.all >= MOVES {
            return Err(Spent::Attempts(tries.in_a_row + 1));
        }
        if tries.in_a_row > 0 {
            if self.balance < 1.0 {
                return Err(Spent::Budget);
            }
            self.balance -= 1.0;
        }
        tries.in_a_row += 1;
        tries.all += 1;
        Ok(())
    }

    fn refill(&mut self, now: Duration) {
        let passed = now.saturating_sub(self.at).as_secs_f64();
        self.at = self.at.max(now);
        self.balance = (self.balance + LEAST * passed).min(MOST);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Duration = Duration::ZERO;

    #[test]
    fn every_request_may_move_once_however_many_there_are() {
        let mut budget = Budget::default();
        for _ in 0..10_000 {
            assert_eq!(budget.spend(&mut Tries::default(), NOW), Ok(()));
        }
    }

    #[test]
    fn a_request_that_fails_everywhere_ends_and_one_with_tokens_between_goes_on_for_longer() {
        let (mut budget, mut tries) = (Budget::default(), Tries::default());
        let failed = (0..10).map(|_| budget.spend(&mut tries, NOW)).find_map(Result::err);
        assert_eq!(failed, Some(Spent::Attempts(ATTEMPTS)));
        let mut tries = Tries::default();
        let moves = (0..100).take_while(|_| {
            tries.progressed();
            budget.spend(&mut tries, NOW).is_ok()
        });
        assert_eq!(moves.count(), MOVES as usize);
    }

    #[test]
    fn second_retries_come_from_a_purse_that_fills_with_time_and_requests() {
        let mut budget = Budget::default();
        let twice = |budget: &mut Budget, now| {
            let mut tries = Tries::default();
            budget.spend(&mut tries, now).and_then(|()| budget.spend(&mut tries, now))
        };
        for _ in 0..MOST as usize {
            assert_eq!(twice(&mut budget, NOW), Ok(()));
        }
        assert_eq!(twice(&mut budget, NOW), Err(Spent::Budget));
        let later = Duration::from_millis(100);
        assert_eq!(twice(&mut budget, later), Ok(()));
        assert_eq!(twice(&mut budget, later), Err(Spent::Budget));
        (0..6).for_each(|_| budget.earn());
        assert_eq!(twice(&mut budget, later), Ok(()));
        assert_eq!(twice(&mut budget, later), Err(Spent::Budget));
    }
}
