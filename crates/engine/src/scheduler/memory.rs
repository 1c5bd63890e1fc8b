//! Who gets blocks when there are too few, and from whom.
//!
//! A prompt is let in when its blocks fit beside what is promised to others. One that does not fit may come in all the same
//! when no other prompt inside needs more blocks, and waits inside for the rest, so that it is not overtaken for ever.
//! Blocks are promised to
//!
//! ```text
//! streams                                 one each: the next one they will need
//! prompts that insist                     all they still need; see `Pace`
//! prompts placed before in this step      all they still need
//! ```
//! of the same or a more urgent class. Whoever runs short takes blocks from the ends of others: what is left of these
//! stays theirs, so that they compute again only what was taken. A prompt takes from less urgent sequences only; a stream
//! also from prompts of its class, and from streams that came after it. Nothing is taken unless it
//! suffices. After [`MOST_PREEMPTIONS`] a sequence is left alone, and insists: it gets done.

use std::cmp::Reverse;
use std::time::Duration;

use ropeway_executor::Class;

use super::plan::Plan;
use crate::roster::Roster;
use crate::sequence::{Sequence, Slot};

/// How often a sequence may lose blocks that it had computed. With [`BACKOFF`] that takes some seconds at least.
pub const MOST_PREEMPTIONS: u32 = 6;

/// How long a sequence waits before it computes again what it lost the first time, unless there is plenty of room;
/// twice as long after each time. Else it would lose the same again to the next burst.
const BACKOFF: Duration = Duration::from_millis(100);

/// What the blocks that are not held are promised for.
#[derive(Debug, Default)]
pub(super) struct Promises {
    /// Per class, blocks that running sequences still need for tokens they know.
    owed: [usize; Class::ALL.len()],
    /// The part of it that is kept for them, and one block for each sequence.
    kept: [usize; Class::ALL.len()],
    /// Owed to sequences that lost blocks too often, whatever their class.
    protected: usize,
}

/// Whether blocks were found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Found {
    /// Enough for so many tokens.
    For(usize),
    /// Too few.
    Nothing,
}

impl Promises {
    /// What is promised to those who run.
    pub(super) fn survey(&mut self, roster: &Roster, now: Duration, insists: impl Fn(&Sequence) -> bool) {
        *self = Self::default();
        for slot in roster.running() {
            let sequence = roster.get(*slot);
            let (class, owed) = (sequence.class() as usize, sequence.owed(roster.limits()));
            self.owed[class] += owed;
            self.kept[class] += 1;
            if is_protected(sequence, now) {
                self.protected += owed;
            } else if owed > 0 && insists(sequence) {
                self.kept[class] += owed;
            }
        }
    }

    /// Blocks that a prompt of this class must leave to others.
    fn kept_from(&self, class: Class) -> usize {
        self.kept[..=class as usize].iter().sum::<usize>() + self.protected
    }

    /// Whether a running prompt of this class or a more urgent one still needs blocks.
    fn is_owing(&self, class: Class) -> bool {
        self.owed[..=class as usize].iter().any(|owed| *owed > 0)
    }

    /// A prompt took `taken` blocks and still needs `owed`; those after it in this step leave them to it.
    fn placed(&mut self, class: Class, taken: usize, owed: usize) {
        let class = class as usize;
        self.owed[class] = self.owed[class].saturating_sub(taken);
        self.kept[class] += owed;
    }
}

/// A prompt that wants blocks.
#[derive(Clone, Copy, Debug)]
pub(super) struct Asking {
    /// Whose.
    pub(super) slot: Slot,
    /// Tokens that the step has time for.
    pub(super) tokens: usize,
    /// Whether it has no place in the batch yet.
    pub(super) waits: bool,
    /// Whether what it still needs is promised to it already.
    pub(super) insists: bool,
    /// The time.
    pub(super) now: Duration,
}

impl Promises {
    /// Finds blocks for a prompt's next tokens, or for fewer of them; takes them from less urgent sequences if need be.
    pub(super) fn find(&mut self, roster: &mut Roster, plan: &mut Plan, asking: Asking) -> Found {
        let Asking { slot, tokens, waits, insists, now } = asking;
        let sequence = roster.get(slot);
        let (class, owed, resumes) = (sequence.class(), sequence.owed(roster.limits()), sequence.resumes);
        let own = if waits { 0 } else { 1 + if insists { owed } else { 0 } };
        let kept = self.kept_from(class).saturating_sub(own);
        let free = roster.pool.counts().available().saturating_sub(kept);
        let wanted = roster.wanted(slot, tokens);
        let comfortable = owed <= free;
        if !comfortable && !waits && now < resumes {
            return Found::Nothing;
        }
        let yields = |other: &Sequence| other.class() > class && !is_protected(other, now);
        let reclaimable = if comfortable { 0 } else { roster.reclaimable(yields) };
        let fits = owed <= free + reclaimable;
        if waits && !fits && self.is_owing(class) {
            return Found::Nothing;
        }
        let more = wanted.saturating_sub(free).min(reclaimable);
        reclaim(roster, plan, more, now, yields);
        let taken = wanted.min(free + more);
        let fitting = fitting(roster, slot, taken).min(tokens);
        if fitting == 0 {
            return Found::Nothing;
        }
        if waits {
            self.owed[class as usize] += owed;
            self.kept[class as usize] += 1;
        }
        self.placed(class, taken, if insists { 0 } else { owed.saturating_sub(taken) });
        Found::For(fitting)
    }
}

