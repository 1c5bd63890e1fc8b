//! What leaves when, in simulated time: arrivals and a worker with a cost per batch and per job.

use std::time::Duration;

use proptest::prelude::*;
use ropeway_batcher::{Collector, Decision, Load, Settings};
use ropeway_executor::Class;

fn ms(time: u64) -> Duration {
    Duration::from_millis(time)
}

fn us(time: u64) -> Duration {
    Duration::from_micros(time)
}

fn load(tokens: usize) -> Load {
    Load { tokens, class: Class::Default }
}

/// A batch as it left.
#[derive(Clone, Debug)]
struct Left {
    at: Duration,
    held: Duration,
    jobs: Vec<usize>,
    tokens: usize,
}

#[derive(Clone, Copy, Debug)]
struct Arrival {
    at: Duration,
    load: Load,
}

/// Runs the arrivals to the end; batches take `2 ms + 0.2 ms` a job.
fn simulate(settings: Settings, arrivals: &[Arrival]) -> Vec<Left> {
    let mut collector = Collector::new(settings);
    let (mut now, mut next, mut left) = (Duration::ZERO, 0, Vec::new());
    let admit = |collector: &mut Collector<usize>, next: &mut usize, until: Duration| {
        while *next < arrivals.len() && arrivals[*next].at <= until {
            let arrival = arrivals[*next];
            collector.push(*next, arrival.load, arrival.at).expect("room in the queue");
            *next += 1;
        }
    };
    loop {
        admit(&mut collector, &mut next, now);
        match collector.decide(now) {
            Decision::Leave => {
                let taken = collector.take(now);
                let jobs: Vec<usize> = taken.jobs.iter().map(|(job, _, _)| *job).collect();
                let tokens = taken.jobs.iter().map(|(_, load, _)| load.tokens).sum();
                let took = ms(2) + us(200) * jobs.len() as u32;
                left.push(Left { at: now, held: taken.held, jobs, tokens });
                now += took;
                admit(&mut collector, &mut next, now);
                collector.finished(now);
            }
            Decision::WaitUntil(until) => {
                assert!(until > now, "a wait must end later");
                let arrival = arrivals.get(next).map_or(until, |arrival| arrival.at);
                now = arrival.min(until);
            }
            Decision::Idle if next < arrivals.len() => now = arrivals[next].at,
            Decision::Idle => return left,
        }
    }
}

fn at(times: &[u64]) -> Vec<Arrival> {
    times.iter().map(|&time| Arrival { at: us(time), load: load(20) }).collect()
}

#[test]
fn a_lone_job_leaves_at_once() {
    let left = simulate(Settings::default(), &at(&[500, 50_000, 120_000]));
    assert_eq!(left.len(), 3);
    assert!(left.iter().all(|batch| batch.held == Duration::ZERO), "{left:?}");
}

#[test]
fn ten_at_once_leave_in_two_batches() {
    let left =
        simulate(Settings::default(), &at(&[1000, 1001, 1002, 1003, 1004, 1005, 1006, 1007, 1008, 1009]));
    let sizes: Vec<usize> = left.iter().map(|batch| batch.jobs.len()).collect();
    assert_eq!(sizes, [1, 9]);
    assert_eq!(left[1].held, Duration::ZERO, "everyone who was lately here is here");
}

#[test]
fn a_batch_of_one_switches_batching_off() {
    let settings = Settings { max_batch: 1, ..Settings::default() };
    let left = simulate(settings, &at(&[0, 0, 0, 0, 0]));
    assert!(left.len() == 5 && left.iter().all(|batch| batch.held == Duration::ZERO));
}

#[test]
fn a_full_batch_leaves_at_once_by_count_and_by_tokens() {
    let mut collector = Collector::new(Settings { max_batch: 4, max_tokens: 100, ..Settings::default() });
    for job in 0..4 {
        collector.push(job, load(1), ms(1)).expect("room");
    }
    assert_eq!(collector.decide(ms(1)), Decision::Leave);
    let mut collector = Collector::new(Settings { max_tokens: 100, ..Settings::default() });
    collector.push(0, load(100), ms(1)).expect("room");
    assert_eq!(collector.decide(ms(1)), Decision::Leave);
}

/// Clients that each ask again a little after their answer: what a busy service sees.
fn closed_loop(settings: Settings, clients: usize, think: impl Fn(usize, usize) -> Duration) -> Vec<Left> {
    let mut collector = Collector::new(settings);
    let mut asks: Vec<(Duration, usize)> = (0..clients).map(|client| (us(client as u64), client)).collect();
    let (mut now, mut left) = (Duration::ZERO, Vec::new());
    while left.len() < 60 {
        asks.sort();
        while asks.first().is_some_and(|(at, _)| *at <= now) {
            let (at, client) = asks.remove(0);
            collector.push(client, load(20), at).expect("room");
        }
        let next = asks.first().map(|(at, _)| *at);
        match collector.decide(now) {
            Decision::Leave => {
                let taken = collector.take(now);
                let jobs: Vec<usize> = taken.jobs.iter().map(|(job, _, _)| *job).collect();
                let end = now + ms(2) + us(200) * jobs.len() as u32;
                asks.extend(jobs.iter().map(|&client| (end + think(client, left.len()), client)));
                asks.sort();
                while asks.first().is_some_and(|(at, _)| *at <= end) {
                    let (at, client) = asks.remove(0);
                    collector.push(client, load(20), at).expect("room");
                }
                collector.finished(end);
                left.push(Left { at: now, held: taken.held, tokens: 0, jobs });
                now = end;
            }
            Decision::WaitUntil(until) => now = next.map_or(until, |next| next.min(until)),
            Decision::Idle => now = next.expect("somebody comes back"),
        }
    }
    left
}

