//! `--speculate`: how much is drafted, on the command line.

use ropeway_engine::Speculation;
use ropeway_engine::draft::DEEPEST;

/// How it is written where nobody says anything.
pub const DEFAULT: &str = "auto";

/// `auto`, `off`, or the most drafted tokens of a step.
pub fn parse(text: &str) -> Result<Speculation, String> {
    match (text, text.parse()) {
        ("auto", _) => Ok(Speculation::default()),
        ("off", _) => Ok(Speculation::Off),
        (_, Ok(most @ 1..=DEEPEST)) => Ok(Speculation::UpTo(most)),
        _ => Err(format!("auto, off, or the most drafted tokens of a step: 1 to {DEEPEST}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_auto_off_or_a_depth_and_anything_else_says_so() {
        assert_eq!(parse(DEFAULT), Ok(Speculation::UpTo(DEEPEST)));
        assert_eq!(parse("off"), Ok(Speculation::Off));
        assert_eq!(parse("3"), Ok(Speculation::UpTo(3)));
        for wrong in ["0", "17", "-1", "on", "", "3.5"] {
            assert!(parse(wrong).unwrap_err().contains("1 to 16"), "{wrong}");
        }
    }
}
