//! Recorded traffic on a simulated machine.

use std::time::Duration;

use ropeway_engine::cost::CostModel;
use ropeway_engine::{ClientId, Request, Settings, Stepped};
use ropeway_executor::Limits;

use super::{Arrival, Found, Machine, Run};
use crate::trace::prompt::VOCAB;
use crate::trace::{BLOCK, Recorded, Trace};

/// How a trace is replayed.
#[derive(Clone, Copy, Debug)]
pub struct Replay {
    /// How many times faster than it was recorded.
    pub speed: f64,
    /// Longest time from a request's arrival to its end; then it has failed.
    pub timeout: Duration,
}

impl Replay {
    /// The requests of a trace at their times. Prompts are made when they are due, so that they take memory one at a time.
    pub fn arrivals(self, trace: &Trace) -> impl Iterator<Item = Arrival> {
        trace.requests().map(move |recorded| {
            let at = recorded.at.div_f64(self.speed);
            Arrival { at, request: Request { deadline: Some(self.timeout), ..request(&recorded) } }
        })
    }
}

/// What is asked. Nothing is known of who asked: everyone is a client of their own.
fn request(recorded: &Recorded<'_>) -> Request {
    let client = ClientId::account(recorded.number as u64);
    Request { client, ..Request::greedy(recorded.prompt(), recorded.answer_tokens) }
}

/// What the engine finds of every prompt in memory without end, if each is answered before the next one comes.
///
/// Answers are cut to a token: no prompt of a trace is known to repeat them.
pub fn endless(trace: &Trace, mut on_progress: impl FnMut(u64)) -> Found {
    let longest = trace.requests().map(|recorded| recorded.prompt_tokens).max().unwrap_or(1);
    let limits = Limits {
        block_tokens: BLOCK,
        blocks: blocks(trace),
        context: longest + 1,
        step_tokens: longest + 1,
        step_rows: 1,
        vocab: VOCAB,
        ..Limits::EXAMPLE
    };
    let cost = CostModel::known([0.0; 5]);
    let machine = Machine { limits, cost, settings: Settings::default(), acceptance: None, disk: None };
    let mut run = Run::new(&machine);
    for recorded in trace.requests() {
        let now = recorded.at;
        run.submit(Arrival { at: now, request: Request { max_tokens: Some(1), ..request(&recorded) } }, now);
        while run.step() != Stepped::Idle {}
        on_progress(recorded.number as u64 + 1);
    }
    run.conclude().found
}

/// Blocks that hold all prompts and answers of a trace, each by itself.
pub fn blocks(trace: &Trace) -> usize {
    let tokens = |recorded: Recorded<'_>| recorded.prompt_tokens + recorded.answer_tokens + 1;
    trace.requests().map(|recorded| tokens(recorded).div_ceil(BLOCK)).sum()
}

#[cfg(test)]
mod tests {
    use std::fmt::Write;

    use ropeway_engine::Speculation;

    use super::super::{Disk, DiskModel, Report, simulate};
    use super::*;
    use crate::rng::Rng;
    use crate::trace::endless::Endless;

    /// Some requests of a conversation trace (`kvcache-ai/Mooncake`, Apache-2.0).
    const EXCERPT: &str = include_str!("../../tests/traces/mooncake_excerpt.jsonl");

    fn excerpt() -> Trace {
        Trace::read("excerpt", EXCERPT.as_bytes(), None).unwrap()
    }

