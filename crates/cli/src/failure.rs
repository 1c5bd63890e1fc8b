//! What the user sees when a command fails.
//!
//! ```text
//! error: what happened
//!   because: what lies below, as often as there is more to say
//! hint: what to do next
//! ```
//! Must never: panic because nobody reads, nor hide a cause.

use std::error::Error;
use std::fmt::Write as _;
use std::io::{self, Write as _};

use ropeway_embed::EmbedError;
use ropeway_engine::Rejected;
use ropeway_executor::ExecutorError;
use ropeway_generation::RequestError;
use ropeway_hub::HubError;
use ropeway_model::LoadError;
use ropeway_text::TextError;
use ropeway_weights::WeightsError;

/// Why a command ended early.
#[derive(Debug)]
pub enum Failure {
    /// Something to tell the user.
    Told {
        /// What happened.
        error: Box<dyn Error + Send + Sync>,
        /// What to do next, where the error itself does not say.
        hint: Option<String>,
    },
    /// The reader of our output has seen enough (`ropeway list | head -1`); that is no error.
    OutputClosed,
}

impl Failure {
    /// A failure in plain words.
    pub fn new(error: impl Into<Box<dyn Error + Send + Sync>>, hint: impl Into<String>) -> Failure {
        Failure::Told { error: error.into(), hint: Some(hint.into()) }
    }

    /// Prints the failure; gives the exit code.
    pub fn report(self) -> u8 {
        let Failure::Told { error, hint } = self else { return 0 };
        // With standard error closed there is nobody left to tell.
        let _ = io::stderr().write_all(text(&*error, hint.as_deref()).as_bytes());
        1
    }

    fn without_hint(error: impl Into<Box<dyn Error + Send + Sync>>) -> Failure {
        Failure::Told { error: error.into(), hint: None }
    }
}

impl std::fmt::Display for Failure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Failure::Told { error, .. } => error.fmt(f),
            Failure::OutputClosed => f.write_str("nobody reads the output"),
        }
    }
}

/// The error with its whole chain of causes, leaving out what an error above already said.
fn text(error: &dyn Error, hint: Option<&str>) -> String {
    let mut said = error.to_string();
    let mut text = format!("error: {said}\n");
    let mut next = error.source();
    while let Some(cause) = next {
        let words = cause.to_string();
        if !said.contains(&words) {
            let _ = writeln!(text, "  because: {words}");
            said.push_str(&words);
        }
        next = cause.source();
    }
    if let Some(hint) = hint {
        let _ = writeln!(text, "hint: {hint}");
    }
    text
}

impl From<HubError> for Failure {
    fn from(error: HubError) -> Failure {
        let hint = error.hint();
        Failure::new(error, hint)
    }
}

impl From<WeightsError> for Failure {
    fn from(error: WeightsError) -> Failure {
        Failure::without_hint(error)
    }
}

impl From<LoadError> for Failure {
    fn from(error: LoadError) -> Failure {
        Failure::without_hint(error)
    }
}

impl From<EmbedError> for Failure {
    fn from(error: EmbedError) -> Failure {
        Failure::without_hint(error)
    }
}

impl From<ExecutorError> for Failure {
    fn from(error: ExecutorError) -> Failure {
        Failure::without_hint(error)
    }
}

impl From<Rejected> for Failure {
    fn from(error: Rejected) -> Failure {
        Failure::without_hint(error)
    }
}

impl From<RequestError> for Failure {
    fn from(error: RequestError) -> Failure {
        Failure::without_hint(error)
    }
}

impl From<TextError> for Failure {
    fn from(error: TextError) -> Failure {
        Failure::without_hint(error)
    }
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Failure {
        match error.kind() {
            io::ErrorKind::BrokenPipe => Failure::OutputClosed,
            _ => Failure::without_hint(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;

    #[test]
    fn the_whole_chain_is_told_and_nothing_twice() {
        let source = io::Error::other("the disk is gone");
        let error = HubError::Io { action: "read", path: PathBuf::from("x"), source };
        assert_eq!(
            text(&error, Some("plug it in")),
            "error: could not read `x`\n  because: the disk is gone\nhint: plug it in\n"
        );
        let told_already = WeightsError::Unreadable { path: "x".into(), source: io::Error::other("gone") };
        assert_eq!(text(&told_already, None).matches("gone").count(), 1);
    }

    #[test]
    fn a_closed_output_is_no_failure() {
        let closed = Failure::from(io::Error::from(io::ErrorKind::BrokenPipe));
        assert!(matches!(closed, Failure::OutputClosed));
    }
}
