//! Sequences whose tokens have to follow a grammar.
//!
//! ```text
//! Request.grammar ─ begin ─> one Guide per sequence        on the caller's thread
//! a step's row    ─ allow ─ choose ─ accept ─ forced       on the thread that samples the row
//! commit          ─ takes the forced tokens and the end    on the engine's thread
//! ```
//! Where tokens were drafted, the rows behind them need masks of states that may never be reached. The guide is then moved
//! ahead along the drafts and back ([`Guide::rollback`]), and accepts at commit, on the engine's thread, what was kept.
//!
//! The engine knows a grammar by these two traits only. A guide's state is its sequence's: it stays with it through
//! preemptions and failed steps, depends on the sequence's own tokens alone, and whatever goes wrong in it, a panic
//! included, ends that sequence and nothing else.

use std::any::Any;
use std::fmt;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use ropeway_executor::{GuideId, Guides, RowError};

use crate::clock::Clock;
use crate::draft::Forced;
use crate::sequence::{Sequence, Ticket};
use crate::tokens::Tokens;

/// What an answer has to follow, ready to be used by any number of sequences.
pub trait Grammar: fmt::Debug + Send + Sync {
    /// A guide at the start of an answer.
    fn begin(&self) -> Box<dyn Guide>;

    /// The grammar as its own crate knows it, for backends that hand what it was compiled from to another server.
    fn as_any(&self) -> &dyn Any;
}

/// One sequence's way through a grammar.
pub trait Guide: Send {
    /// Writes which tokens may come next; see [`Guides::allow`].
    fn allow(&mut self, mask: &mut [u32]) -> Result<(), GuideError>;

    /// Narrows a mask down to the tokens that bring the answer to its end soonest, where they are known: there is little
    /// room left. Whether anything else was allowed.
    fn land(&mut self, mask: &mut [u32]) -> bool {
        let _ = mask;
        false
    }

    /// Takes the next token, which is an allowed one.
    fn accept(&mut self, token: u32) -> Result<Progress, GuideError>;

    /// Appends the tokens that can only come next, and takes them.
    fn forced(&mut self, tokens: &mut Vec<u32>) -> Result<Progress, GuideError>;

    /// Whether it can give tokens back, so that it can be moved along drafts.
    fn can_rollback(&self) -> bool {
        false
    }

    /// How many of `tokens` may come next, one after another. Takes none of them.
    fn allowed(&mut self, tokens: &[u32]) -> Result<usize, GuideError> {
        let _ = tokens;
        Ok(0)
    }

    /// Gives the last `tokens` tokens back.
    fn rollback(&mut self, tokens: usize) -> Result<(), GuideError> {
        Err(GuideError(format!("this grammar can't give {tokens} tokens back")))
    }
}

/// Whether anything may follow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Progress {
    /// The answer may go on.
    #[default]
    Open,
    /// The answer is complete, and nothing can follow.
    Complete,
}

/// Why a grammar can't be followed any further.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct GuideError(pub String);

impl From<GuideError> for RowError {
    fn from(error: GuideError) -> Self {
        RowError::Grammar(error.0)
    }
}

/// The part that a grammar has in a sequence's life; most sequences have none. It [begins](Guidance::begin) an answer and
/// [follows](Guidance::follow) each chosen token with what that forces; in between the executor asks it through the step's
/// [`StepGuides`].
#[derive(Debug, Default)]
pub(crate) struct Guidance {
    guided: Option<Guided>,
    /// Tokens at the start of the answer that were forced before anything was chosen.
    pub(crate) opening: usize,
    /// Pending tokens that were forced, after the one that was chosen.
    forced: usize,
    progress: Progress,
}

impl Guidance {
    /// The guidance of a new sequence, whose answer begins with what its grammar forces. `forces` is false where the model
    /// is to say what it thinks of every token.
    pub(crate) fn begin(
        grammar: &dyn Grammar,
        forces: bool,
        tokens: &mut Tokens,
        max_len: usize,
    ) -> Result<Self, RowError> {
        let (guided, following) = Guided::begin(grammar, forces)?;
        let mut guidance = Self { guided: Some(guided), ..Self::default() };
        guidance.take(&following, tokens, max_len);
        guidance.opening = std::mem::take(&mut guidance.forced);
        Ok(guidance)
    }

