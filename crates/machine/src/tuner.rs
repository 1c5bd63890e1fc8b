//! On how many threads a step runs: measured, not assumed.
//!
//! More threads are not always faster. Where two hardware threads share a core, a step of few tokens waits for memory, and
//! threads beyond the cores only make every operation's end later; a step of many tokens gains from all of them. Results
//! do not depend on the number, so it may change from layer to layer:
//!
//! ```text
//! layers of a trial   | 0 1 2 3 ... m-1 | m m+1 ...  L-1 |
//! threads             | best            | challenger     |     every other trial the other way round
//! measured            |   ^ ^ ^     ^   |    ^       ^   |     not the first after a change, nor the last of the step
//! ```
//! Both halves compute the same tokens at the same time, so neither the size of the step nor what else happens on the
//! machine speaks for one of them. Steps are told apart by the power of two of their size: their tokens, and as many more as
//! attention to earlier positions is worth, because a chunk at the end of a long prompt is mostly attention, which
//! gains from threads that the products of the same chunk would not. For each power of two, the search starts
//! from the best of its neighbours, or from all threads, and moves to half, three quarters, three halves or twice as many
//! as long as that is faster; it repeats after [`RECHECK`] steps. With one or two threads there is nothing to choose.
//!
//! A [`Tuner`] belongs to one model. It knows no time but what it is told.

use std::time::Duration;

/// Trials of a challenger; the median counts.
const TRIALS: usize = 3;

/// A challenger wins if it takes at most this share of the time: less is noise, and a change of threads has its price.
const WINS: f64 = 0.97;

/// A challenger that takes this much longer in its first trial has lost.
const CLEARLY_LOSES: f64 = 1.2;

/// Steps of a bucket after which the search repeats: other programs on the machine, or its clock rate, may have changed.
/// A search takes about ten trials, each hardly slower than a plain step.
pub const RECHECK: u32 = 4096;

/// Fewest layers that can be split into two halves with something to measure in both.
const FEWEST_LAYERS: usize = 6;

/// Buckets: steps of a size up to 2^20.
const BUCKETS: usize = 20;

/// The search for one model.
#[derive(Debug)]
pub struct Tuner {
    most: usize,
    layers: usize,
    buckets: [Option<Search>; BUCKETS],
    /// The current step.
    bucket: usize,
    trial: Option<Trial>,
}

/// How far the search of a bucket is.
#[derive(Debug)]
struct Search {
    best: usize,
    /// Not to be tried again in this search.
    tried: Vec<usize>,
    challenger: Option<usize>,
    /// Time with the challenger divided by time with the best, per trial.
    ratios: Vec<f64>,
    /// Steps since the search ended.
    settled_for: u32,
}

/// A step in which two numbers of threads are compared.
#[derive(Debug)]
struct Trial {
    halves: [Half; 2],
    /// Layers started.
    started: usize,
    /// When the latest of them was.
    at: Duration,
}

#[derive(Debug)]
struct Half {
    threads: usize,
    total: Duration,
    longest: Duration,
    count: u32,
}

impl Tuner {
    /// A search among up to `most` threads for a model of `layers` layers.
    pub fn new(most: usize, layers: usize) -> Self {
        Self { most, layers, buckets: [const { None }; BUCKETS], bucket: 0, trial: None }
    }

    /// A step of this size begins; returns its threads.
    pub fn begin(&mut self, size: usize) -> usize {
        self.bucket = bucket_of(size);
        self.trial = None;
        if self.most <= 2 || self.layers < FEWEST_LAYERS {
            return self.most;
        }
        let (most, nearest) = (self.most, self.nearest());
        let search = self.buckets[self.bucket].get_or_insert_with(|| Search::from(nearest, most));
        search.begin(most);
        let Some(challenger) = search.challenger else { return search.best };
        let mut threads = [search.best, challenger];
        if search.ratios.len() % 2 == 1 {
            threads.reverse();
        }
        self.trial = Some(Trial { halves: threads.map(Half::new), started: 0, at: Duration::ZERO });
        threads[0]
    }

    /// A layer begins; returns its threads if they change.
    pub fn start_layer(&mut self, now: Duration) -> Option<usize> {
        let middle = self.layers / 2;
        let trial = self.trial.as_mut()?;
        let layer = trial.started;
        if layer > 0 {
            trial.finish(layer - 1, middle, now.saturating_sub(trial.at));
        }
        trial.started += 1;
        trial.at = now;
        (layer == middle).then_some(trial.halves[1].threads)
    }

