//! Sending requests: so many at once, or as they would come by themselves.
//!
//! It must never lose what was measured: a fault is counted, Ctrl-C ends the round early.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use indicatif::ProgressBar;
use ropeway_testkit::rng::Rng;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::sync::watch;
use tokio::task::JoinSet;

use super::ask::{Answer, Ask, Manner, ask};
use super::client::{Client, Fault};
use super::cpu;

/// Requests that may be open at a time when they come by themselves: a server so far behind will not catch up.
const MOST_OPEN: usize = 10_000;

/// What came of the requests of one round.
#[derive(Debug, Default)]
pub struct Round {
    pub answers: Vec<Answer>,
    pub faults: Vec<Fault>,
    /// From the start to the last answer.
    pub wall: Duration,
    /// Time of our own on a processor.
    pub cpu: Duration,
}

type Outcome = Result<Answer, Fault>;

/// Everything needed to send requests.
#[derive(Clone)]
pub struct Sender {
    pub client: Arc<Client>,
    pub manner: Arc<Manner>,
    /// Set by Ctrl-C.
    pub stop: watch::Receiver<bool>,
    pub bar: ProgressBar,
}

impl Sender {
    /// Keeps `concurrency` requests open until all are answered.
    pub async fn at_once(&self, asks: Vec<Ask>, concurrency: usize) -> Round {
        let (results, heard) = unbounded_channel();
        let mut users = JoinSet::new();
        let concurrency = concurrency.min(asks.len());
        let left = Arc::new(Mutex::new(asks.into_iter()));
        for _ in 0..concurrency {
            users.spawn(self.clone().user(Arc::clone(&left), results.clone()));
        }
        drop(results);
        self.collect(heard, users).await
    }

    /// One user: a request, its answer, the next request.
    async fn user(self, left: Arc<Mutex<std::vec::IntoIter<Ask>>>, results: UnboundedSender<Outcome>) {
        let next = || left.lock().unwrap_or_else(PoisonError::into_inner).next();
        while let Some(one) = next() {
            let _ = results.send(ask(&self.client, &self.manner, &one, Instant::now()).await);
        }
    }

    /// Sends requests at given times after the start, whatever became of the earlier ones.
    pub async fn as_they_come(&self, asks: impl Iterator<Item = (Duration, Ask)> + Send + 'static) -> Round {
        let (results, heard) = unbounded_channel();
        let mut tasks = JoinSet::new();
        tasks.spawn(self.clone().timetable(asks, results));
        self.collect(heard, tasks).await
    }

    async fn timetable(
        self,
        asks: impl Iterator<Item = (Duration, Ask)> + Send,
        results: UnboundedSender<Outcome>,
    ) {
        let start = Instant::now();
        let mut open = JoinSet::new();
        for (after, one) in asks {
            tokio::time::sleep_until((start + after).into()).await;
            while open.try_join_next().is_some() {}
            if open.len() >= MOST_OPEN {
                let _ = results.send(Err(Fault::NotSent(open.len())));
                continue;
            }
            let (sender, results) = (self.clone(), results.clone());
            open.spawn(async move {
                let _ = results.send(ask(&sender.client, &sender.manner, &one, start + after).await);
            });
        }
        drop(results);
        while open.join_next().await.is_some() {}
    }

    /// Hears results until there are no more, or until Ctrl-C; then the tasks end with their set.
    async fn collect(&self, mut heard: UnboundedReceiver<Outcome>, _tasks: JoinSet<()>) -> Round {
        let (start, cpu, mut stop) = (Instant::now(), cpu::used(), self.stop.clone());
        let mut round = Round::default();
        loop {
            let outcome = tokio::select! {
                outcome = heard.recv() => outcome,
                _ = stop.wait_for(|stop| *stop) => None,
            };
            let Some(outcome) = outcome else { break };
            round.wall = start.elapsed();
            self.bar.inc(1);
            match outcome {
                Ok(answer) => round.answers.push(answer),
                Err(fault) => round.faults.push(fault),
            }
        }
        round.cpu = cpu::used().saturating_sub(cpu);
        round
    }

    /// Whether Ctrl-C was pressed.
    pub fn stopped(&self) -> bool {
        *self.stop.borrow()
    }
}

/// When `count` requests come that know nothing of each other, `rate` a second on average.
pub fn arrivals(rng: &mut Rng, rate: f64, count: usize) -> Vec<Duration> {
    let mut at = Duration::ZERO;
    let mut next = || {
        at = at.saturating_add(rng.gap(rate));
        at
    };
    (0..count).map(|_| next()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arrivals_come_at_their_rate_and_the_same_with_the_same_seed() {
        let times = |seed| arrivals(&mut Rng::new(seed), 50.0, 5000);
        assert_eq!(times(1), times(1));
        assert_ne!(times(1), times(2));
        let all = times(1);
        let seconds = all.last().unwrap().as_secs_f64();
        assert!((95.0..105.0).contains(&seconds), "{seconds}");
        assert!(all.is_sorted());
        // Independent arrivals: the gaps' standard deviation is their mean.
        let gaps: Vec<_> = all.windows(2).map(|pair| pair[1].as_secs_f64() - pair[0].as_secs_f64()).collect();
        let variance = gaps.iter().map(|gap| (gap - 0.02).powi(2)).sum::<f64>() / gaps.len() as f64;
        assert!((0.018..0.022).contains(&variance.sqrt()), "{}", variance.sqrt());
    }
}
