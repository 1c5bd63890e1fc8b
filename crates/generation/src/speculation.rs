//! What a caller may say about speculation. None of it changes the text: only how fast it comes.

use ropeway_engine::draft::DEEPEST;

use crate::error::RequestError;

/// Most tokens drafted for a choice in a step, within the engine's range; 0 drafts none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DraftDepth(usize);

impl DraftDepth {
    /// Nothing is drafted.
    pub const NONE: Self = Self(0);

    /// Up to so many tokens; `field` is what the caller's wire format calls it.
    pub fn new(depth: i64, field: &str) -> Result<Self, RequestError> {
        let depth = usize::try_from(depth).ok().filter(|depth| *depth <= DEEPEST);
        let message = || format!("{field} is the most drafted tokens of a step: 0 (none) to {DEEPEST}");
        depth.map(Self).ok_or_else(|| RequestError::invalid(message()).at(field))
    }

    /// How many.
    pub fn get(self) -> usize {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_depth_beyond_the_engines_is_refused_with_its_field() {
        assert_eq!(DraftDepth::new(0, "depth"), Ok(DraftDepth::NONE));
        assert_eq!(DraftDepth::new(DEEPEST as i64, "depth").map(DraftDepth::get), Ok(DEEPEST));
        for wrong in [-1, DEEPEST as i64 + 1, i64::MAX] {
            let error = DraftDepth::new(wrong, "depth").unwrap_err();
            assert_eq!(error.field.as_deref(), Some("depth"));
            assert!(error.message.contains("to 16"), "{error}");
        }
    }
}