    /// Adds what the token just chosen forces, as far as there is room; how many tokens that is.
    pub(crate) fn follow(&mut self, tokens: &mut Tokens, max_len: usize) -> usize {
        let Some(following) = self.guided.as_ref().map(Guided::following) else { return 0 };
        self.take(&following, tokens, max_len);
        self.forced
    }

    /// Takes a token that was chosen in a chunk with drafts, whose rows leave that to the commit.
    pub(crate) fn accept(&mut self, token: u32) -> Result<(), RowError> {
        let Some(guided) = &self.guided else { return Ok(()) };
        let mut state = guided.lock();
        state.look_ahead(&[])?;
        state.accept(token)
    }

    /// Whether tokens can be drafted for its sequence.
    pub(crate) fn can_draft(&self) -> bool {
        self.guided.as_ref().is_none_or(|guided| guided.lock().guide.can_rollback())
    }

    /// Cuts drafts, of which the first `depth` are to be computed, where the grammar forbids them, and puts the tokens that it
    /// forces between them, up to `most` in all. Returns how many are left to be computed, and which of them are forced.
    pub(crate) fn guide_drafts(
        &mut self,
        drafts: &mut Vec<u32>,
        depth: usize,
        most: usize,
    ) -> (usize, Forced) {
        let Some(guided) = &self.guided else { return (depth, Forced::default()) };
        // A guide that fails here would fail its row as well, which says so.
        let (allowed, forced) = guided.lock().guide_drafts(drafts, depth).unwrap_or_default();
        drafts.truncate(allowed.min(most));
        (drafts.len(), forced)
    }

    /// Whether nothing may follow the tokens.
    pub(crate) fn is_complete(&self) -> bool {
        self.progress == Progress::Complete
    }

    /// Whether the answer had to be brought to its end for want of room.
    pub(crate) fn has_landed(&self) -> bool {
        self.guided.as_ref().is_some_and(Guided::has_landed)
    }

    /// Whether there is no grammar.
    pub(crate) fn is_free(&self) -> bool {
        self.guided.is_none()
    }

    /// Pending tokens of a stream: the chosen one, and those that it forced.
    pub(crate) fn pending(&self) -> usize {
        1 + self.forced
    }

    /// So many tokens are pending now; fewer of the forced ones than there were.
    pub(crate) fn advance(&mut self, pending: usize) {
        self.forced = self.forced.min(pending.saturating_sub(1));
    }

    fn take(&mut self, following: &Following, tokens: &mut Tokens, max_len: usize) {
        let room = max_len - tokens.len();
        let fitting = &following.forced[..following.forced.len().min(room)];
        tokens.extend(fitting);
        self.forced = fitting.len();
        // What was cut is not complete.
        if self.forced == following.forced.len() {
            self.progress = following.progress;
        }
    }
}

/// A guide with what came of its last token. Shared between the sequence and the step's [`StepGuides`]; the two never use it
/// at the same time.
#[derive(Clone)]
struct Guided(Arc<Mutex<State>>);

struct State {
    guide: Box<dyn Guide>,
    forces: bool,
    /// Tokens taken so far, without those ahead.
    taken: usize,
    /// Drafted tokens that it was moved ahead along.
    ahead: usize,
    /// Forced tokens that the sequence does not have yet.
    forced: Vec<u32>,
    progress: Progress,
    /// Whether the answer was brought to its end.
    landed: bool,
}

/// What follows a chosen token.
struct Following {
    forced: Vec<u32>,
    progress: Progress,
}

impl Guided {
    /// A guide at the start of an answer, and what the answer begins with.
    fn begin(grammar: &dyn Grammar, forces: bool) -> Result<(Self, Following), RowError> {
        let (taken, forced, progress) = (0, Vec::new(), Progress::Open);
        let mut state = confined(|| {
            let guide = grammar.begin();
            Ok(State { guide, forces, taken, ahead: 0, forced, progress, landed: false })
        })?;
        state.take_forced()?;
        let following = state.following();
        Ok((Self(Arc::new(Mutex::new(state))), following))
    }

