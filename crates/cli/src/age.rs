//! Times as people tell them.

use std::time::{SystemTime, UNIX_EPOCH};

/// Seconds since 1970.
pub fn now() -> u64 {
    seconds(SystemTime::now())
}

/// Seconds since 1970.
pub fn seconds(time: SystemTime) -> u64 {
    time.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

/// How long `then` is past, in the largest unit that fits.
pub fn ago(then: u64, now: u64) -> String {
    let passed = now.saturating_sub(then);
    let units = [("day", 86_400), ("hour", 3_600), ("minute", 60)];
    match units.iter().find(|(_, seconds)| passed >= *seconds) {
        Some((unit, seconds)) => {
            let count = passed / seconds;
            format!("{count} {unit}{} ago", if count == 1 { "" } else { "s" })
        }
        None => "just now".into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_is_told_in_its_largest_unit() {
        for (passed, told) in [
            (0, "just now"),
            (59, "just now"),
            (60, "1 minute ago"),
            (7_300, "2 hours ago"),
            (86_400, "1 day ago"),
            (1_000_000, "11 days ago"),
        ] {
            assert_eq!(ago(1_000, 1_000 + passed), told);
        }
        assert_eq!(ago(1_000, 10), "just now");
    }
}
