//! Runs a rule over many seeded scenarios, and turns a failure into the smallest scenario and the line that replays it.
//!
//! ```text
//! (nothing set)                     seeds 0, 1, 2, ...: the same in every run
//! ROPEWAY_SEEDS=100000              so many seeds from a random base, which is printed
//! ROPEWAY_REPLAY="17 -3..9 =1 /2"   this seed alone, edited, with every step printed
//! ```

use std::cell::{Cell, RefCell};
use std::hash::{BuildHasher, Hasher, RandomState};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Once;

use crate::shrink::{Edit, Shrink, Shrunk, shrink};

/// How many fresh seeds to run.
const SEEDS: &str = "ROPEWAY_SEEDS";

/// A seed and its edits, to be run alone.
const REPLAY: &str = "ROPEWAY_REPLAY";

/// Failing seeds after which no more are run.
const MOST_FAILURES: usize = 20;

/// A test of one rule.
#[derive(Clone, Copy, Debug)]
pub struct Trial {
    /// The integration test's file, without its extension.
    pub file: &'static str,
    /// The test's name.
    pub test: &'static str,
    /// Seeds of a usual run.
    pub seeds: u64,
}

impl Trial {
    /// Checks the scenarios of all seeds, and returns what `rule` gives for each. Panics if one fails, with the
    /// smallest failing scenario and a command that replays it.
    pub fn hold<S: Shrink, T>(
        &self,
        scenario: impl Fn(u64) -> S,
        rule: impl Fn(&S) -> Result<T, String>,
    ) -> Vec<T> {
        if let Ok(line) = std::env::var(REPLAY) {
            let edited = replayed(&line, &scenario);
            println!("{edited}");
            let verdict = caught(|| rule(&edited));
            return vec![verdict.unwrap_or_else(|failure| panic!("it still fails: {failure}"))];
        }
        let mut results = Vec::new();
        let mut failures: Vec<(u64, String)> = Vec::new();
        for seed in self.seeds() {
            match caught(|| rule(&scenario(seed))) {
                Ok(result) => results.push(result),
                Err(failure) => failures.push((seed, failure)),
            }
            if failures.len() == MOST_FAILURES {
                break;
            }
        }
        if let Some((seed, failure)) = failures.first() {
            let check = |smaller: &S| caught(|| rule(smaller)).map(drop);
            let shrunk = shrink(scenario(*seed), failure.clone(), check);
            panic!("{}", self.explain(&failures, &shrunk));
        }
        results
    }

    fn seeds(&self) -> std::ops::Range<u64> {
        let Ok(count) = std::env::var(SEEDS) else { return 0..self.seeds };
        let count: u64 = count.parse().expect("ROPEWAY_SEEDS is a number");
        // Short enough to type.
        let base = RandomState::new().build_hasher().finish() >> 24;
        println!("{}: {count} seeds from {base} on", self.test);
        base..base + count
    }

    fn explain<S: Shrink>(&self, failures: &[(u64, String)], shrunk: &Shrunk<S>) -> String {
        let Self { file, test, .. } = self;
        let Shrunk { scenario, edits, failure } = shrunk;
        let (seed, first) = &failures[0];
        let line = words(std::iter::once(seed.to_string()).chain(edits.iter().map(ToString::to_string)));
        let seeds = words(failures.iter().map(|(seed, _)| seed.to_string()));
        format!(
            "{} seeds fail: {seeds}\nseed {seed}: {first}\nmade smaller: {failure}\n{scenario}replay it with\n  \
             {REPLAY}=\"{line}\" cargo test -p ropeway-engine --test {file} {test} -- --exact --nocapture\n",
            failures.len()
        )
    }
}

fn words(words: impl Iterator<Item = String>) -> String {
    words.collect::<Vec<_>>().join(" ")
}

/// Whether one scenario is being replayed, so that every step should be printed.
pub fn is_replay() -> bool {
    std::env::var_os(REPLAY).is_some()
}

fn replayed<S: Shrink>(line: &str, scenario: impl Fn(u64) -> S) -> S {
    let mut words = line.split_whitespace();
    let seed = words.next().and_then(|seed| seed.parse().ok()).expect("ROPEWAY_REPLAY begins with a seed");
    words.fold(scenario(seed), |scenario, word| {
        let edit: Edit = word.parse().expect("ROPEWAY_REPLAY goes on with edits");
        edit.apply(&scenario).expect("an edit fits its scenario")
    })
}

thread_local! {
    static QUIET: Cell<bool> = const { Cell::new(false) };
    static LATEST: RefCell<String> = const { RefCell::new(String::new()) };
}

/// Calls `work`; a panic in it becomes an error with the panic's message and place, and is not printed.
pub fn caught<T>(work: impl FnOnce() -> Result<T, String>) -> Result<T, String> {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let usual = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            if QUIET.get() {
                LATEST.set(info.to_string());
            } else {
                usual(info);
            }
        }));
    });
    QUIET.set(true);
    let result = catch_unwind(AssertUnwindSafe(work));
    QUIET.set(false);
    result.unwrap_or_else(|_| Err(LATEST.take()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::liveness::{MachineSpec, RequestSpec, Scenario};

    /// As many requests as the seed says, the last of which has a long answer.
    fn scenario(seed: u64) -> Scenario {
        let request = |index: u64| RequestSpec::new(0.0, 10, if index + 1 == seed { 64 } else { 1 });
        Scenario::new(MachineSpec::fast(), (0..seed).map(request).collect())
    }

    fn no_answer_is_long(scenario: &Scenario) -> Result<usize, String> {
        let long = scenario.requests.iter().position(|request| request.answer > 20);
        long.map_or(Ok(scenario.requests.len()), |index| panic!("request {index} has a long answer"))
    }

    #[test]
    fn a_panic_becomes_the_smallest_scenario_and_a_line_that_gives_it_again() {
        let trial = Trial { file: "liveness", test: "some_rule", seeds: 9 };
        let failures: Vec<(u64, String)> = vec![(8, "request 7 has a long answer".into())];
        let check = |smaller: &Scenario| caught(|| no_answer_is_long(smaller)).map(drop);
        let shrunk = shrink(scenario(8), failures[0].1.clone(), check);
        let text = trial.explain(&failures, &shrunk);
        assert!(text.contains("request 0 has a long answer"), "{text}");
        let line = text.split('"').nth(1).expect("a line in quotes");
        let replayed = replayed(line, scenario);
        assert_eq!(replayed.requests, shrunk.scenario.requests);
        assert_eq!((replayed.requests.len(), replayed.requests[0].answer), (1, 32));
    }

    #[test]
    fn what_does_not_panic_is_returned() {
        assert_eq!(caught(|| no_answer_is_long(&scenario(0))), Ok(0));
        assert_eq!(caught(|| Err::<(), _>("no".into())), Err("no".into()));
    }
}
