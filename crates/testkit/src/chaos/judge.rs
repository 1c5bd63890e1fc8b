//! What the reader of one request expects, and whether it gets it.

use std::time::Duration;

use ropeway_engine::request::room;
use ropeway_engine::{Event, FinishReason, Usage};

use super::Outcome;
use super::scenario::{Leave, Scenario};
use crate::MockExecutor;
use crate::readers::Reader;

/// One sequence of a request, as its reader sees it.
#[derive(Clone, Debug)]
struct Answer {
    tokens: Vec<u32>,
    /// What it would get alone, without regard to end tokens.
    expected: Vec<u32>,
    finished: bool,
}

/// One request, as its reader sees it.
#[derive(Clone, Debug)]
pub struct Watched {
    /// Its place among the scenario's intents.
    pub index: usize,
    submitted: Duration,
    leave: Option<Leave>,
    prefilled: usize,
    /// Prompt tokens that were scored.
    scored: usize,
    answers: Vec<Answer>,
}

impl Watched {
    pub fn new(scenario: &Scenario, index: usize, now: Duration) -> Self {
        let intent = &scenario.intents[index];
        let request = &intent.request;
        let longest = room(&scenario.limits) - request.prompt.len();
        let count = request.max_tokens.map_or(longest, |most| most.min(longest));
        let answer = |sequence: usize| {
            let seed = request.params.seed.0.wrapping_add(sequence as u64);
            let expected = MockExecutor::expected(&scenario.limits, &request.prompt, seed, count);
            Answer { tokens: Vec::new(), expected, finished: false }
        };
        let answers = (0..request.sequences()).map(answer).collect();
        Self { index, submitted: now, leave: intent.leave, prefilled: 0, scored: 0, answers }
    }

    /// Sequences that have not ended.
    pub fn open(&self) -> usize {
        self.answers.iter().filter(|answer| !answer.finished).count()
    }

    /// 0 waiting, 1 prefilling, 2 streaming, as far as its reader can know.
    pub fn state(&self) -> usize {
        if self.answers.iter().any(|answer| !answer.tokens.is_empty()) {
            2
        } else {
            usize::from(self.prefilled > 0)
        }
    }

    pub fn loses_patience(&self, now: Duration) -> bool {
        matches!(self.leave, Some(Leave::After(time)) if now >= self.submitted + time)
    }

    /// Takes in an event, and checks it.
    pub fn hear(
        &mut self,
        scenario: &Scenario,
        event: Event,
        now: Duration,
        outcome: &mut Outcome,
    ) -> Reader {
        match event {
            Event::Placed { upstream, .. } => panic!("the engine of this process sent work to {upstream}"),
            Event::Prefilled { computed, cached } => {
                assert!(cached <= computed && computed <= scenario.intents[self.index].request.prompt.len());
                outcome.note(computed as u64);
                self.prefilled = computed;
                match self.leave {
                    Some(Leave::OnPrefill) => Reader::Leaves,
                    Some(Leave::Drop(sequence)) => Reader::Drops(sequence),
                    _ => Reader::Stays,
                }
            }
            Event::Scored(sampled) => {
                let prompt = &scenario.intents[self.index].request.prompt;
                self.scored += 1;
                assert_eq!(
                    Some(&sampled.token),
                    prompt.get(self.scored),
                    "scores in the order of the prompt"
                );
                Reader::Stays
            }
            Event::Token { sequence, sampled, .. } => {
                outcome.note(u64::from(sampled.token));
                self.hear_token(sequence as usize, sampled.token)
            }
            Event::Finished { sequence, reason, usage } => {
                outcome.note(now.as_nanos() as u64);
                outcome.preempted += u64::from(usage.preemptions);
                self.hear_end(scenario, sequence as usize, &reason, &usage, outcome);
                Reader::Stays
            }
        }
    }

    fn hear_token(&mut self, sequence: usize, token: u32) -> Reader {
        let (index, leave) = (self.index, self.leave);
        let answer = &mut self.answers[sequence];
        assert!(!answer.finished, "request {index}: a token after the end");
        answer.tokens.push(token);
        let read = answer.tokens.len();
        assert!(
            answer.expected.starts_with(&answer.tokens),
            "request {index}.{sequence}: another text than alone"
        );
        match leave {
            Some(Leave::AfterTokens(most)) if read >= most => Reader::Leaves,
            _ => Reader::Stays,
        }
    }

    fn hear_end(
        &mut self,
        scenario: &Scenario,
        sequence: usize,
        reason: &FinishReason,
        usage: &Usage,
        outcome: &mut Outcome,
    ) {
        let request = &scenario.intents[self.index].request;
        let answer = &mut self.answers[sequence];
        assert!(!answer.finished, "request {}.{sequence} ended twice", self.index);
        answer.finished = true;
        let read = answer.tokens.len();
        let completed = matches!(reason, FinishReason::Length | FinishReason::End(_));
        let unscored = request.score_prompt.is_some() && self.scored + 1 < request.prompt.len();
        assert!(!(completed && unscored), "request {}: only {} tokens scored", self.index, self.scored);
        let why = match reason {
            FinishReason::Length => (read == answer.expected.len()).then_some(&mut outcome.completed),
            FinishReason::End(token) => {
                let ends_here = answer.expected.get(read) == Some(token) && request.ends.contains(token);
                ends_here.then_some(&mut outcome.completed)
            }
            // No scenario has a grammar.
            FinishReason::Complete => None,
            FinishReason::TimedOut => {
                let first = request.deadline.into_iter().chain(request.queue_timeout).min();
                first.is_some_and(|limit| usage.total >= limit).then_some(&mut outcome.timed_out)
            }
            FinishReason::Failed(_) => {
                let mut text = request.prompt.iter().chain(&answer.expected);
                let doomed = text.any(|token| scenario.is_poison(*token));
                doomed.then_some(&mut outcome.failed)
            }
            FinishReason::Cancelled => {
                let asked = self.leave == Some(Leave::Drop(sequence as u32));
                asked.then_some(&mut outcome.dropped)
            }
        };
        let Some(count) = why else {
            panic!("request {}.{sequence} ended after {read} tokens: {reason:?}, {usage:?}", self.index)
        };
        *count += 1;
    }
}

/// Seconds that all requests would take one after another, each alone and one token a step once it streams.
pub fn one_after_another(scenario: &Scenario) -> f64 {
    let (limits, cost) = (&scenario.limits, &scenario.truth);
    let longest = room(limits);
    let alone = |request: &ropeway_engine::Request| {
        let (prompt, most) = (request.prompt.len(), request.max_tokens.unwrap_or(longest));
        let new = most.min(longest.saturating_sub(prompt)) * request.sequences();
        let token = cost.alone(prompt, 1, 1) + cost.alone(longest, 1, 1);
        cost.alone(0, prompt, limits.step_tokens) + token * new as f64
    };
    scenario.intents.iter().map(|intent| alone(&intent.request)).sum()
}
