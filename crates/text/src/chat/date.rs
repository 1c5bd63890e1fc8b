//! Dates for `strftime_now`, in UTC: a server's prompt must not depend on where it stands.

use std::time::{SystemTime, UNIX_EPOCH};

const WEEKDAYS: [&str; 7] = ["Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday"];
const MONTHS: [&str; 12] = [
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
];

/// A moment, taken apart.
struct Moment {
    year: i64,
    /// 1 to 12.
    month: usize,
    /// 1 to 31.
    day: i64,
    /// 1 to 366.
    day_of_year: i64,
    /// 0 is Monday.
    weekday: usize,
    second_of_day: i64,
}

impl Moment {
    fn new(time: SystemTime) -> Self {
        let seconds = time.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs() as i64);
        let days = seconds / 86_400;
        let year = year_of(days);
        let day_of_year = days - days_before(year) + 1;
        let mut day = day_of_year;
        let mut month = 1;
        while day > days_in(year, month) {
            day -= days_in(year, month);
            month += 1;
        }
        // 1970-01-01 was a Thursday.
        let weekday = ((days + 3) % 7) as usize;
        Self { year, month, day, day_of_year, weekday, second_of_day: seconds % 86_400 }
    }
}

fn is_leap(year: i64) -> bool {
    year % 4 == 0 && (year % 100 != 0 || year % 400 == 0)
}

/// Days from 1970-01-01 to the first of January of `year`.
fn days_before(year: i64) -> i64 {
    let leap_days = |year: i64| year / 4 - year / 100 + year / 400;
    (year - 1970) * 365 + leap_days(year - 1) - leap_days(1969)
}

/// The year that holds the day `days` after 1970-01-01.
fn year_of(days: i64) -> i64 {
    let mut year = 1970 + days / 366;
    while days >= days_before(year + 1) {
        year += 1;
    }
    year
}

fn days_in(year: i64, month: usize) -> i64 {
    match month {
        2 if is_leap(year) => 29,
        2 => 28,
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    }
}

/// The moment as Python's `strftime` writes it; unknown directives are written as they are.
pub(super) fn strftime(format: &str, time: SystemTime) -> String {
    let moment = Moment::new(time);
    let mut text = String::new();
    let mut characters = format.chars();
    while let Some(character) = characters.next() {
        if character != '%' {
            text.push(character);
            continue;
        }
        let Some(mut directive) = characters.next() else {
            text.push('%');
            break;
        };
        let padded = directive != '-';
        if !padded {
            directive = characters.next().unwrap_or('-');
        }
        let written = moment.directive(directive).unwrap_or_else(|| format!("%{directive}"));
        text.push_str(if padded { &written } else { written.trim_start_matches('0') });
    }
    text
}

impl Moment {
    fn directive(&self, directive: char) -> Option<String> {
        let (weekday, month) = (WEEKDAYS[self.weekday], MONTHS[self.month - 1]);
        let (hour, minute, second) =
            (self.second_of_day / 3600, self.second_of_day / 60 % 60, self.second_of_day % 60);
        let two = |number: i64| format!("{number:02}");
        Some(match directive {
            'Y' => self.year.to_string(),
            'y' => two(self.year % 100),
            'm' => two(self.month as i64),
            'd' => two(self.day),
            'e' => format!("{:2}", self.day),
            'j' => format!("{:03}", self.day_of_year),
            'B' => month.to_owned(),
            'b' | 'h' => month[..3].to_owned(),
            'A' => weekday.to_owned(),
            'a' => weekday[..3].to_owned(),
            'H' => two(hour),
            'I' => two((hour + 11) % 12 + 1),
            'M' => two(minute),
            'S' => two(second),
            'p' => if hour < 12 { "AM" } else { "PM" }.to_owned(),
            'F' => format!("{}-{:02}-{:02}", self.year, self.month, self.day),
            'T' => format!("{hour:02}:{minute:02}:{second:02}"),
            'Z' => "UTC".to_owned(),
            'z' => "+0000".to_owned(),
            '%' => "%".to_owned(),
            _ => return None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn at(seconds: u64, format: &str) -> String {
        strftime(format, UNIX_EPOCH + Duration::from_secs(seconds))
    }

    #[test]
    fn dates_are_written_as_python_writes_them() {
        assert_eq!(
            at(1_709_210_096, "%A, %d %b %Y %H:%M:%S %j %p %I"),
            "Thursday, 29 Feb 2024 12:34:56 060 PM 12"
        );
        assert_eq!(at(0, "%Y-%m-%d %a %-d %y %% %Q %"), "1970-01-01 Thu 1 70 % %Q %");
        assert_eq!(at(1_735_689_599, "%F %T"), "2024-12-31 23:59:59");
        assert_eq!(at(4_107_542_400, "%B %d, %Y"), "March 01, 2100");
    }
}
