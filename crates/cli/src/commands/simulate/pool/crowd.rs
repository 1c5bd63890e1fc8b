//! Users with conversations, made up by a seed.
//!
//! ```text
//! chat   60 %   an application's instructions, then turns: each prompt is the one before, its answer, and something new
//! api    30 %   an application's instructions and a document; once
//! bulk   10 %   a document; once
//! ```
//! Applications are used by Zipf's law: the first as often as the next two together. A turn follows the answer to the one before
//! after some seconds. What a user asks depends on the seed and the user alone, never on how they are served.

use std::time::Duration;

use ropeway_engine::cost::{CostModel, Work};
use ropeway_engine::{Class, ClientId};
use ropeway_testkit::rng::{Rng, mix};

use super::source::{Question, Source, Visit};

/// Tokens of a block, by whose names prompts are compared. Larger than servers use: a thousand caches have to fit into the
/// memory of the machine that simulates them.
pub const BLOCK: usize = 256;

/// Applications whose instructions many prompts begin with.
const APPLICATIONS: usize = 64;

/// Seconds from an answer to the next turn, half of them.
const THINKING: f64 = 5.0;

/// How likely another turn follows, and the most turns there are.
const GOES_ON: f64 = 2.0 / 3.0;
const MOST_TURNS: u32 = 20;

/// Longest document, and longest answer.
const LONGEST: f64 = 16_384.0;
const LONGEST_ANSWER: f64 = 2048.0;

/// Users looked at to estimate what a request costs.
const SAMPLE: u64 = 4000;

/// Streams that share a step on a busy server; what a step costs by itself is divided among so many when the capacity is estimated.
const BUSY: f64 = 128.0;

/// Accounts that ask for far more than all others, where there are any.
const HEAVY_ACCOUNTS: u64 = 8;

/// Who comes.
#[derive(Clone, Copy, Debug)]
pub struct CrowdPlan {
    /// The same seed gives the same users.
    pub seed: u64,
    /// How many come.
    pub users: usize,
    /// Users a second.
    pub rate: f64,
    /// Share of users who belong to one of a few accounts; all others have their own.
    pub heavy: f64,
}

/// A user in a conversation.
#[derive(Clone, Debug)]
struct User {
    number: u64,
    rng: Rng,
    class: Class,
    is_heavy: bool,
    application: Option<u64>,
    /// Tokens of the application's instructions.
    instructions: usize,
    /// Tokens of prompts and answers so far, without the instructions.
    history: usize,
    turns: u32,
    answer: usize,
}

/// Users in the order in which they come.
#[derive(Debug)]
pub struct Crowd {
    plan: CrowdPlan,
    rng: Rng,
    at: Duration,
    came: u64,
    users: Vec<Option<User>>,
    free: Vec<u32>,
}

impl User {
    fn new(plan: &CrowdPlan, number: u64) -> Self {
        let mut rng = Rng::new(plan.seed).fork(number);
        let kind = rng.unit();
        let class = match kind {
            ..0.6 => Class::Interactive,
            0.6..0.9 => Class::Default,
            _ => Class::Bulk,
        };
        let application = (class != Class::Bulk).then(|| application(&mut rng));
        Self {
            number,
            class,
            is_heavy: rng.chance(plan.heavy),
            application,
            instructions: application.map_or(0, instructions),
            history: 0,
            turns: 0,
            answer: 0,
            rng,
        }
    }

    /// The next question.
    fn ask(&mut self) -> Question {
        let (asks, answers) = match self.class {
            Class::Interactive => (60.0, 200.0),
            Class::Default => (600.0, 150.0),
            Class::Bulk => (1500.0, 150.0),
        };
        let draw = |rng: &mut Rng, median, most: f64| rng.length(median, 0.9).clamp(1.0, most) as usize;
        self.history += draw(&mut self.rng, asks, LONGEST);
        self.answer = draw(&mut self.rng, answers, LONGEST_ANSWER);
        self.turns += 1;
        let prompt = self.instructions + self.history;
        let names = |tokens: usize| (0..tokens / BLOCK).map(|block| self.block(block)).collect();
        Question {
            client: self.client(),
            class: self.class,
            session: (self.class == Class::Interactive).then_some(self.number),
            is_heavy: self.is_heavy,
            prompt,
            answer: self.answer,
            prompt_blocks: names(prompt),
            all_blocks: names(prompt + self.answer),
        }
    }

    fn client(&self) -> ClientId {
        if self.is_heavy {
            ClientId { account: self.number % HEAVY_ACCOUNTS, session: self.number }
        } else {
            ClientId::account(HEAVY_ACCOUNTS + self.number)
        }
    }

    /// The name of a block of this conversation.
    fn block(&self, index: usize) -> u64 {
        let of_application = (index + 1) * BLOCK <= self.instructions;
        match self.application.filter(|_| of_application) {
            Some(application) => mix(mix(application) ^ index as u64),
            None => mix(mix(!self.number) ^ index as u64),
        }
    }

