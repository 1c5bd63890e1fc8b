//! What a batch came to: one record feeds the log line and the metrics.

use std::fmt;
use std::time::Duration;

/// One batch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BatchRecord {
    /// Its number, from 1 on.
    pub batch: u64,
    /// When it left, since the start.
    pub at: Duration,
    /// Jobs in it.
    pub size: usize,
    /// Their tokens.
    pub tokens: usize,
    /// How long it was held back for more to come.
    pub window: Duration,
    /// How long its oldest job had waited.
    pub waited: Duration,
    /// How long it waited for hardware that its worker shares with others.
    pub shared: Duration,
    /// How long it took to compute, without that wait.
    pub took: Duration,
    /// Jobs of it that failed.
    pub failed: usize,
    /// Jobs left waiting when it left.
    pub left: usize,
}

impl fmt::Display for BatchRecord {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { batch, size, tokens, window, waited, shared, took, failed, left, .. } = self;
        write!(
            f,
            "batch {batch}: {size} jobs, {tokens} tokens, window {:.1} ms, waited {:.1} ms + {:.1} ms for the machine, took {:.1} ms, {left} waiting",
            millis(*window),
            millis(*waited),
            millis(*shared),
            millis(*took),
        )?;
        if *failed > 0 {
            write!(f, ", {failed} failed")?;
        }
        Ok(())
    }
}

fn millis(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}

/// Everything so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// Batches computed.
    pub batches: u64,
    /// Jobs computed.
    pub jobs: u64,
    /// Their tokens.
    pub tokens: u64,
    /// Jobs that failed.
    pub failed: u64,
    /// Jobs whose caller went away while they waited.
    pub cancelled: u64,
    /// Jobs turned down because the queue was full.
    pub rejected: u64,
    /// Time spent computing.
    pub busy: Duration,
    /// Jobs that wait now.
    pub waiting: usize,
}

impl Totals {
    pub(crate) fn add(&mut self, record: &BatchRecord) {
        self.batches += 1;
        self.jobs += record.size as u64;
        self.tokens += record.tokens as u64;
        self.failed += record.failed as u64;
        self.busy += record.took;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_reads_as_a_log_line() {
        let record = BatchRecord {
            batch: 7,
            size: 18,
            tokens: 360,
            window: Duration::from_micros(1500),
            took: Duration::from_millis(31),
            ..BatchRecord::default()
        };
        let line = record.to_string();
        assert!(line.starts_with("batch 7: 18 jobs, 360 tokens, window 1.5 ms"), "{line}");
        assert!(!line.contains("failed"), "{line}");
    }
}
