//! What is in a folder, for people: looks, checks and clears without opening the area, also while a server uses it.

use std::fmt::Write;

mod clear;
mod survey;
mod verify;

pub use clear::{Cleared, Selection, clear};
pub use survey::{IgnoredFile, Report, ShelfReport, survey};
pub use verify::{Damage, DamagedBlock, Progress, Verified, verify};

/// Hexadecimal digits.
fn digits(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}
