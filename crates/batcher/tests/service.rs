//! The service on real threads: what one job does to the others, which is nothing.

use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

use ropeway_batcher::{Batcher, Failed, Load, Rejected, Settings};

const SETTINGS: Settings = Settings { window: Duration::ZERO, max_batch: 32, max_tokens: 1000, queue: 8 };

/// A worker that says what it got and waits to be let go; doubles numbers, panics on 13.
fn gated() -> (Batcher<u32, u32>, Receiver<Vec<u32>>, Sender<()>) {
    let (said, hear) = channel();
    let (go, gate) = channel::<()>();
    let worker = move |jobs: &[u32]| {
        said.send(jobs.to_vec()).expect("the test listens");
        let _ = gate.recv();
        assert!(!jobs.contains(&13), "unlucky");
        jobs.iter().map(|job| job * 2).collect()
    };
    (Batcher::spawn("test", SETTINGS, worker), hear, go)
}

fn submit(batcher: &Batcher<u32, u32>, job: u32) -> ropeway_batcher::Answer<u32> {
    batcher.submit(job, Load { tokens: 1, ..Load::default() }).expect("room in the queue")
}

#[test]
fn what_comes_while_a_batch_runs_leaves_together() {
    let (batcher, hear, go) = gated();
    let first = submit(&batcher, 1);
    assert_eq!(hear.recv(), Ok(vec![1]));
    let others = [2, 3, 4].map(|job| submit(&batcher, job));
    go.send(()).expect("the worker waits");
    assert_eq!(first.wait(), Ok(2));
    assert_eq!(hear.recv(), Ok(vec![2, 3, 4]));
    go.send(()).expect("the worker waits");
    assert_eq!(others.map(ropeway_batcher::Answer::wait), [Ok(4), Ok(6), Ok(8)]);
}

#[test]
fn a_cancelled_job_is_not_computed_and_disturbs_nobody() {
    let (batcher, hear, go) = gated();
    let first = submit(&batcher, 1);
    assert_eq!(hear.recv(), Ok(vec![1]));
    let (kept, cancelled, last) = (submit(&batcher, 2), submit(&batcher, 3), submit(&batcher, 4));
    drop(cancelled);
    go.send(()).expect("the worker waits");
    assert_eq!(hear.recv(), Ok(vec![2, 4]));
    go.send(()).expect("the worker waits");
    assert_eq!((first.wait(), kept.wait(), last.wait()), (Ok(2), Ok(4), Ok(8)));
    assert_eq!(batcher.totals().cancelled, 1);
}

#[test]
fn a_job_that_panics_fails_alone() {
    let (batcher, hear, go) = gated();
    let first = submit(&batcher, 1);
    assert_eq!(hear.recv(), Ok(vec![1]));
    let jobs = [5, 13, 6].map(|job| submit(&batcher, job));
    // From here on nobody is stopped at the gate.
    drop(go);
    assert_eq!(first.wait(), Ok(2));
    assert_eq!(jobs.map(ropeway_batcher::Answer::wait), [Ok(10), Err(Failed::Panicked), Ok(12)]);
    while batcher.totals().batches < 2 {
        std::thread::yield_now();
    }
    let totals = batcher.totals();
    assert_eq!((totals.batches, totals.jobs, totals.failed), (2, 4, 1));
    let records = batcher.records_after(1);
    assert_eq!((records.len(), records[0].size, records[0].tokens, records[0].failed), (1, 3, 3, 1));
}

#[test]
fn a_full_queue_turns_jobs_down_at_once() {
    let (batcher, hear, go) = gated();
    let first = submit(&batcher, 1);
    assert_eq!(hear.recv(), Ok(vec![1]));
    let waiting: Vec<_> = (0..8).map(|job| submit(&batcher, job)).collect();
    assert_eq!(batcher.submit(9, Load::default()).err(), Some(Rejected::Full { waiting: 8 }));
    assert_eq!(batcher.totals().rejected, 1);
    drop(go);
    assert_eq!(first.wait(), Ok(2));
    assert!(waiting.into_iter().all(|answer| answer.wait().is_ok()));
}

#[test]
fn stopping_finishes_what_runs_and_fails_what_waits() {
    let (batcher, hear, go) = gated();
    let first = submit(&batcher, 1);
    assert_eq!(hear.recv(), Ok(vec![1]));
    let second = submit(&batcher, 2);
    batcher.stop();
    drop(go);
    assert_eq!(first.wait(), Ok(2));
    assert_eq!(second.wait(), Err(Failed::Stopped));
}
