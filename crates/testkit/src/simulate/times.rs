//! A distribution of times in bounded memory, however many there are.

use std::time::Duration;

/// Buckets per doubling, as a power of two: a quantile is right within 1.6 %.
const FINE: u32 = 5;

/// How often something took how long.
#[derive(Clone, Debug, Default)]
pub struct Times {
    /// Per bucket; as many as the longest time needs.
    counts: Vec<u64>,
    count: u64,
    longest: Duration,
}

impl Times {
    /// Counts one more.
    pub fn add(&mut self, time: Duration) {
        let bucket = bucket(time.as_nanos() as u64);
        if bucket >= self.counts.len() {
            self.counts.resize(bucket + 1, 0);
        }
        self.counts[bucket] += 1;
        self.count += 1;
        self.longest = self.longest.max(time);
    }

    /// Counts all of `other` too.
    pub fn merge(&mut self, other: &Times) {
        self.counts.resize(self.counts.len().max(other.counts.len()), 0);
        for (count, more) in self.counts.iter_mut().zip(&other.counts) {
            *count += more;
        }
        self.count += other.count;
        self.longest = self.longest.max(other.longest);
    }

    /// How many there are.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// The longest.
    pub fn longest(&self) -> Duration {
        self.longest
    }

    /// The time, in seconds, that a share of `share` does not exceed; 0 if there are none.
    pub fn quantile(&self, share: f64) -> f64 {
        let wanted = (share * self.count as f64).ceil().max(1.0) as u64;
        let mut sum = 0;
        for (bucket, count) in self.counts.iter().enumerate() {
            sum += count;
            if sum >= wanted {
                return middle(bucket).min(self.longest.as_secs_f64());
            }
        }
        0.0
    }

    /// Points of the cumulative distribution: seconds, and the share that does not exceed them.
    pub fn cumulative(&self) -> impl Iterator<Item = (f64, f64)> {
        let filled = self.counts.iter().enumerate().filter(|(_, count)| **count > 0);
        filled.scan(0, |sum, (bucket, count)| {
            *sum += count;
            Some((middle(bucket), *sum as f64 / self.count as f64))
        })
    }
}

/// Buckets are as wide as a nanosecond up to `2^FINE`, then twice as wide with every doubling.
fn bucket(nanos: u64) -> usize {
    let doubling = (u64::BITS - nanos.leading_zeros()).saturating_sub(FINE + 1);
    ((u64::from(doubling) << FINE) + (nanos >> doubling)) as usize
}

fn middle(bucket: usize) -> f64 {
    let bucket = bucket as u64;
    let doubling = (bucket >> FINE).saturating_sub(1);
    let low = (bucket - (doubling << FINE)) << doubling;
    (low as f64 + 0.5 * (1u64 << doubling) as f64) * 1e-9
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_right_within_two_percent() {
        let mut times = Times::default();
        for micros in 1..=100_000 {
            times.add(Duration::from_micros(micros));
        }
        for share in [0.001, 0.5, 0.9, 0.99, 1.0] {
            let (got, want) = (times.quantile(share), share * 0.1);
            assert!((got / want - 1.0).abs() < 0.02, "{got} instead of {want}");
        }
        assert!(Times::default().quantile(0.5).abs() < 1e-9);
    }
}
