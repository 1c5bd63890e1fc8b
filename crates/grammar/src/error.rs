//! Why a grammar can't be used, said so that it can be mended: the request's fault in every case but one.

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
    /// Compiling it takes more than is given to it.
    #[error("compiling the {what} takes more than {limit}{}; simplify it", part.as_ref().map(|part| format!(", its most demanding part is {part}")).unwrap_or_default())]
    TooCostly {
        /// What is too costly.
        what: &'static str,
        /// What it exceeds.
        limit: String,
        /// Its most demanding part, if one stands out.
        part: Option<String>,
    },
    /// It could not be tried at the moment; no fault of the grammar.
    #[error("the {what} can't be compiled now: {reason}; send the request again later")]
    Busy {
        /// What was to be compiled.
        what: &'static str,
        /// Why it is not.
        reason: String,
    },
    /// Compiling it failed on a bug.
    #[error("compiling the {what} failed on a bug; simplify it, and please report it")]
    Bug {
        /// What was compiled.
        what: &'static str,
    },
}
