//! Where the tokens of a text go as they are made: packed, counted, and stopped when they are too many or nobody waits for them
//! any more.

use crate::error::TextError;
use crate::interrupt::Interrupt;
use crate::packed::PackedTokens;

/// Tokens that are packed at once: 16 KiB of them.
const AT_ONCE: usize = 4096;

/// Takes the tokens of one text.
pub(crate) struct Sink<'s> {
    /// The last ones. Models write to it and may take back what they wrote since the last checkpoint.
    pub(crate) ids: Vec<u32>,
    pub(crate) interrupt: &'s Interrupt,
    /// Those before.
    packed: PackedTokens,
    most: usize,
}

impl<'s> Sink<'s> {
    /// A sink for at most so many tokens.
    pub(crate) fn new(most: usize, interrupt: &'s Interrupt) -> Self {
        Self { ids: Vec::new(), interrupt, packed: PackedTokens::default(), most }
    }

    /// Between two parts of a text: an opportunity to stop.
    pub(crate) fn checkpoint(&mut self) -> Result<(), TextError> {
        self.interrupt.check()?;
        if self.packed.len() + self.ids.len() > self.most {
            return Err(TextError::TooManyTokens { most: self.most });
        }
        if self.ids.len() >= AT_ONCE {
            self.pack();
        }
        Ok(())
    }

    /// The tokens of the whole text.
    pub(crate) fn finish(mut self) -> Result<PackedTokens, TextError> {
        self.checkpoint()?;
        self.pack();
        Ok(self.packed)
    }

    fn pack(&mut self) {
        self.packed.extend(&self.ids);
        self.ids.clear();
    }
}

/// What `write` puts into a sink without limits.
#[cfg(test)]
pub(crate) fn collect(write: impl FnOnce(&mut Sink<'_>) -> Result<(), TextError>) -> Vec<u32> {
    let interrupt = Interrupt::default();
    let mut sink = Sink::new(usize::MAX, &interrupt);
    write(&mut sink).unwrap();
    sink.finish().unwrap().into_vec()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_come_out_in_order_however_many_they_are() {
        let written: Vec<u32> = (0..10_000).collect();
        let collected = collect(|sink| {
            written.iter().try_for_each(|id| {
                sink.ids.push(*id);
                sink.checkpoint()
            })
        });
        assert_eq!(collected, written);
    }

    #[test]
    fn one_token_more_than_may_be_is_an_error() {
        let interrupt = Interrupt::default();
        for (count, is_too_many) in [(5000, false), (5001, true)] {
            let mut sink = Sink::new(5000, &interrupt);
            let outcome = (0..count).try_for_each(|id| {
                sink.ids.push(id);
                sink.checkpoint()
            });
            assert_eq!(matches!(outcome, Err(TextError::TooManyTokens { most: 5000 })), is_too_many);
        }
    }
}
