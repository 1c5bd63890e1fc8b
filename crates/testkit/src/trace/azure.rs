//! Traces of Azure's services: a time and two lengths a line.

use std::time::Duration;

use super::Line;

/// The first line of such a file.
pub(super) const HEADING: &str = "TIMESTAMP,ContextTokens,GeneratedTokens";

/// Reads `2023-11-16 18:17:03.9799600,4808,10`.
pub(super) fn parse(line: &str) -> Result<Line, String> {
    let parts: Vec<_> = line.split(',').collect();
    let [at, prompt, answer] = parts[..] else {
        return Err(format!("{} fields instead of three", parts.len()));
    };
    let tokens = |text: &str| text.trim().parse().map_err(|_| format!("{text:?} is no number of tokens"));
    let at = time(at.trim()).ok_or_else(|| format!("{at:?} is no time such as 2023-11-16 18:17:03.98"))?;
    Ok(Line { at, prompt: tokens(prompt)?, answer: tokens(answer)?, ids: Vec::new() })
}

/// From the year 0 to this moment of universal time.
fn time(text: &str) -> Option<Duration> {
    let text = text.strip_suffix("+00:00").unwrap_or(text);
    let (date, time) = text.split_once(' ')?;
    let (hours, rest) = time.split_once(':')?;
    let (minutes, seconds) = rest.split_once(':')?;
    let (hours, minutes) = (number(hours, 0..24)?, number(minutes, 0..60)?);
    let (whole, fraction) = seconds.split_once('.').unwrap_or((seconds, "0"));
    let seconds = days(date)? * 86_400 + hours * 3600 + minutes * 60 + number(whole, 0..61)?;
    let digits = fraction.get(..fraction.len().min(9))?;
    let nanos = number(digits, 0..1_000_000_000)? * 10_u64.pow(9 - digits.len() as u32);
    Some(Duration::new(seconds, nanos as u32))
}

/// Days from the year 0 to a date, by the calendar in which every fourth year is longer but for three centuries of four.
fn days(date: &str) -> Option<u64> {
    let (year, rest) = date.split_once('-')?;
    let (month, day) = rest.split_once('-')?;
    let (year, month, day) = (number(year, 1..10_000)?, number(month, 1..13)?, number(day, 1..32)?);
    // Years that begin with March have their odd day at the end.
    let (year, month) = if month > 2 { (year, month - 3) } else { (year - 1, month + 9) };
    let years = year * 365 + year / 4 - year / 100 + year / 400;
    Some(years + (month * 153 + 2) / 5 + day)
}

fn number(text: &str, range: std::ops::Range<u64>) -> Option<u64> {
    let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    text.parse().ok().filter(|number| digits && range.contains(number))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_as_far_apart_as_the_calendar_says() {
        let between = |from: &str, to: &str| time(to).unwrap().checked_sub(time(from).unwrap()).unwrap();
        for (from, to, seconds) in [
            ("2023-11-16 18:17:03.9799600", "2023-11-16 18:17:04.0319600", 0.052),
            ("2023-12-31 23:59:59", "2024-01-01 00:00:00.5", 1.5),
            ("2024-02-28 00:00:00", "2024-03-01 00:00:00", 172_800.0),
            ("2100-02-28 00:00:00", "2100-03-01 00:00:00", 86_400.0),
            ("2024-05-10 00:00:00.009930+00:00", "2024-05-10 01:00:00.009930+00:00", 3600.0),
        ] {
            let got = between(from, to).as_secs_f64();
            assert!((got - seconds).abs() < 1e-6, "{from} to {to}: {got}");
        }
    }

    #[test]
    fn what_is_no_time_is_none() {
        for text in ["", "2023-11-16", "2023-13-16 00:00:00", "2023-11-16 24:00:00", "16.11.2023 1:2:3"] {
            assert_eq!(time(text), None, "{text}");
        }
        assert_eq!(time("2023-11-16 18:17:-3"), None);
        assert_eq!(time("2023-11-16 18:17:03.ü999999999"), None);
    }
}
