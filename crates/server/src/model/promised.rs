//! Models that the operator promised, by the command line or the settings: how far their loading is, and when to come
//! again until then.

use std::time::{Duration, Instant};

/// The shortest time worth telling: clients count whole seconds.
const SHORTEST: Duration = Duration::from_secs(1);

/// The longest time told: loading that takes longer can't be foreseen.
const LONGEST: Duration = Duration::from_secs(600);

/// How far a promised model is.
#[derive(Clone, Debug, PartialEq)]
pub enum Arrival {
    /// Others are loaded first.
    Waiting {
        /// Since when.
        since: Instant,
    },
    /// It is being fetched or loaded.
    Loading {
        /// Since when.
        since: Instant,
        /// Share that is done, from 0 to 1, if known.
        done: Option<f64>,
    },
    /// It was loaded; whether it still is, the list of served models tells.
    Arrived,
    /// It could not be loaded.
    Failed {
        /// Why not, and what to do.
        why: String,
    },
}

/// A model that the operator promised.
#[derive(Clone, Debug, PartialEq)]
pub struct Promised {
    /// Its full name.
    pub name: String,
    /// How far it is.
    pub arrival: Arrival,
}

impl Arrival {
    /// When to come again; `None` if it will not arrive by waiting.
    pub fn wait(&self, now: Instant) -> Option<Duration> {
        match self {
            Arrival::Waiting { since } => Some(remaining(now - *since, None)),
            Arrival::Loading { since, done } => Some(remaining(now - *since, *done)),
            Arrival::Arrived | Arrival::Failed { .. } => None,
        }
    }
}

/// Time that is left at the speed so far. Where nobody knows how much is done, as long as it took so far.
fn remaining(passed: Duration, done: Option<f64>) -> Duration {
    let left = match done {
        Some(done) if done > 0.0 => passed.as_secs_f64() * (1.0 - done).max(0.0) / done,
        _ => passed.as_secs_f64(),
    };
    Duration::try_from_secs_f64(left).unwrap_or(LONGEST).clamp(SHORTEST, LONGEST)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_left_follows_from_the_speed_so_far() {
        let since = Instant::now();
        let at = |seconds| since + Duration::from_secs(seconds);
        let loading = |done| Arrival::Loading { since, done };
        assert_eq!(loading(Some(0.25)).wait(at(10)), Some(Duration::from_secs(30)));
        assert_eq!(loading(Some(1.0)).wait(at(10)), Some(SHORTEST));
        assert_eq!(loading(Some(0.0)).wait(at(10)), Some(Duration::from_secs(10)), "as long again");
        assert_eq!(loading(Some(1e-9)).wait(at(10)), Some(LONGEST));
        assert_eq!(Arrival::Waiting { since }.wait(at(0)), Some(SHORTEST));
        assert_eq!(Arrival::Failed { why: String::new() }.wait(at(1)), None);
    }
}
