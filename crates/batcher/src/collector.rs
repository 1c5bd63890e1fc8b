//! Who is waiting, and what leaves when.
//!
//! A [`Collector`] knows no thread, no lock and no time but what it is told: the same arrivals at the same times give the
//! same batches. While a batch runs everything collects. When the worker is free:
//!
//! ```text
//! full (jobs or tokens)                              leaves now
//! quiet: nobody came while the last batch ran,
//!        or arrivals are too far apart to fill up    leaves now
//! under load                                         leaves once as many wait as lately were there at a time,
//!                                                    or nobody came for a few gaps (and a quarter of the last
//!                                                    batch's time), or the window is over
//! ```
//! The window counts from the moment a job could have left, so it bounds what batching adds to anyone's latency.

use std::time::Duration;

use ropeway_executor::Class;

/// What an operator may choose.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Longest time a job is kept from a free worker in the hope of company; zero never waits.
    pub window: Duration,
    /// Most jobs of a batch; 1 switches batching off.
    pub max_batch: usize,
    /// Most tokens of a batch. A larger job goes alone.
    pub max_tokens: usize,
    /// Most jobs that wait.
    pub queue: usize,
}

impl Default for Settings {
    /// The familiar 10 ms and 32. 2,048 tokens keep a pass short beside others; 4,096 jobs are some seconds of work.
    fn default() -> Self {
        Self { window: Duration::from_millis(10), max_batch: 32, max_tokens: 2048, queue: 4096 }
    }
}

/// What a job weighs and when it wants to go.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Load {
    /// Its share of the token budget.
    pub tokens: usize,
    /// How urgent it is.
    pub class: Class,
}

/// What to do now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decision {
    /// Take a batch.
    Leave,
    /// Ask again at this time, or when somebody came.
    WaitUntil(Duration),
    /// Nobody is here.
    Idle,
}

/// Batches that may pass a job over before it goes first: bounds what classes and sizes can cost anyone.
const MOST_PASSES: u32 = 8;

/// Gaps between arrivals after which no more are expected.
const QUIET_GAPS: u32 = 4;

#[derive(Debug)]
struct Waiting<J> {
    job: J,
    load: Load,
    arrived: Duration,
    passed_over: u32,
}

impl<J> Waiting<J> {
    fn rank(&self) -> Class {
        if self.passed_over >= MOST_PASSES { Class::Interactive } else { self.load.class }
    }
}

/// The queue in front of one worker.
#[derive(Debug)]
pub struct Collector<J> {
    settings: Settings,
    /// In the order of arrival.
    waiting: Vec<Waiting<J>>,
    tokens: usize,
    /// When the worker became free; what waits has been able to leave since then, or since it came.
    free_since: Duration,
    last_arrival: Duration,
    /// Typical time between arrivals.
    gap: Option<Duration>,
    /// When the last batch left, and how long it took.
    left_at: Duration,
    took: Duration,
    /// How many were here at a time lately: in the last batch, and waiting when it ended.
    crowd: usize,
    /// How many came while the last batch ran.
    came_meanwhile: usize,
}

/// Jobs that leave together.
#[derive(Debug)]
pub struct Taken<J> {
    /// They, first to leave first, with the time each arrived.
    pub jobs: Vec<(J, Load, Duration)>,
    /// How long the batch was held back for more to come.
    pub held: Duration,
    /// How many stay behind.
    pub left: usize,
}

impl<J> Collector<J> {
    /// An empty queue.
    pub fn new(settings: Settings) -> Self {
        Self {
            settings: Settings { max_batch: settings.max_batch.max(1), ..settings },
            waiting: Vec::new(),
            tokens: 0,
            free_since: Duration::ZERO,
            last_arrival: Duration::ZERO,
            gap: None,
            left_at: Duration::ZERO,
            took: Duration::ZERO,
            crowd: 0,
            came_meanwhile: 0,
        }
    }

    /// How many wait.
    pub fn len(&self) -> usize {
        self.waiting.len()
    }

    /// Whether nobody waits.
    pub fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Its settings.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// Takes a job in, or gives it back when the queue is full.
    pub fn push(&mut self, job: J, load: Load, now: Duration) -> Result<(), J> {
        if self.waiting.len() >= self.settings.queue {
            return Err(job);
        }
        self.see_arrival(now);
        self.tokens += load.tokens;
        self.waiting.push(Waiting { job, load, arrived: now, passed_over: 0 });
        Ok(())
    }

