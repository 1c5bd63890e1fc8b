//! One sequence's way through a grammar.

use std::sync::Arc;

use llguidance::Matcher;
use ropeway_engine::{Guide, GuideError, Progress};

use crate::landing::Landing;

/// A parser of its own, and how what it reads is brought to an end.
pub(crate) struct Parser {
    pub(crate) matcher: Matcher,
    pub(crate) landing: Option<Arc<Landing>>,
}

impl Parser {
    fn progress(&self) -> Result<Progress, GuideError> {
        match self.matcher.get_error() {
            Some(error) => Err(failed(&error)),
            None if self.matcher.is_stopped() => Ok(Progress::Complete),
            None => Ok(Progress::Open),
        }
    }
}

impl Guide for Parser {
    fn allow(&mut self, mask: &mut [u32]) -> Result<(), GuideError> {
        let allowed = self.matcher.compute_mask_or_eos().map_err(|error| failed(&error.to_string()))?;
        let words = allowed.as_slice();
        let shared = words.len().min(mask.len());
        mask[..shared].copy_from_slice(&words[..shared]);
        mask[shared..].fill(0);
        Ok(())
    }

    fn land(&mut self, mask: &mut [u32]) -> bool {
        self.landing.as_ref().is_some_and(|landing| landing.narrow(mask))
    }

    fn accept(&mut self, token: u32) -> Result<Progress, GuideError> {
        self.matcher.consume_token(token).map_err(|error| failed(&error.to_string()))?;
        self.progress()
    }

    fn forced(&mut self, tokens: &mut Vec<u32>) -> Result<Progress, GuideError> {
        tokens.extend(self.matcher.consume_ff_tokens());
        self.progress()
    }
}

/// llguidance's words without its notes for developers.
pub(crate) fn failed(error: &str) -> GuideError {
    GuideError(reason(error).into())
}

/// The first line that says something.
pub(crate) fn reason(error: &str) -> &str {
    let text = error.split("\n<").next().unwrap_or(error).trim();
    if is_bug(text) { "its parser failed on a bug; simplify the grammar, and please report it" } else { text }
}

/// Whether this was a panic.
pub(crate) fn is_bug(error: &str) -> bool {
    error.starts_with("panic:")
}
