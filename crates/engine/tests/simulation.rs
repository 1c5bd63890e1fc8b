//! Thousands of seeded scenarios with arrivals, departures, shortages and faults; see `ropeway_testkit::chaos` for what
//! each of them checks. A seed that fails is printed with the command that replays it.

use std::panic::{AssertUnwindSafe, catch_unwind};

use ropeway_testkit::chaos::{self, Outcome};

/// Scenarios in a test run: some 20 seconds on one core.
const SEEDS: u64 = 4000;

/// The seed to replay alone, with every step printed.
const REPLAY: &str = "ROPEWAY_SEED";

#[test]
fn every_rule_holds_in_every_scenario() {
    be_quiet_about_poison();
    if let Ok(seed) = std::env::var(REPLAY) {
        let seed = seed.parse().expect("a number");
        println!("{:#?}", chaos::run(seed, |record| println!("{record}")));
        return;
    }
    let mut all = Outcome::default();
    for seed in 0..SEEDS {
        all = all.and(checked(seed));
    }
    println!("{all:#?}");
    let Outcome { rejected, completed, timed_out, failed, dropped, left, preempted, cached, .. } = all;
    let [waiting, prefilling, streaming] = left;
    let happened =
        [rejected, completed, timed_out, failed, dropped, waiting, prefilling, streaming, preempted, cached];
    assert!(happened.iter().all(|count| *count > SEEDS / 20), "not everything happened: {all:?}");
}

#[test]
fn the_same_seed_gives_the_same_trace() {
    be_quiet_about_poison();
    for seed in 0..SEEDS / 20 {
        assert_eq!(chaos::run(seed, |_| ()), chaos::run(seed, |_| ()), "seed {seed}");
    }
}

fn checked(seed: u64) -> Outcome {
    catch_unwind(AssertUnwindSafe(|| chaos::run(seed, |_| ()))).unwrap_or_else(|_| {
        panic!(
            "seed {seed} fails; replay it with\n  \
             {REPLAY}={seed} cargo test -p ropeway-engine --test simulation every_rule -- --nocapture"
        )
    })
}

/// The mock's own panics are part of the scenarios.
fn be_quiet_about_poison() {
    static ONCE: std::sync::Once = std::sync::Once::new();
    ONCE.call_once(|| {
        let usual = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            let poison =
                info.payload().downcast_ref::<String>().is_some_and(|text| text.ends_with("is poison"));
            if !poison {
                usual(info);
            }
        }));
    });
}
