//! The beginning of a burst: requests that come together to an engine that had nothing to do begin together.
//!
//! Who sends several at once does not have the first of them computed without the others, which would wait for a whole step. To wait
//! for more has its price, too, and may last the longer the more there is to compute:
//!
//! ```text
//! for the next request    50 us, and until 1 % of the time that the step gathered so far will take has passed since the first came
//! in all                  2 ms, while the step has room for more
//! ```

use std::time::Duration;

use super::Engine;
use crate::cost::Work;
use crate::kv::BlockHash;
use crate::sequence::Slot;

/// Requests that come within so much time of each other come together: as fast as one thread submits them.
const TOGETHER: Duration = Duration::from_micros(50);

/// Share of a step's time that may be spent on waiting for more.
const SHARE: f64 = 0.01;

/// The longest time that gathering takes: 1 % of the longest steps while nobody streams.
const LONGEST: Duration = Duration::from_millis(2);

impl Engine {
    /// Takes in what comes together with the first submission.
    pub(super) fn gather(&mut self) {
        let (began, limits) = (self.clock.now(), *self.roster.limits());
        let (mut work, mut counted) = (Work::default(), 0);
        loop {
            let more = self.roster.waiting()[counted..].iter().map(|slot| self.to_compute(*slot));
            work = more.fold(work, Work::and);
            counted = self.roster.waiting().len();
            let is_full = work.tokens >= limits.step_tokens || work.rows >= limits.step_rows;
            let waited = self.clock.now().saturating_sub(began);
            let patience = patience(waited, self.scheduler.cost.predict(work));
            if counted == 0 || is_full || patience.is_zero() {
                return;
            }
            let Ok(submission) = self.inbox.recv_timeout(patience) else { return };
            self.take_in(submission);
        }
    }

    /// What a sequence that just came has to compute: what neither memory nor a lower tier holds.
    fn to_compute(&self, slot: Slot) -> Work {
        let (roster, limits) = (&self.roster, self.roster.limits());
        let below = |hash: BlockHash| roster.tier.as_ref().is_some_and(|tier| tier.holds(hash));
        let sequence = roster.get(slot);
        let found = sequence.found(limits, |hash| roster.pool.find(hash).is_some() || below(hash));
        let start = found.end * limits.block_tokens;
        Work::chunk(start, sequence.len() - start, sequence.rows())
    }
}

/// How long to wait for another request, `waited` after the first one came, if a step of those that are here takes `seconds`.
fn patience(waited: Duration, seconds: f64) -> Duration {
    let worthwhile = Duration::from_secs_f64(SHARE * seconds).saturating_sub(waited);
    worthwhile.max(TOGETHER).min(LONGEST.saturating_sub(waited))
}

#[cfg(test)]
mod tests {
    use super::*;

    const STEP: f64 = 4.6e-3;

    /// When a step begins to which requests come every `gap`, each of which adds `seconds` to it, and how many of them it has.
    fn gathered(gap: Duration, seconds: f64) -> (Duration, u32) {
        for count in 1.. {
            let waited = gap * (count - 1);
            let patience = patience(waited, STEP + f64::from(count) * seconds);
            if patience < gap {
                return (waited + patience, count);
            }
        }
        unreachable!("gathering ends")
    }

    const fn micros(micros: u64) -> Duration {
        Duration::from_micros(micros)
    }

    #[test]
    fn a_request_that_stays_alone_waits_for_a_hundredth_of_its_step() {
        let alone = |seconds| patience(Duration::ZERO, seconds);
        assert_eq!([0.0, 0.001, 0.02].map(alone), [50, 50, 200].map(micros));
        assert_eq!([0.1, 0.2, 100.0].map(alone), [1000, 2000, 2000].map(micros));
    }

    #[test]
    fn a_burst_from_one_thread_begins_together_even_if_its_requests_are_small() {
        assert_eq!(gathered(micros(30), 2.7e-3), (LONGEST, 67));
        assert_eq!(gathered(micros(45), 0.0), (LONGEST, 45));
    }

    #[test]
    fn slower_ones_are_waited_for_as_long_as_it_is_worth() {
        assert_eq!(gathered(micros(60), 1e-4), (micros(50), 1));
        assert_eq!(gathered(micros(200), 0.021), (LONGEST, 11));
        let (waited, count) = gathered(micros(100), 8e-3);
        let worth = Duration::from_secs_f64(SHARE * (STEP + 8e-3 * f64::from(count)));
        assert!(count > 1 && waited <= worth + TOGETHER, "{waited:?} for {count}");
    }

    #[test]
    fn nobody_waits_longer_than_the_longest_gathering() {
        for gap in (1..3000).map(micros) {
            for seconds in [0.0, 1e-4, 1e-2, 1.0] {
                assert!(gathered(gap, seconds).0 <= LONGEST);
            }
        }
    }
}