    fn see_arrival(&mut self, now: Duration) {
        let gap = now.saturating_sub(self.last_arrival).min(self.settings.window * 4);
        // An average over about four arrivals: quick to notice a burst, quick to notice its end.
        self.gap = Some(self.gap.map_or(gap, |old| (old * 3 + gap) / 4));
        self.last_arrival = now;
        self.came_meanwhile += 1;
    }

    /// What to do, the worker being free.
    pub fn decide(&self, now: Duration) -> Decision {
        let Some(first) = self.waiting.iter().map(|waiting| waiting.arrived).min() else {
            return Decision::Idle;
        };
        if self.is_full() || !self.worth_waiting() {
            return Decision::Leave;
        }
        let since = first.max(self.free_since);
        let until =
            (since + self.settings.window).min(self.last_arrival.max(self.free_since) + self.patience());
        if now >= until { Decision::Leave } else { Decision::WaitUntil(until) }
    }

    /// How long nobody may come before no more are expected: a few gaps, and at least a share of what a batch costs, since
    /// who was just answered needs a moment to ask again.
    fn patience(&self) -> Duration {
        (self.gap.unwrap_or_default() * QUIET_GAPS).max(self.took / 4)
    }

    fn is_full(&self) -> bool {
        self.waiting.len() >= self.settings.max_batch || self.tokens >= self.settings.max_tokens
    }

    /// Whether more are likely to come soon: others came while the last batch ran, more were here lately than wait now,
    /// and arrivals are close together compared with the window.
    fn worth_waiting(&self) -> bool {
        let close = self.gap.is_some_and(|gap| gap * 2 <= self.settings.window);
        let crowd = self.crowd.min(self.settings.max_batch);
        !self.settings.window.is_zero() && close && self.came_meanwhile > 0 && self.waiting.len() < crowd
    }

    /// Takes the next batch: by class, then by arrival, as many as fit.
    pub fn take(&mut self, now: Duration) -> Taken<J> {
        let mut order: Vec<usize> = (0..self.waiting.len()).collect();
        order.sort_by_key(|&index| self.waiting[index].rank());
        let mut chosen = vec![false; self.waiting.len()];
        let (mut count, mut tokens) = (0, 0);
        for &index in &order {
            let more = self.waiting[index].load.tokens;
            if count == self.settings.max_batch {
                break;
            }
            if count == 0 || tokens + more <= self.settings.max_tokens {
                (chosen[index], count, tokens) = (true, count + 1, tokens + more);
            }
        }
        let held = self.held(now);
        self.left_at = now;
        let jobs = self.split(&order, &chosen);
        self.tokens -= tokens;
        self.crowd = count + self.waiting.len();
        self.came_meanwhile = 0;
        Taken { jobs, held, left: self.waiting.len() }
    }

    /// How long the worker has been free with somebody waiting.
    fn held(&self, now: Duration) -> Duration {
        let first = self.waiting.iter().map(|waiting| waiting.arrived).min().unwrap_or(now);
        now.saturating_sub(first.max(self.free_since))
    }

    /// Removes the chosen, in the given order; the others have been passed over once more.
    fn split(&mut self, order: &[usize], chosen: &[bool]) -> Vec<(J, Load, Duration)> {
        let mut all: Vec<Option<Waiting<J>>> = self.waiting.drain(..).map(Some).collect();
        let mut jobs = Vec::new();
        for &index in order.iter().filter(|&&index| chosen[index]) {
            jobs.extend(all[index].take().map(|waiting| (waiting.job, waiting.load, waiting.arrived)));
        }
        let stay = all.into_iter().flatten();
        self.waiting.extend(stay.map(|waiting| Waiting { passed_over: waiting.passed_over + 1, ..waiting }));
        jobs
    }

    /// The worker is free again.
    pub fn finished(&mut self, now: Duration) {
        self.free_since = now;
        self.took = now.saturating_sub(self.left_at);
        self.crowd = self.crowd.max(self.waiting.len());
    }

    /// Drops jobs that nobody waits for any more; gives how many.
    pub fn drop_where(&mut self, gone: impl Fn(&J) -> bool) -> usize {
        let before = self.waiting.len();
        self.waiting.retain(|waiting| !gone(&waiting.job));
        self.tokens = self.waiting.iter().map(|waiting| waiting.load.tokens).sum();
        before - self.waiting.len()
    }
}
