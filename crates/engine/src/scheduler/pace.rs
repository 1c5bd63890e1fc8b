//! How long a step may take for a prompt's sake.
//!
//! ```text
//! nobody streams                    throughput   2 x target, and at least what 98 % of the largest steps' speed takes
//!   but others want the machine     contended    target, and at least what 90 % of the largest steps' speed takes
//! the prompt has lost little yet    gentle       1.25 x what the streams take by themselves: 1.5 x in half of the steps
//! the others are more urgent        behind       0.3 of the target, and at least 1.25 x what they take by themselves
//! more urgent ones came lately      expecting    0.3 of the target, and at least 2 x what every step costs, 4/3 x what the streams take
//! the prompt has lost its share     target       --itl-target, and at least 4/3 x what the streams take by themselves
//! ```
//! A step near what the streams need anyway lets short answers finish almost as if they were alone, at little cost to
//! a long prompt: it loses some hundreds of milliseconds of many seconds. So a prompt bears that as long as its loss
//! (time since its arrival less the time it would have needed alone for what is computed) stays below
//! [`PATIENCE`] of its own duration, or, where it takes as long as [`LONG`] of their steps, below what a newcomer may have to wait for a step
//! without streams; then steps may take the target. A prompt that fits into one step has no such patience: it is over at once.
//!
//! What a step costs without any prompt can't be avoided. Where that comes near the target or exceeds it (a large model
//! on few cores, many streams), prompts get a quarter of each step's time all the same ([`SHARE`]).

use std::time::Duration;

use crate::cost::CostModel;
use crate::sequence::Sequence;

/// A gentle step, as a multiple of what the streams take by themselves.
const GENTLE: f64 = 1.25;

/// Share of its own duration that a prompt may lose before it insists on time.
const PATIENCE: f64 = 0.06;

/// Steps of the streams beside it that a prompt is worth at least to bear them for as long as a newcomer may have to wait for a step. Beside a
/// shorter one they would hardly finish meanwhile, and it would wait for more than it takes.
const LONG: f64 = 50.0;

/// Share of its own duration that a prompt may lose before it insists on memory: others are then let in only where
/// that leaves what it still needs.
const MEMORY_PATIENCE: f64 = 0.5;

/// Share of a step's time that prompts which insist get at least, whatever the streams cost.
const SHARE: f64 = 0.25;

/// A step with less urgent work while more urgent work is here or may come, as a share of the target: shorter ones would
/// spend most of the machine's time on what every step costs.
const BEHIND: f64 = 0.3;

/// Share of a step's time at most that what every step costs takes, while more urgent work may come.
const HALF: f64 = 0.5;

/// What less urgent streams may add to a step in which a more urgent prompt is computed, as a share of the target.
const OPTIONAL: f64 = 0.05;

/// A step without streams, as a multiple of the target. Longer steps compute prompts a little faster, and make
/// newcomers wait longer for their first.
const IDLE: f64 = 2.0;

/// A step without streams computes prompts at least at this share of the speed of the largest steps, and takes this part of
/// the time. Not the same in every second step: from steps that are all alike nobody can tell what a step costs from
/// what its tokens cost.
const EFFICIENT: [(f64, f64); 2] = [(0.985, 1.0), (0.98, 0.7)];

/// The same while others want the machine, who wait for this step to end.
const CONTENDED: f64 = 0.9;

/// Default time between two tokens of a stream that a prompt beside it may cause: 10 tokens a second, which is faster
/// than people read, and enough time for a chunk of some 100 tokens on two cores, so that prompts lose little.
pub const DEFAULT_ITL_TARGET: Duration = Duration::from_millis(100);

/// How long steps may take.
#[derive(Clone, Copy, Debug)]
pub struct Pace {
    target: f64,
}

impl Default for Pace {
    fn default() -> Self {
        Self::new(DEFAULT_ITL_TARGET)
    }
}

/// What a prompt's chunk is computed beside, in seconds.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Beside {
    /// What the streams take by themselves.
    pub(super) streams: f64,
    /// What is planned so far takes, if someone waits for the end of the step: for a next token, or for a first one.
    pub(super) awaited: f64,
}

