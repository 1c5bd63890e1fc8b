//! What a pull tells while it runs. Drawing it is the caller's business.

use crate::error::SourceError;

/// Receives the events of a pull, on the thread that pulls.
pub type Report<'a> = &'a mut dyn FnMut(Progress<'_>);

/// One event of a pull.
#[derive(Debug)]
pub enum Progress<'a> {
    /// Someone else is pulling the same model; this pull waits for them.
    Waiting,
    /// A source is tried now.
    Trying {
        /// The source, in words.
        source: &'a str,
    },
    /// A repository holds several quantizations and nobody said which: this one is taken.
    Chosen {
        /// The file, or the first of its parts.
        chosen: &'a str,
        /// The other quantizations.
        others: &'a [&'a str],
        /// How another one is named.
        example: &'a str,
    },
    /// Bytes of a file have gone through a stage.
    Bytes {
        /// What is being done.
        stage: Stage,
        /// The file's name.
        file: &'a str,
        /// Bytes done so far, never more than `total`.
        done: u64,
        /// Bytes in all.
        total: u64,
    },
    /// A source failed; the next one is tried, if there is one.
    SourceFailed {
        /// The source, in words.
        source: &'a str,
        /// Why it failed.
        error: &'a SourceError,
    },
}

/// What is being done with a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stage {
    /// Bytes arrive over the network.
    Download,
    /// Bytes are unpacked or read again, and their checksum computed.
    Check,
}