    /// Seconds until the next turn, if there is one.
    fn think(&mut self) -> Option<f64> {
        self.history += self.answer;
        let goes_on = self.class == Class::Interactive && self.turns < MOST_TURNS && self.rng.chance(GOES_ON);
        goes_on.then(|| self.rng.length(THINKING, 0.6).min(60.0))
    }
}

/// One of the applications, the first ones more often.
fn application(rng: &mut Rng) -> u64 {
    let harmonic = (APPLICATIONS as f64).ln() + 0.577;
    let place = (rng.unit() * harmonic - 0.577).exp();
    (place as u64).min(APPLICATIONS as u64 - 1)
}

/// Tokens of an application's instructions.
fn instructions(application: u64) -> usize {
    let tokens = Rng::new(application).length(800.0, 0.8).clamp(64.0, 8192.0);
    tokens as usize
}

/// What users ask for on the mean.
#[derive(Clone, Copy, Debug, Default)]
pub struct Demand {
    /// Requests of a user.
    pub requests: f64,
    /// Seconds of a busy server that a user takes if everything that came before is cached.
    pub seconds: f64,
    /// Tokens of an answer.
    pub answer: f64,
}

impl Demand {
    /// Estimates it from the first users.
    pub fn of(plan: &CrowdPlan, cost: &CostModel) -> Self {
        let mut sum = Demand::default();
        for number in 0..SAMPLE {
            let mut user = User::new(plan, number);
            let mut cached = user.instructions / BLOCK * BLOCK;
            loop {
                let question = user.ask();
                sum.requests += 1.0;
                sum.answer += question.answer as f64;
                sum.seconds += needed(cost, cached.min(question.prompt - 1), &question);
                cached = (question.prompt + question.answer) / BLOCK * BLOCK;
                if user.think().is_none() {
                    break;
                }
            }
        }
        let users = SAMPLE as f64;
        Demand {
            requests: sum.requests / users,
            seconds: sum.seconds / users,
            answer: sum.answer / sum.requests,
        }
    }
}

/// Seconds of a busy server that a request takes.
fn needed(cost: &CostModel, cached: usize, question: &Question) -> f64 {
    let Question { prompt, answer, .. } = *question;
    let [step, ..] = cost.coefficients();
    let prefill = cost.marginal(Work::chunk(cached, prompt - cached, 1));
    let positions = (answer * (prompt + answer / 2)) as u64;
    let decode = cost.marginal(Work { tokens: answer, rows: answer, pairs: positions, reads: positions });
    prefill + decode + step * answer as f64 / BUSY
}

impl Crowd {
    /// Users who come at independent times.
    pub fn new(plan: CrowdPlan) -> Self {
        let rng = Rng::new(!plan.seed);
        Self { plan, rng, at: Duration::ZERO, came: 0, users: Vec::new(), free: Vec::new() }
    }

    fn user(&mut self, who: u32) -> &mut User {
        self.users[who as usize].as_mut().expect("a user who asks has come and not gone")
    }
}

impl Source for Crowd {
    fn visit(&mut self) -> Option<Visit> {
        if self.came >= self.plan.users as u64 {
            return None;
        }
        self.at += self.rng.gap(self.plan.rate);
        let user = User::new(&self.plan, self.came);
        self.came += 1;
        let who = self.free.pop().unwrap_or_else(|| {
            self.users.push(None);
            self.users.len() as u32 - 1
        });
        self.users[who as usize] = Some(user);
        Some(Visit { at: self.at, who })
    }

    fn ask(&mut self, who: u32) -> Question {
        self.user(who).ask()
    }

    fn answered(&mut self, who: u32, now: Duration) -> Option<Duration> {
        let again = self.user(who).think().map(|seconds| now + Duration::from_secs_f64(seconds));
        if again.is_none() {
            self.gone(who);
        }
        again
    }

    fn gone(&mut self, who: u32) {
        self.users[who as usize] = None;
        self.free.push(who);
    }

    fn expected_answer(&self) -> usize {
        256
    }

    fn queue_timeout(&self) -> Option<Duration> {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLAN: CrowdPlan = CrowdPlan { seed: 3, users: 10, rate: 1.0, heavy: 0.0 };

    #[test]
    fn a_turn_begins_with_everything_that_was_said_before() {
        let mut user = (0..100)
            .map(|number| User::new(&PLAN, number))
            .find(|user| user.class == Class::Interactive)
            .unwrap();
        let first = user.ask();
        while user.think().is_none() {}
        let second = user.ask();
        assert!(second.prompt > first.prompt + first.answer);
        assert!(second.prompt_blocks.starts_with(&first.all_blocks));
    }

    #[test]
    fn users_of_an_application_share_its_instructions_and_nothing_else() {
        let users: Vec<_> = (0..2000).map(|number| User::new(&PLAN, number)).collect();
        let first = users.iter().find(|user| user.instructions >= BLOCK).unwrap();
        let other = |user: &&User| user.application == first.application && user.number != first.number;
        let second = users.iter().find(other).unwrap();
        let shared = first.instructions / BLOCK;
        assert_eq!(first.block(shared - 1), second.block(shared - 1));
        assert_ne!(first.block(shared), second.block(shared));
    }
}
