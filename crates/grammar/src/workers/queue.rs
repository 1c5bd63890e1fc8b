//! Trials that wait for a worker: in turn between accounts, in order of arrival within one.

use std::collections::VecDeque;
use std::sync::Arc;

use tokio::sync::oneshot;

use super::Outcome;
use crate::vocabulary::Words;

/// Trials of one account that may wait; further ones are turned down. More than a client's requests at the same time
/// have different schemas.
const MAX_WAITING: usize = 64;

/// Trials of all accounts that may wait, of 256 KiB each at most.
const MAX_WAITING_IN_ALL: usize = 1024;

/// Whose trial it is: fairness is between accounts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Account(pub u64);

/// A trial and who waits for its outcome.
pub(super) struct Job {
    pub(super) account: Account,
    pub(super) hash: [u8; 32],
    pub(super) vocabulary: Arc<Words>,
    pub(super) trial: Vec<u8>,
    pub(super) reply: oneshot::Sender<Outcome>,
}

impl Job {
    pub(super) fn is_cancelled(&self) -> bool {
        self.reply.is_closed()
    }
}

struct Line {
    account: Account,
    waiting: VecDeque<Job>,
    /// How many are being compiled.
    running: usize,
}

/// Trials in the order in which they are compiled.
#[derive(Default)]
pub(super) struct Queue {
    /// Accounts with trials, the one whose turn is next first.
    lines: VecDeque<Line>,
}

impl Queue {
    /// Lets a trial wait; gives it back if too many do.
    pub(super) fn push(&mut self, job: Job) -> Result<(), Job> {
        self.forget_cancelled();
        let in_all: usize = self.lines.iter().map(|line| line.waiting.len()).sum();
        let line = self.line(job.account);
        let waiting = &mut line.waiting;
        if waiting.len() >= MAX_WAITING || in_all >= MAX_WAITING_IN_ALL {
            return Err(job);
        }
        waiting.push_back(job);
        Ok(())
    }

    fn line(&mut self, account: Account) -> &mut Line {
        let known = self.lines.iter().position(|line| line.account == account);
        let index = known.unwrap_or_else(|| {
            self.lines.push_back(Line { account, waiting: VecDeque::new(), running: 0 });
            self.lines.len() - 1
        });
        &mut self.lines[index]
    }

    /// The next trial to be compiled, of an account with fewer than `most` in work. Its account goes to the end of the line.
    pub(super) fn take(&mut self, most: usize) -> Option<Job> {
        self.forget_cancelled();
        let index = self.lines.iter().position(|line| line.running < most && !line.waiting.is_empty())?;
        let mut line = self.lines.remove(index)?;
        line.running += 1;
        let job = line.waiting.pop_front();
        self.lines.push_back(line);
        job
    }

    /// A trial of this account is done.
    pub(super) fn done(&mut self, account: Account) {
        if let Some(line) = self.lines.iter_mut().find(|line| line.account == account) {
            line.running -= 1;
        }
        self.forget_cancelled();
    }

    fn forget_cancelled(&mut self) {
        for line in &mut self.lines {
            line.waiting.retain(|job| !job.is_cancelled());
        }
        self.lines.retain(|line| line.running > 0 || !line.waiting.is_empty());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn job(account: u64, number: u8) -> (Job, oneshot::Receiver<Outcome>) {
        let (reply, outcome) = oneshot::channel();
        let vocabulary = Arc::new(Words::new(Vec::new(), Vec::new()));
        (Job { account: Account(account), hash: [number; 32], vocabulary, trial: Vec::new(), reply }, outcome)
    }

    fn taken(queue: &mut Queue) -> Option<(u64, u8)> {
        queue.take(1).map(|job| (job.account.0, job.hash[0]))
    }

    #[test]
    fn accounts_take_turns_and_none_has_more_than_its_share_in_work() {
        let (mut queue, mut waiting) = (Queue::default(), Vec::new());
        for (account, number) in [(1, 1), (1, 2), (1, 3), (2, 4)] {
            let (job, outcome) = job(account, number);
            assert!(queue.push(job).is_ok());
            waiting.push(outcome);
        }
        assert_eq!(taken(&mut queue), Some((1, 1)));
        assert_eq!(taken(&mut queue), Some((2, 4)), "the first account has one in work");
        assert_eq!(taken(&mut queue), None, "both have");
        queue.done(Account(1));
        assert_eq!(taken(&mut queue), Some((1, 2)));
    }

    #[test]
    fn one_account_fills_its_own_line_only_and_who_left_is_forgotten() {
        let (mut queue, mut waiting) = (Queue::default(), Vec::new());
        for number in 0..MAX_WAITING {
            let (job, outcome) = job(1, number as u8);
            assert!(queue.push(job).is_ok());
            waiting.push(outcome);
        }
        assert!(queue.push(job(1, 0).0).is_err());
        let (other, _outcome) = job(2, 0);
        assert!(queue.push(other).is_ok());
        waiting.clear();
        assert_eq!(taken(&mut queue), Some((2, 0)));
        queue.done(Account(2));
        assert!(queue.lines.is_empty());
    }
}
