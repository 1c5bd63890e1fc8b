//! What a cache that forgets nothing would find, counted on the trace itself.
//!
//! ```text
//! ids        7    8    9    10
//! tokens   |512 |512 |512 | 30|      came before: 7, 8 and 9, say, and also 10
//! repeated   x    x    x    x        all blocks whose ids came before
//! findable   x    x    x             an engine's share of them: whole blocks, from the first on, without the prompt's last token,
//!                                    whose logits it needs
//! ```

use std::collections::HashSet;

use super::{BLOCK, Recorded, Trace};
use crate::rng::mix;

/// Blocks of prompts, counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Endless {
    /// All of them, the incomplete last ones included.
    pub blocks: u64,
    /// Those whose ids came before.
    pub repeated: u64,
    /// Those that an engine can find at most if every prompt is computed before the next comes.
    pub findable: u64,
}

impl Endless {
    /// Counts a trace. Takes memory for every distinct id.
    pub fn count(trace: &Trace) -> Endless {
        let (mut ids, mut chains) = (HashSet::<u64>::new(), HashSet::<u64>::new());
        let mut counted = Endless::default();
        for request in trace.requests() {
            counted.blocks += request.prompt_tokens.div_ceil(BLOCK) as u64;
            counted.repeated += request.ids.iter().filter(|id| ids.contains(*id)).count() as u64;
            ids.extend(request.ids);
            let most = (request.prompt_tokens - 1) / BLOCK;
            counted.findable +=
                request.whole_blocks().take(most).take_while(|block| chains.contains(block)).count() as u64;
            chains.extend(request.whole_blocks());
        }
        counted
    }
}

impl Recorded<'_> {
    /// Names of the whole blocks of the prompt, each with everything before it; none where no ids were recorded.
    pub fn whole_blocks(&self) -> impl Iterator<Item = u64> {
        let whole = self.ids.iter().take(self.prompt_tokens / BLOCK);
        whole.scan(0, |chain, id| {
            *chain = mix(mix(*chain) ^ mix(!*id));
            Some(*chain)
        })
    }
}
