//! Contents for prompts of which only ids are known: equal where the ids are equal, and nowhere else.

use super::{BLOCK, Recorded};
use crate::rng::mix;

/// Tokens are below this.
pub const VOCAB: usize = 1 << 31;

/// A part of a prompt: up to [`BLOCK`] tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Part {
    /// The same number stands for the same content.
    pub content: u64,
    /// How long it is.
    pub tokens: usize,
}

impl Recorded<'_> {
    /// The parts of the prompt. Where no ids were recorded, no other prompt has the same.
    pub fn parts(&self) -> impl Iterator<Item = Part> {
        let starts = (0..self.prompt_tokens).step_by(BLOCK);
        starts.enumerate().map(|(block, start)| Part {
            content: self.content(block),
            tokens: BLOCK.min(self.prompt_tokens - start),
        })
    }

    /// The prompt in tokens of no real vocabulary.
    pub fn prompt(&self) -> Vec<u32> {
        let mut prompt = Vec::with_capacity(self.prompt_tokens);
        for Part { content, tokens } in self.parts() {
            prompt.extend((0..tokens as u64).map(|position| token(content, position)));
        }
        prompt
    }

    fn content(&self, block: usize) -> u64 {
        match self.ids.get(block) {
            Some(id) => mix(*id),
            None => mix(mix(self.number as u64) ^ !(block as u64)),
        }
    }
}

fn token(content: u64, position: u64) -> u32 {
    (mix(content.wrapping_add(position)) % VOCAB as u64) as u32
}