    /// Someone else computed between two layers: what was measured of this step does not count.
    pub fn disturb(&mut self) {
        self.trial = None;
    }

    /// The step ends.
    pub fn end(&mut self) {
        let Some(search) = &mut self.buckets[self.bucket] else { return };
        if search.challenger.is_none() {
            search.settled_for += 1;
        }
        let complete = self.trial.take().filter(|trial| trial.started == self.layers);
        let times = complete.and_then(|trial| {
            let [first, second] = &trial.halves;
            Some([(first.threads, first.mean()?), (second.threads, second.mean()?)])
        });
        if let Some([(threads, first), (_, second)]) = times {
            search.record(if threads == search.best { second / first } else { first / second });
        }
    }

    /// Threads of a step of this size, as far as is known.
    pub fn best(&self, size: usize) -> usize {
        let search = self.buckets[bucket_of(size)].as_ref();
        search.map_or_else(|| self.nearest_to(bucket_of(size)), |search| search.best)
    }

    /// Whether the search for steps of this size has ended.
    pub fn is_settled(&self, size: usize) -> bool {
        let search = self.buckets[bucket_of(size)].as_ref();
        self.most <= 2 || self.layers < FEWEST_LAYERS || search.is_some_and(|search| search.settled_for > 0)
    }

    fn nearest(&self) -> usize {
        self.nearest_to(self.bucket)
    }

    /// The best of the nearest bucket whose search has ended.
    fn nearest_to(&self, bucket: usize) -> usize {
        let settled = |(index, search): (usize, &Option<Search>)| {
            let search = search.as_ref().filter(|search| search.settled_for > 0)?;
            Some((index.abs_diff(bucket), search.best))
        };
        self.buckets.iter().enumerate().filter_map(settled).min().map_or(self.most, |(_, best)| best)
    }
}

fn bucket_of(size: usize) -> usize {
    (size.max(1).ilog2() as usize).min(BUCKETS - 1)
}

impl Search {
    fn from(best: usize, most: usize) -> Self {
        let mut search =
            Self { best, tried: vec![best], challenger: None, ratios: Vec::new(), settled_for: 0 };
        search.next_challenger(most);
        search
    }

    /// Ends the comparison if it is decided, and starts over if the search ended long ago.
    fn begin(&mut self, most: usize) {
        if let Some(challenger) = self.challenger
            && let Some(wins) = self.decided()
        {
            if wins {
                self.best = challenger;
            }
            self.next_challenger(most);
        }
        if self.settled_for >= RECHECK {
            *self = Self::from(self.best, most);
        }
    }

    /// Whether the challenger wins, once that is clear.
    fn decided(&self) -> Option<bool> {
        let first = *self.ratios.first()?;
        if first >= CLEARLY_LOSES {
            return Some(false);
        }
        let mut sorted = self.ratios.clone();
        sorted.sort_by(f64::total_cmp);
        (sorted.len() >= TRIALS).then(|| sorted[sorted.len() / 2] <= WINS)
    }

    fn next_challenger(&mut self, most: usize) {
        let best = self.best;
        let neighbours = [best / 2, (best * 3 / 2).min(most), best * 3 / 4, (best * 2).min(most)];
        let new = |threads: &usize| *threads > 0 && !self.tried.contains(threads);
        self.challenger = neighbours.into_iter().find(new);
        self.tried.extend(self.challenger);
        self.ratios.clear();
    }

    fn record(&mut self, ratio: f64) {
        self.ratios.push(ratio);
    }
}

impl Trial {
    /// A layer took so long.
    fn finish(&mut self, layer: usize, middle: usize, took: Duration) {
        if layer == 0 || layer == middle {
            return;
        }
        let half = &mut self.halves[usize::from(layer > middle)];
        half.total += took;
        half.longest = half.longest.max(took);
        half.count += 1;
    }
}

impl Half {
    fn new(threads: usize) -> Self {
        Self { threads, total: Duration::ZERO, longest: Duration::ZERO, count: 0 }
    }

    /// Mean seconds of a layer. From three layers on the longest is left out: it may have been interrupted.
    fn mean(&self) -> Option<f64> {
        let (total, count) = if self.count >= 3 {
            (self.total.saturating_sub(self.longest), self.count - 1)
        } else {
            (self.total, self.count)
        };
        (count > 0 && !total.is_zero()).then(|| total.as_secs_f64() / f64::from(count))
    }
}
