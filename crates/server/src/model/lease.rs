//! How long a model stays: for good, or until nobody has asked for it for a while.

use std::str::FromStr;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use serde::{Deserialize, Deserializer};
use tokio::sync::Notify;

/// What stays when a client does not say how long, as with Ollama.
const DEFAULT: Duration = Duration::from_secs(300);

/// Time between two looks at a model that should go but is busy.
const BREATH: Duration = Duration::from_secs(1);

/// Longer than anyone means; keeps times within what clocks can count.
const LONGEST: f64 = 1e9;

/// What clients say in `keep_alive`: seconds, or a text such as `5m` or `1h30m`; a negative one means for good.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeepAlive {
    /// Until it is told to go.
    Forever,
    /// So long after the last request; nothing at all unloads it.
    For(Duration),
}

impl Default for KeepAlive {
    fn default() -> Self {
        KeepAlive::For(DEFAULT)
    }
}

impl KeepAlive {
    /// Whether it means "go".
    pub fn is_over(self) -> bool {
        self == KeepAlive::For(Duration::ZERO)
    }

    fn of_seconds(seconds: f64) -> Option<Self> {
        match seconds {
            s if s < 0.0 => Some(KeepAlive::Forever),
            s if s.is_finite() => Some(KeepAlive::For(Duration::from_secs_f64(s.min(LONGEST)))),
            _ => None,
        }
    }

    /// Reads `300`, `5m`, `1h30m`, `1.5h`, `-1` or `-1m`.
    fn parse(text: &str) -> Option<Self> {
        let (sign, mut rest) = text.strip_prefix('-').map_or((1.0, text), |rest| (-1.0, rest));
        if let Ok(seconds) = rest.parse::<f64>() {
            return Self::of_seconds(sign * seconds);
        }
        let mut seconds = 0.0;
        while !rest.is_empty() {
            let digits = rest.find(|c: char| !c.is_ascii_digit() && c != '.')?;
            let number: f64 = rest[..digits].parse().ok()?;
            let unit = &rest[digits..];
            let letters = unit.find(|c: char| c.is_ascii_digit() || c == '.').unwrap_or(unit.len());
            let in_seconds = match &unit[..letters] {
                "ns" => 1e-9,
                "us" | "µs" => 1e-6,
                "ms" => 1e-3,
                "s" => 1.0,
                "m" => 60.0,
                "h" => 3600.0,
                _ => return None,
            };
            seconds += number * in_seconds;
            rest = &unit[letters..];
        }
        if text.is_empty() { None } else { Self::of_seconds(sign * seconds) }
    }
}

impl FromStr for KeepAlive {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        Self::parse(text)
            .ok_or_else(|| format!("{text:?} is no time; write seconds, 5m, 1h30m, or -1 for good"))
    }
}

impl<'de> Deserialize<'de> for KeepAlive {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(untagged)]
        enum Said {
            Seconds(f64),
            Text(String),
        }
        let read = match Said::deserialize(deserializer)? {
            Said::Seconds(seconds) => Self::of_seconds(seconds),
            Said::Text(text) => Self::parse(&text),
        };
        read.ok_or_else(|| {
            serde::de::Error::custom("keep_alive is a number of seconds, or a time such as \"5m\"")
        })
    }
}

/// A model's time. Models that an operator gave have all of it; those that a client had loaded are lent.
#[derive(Debug, Default)]
pub struct Lease {
    state: Mutex<State>,
    changed: Notify,
}

#[derive(Clone, Copy, Debug, Default)]
struct State {
    lent: bool,
    /// How long after the last request, and until when that is now.
    until: Option<(Duration, Instant)>,
}

impl Lease {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// From now on it is lent for so long.
    pub fn lend(&self, keep: KeepAlive) {
        self.state().lent = true;
        self.keep(keep);
    }

    /// A client says how long it should stay; only for those that are lent.
    pub fn keep(&self, keep: KeepAlive) {
        let mut state = self.state();
        if state.lent {
            state.until = match keep {
                KeepAlive::Forever => None,
                KeepAlive::For(time) => Some((time, Instant::now() + time)),
            };
            drop(state);
            self.changed.notify_one();
        }
    }

    /// Somebody uses it: its time begins anew.
    pub fn renew(&self) {
        if let Some((time, until)) = &mut self.state().until {
            *until = Instant::now() + (*time).max(BREATH);
        }
    }

    /// When it goes, in seconds since 1970.
    pub fn expires(&self) -> Option<u64> {
        let (_, until) = self.state().until?;
        let left = until.saturating_duration_since(Instant::now());
        (SystemTime::now() + left).duration_since(SystemTime::UNIX_EPOCH).ok().map(|time| time.as_secs())
    }

    /// Waits until its time is over, which may be never.
    pub async fn over(&self) {
        loop {
            let until = self.state().until.map(|(_, until)| until);
            if until.is_some_and(|until| until <= Instant::now()) {
                return;
            }
            let over = async {
                match until {
                    Some(until) => tokio::time::sleep_until(until.into()).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                () = over => {}
                () = self.changed.notified() => {}
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_read_as_ollamas_clients_write_them() {
        let seconds = |n: f64| Some(KeepAlive::For(Duration::from_secs_f64(n)));
        for (text, means) in [
            ("300", seconds(300.0)),
            ("5m", seconds(300.0)),
            ("1h30m", seconds(5400.0)),
            ("1.5h", seconds(5400.0)),
            ("250ms", seconds(0.25)),
            ("0", seconds(0.0)),
            ("0s", seconds(0.0)),
            ("-1", Some(KeepAlive::Forever)),
            ("-1m", Some(KeepAlive::Forever)),
            ("", None),
            ("m", None),
            ("5 minutes", None),
            ("1h-2m", None),
            ("NaN", None),
            ("5é", None),
        ] {
            assert_eq!(KeepAlive::parse(text), means, "{text:?}");
        }
    }

    #[tokio::test]
    async fn only_what_is_lent_goes_by_itself() {
        let lease = Lease::default();
        lease.keep(KeepAlive::For(Duration::ZERO));
        assert_eq!(lease.expires(), None, "an operator's model stays");
        lease.lend(KeepAlive::Forever);
        assert_eq!(lease.expires(), None);
        lease.keep(KeepAlive::For(Duration::ZERO));
        lease.over().await;
    }
}
