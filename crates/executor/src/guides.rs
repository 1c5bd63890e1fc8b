//! Rows whose tokens are not free: what they ask before they choose, and tell after.
//!
//! ```text
//! logits of row r ─ allow(guide, mask) ─ choose among the allowed ─ chose(guide, token) ─> row r's result
//! ```
//! An executor asks when a row's logits are there, on whichever thread samples that row: masks of one step are computed
//! side by side by the threads that would otherwise wait, and a device that computes by itself may ask earlier. Rows
//! without a guide never come here.

use crate::RowError;

/// A guide of one step, by its index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GuideId(pub u32);

/// The guides of one step. Each is asked by one row, once, by one thread at a time.
pub trait Guides: Sync {
    /// Writes which tokens may be chosen: token `t` is bit `t % 32` of word `t / 32`. Tokens beyond the mask may not.
    fn allow(&self, guide: GuideId, mask: &mut [u32]) -> Result<(), RowError>;

    /// Takes note of what was chosen among them.
    fn chose(&self, guide: GuideId, token: u32) -> Result<(), RowError>;
}

/// For steps in which every row is free.
#[derive(Clone, Copy, Debug)]
pub struct Unguided;

impl Guides for Unguided {
    fn allow(&self, _: GuideId, _: &mut [u32]) -> Result<(), RowError> {
        Err(RowError::NothingAllowed)
    }

    fn chose(&self, _: GuideId, _: u32) -> Result<(), RowError> {
        Err(RowError::NothingAllowed)
    }
}

/// Words of a mask over `vocab` tokens.
pub fn mask_words(vocab: usize) -> usize {
    vocab.div_ceil(u32::BITS as usize)
}

/// Whether a mask allows `token`.
pub fn allows(mask: &[u32], token: u32) -> bool {
    mask.get((token / u32::BITS) as usize).is_some_and(|word| word >> (token % u32::BITS) & 1 == 1)
}