#[test]
fn clients_that_come_back_quickly_travel_together() {
    let think = |client: usize, round: usize| us(300 + ((client * 37 + round * 11) % 400) as u64);
    let left = closed_loop(Settings::default(), 16, think);
    let later = &left[10..];
    let mean = later.iter().map(|batch| batch.jobs.len()).sum::<usize>() as f64 / later.len() as f64;
    let never = closed_loop(Settings { window: Duration::ZERO, ..Settings::default() }, 16, think);
    let never = &never[10..];
    let mean_without = never.iter().map(|batch| batch.jobs.len()).sum::<usize>() as f64 / never.len() as f64;
    println!("jobs a batch: {mean:.1} with the window, {mean_without:.1} without");
    assert!(mean > 14.0 && mean > mean_without, "{mean} {mean_without}");
}

#[test]
fn a_client_alone_never_waits_for_company() {
    let left = closed_loop(Settings::default(), 1, |_, _| us(700));
    assert!(left.iter().all(|batch| batch.held == Duration::ZERO), "{left:?}");
}

#[test]
fn less_urgent_jobs_wait_but_not_for_ever() {
    let mut collector = Collector::new(Settings { max_batch: 2, ..Settings::default() });
    let low = Load { tokens: 1, class: Class::Bulk };
    let high = Load { tokens: 1, class: Class::Interactive };
    collector.push(999, low, ms(0)).expect("room");
    for round in 0..20 {
        let now = ms(1 + round);
        for job in 0..2 {
            collector.push(round as usize * 2 + job, high, now).expect("room");
        }
        let taken: Vec<usize> = collector.take(now).jobs.into_iter().map(|(job, _, _)| job).collect();
        if taken.contains(&999) {
            assert_eq!(round, 8, "passed over eight times, then first");
            return;
        }
    }
    panic!("the bulk job starved");
}

#[test]
fn a_full_queue_gives_the_job_back() {
    let mut collector = Collector::new(Settings { queue: 2, ..Settings::default() });
    assert_eq!(collector.push('a', load(1), ms(0)), Ok(()));
    assert_eq!(collector.push('b', load(1), ms(0)), Ok(()));
    assert_eq!(collector.push('c', load(1), ms(0)), Err('c'));
}

fn arrival() -> impl Strategy<Value = (u64, usize, u8)> {
    (0..3000u64, 1..120usize, 0..3u8)
}

proptest! {
    #[test]
    fn everybody_leaves_once_within_the_limits_and_the_window(
        gaps in prop::collection::vec(arrival(), 1..120),
        max_batch in 1..20usize,
        max_tokens in 1..300usize,
        window in 0..20u64,
    ) {
        let mut now = 0;
        let arrivals: Vec<Arrival> = gaps.iter().map(|&(gap, tokens, class)| {
            now += gap;
            let class = Class::ALL[usize::from(class)];
            Arrival { at: us(now), load: Load { tokens, class } }
        }).collect();
        let settings = Settings { window: ms(window), max_batch, max_tokens, queue: 1000 };
        let left = simulate(settings, &arrivals);
        let mut seen: Vec<usize> = left.iter().flat_map(|batch| batch.jobs.clone()).collect();
        seen.sort_unstable();
        prop_assert_eq!(seen, (0..arrivals.len()).collect::<Vec<_>>());
        for batch in &left {
            prop_assert!(batch.jobs.len() <= max_batch);
            prop_assert!(batch.jobs.len() == 1 || batch.tokens <= max_tokens);
            prop_assert!(batch.held <= ms(window), "held {:?}", batch.held);
            prop_assert!(batch.jobs.iter().all(|&job| arrivals[job].at <= batch.at));
        }
    }

    #[test]
    fn without_a_window_a_free_worker_never_waits(gaps in prop::collection::vec(0..3000u64, 1..80)) {
        let times: Vec<u64> = gaps.iter().scan(0, |now, gap| { *now += gap; Some(*now) }).collect();
        let left = simulate(Settings { window: Duration::ZERO, ..Settings::default() }, &at(&times));
        prop_assert!(left.iter().all(|batch| batch.held == Duration::ZERO));
    }

    #[test]
    fn equal_jobs_leave_in_the_order_of_arrival(gaps in prop::collection::vec(0..900u64, 1..80), max_batch in 1..9usize) {
        let times: Vec<u64> = gaps.iter().scan(0, |now, gap| { *now += gap; Some(*now) }).collect();
        let left = simulate(Settings { max_batch, ..Settings::default() }, &at(&times));
        let order: Vec<usize> = left.iter().flat_map(|batch| batch.jobs.clone()).collect();
        prop_assert_eq!(order, (0..times.len()).collect::<Vec<_>>());
    }
}