/// What a sequence's loss is judged by.
#[derive(Clone, Copy)]
pub(super) struct Judging<'a> {
    pub(super) cost: &'a CostModel,
    pub(super) now: Duration,
    pub(super) step_tokens: usize,
    /// Whether this is one of every second step.
    pub(super) odd: bool,
    /// Whether this step, if it has streams, is one that patient prompts may have a part in: half of those are, two and two.
    pub(super) shared: bool,
    /// Whether other models wait for the same hardware, or more urgent sequences may come any moment.
    pub(super) contended: bool,
}

impl Judging<'_> {
    /// Seconds that the sequence would take alone, and seconds that it lost to others.
    fn whole_and_lost(&self, sequence: &Sequence) -> (f64, f64) {
        let alone = |tokens: usize| self.cost.alone(sequence.cached, tokens, self.step_tokens);
        let computed = sequence.computed.saturating_sub(sequence.cached);
        let waited = self.now.saturating_sub(sequence.ticket.arrival).as_secs_f64();
        (alone(sequence.len().saturating_sub(sequence.cached)), waited - alone(computed))
    }

    /// Whether the memory that this prompt still needs is kept for it.
    pub(super) fn insists_on_memory(&self, sequence: &Sequence) -> bool {
        let (whole, lost) = self.whole_and_lost(sequence);
        lost > MEMORY_PATIENCE * whole
    }
}

impl Pace {
    /// Steps up to `target` while somebody streams.
    pub fn new(target: Duration) -> Self {
        Self { target: target.as_secs_f64() }
    }

    /// Seconds that a step with this prompt in it may take; nothing if it is not its turn.
    pub(super) fn allowed(self, judging: Judging<'_>, sequence: &Sequence, beside: Beside) -> Option<f64> {
        let Beside { streams, awaited } = beside;
        if awaited == 0.0 && judging.contended {
            let efficient = judging.cost.efficient(sequence.start(), judging.step_tokens, CONTENDED);
            return Some(efficient.max(self.target));
        }
        if awaited == 0.0 {
            let (share, part) = if judging.odd { EFFICIENT[0] } else { EFFICIENT[1] };
            let efficient = judging.cost.efficient(sequence.start(), judging.step_tokens, share);
            return Some(efficient.max(part * IDLE * self.target));
        }
        let insisting = self.beside(streams);
        let (whole, lost) = judging.whole_and_lost(sequence);
        let newcomer = if whole > LONG * streams { IDLE * self.target } else { 0.0 };
        let patient = whole > self.target && lost < (PATIENCE * whole).max(newcomer);
        if !patient {
            return Some(insisting);
        }
        let only_streams = awaited <= streams;
        if only_streams && !judging.shared {
            return None;
        }
        let allowed = if only_streams { gentle_in_turn(streams) } else { gentle(awaited) };
        Some(allowed.min(insisting))
    }

    /// Seconds that a step may take in which work that takes `unavoidable` seconds has to be done.
    pub(crate) fn beside(self, unavoidable: f64) -> f64 {
        self.target.max(unavoidable / (1.0 - SHARE))
    }

    /// Seconds that a drafter may take before a step to read what it will draft for.
    pub(crate) fn reading(self) -> f64 {
        SHARE * self.target
    }

    /// Seconds that a step may take for the sake of work that is less urgent than others in the step, who take `others`
    /// seconds of it themselves.
    pub(super) fn behind(self, others: f64) -> f64 {
        gentle(others).max(BEHIND * self.target)
    }

    /// Seconds that a step may take while more urgent work may come any moment, if `fixed` of it are spent whatever it
    /// computes, and `streams` on streams. Prompts get a quarter of it at least.
    pub(super) fn expecting(self, fixed: f64, streams: f64) -> f64 {
        (fixed / HALF).max(streams / (1.0 - SHARE)).max(BEHIND * self.target)
    }

    /// Seconds that a step may take with less urgent streams, if a more urgent prompt wants the rest of its time.
    pub(super) fn slightly_beyond(self, unavoidable: f64) -> f64 {
        unavoidable + OPTIONAL * self.target.max(unavoidable)
    }
}

/// Seconds that a step may take that others wait for, who take `others` seconds of it themselves.
fn gentle(others: f64) -> f64 {
    GENTLE * others
}

/// The same on average over steps of which half are left to the streams. From steps with prompts alone nobody can tell what streams take by
/// themselves, and each step that took a little longer would allow the next one even more.
fn gentle_in_turn(others: f64) -> f64 {
    gentle(others) + (gentle(others) - others)
}