    fn following(&self) -> Following {
        self.lock().following()
    }

    fn has_landed(&self) -> bool {
        self.lock().landed
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // What panicked inside was caught before it could reach the lock.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Guided {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Guided").field("taken", &self.lock().taken).finish_non_exhaustive()
    }
}

impl State {
    fn accept(&mut self, token: u32) -> Result<(), RowError> {
        self.progress = confined(|| self.guide.accept(token))?;
        self.taken += 1;
        self.take_forced()
    }

    fn take_forced(&mut self) -> Result<(), RowError> {
        if self.forces && self.progress == Progress::Open {
            self.progress = confined(|| self.guide.forced(&mut self.forced))?;
            self.taken += self.forced.len();
        }
        Ok(())
    }

    /// Moves to the state behind these drafts. Whatever it was moved ahead along before were the first of the same drafts.
    fn look_ahead(&mut self, drafts: &[u32]) -> Result<(), RowError> {
        if self.ahead > drafts.len() {
            confined(|| self.guide.rollback(self.ahead - drafts.len()))?;
            self.ahead = drafts.len();
        }
        for draft in &drafts[self.ahead..] {
            confined(|| self.guide.accept(*draft))?;
            self.ahead += 1;
        }
        Ok(())
    }

    fn guide_drafts(&mut self, drafts: &mut Vec<u32>, depth: usize) -> Result<(usize, Forced), RowError> {
        self.look_ahead(&[])?;
        let (mut end, mut forced) = (0, Forced::default());
        while end < drafts.len().min(depth) {
            if confined(|| self.guide.allowed(&drafts[end..=end]))? == 0 {
                break;
            }
            let mut progress = confined(|| self.guide.accept(drafts[end]))?;
            (self.ahead, end) = (self.ahead + 1, end + 1);
            if self.forces && progress == Progress::Open {
                let chosen = end;
                progress = self.force_into(drafts, &mut end)?;
                (chosen..end).for_each(|draft| forced.add(draft));
            }
            if progress == Progress::Complete {
                break;
            }
        }
        self.look_ahead(&[])?;
        Ok((end, forced))
    }

    /// Puts what is forced behind the first `end` drafts; those that stood there stay if they are the same.
    fn force_into(&mut self, drafts: &mut Vec<u32>, end: &mut usize) -> Result<Progress, RowError> {
        let mut forced = Vec::new();
        let progress = confined(|| self.guide.forced(&mut forced))?;
        self.ahead += forced.len();
        if !drafts[*end..].starts_with(&forced) {
            drafts.truncate(*end);
            drafts.extend_from_slice(&forced);
        }
        *end += forced.len();
        Ok(progress)
    }

    fn following(&mut self) -> Following {
        Following { forced: std::mem::take(&mut self.forced), progress: self.progress }
    }
}

/// Runs `follow`; should it panic, that is an error like any other.
fn confined<T>(follow: impl FnOnce() -> Result<T, GuideError>) -> Result<T, RowError> {
    let result = catch_unwind(AssertUnwindSafe(follow));
    result.map_err(|_| RowError::Panicked)?.map_err(RowError::from)
}

/// The guides of one step's rows. Kept and refilled.
pub(crate) struct StepGuides {
    clock: Arc<dyn Clock>,
    rows: Vec<Asking>,
    /// Drafts of all rows that have some.
    drafts: Vec<u32>,
    /// Nanoseconds that grammars took, on all threads together.
    spent: AtomicU64,
}

struct Asking {
    guided: Guided,
    ticket: Arc<Ticket>,
    /// Tokens that the guide must have taken: fewer or more after a step that failed half way.
    taken: usize,
    /// Drafts that stand before the row, as a range of all; `None` where the row's chunk has no drafts.
    drafts: Option<Range<usize>>,
    /// Whether the answer is to come to its end.
    lands: bool,
}

impl StepGuides {
    pub(crate) fn new(clock: Arc<dyn Clock>) -> Self {
        Self { clock, rows: Vec::new(), drafts: Vec::new(), spent: AtomicU64::new(0) }
    }