    /// Conversations that go on at random, some of them from the same first block.
    fn made_up(seed: u64) -> Trace {
        let mut rng = Rng::new(seed);
        let mut talks: Vec<Vec<u64>> = Vec::new();
        let (mut text, mut fresh) = (String::new(), 10);
        for number in 0..60 {
            let mut ids = match rng.below(3) {
                0 if !talks.is_empty() => rng.pick(&talks),
                1 => vec![rng.below(3) as u64],
                _ => Vec::new(),
            };
            for _ in 0..rng.between(1, 4) {
                fresh += 1;
                ids.push(fresh);
            }
            let missing = rng.below(BLOCK);
            let tokens = ids.len() * BLOCK - if rng.chance(0.3) { 0 } else { missing };
            let (at, answer) = (1000 * number, rng.between(1, 40));
            writeln!(text, "{{\"timestamp\": {at}, \"input_length\": {tokens}, \"output_length\": {answer}, \"hash_ids\": {ids:?}}}").unwrap();
            // What comes next goes on after the whole blocks.
            ids.truncate(tokens / BLOCK);
            talks.push(ids);
        }
        Trace::read("made up", text.as_bytes(), None).unwrap()
    }

    fn machine(blocks: usize, disk: Option<usize>) -> Machine {
        let limits = Limits {
            block_tokens: BLOCK,
            block_bytes: 1 << 20,
            blocks,
            context: 8192,
            step_tokens: 2048,
            step_rows: 32,
            vocab: VOCAB,
            ..Limits::EXAMPLE
        };
        let model = |blocks| DiskModel {
            blocks,
            latency: Duration::from_micros(100),
            read: Duration::from_millis(1),
            write: Duration::from_micros(10),
            queue: 1000,
        };
        let disk = disk.map(|blocks| Disk { model: model(blocks), copy: Duration::from_micros(50) });
        let settings = Settings { speculation: Speculation::Off, ..Settings::default() };
        let cost = CostModel::known([0.005, 1e-4, 1e-4, 1e-9, 1e-8]);
        Machine { limits, cost, settings, acceptance: None, disk }
    }

    fn replayed(trace: &Trace, machine: &Machine, speed: f64) -> Report {
        let replay = Replay { speed, timeout: Duration::from_secs(600) };
        simulate(machine, replay.arrivals(trace), |_| {})
    }

    #[test]
    fn an_engine_with_endless_memory_finds_what_the_trace_says() {
        let traces = std::iter::once(excerpt()).chain((0..20).map(made_up));
        for (seed, trace) in traces.enumerate() {
            let counted = Endless::count(&trace);
            let found = endless(&trace, |_| {});
            assert!(counted.findable > 0, "a trace to find something in");
            assert_eq!(
                found,
                Found { blocks: counted.blocks, memory: counted.findable, disk: 0 },
                "trace {seed}"
            );
        }
    }

    #[test]
    fn memory_and_disk_together_find_what_endless_memory_does() {
        for seed in 0..10 {
            // One at a time: nothing is evicted while others need it, and everything is stored in time.
            let trace = made_up(seed);
            let counted = Endless::count(&trace);
            let small = 2 + trace.requests().map(|one| one.prompt_tokens).max().unwrap() / BLOCK;
            let without = replayed(&trace, &machine(small, None), 0.01).found;
            let with = replayed(&trace, &machine(small, Some(10_000)), 0.01).found;
            assert!(without.memory < counted.findable && without.disk == 0, "{without:?} of {counted:?}");
            assert!(with.disk > 0);
            assert_eq!(
                (with.blocks, with.memory + with.disk),
                (counted.blocks, counted.findable),
                "trace {seed}"
            );
        }
    }

    #[test]
    fn the_same_replay_gives_the_same_report_and_answers_everyone() {
        for disk in [None, Some(50)] {
            let report = || replayed(&made_up(3), &machine(40, disk), 20.0);
            let (one, other) = (report(), report());
            assert_eq!(format!("{one:?}"), format!("{other:?}"));
            let everyone = one.everyone();
            assert_eq!((everyone.answered, everyone.rejected, everyone.failed), (60, 0, 0));
        }
    }

    #[test]
    fn requests_whose_time_is_over_have_failed() {
        let replay = Replay { speed: 1000.0, timeout: Duration::from_millis(500) };
        let report = simulate(&machine(40, None), replay.arrivals(&made_up(1)), |_| {});
        let everyone = report.everyone();
        assert!(everyone.failed > 0 && everyone.answered > 0, "{everyone:?}");
        assert_eq!(everyone.failed + everyone.answered, 60);
    }
}
