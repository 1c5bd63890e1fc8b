//! The search for the best number of threads, on a made-up machine with a made-up clock.

use std::time::Duration;

use ropeway_machine::tuner::{RECHECK, Tuner};

const LAYERS: usize = 30;

/// Runs steps of so many tokens; `cost` is the time of a layer by its threads. Gives the threads of every step's first
/// and last layer.
fn run(tuner: &mut Tuner, tokens: usize, steps: usize, cost: impl Fn(usize) -> f64) -> Vec<(usize, usize)> {
    let mut now = Duration::ZERO;
    let mut used = Vec::new();
    for _ in 0..steps {
        let first = tuner.begin(tokens);
        let mut threads = first;
        for _ in 0..LAYERS {
            threads = tuner.start_layer(now).unwrap_or(threads);
            now += Duration::from_secs_f64(cost(threads));
        }
        tuner.end();
        used.push((first, threads));
    }
    used
}

/// Sixteen hardware threads on eight cores: a small step is fastest on the cores alone.
fn small_step(threads: usize) -> f64 {
    let threads = threads as f64;
    1e-4 / threads.min(8.0) + 3e-6 * (threads - 8.0).max(0.0) + 1e-6 * threads
}

/// A large step gains from every thread.
fn large_step(threads: usize) -> f64 {
    2e-3 / threads as f64
}

#[test]
fn small_steps_settle_on_the_cores_and_large_ones_keep_all_threads() {
    let mut tuner = Tuner::new(16, LAYERS);
    run(&mut tuner, 512, 12, large_step);
    assert!(tuner.is_settled(512));
    assert_eq!(tuner.best(512), 16);
    run(&mut tuner, 1, 16, small_step);
    assert!(tuner.is_settled(1));
    assert_eq!(tuner.best(1), 8);
    assert_eq!((tuner.best(512), tuner.best(300), tuner.best(700)), (16, 16, 16));
}

#[test]
fn a_new_bucket_starts_from_the_nearest_one() {
    let mut tuner = Tuner::new(16, LAYERS);
    run(&mut tuner, 1, 16, small_step);
    assert_eq!(tuner.begin(2), 8);
    assert_eq!(tuner.best(5), 8);
}

#[test]
fn a_clearly_slower_number_is_tried_once_and_in_half_of_a_step() {
    let mut tuner = Tuner::new(16, LAYERS);
    let used = run(&mut tuner, 512, 20, large_step);
    assert_eq!(used.iter().filter(|&&(first, last)| first == 8 || last == 8).count(), 1);
    assert!(used.iter().all(|&(first, last)| first.min(last) >= 8), "{used:?}");
    assert_eq!(used.last(), Some(&(16, 16)));
}

#[test]
fn differences_within_the_noise_change_nothing() {
    let mut tuner = Tuner::new(8, LAYERS);
    run(&mut tuner, 8, 40, |threads| 1e-4 * if threads == 4 { 0.985 } else { 1.0 });
    assert!(tuner.is_settled(8));
    assert_eq!(tuner.best(8), 8);
}

#[test]
fn a_single_interrupted_trial_decides_nothing() {
    let mut tuner = Tuner::new(16, LAYERS);
    let calls = std::cell::Cell::new(0);
    // The first trial makes the challenger look slower than the best, though not clearly.
    run(&mut tuner, 1, 20, |threads| {
        calls.set(calls.get() + 1);
        small_step(threads) * if threads == 8 && calls.get() <= LAYERS { 2.9 } else { 1.0 }
    });
    assert_eq!(tuner.best(1), 8);
}

#[test]
fn the_search_repeats_after_a_long_time_and_finds_what_changed() {
    let mut tuner = Tuner::new(16, LAYERS);
    run(&mut tuner, 1, 16, small_step);
    assert_eq!(tuner.best(1), 8);
    let used = run(&mut tuner, 1, RECHECK as usize + 16, large_step);
    assert!(used[..1000].iter().all(|&threads| threads == (8, 8)));
    assert_eq!(tuner.best(1), 16);
}

#[test]
fn a_disturbed_step_is_not_measured() {
    let mut tuner = Tuner::new(16, LAYERS);
    for _ in 0..50 {
        tuner.begin(1);
        tuner.start_layer(Duration::ZERO);
        tuner.disturb();
        tuner.end();
    }
    assert!(!tuner.is_settled(1));
    assert_eq!(tuner.best(1), 16);
}

#[test]
fn two_threads_and_few_layers_leave_nothing_to_choose() {
    for mut tuner in [Tuner::new(1, LAYERS), Tuner::new(2, LAYERS), Tuner::new(16, 4)] {
        let all = tuner.begin(1);
        assert!(tuner.is_settled(1));
        assert_eq!(tuner.best(1), all);
        assert_eq!(tuner.start_layer(Duration::ZERO), None);
        tuner.end();
    }
}