    pub(crate) fn clear(&mut self) {
        self.rows.clear();
        self.drafts.clear();
        *self.spent.get_mut() = 0;
    }

    /// The guide of a sequence, if it has one, for the row behind these drafts; `None` where its chunk has no drafts.
    pub(crate) fn add(&mut self, sequence: &Sequence, drafts: Option<&[u32]>) -> Option<GuideId> {
        let guided = sequence.guidance.guided.clone()?;
        let ticket = Arc::clone(&sequence.ticket);
        let left = ticket.max_len - sequence.tokens.len();
        let lands = left <= landing(ticket.max_len - ticket.prompt_len);
        let drafts = drafts.map(|drafts| {
            let first = self.drafts.len();
            self.drafts.extend_from_slice(drafts);
            first..self.drafts.len()
        });
        self.rows.push(Asking { guided, ticket, taken: sequence.generated(), drafts, lands });
        Some(GuideId(self.rows.len() as u32 - 1))
    }

    /// How many rows of the step have one.
    pub(crate) fn rows(&self) -> usize {
        self.rows.len()
    }

    /// Time that grammars took in this step, on all threads together.
    pub(crate) fn spent(&self) -> Duration {
        Duration::from_nanos(self.spent.load(Ordering::Relaxed))
    }

    fn timed<T>(&self, work: impl FnOnce() -> T) -> T {
        let began = self.clock.now();
        let result = work();
        let spent = self.clock.now().saturating_sub(began);
        self.spent.fetch_add(spent.as_nanos() as u64, Ordering::Relaxed);
        result
    }
}

impl Guides for StepGuides {
    fn allow(&self, guide: GuideId, mask: &mut [u32]) -> Result<(), RowError> {
        let Asking { guided, ticket, taken, drafts, lands } = &self.rows[guide.0 as usize];
        let drafts = &self.drafts[drafts.clone().unwrap_or_default()];
        let mut state = guided.lock();
        if state.taken != *taken {
            return Err(RowError::Grammar(
                "a step failed while it was followed; send the request again".into(),
            ));
        }
        self.timed(|| {
            state.look_ahead(drafts)?;
            confined(|| state.guide.allow(mask))
        })?;
        if *lands {
            state.landed |= confined(|| Ok(state.guide.land(mask)))?;
        }
        if taken + drafts.len() < ticket.min_tokens {
            bar(mask, &ticket.ends);
        }
        Ok(())
    }

    fn chose(&self, guide: GuideId, token: u32) -> Result<(), RowError> {
        let Asking { guided, ticket, drafts, .. } = &self.rows[guide.0 as usize];
        if drafts.is_some() || ticket.ends.contains(&token) {
            return Ok(());
        }
        self.timed(|| guided.lock().accept(token))
    }
}

/// How many of an answer's last tokens bring it to its end: a quarter, so that a short answer keeps most of its room, and
/// no more than the required rest of most schemas takes.
pub(crate) fn landing(most: usize) -> usize {
    (most / 4).min(128)
}

/// Takes end tokens out of a mask that allows anything else.
fn bar(mask: &mut [u32], ends: &[u32]) {
    let is_end = |token: u32| ends.contains(&token);
    let tokens = |index: usize, word: u32| {
        (0..u32::BITS).filter(move |bit| word >> bit & 1 == 1).map(move |bit| index as u32 * u32::BITS + bit)
    };
    let mut allowed = mask.iter().enumerate().flat_map(|(index, word)| tokens(index, *word));
    if !allowed.any(|token| !is_end(token)) {
        return;
    }
    for end in ends {
        if let Some(word) = mask.get_mut((end / u32::BITS) as usize) {
            *word &= !(1 << (end % u32::BITS));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn end_tokens_are_barred_unless_nothing_else_is_allowed() {
        let mut mask = [0b1011, 0b1];
        bar(&mut mask, &[1, 32, 99]);
        assert_eq!(mask, [0b1001, 0]);
        let mut only_ends = [0b10, 0b1];
        bar(&mut only_ends, &[1, 32]);
        assert_eq!(only_ends, [0b10, 0b1]);
    }
}
