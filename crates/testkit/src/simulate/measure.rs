//! What the scheduler itself costs: the real engine on the real clock, over an executor that takes no time.

use std::sync::Arc;
use std::time::Duration;

use ropeway_engine::cost::CostModel;
use ropeway_engine::{ClientId, Engine, Request, Settings, Speculation, StepRecord, SystemClock};
use ropeway_executor::Limits;

use super::TimedExecutor;
use crate::readers::{Reader, Readers};

/// Steps before the measured ones.
const WARM_UP: usize = 100;

/// Tokens that every stream holds when the measurement begins, about.
const PROMPT: usize = 100;

/// What a step costs beside the forward pass.
#[derive(Clone, Copy, Debug)]
pub struct Overhead {
    /// Streams that got a token.
    pub running: usize,
    /// Requests that waited.
    pub waiting: usize,
    /// Median time to take in, dismiss and plan.
    pub plan: Duration,
    /// Median time to commit and publish.
    pub commit: Duration,
}

/// Measures `steps` steps with `running` streams and `waiting` requests that find no row.
pub fn overhead(running: usize, waiting: usize, steps: usize) -> Overhead {
    let answer = WARM_UP + 2 * steps + running;
    let limits = Limits {
        block_tokens: 32,
        blocks: running * (PROMPT + answer).div_ceil(32) + running,
        context: PROMPT + answer + 1,
        step_tokens: 512.max(running),
        step_rows: running,
        vocab: 1 << 31,
        ..Limits::EXAMPLE
    };
    let clock = Arc::new(SystemClock::start());
    let executor = TimedExecutor::new(limits, CostModel::default(), None);
    // Every stream gets one token of a step, by which its steps are told from others. No client may fill the queue, so that there are more places than requests.
    let settings =
        Settings { queue: 2 * (running + waiting), speculation: Speculation::Off, ..Settings::default() };
    let (mut engine, handle) = Engine::new(Box::new(executor), clock, &settings);
    let mut readers = Readers::default();
    for number in 0..running + waiting {
        let request = Request {
            client: ClientId::account(number as u64 % 10),
            ..Request::greedy(vec![number as u32; PROMPT], answer)
        };
        readers.add(handle.submit(request).expect("the queue has room for all"), ());
    }
    let mut records: Vec<StepRecord> = Vec::new();
    while records.len() < WARM_UP + steps {
        engine.step();
        readers.read(|(), _| Reader::Stays);
        let latest = handle.board().records_after(records.last().map_or(0, |record| record.step));
        records.extend(latest.into_iter().filter(|record| record.decode_tokens == running));
    }
    let measured = &records[WARM_UP..];
    let median = |time: fn(&StepRecord) -> Duration| {
        let mut times: Vec<_> = measured.iter().map(time).collect();
        times.sort_unstable();
        times[times.len() / 2]
    };
    Overhead {
        running,
        waiting: engine.roster().waiting().len(),
        plan: median(|record| record.plan),
        commit: median(|record| record.commit),
    }
}
