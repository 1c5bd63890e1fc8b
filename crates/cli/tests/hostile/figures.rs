//! What a soak measures, and how it is told.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::time::Duration;

use crate::client::Answer;

/// First tokens of honest chats.
#[derive(Debug, Default)]
pub struct FirstTokens(Mutex<Vec<Duration>>);

impl FirstTokens {
    pub fn add(&self, took: Duration) {
        self.0.lock().unwrap().push(took);
    }

    pub fn count(&self) -> usize {
        self.0.lock().unwrap().len()
    }

    /// The time that this share of all took at most, in milliseconds.
    pub fn quantile(&self, share: f64) -> f64 {
        let mut all = self.0.lock().unwrap().clone();
        all.sort();
        let place = (all.len().saturating_sub(1)) as f64 * share;
        all.get(place.round() as usize).map_or(f64::NAN, |took| took.as_secs_f64() * 1e3)
    }
}

/// How many answers had which status, by who asked. Status 0 is no answer at all.
#[derive(Debug, Default)]
pub struct Statuses(Mutex<BTreeMap<(&'static str, u16), usize>>);

impl Statuses {
    pub fn add(&self, who: &'static str, answer: &Answer) {
        *self.0.lock().unwrap().entry((who, answer.status)).or_default() += 1;
        if answer.is_failure() {
            println!(
                "FAILURE {who}: {} {}",
                answer.status,
                answer.body.chars().take(200).collect::<String>()
            );
        }
    }

    /// Answers that are failures of the server.
    pub fn failures(&self) -> usize {
        let failed = |status: u16| status == 0 || (status >= 500 && status != 503);
        self.0.lock().unwrap().iter().filter(|((_, status), _)| failed(*status)).map(|(_, count)| count).sum()
    }

    pub fn print(&self) {
        for ((who, status), count) in self.0.lock().unwrap().iter() {
            println!("  {who:<12} {status:>3}  {count}");
        }
    }
}

/// One phase's line of the table.
pub fn print_first_tokens(phase: &str, first: &FirstTokens) {
    let (median, late) = (first.quantile(0.5), first.quantile(0.99));
    println!(
        "{phase:<15} {:>6} chats   first token p50 {median:>7.0} ms   p99 {late:>7.0} ms",
        first.count()
    );
}