/// Whether it lost blocks so often that it is left alone now: once it has waited for its turn.
pub(super) fn is_protected(sequence: &Sequence, now: Duration) -> bool {
    sequence.preemptions >= MOST_PREEMPTIONS && now >= sequence.resumes
}

/// How many tokens a sequence can go on with `blocks` more.
fn fitting(roster: &Roster, slot: Slot, blocks: usize) -> usize {
    let block_tokens = roster.limits().block_tokens;
    let sequence = roster.get(slot);
    let shared = roster.wanted(slot, 0);
    let held = sequence.table.blocks().len() + blocks.saturating_sub(shared);
    if blocks < shared { 0 } else { (held * block_tokens).saturating_sub(sequence.start()) }
}

/// Gets a stream the blocks for its next tokens, from others if need be.
pub(super) fn claim(roster: &mut Roster, plan: &mut Plan, slot: Slot, tokens: usize, now: Duration) -> bool {
    let missing = roster.wanted(slot, tokens).saturating_sub(roster.pool.counts().available());
    if missing > 0 {
        let stream = roster.get(slot);
        let (class, after) = (stream.class(), (stream.ticket.number, stream.index));
        let yields = move |other: &Sequence| {
            let later = (other.ticket.number, other.index) > after;
            let behind = other.class() > class || (other.class() == class && (later || !other.is_decoding()));
            behind && !is_protected(other, now)
        };
        if roster.reclaimable(yields) < missing {
            return false;
        }
        reclaim(roster, plan, missing, now, yields);
    }
    take(roster, plan, slot, tokens)
}

/// Gives a sequence the blocks for its next tokens, of which there are enough.
pub(super) fn take(roster: &mut Roster, plan: &mut Plan, slot: Slot, tokens: usize) -> bool {
    let copy = roster.grow(slot, tokens);
    plan.copies.extend(copy.ok().flatten());
    copy.is_ok()
}

/// Frees blocks for `slot`, which would else stand still with everyone else: the latest and least urgent give first.
pub(super) fn relieve(
    roster: &mut Roster,
    plan: &mut Plan,
    slot: Slot,
    tokens: usize,
    now: Duration,
) -> usize {
    let mut missing = roster.wanted(slot, tokens).saturating_sub(roster.pool.counts().available());
    while missing > 0 {
        let last = roster.running().iter().rev().find(|other| **other != slot);
        let Some(victim) = last.copied() else { break };
        missing = missing.saturating_sub(shrink(roster, plan, victim, missing, now));
    }
    let free = roster.pool.counts().available();
    fitting(roster, slot, roster.wanted(slot, tokens).min(free)).min(tokens)
}

/// Takes `blocks` from running sequences for which `yields` holds, of which there are enough; whoever loses least first.
fn reclaim(
    roster: &mut Roster,
    plan: &mut Plan,
    mut blocks: usize,
    now: Duration,
    yields: impl Fn(&Sequence) -> bool,
) {
    while blocks > 0 {
        let yielding = roster.running().iter().filter(|slot| {
            let sequence = roster.get(**slot);
            yields(sequence) && !sequence.table.blocks().is_empty()
        });
        let Some(victim) = yielding.copied().min_by_key(|slot| loss(roster, *slot, blocks)) else { return };
        blocks = blocks.saturating_sub(shrink(roster, plan, victim, blocks, now));
    }
}

/// What a sequence loses by giving up to `blocks`: least urgent first, then those that nobody sees waiting, then by the
/// tokens that have to be computed again, then the latest.
fn loss(roster: &Roster, slot: Slot, blocks: usize) -> impl Ord + use<> {
    let sequence = roster.get(slot);
    let kept = kept(roster, slot, blocks) * roster.limits().block_tokens;
    let lost = sequence.start().saturating_sub(kept);
    let latest = Reverse((sequence.ticket.number, sequence.index));
    (Reverse(sequence.class()), sequence.is_decoding(), lost, latest)
}

/// Blocks that a sequence keeps if up to `blocks` of it are freed.
fn kept(roster: &Roster, slot: Slot, blocks: usize) -> usize {
    let sequence = roster.get(slot);
    let all = sequence.table.blocks().len();
    let tail = sequence.table.tail_that_frees(&roster.pool, blocks);
    sequence.keepable(all - tail.unwrap_or(all), roster.limits())
}

/// Takes up to `blocks` from the end of a running sequence; how many became free.
fn shrink(roster: &mut Roster, plan: &mut Plan, slot: Slot, blocks: usize, now: Duration) -> usize {
    let before = roster.pool.counts().available();
    plan.withdraw(slot);
    let kept = kept(roster, slot, blocks);
    if roster.shrink(slot, kept) {
        let sequence = roster.get_mut(slot);
        sequence.resumes = now + BACKOFF * (1 << (sequence.preemptions - 1).min(MOST_PREEMPTIONS));
        plan.preempted += 1;
    }
    roster.pool.counts().available() - before
}
