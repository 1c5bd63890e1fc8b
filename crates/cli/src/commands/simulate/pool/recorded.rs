//! A trace as a source of requests.

use std::sync::Arc;
use std::time::Duration;

use ropeway_engine::{Class, ClientId};
use ropeway_testkit::trace::Trace;

use super::source::{Question, Source, Visit};

/// The requests of a trace, each of a client of its own: nothing is known of who asked.
#[derive(Debug)]
pub struct RecordedSource<'a> {
    trace: &'a Trace,
    speed: f64,
    timeout: Duration,
    next: usize,
    mean_answer: usize,
}

impl<'a> RecordedSource<'a> {
    /// A trace that is played so many times faster than it was recorded; requests that wait for longer than `timeout` fail.
    pub fn new(trace: &'a Trace, speed: f64, timeout: Duration) -> Self {
        let answers: usize = trace.requests().map(|recorded| recorded.answer_tokens).sum();
        Self { trace, speed, timeout, next: 0, mean_answer: answers / trace.len().max(1) }
    }
}

impl Source for RecordedSource<'_> {
    fn visit(&mut self) -> Option<Visit> {
        let recorded = self.trace.get(self.next)?;
        let who = self.next as u32;
        self.next += 1;
        Some(Visit { at: recorded.at.div_f64(self.speed), who })
    }

    fn ask(&mut self, who: u32) -> Question {
        let recorded = self.trace.get(who as usize).expect("only requests of the trace ask");
        let blocks: Arc<[u64]> = recorded.whole_blocks().collect();
        Question {
            client: ClientId::account(u64::from(who)),
            class: Class::Default,
            session: None,
            is_heavy: false,
            prompt: recorded.prompt_tokens,
            answer: recorded.answer_tokens,
            prompt_blocks: Arc::clone(&blocks),
            all_blocks: blocks,
        }
    }

    fn answered(&mut self, _: u32, _: Duration) -> Option<Duration> {
        None
    }

    fn gone(&mut self, _: u32) {}

    fn expected_answer(&self) -> usize {
        self.mean_answer
    }

    fn queue_timeout(&self) -> Option<Duration> {
        Some(self.timeout)
    }
}
