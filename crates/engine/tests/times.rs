//! What a step's record says about time: the host's and the device's apart.

use std::sync::Arc;
use std::time::Duration;

use ropeway_engine::cost::CostModel;
use ropeway_engine::{Engine, Request, Settings, StepRecord, Stepped};
use ropeway_executor::{Batch, Executor, ExecutorError, Guides, Limits, StepOutput};
use ropeway_testkit::{MockExecutor, SimClock};

const LAUNCH: Duration = Duration::from_millis(2);

/// An executor whose launches take the host some time.
struct SlowLaunches {
    inner: MockExecutor,
    clock: SimClock,
}

impl Executor for SlowLaunches {
    fn limits(&self) -> Limits {
        self.inner.limits()
    }

    fn launch(&mut self, batch: &Batch, guides: &dyn Guides) -> Result<(), ExecutorError> {
        self.clock.advance(LAUNCH);
        self.inner.launch(batch, guides)
    }

    fn collect(&mut self, guides: &dyn Guides, output: &mut StepOutput) -> Result<(), ExecutorError> {
        self.inner.collect(guides, output)
    }
}

/// The records of a request's steps, which take 10 ms and 1 ms per token.
fn records(ahead: usize) -> Vec<StepRecord> {
    let clock = SimClock::new();
    let cost = CostModel::known([0.010, 0.001, 0.0, 0.0, 0.0]);
    let inner = MockExecutor::new(Limits { ahead, ..Limits::EXAMPLE }).with_time(clock.clone(), cost);
    let executor = SlowLaunches { inner, clock: clock.clone() };
    let (mut engine, handle) = Engine::new(Box::new(executor), Arc::new(clock), &Settings::default());
    let mut stream = handle.submit(Request::greedy(vec![1, 2, 3], 6)).expect("a request");
    while engine.step() == Stepped::Ran {}
    assert_eq!(stream.collect().tokens.len(), 6);
    handle.board().records_after(0)
}

#[test]
fn a_record_tells_the_host_s_time_from_the_device_s_whether_they_overlap_or_not() {
    for ahead in [0, 1] {
        for record in records(ahead) {
            let tokens = (record.prefill_tokens + record.decode_tokens) as u32;
            assert_eq!(
                record.device,
                Duration::from_millis(10) + tokens * Duration::from_millis(1),
                "{record}"
            );
            assert_eq!((record.launch, record.host()), (LAUNCH, LAUNCH), "{ahead}: {record}");
        }
    }
}

#[test]
fn launches_are_hidden_behind_the_device_where_a_step_is_launched_ahead() {
    let wall = |records: &[StepRecord]| records.iter().map(|record| record.execute).sum::<Duration>();
    let busy = |records: &[StepRecord]| records.iter().map(|record| record.device).sum::<Duration>();
    let (one_by_one, overlapped) = (records(0), records(1));
    assert_eq!(wall(&one_by_one), busy(&one_by_one) + one_by_one.len() as u32 * LAUNCH);
    assert!(wall(&overlapped) < busy(&overlapped) + overlapped.len() as u32 * LAUNCH);
}
