//! Why a grammar can't be used: always the request's fault, and always said so that it can be mended.

/// A grammar that was turned down.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum GrammarError {
    /// More text than is looked at.
    #[error("the {what} has {bytes} bytes, at most {limit} are taken; shorten it")]
    TooLarge {
        /// What is too large.
        what: &'static str,
        /// Its size.
        bytes: usize,
        /// What is taken.
        limit: usize,
    },
    /// Not understood, or not supported.
    #[error("the {what} can't be used: {reason}")]
    Invalid {
        /// What can't be used.
        what: &'static str,
        /// Why.
        reason: String,
    },
    /// Nothing to choose from.
    #[error("the list of choices is empty; give at least one")]
    NoChoices,
    /// Compiling it failed on a bug.
    #[error("compiling the {what} failed on a bug; simplify it, and please report it")]
    Bug {
        /// What was compiled.
        what: &'static str,
    },
}
