//! Thousands of seeded scenarios with arrivals, departures, shortages and faults; see `ropeway_testkit::chaos` for what
//! each of them checks. A seed that fails is made smaller and printed with the command that replays it.

use ropeway_testkit::chaos::{self, Outcome, Scenario};
use ropeway_testkit::trial::Trial;

/// Scenarios in a test run: some 20 seconds on one core.
const SEEDS: u64 = 4000;

#[test]
fn every_rule_holds_in_every_scenario() {
    let trial = Trial { file: "simulation", test: "every_rule_holds_in_every_scenario", seeds: SEEDS };
    let outcomes = trial.hold(Scenario::seeded, |scenario| Ok(chaos::run(scenario)));
    let count = outcomes.len() as u64;
    let all = outcomes.into_iter().fold(Outcome::default(), Outcome::and);
    println!("{all:#?}");
    let Outcome { rejected, completed, timed_out, failed, dropped, left, preempted, .. } = all;
    let [waiting, prefilling, streaming] = left;
    let happened = [
        [rejected, completed, timed_out, failed, dropped, preempted, all.fetched],
        [waiting, prefilling, streaming, all.cached, all.accepted, all.refuted, all.failed_transfers],
    ]
    .concat();
    let enough = count < SEEDS || happened.iter().all(|happened| *happened > count / 20);
    assert!(enough, "not everything happened: {all:?}");
}

#[test]
fn the_same_seed_gives_the_same_trace() {
    let trial = Trial { file: "simulation", test: "the_same_seed_gives_the_same_trace", seeds: SEEDS / 20 };
    trial.hold(Scenario::seeded, |scenario| {
        let (first, second) = (chaos::run(scenario), chaos::run(scenario));
        if first == second { Ok(()) } else { Err(format!("{first:?} and then {second:?}")) }
    });
}
