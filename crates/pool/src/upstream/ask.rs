//! What is asked of an upstream that speaks tokens, before any dialect has seen it, and what it answers.

use std::fmt;
use std::sync::Arc;

use ropeway_engine::FinishReason;
use ropeway_executor::{Class, Sampled, SamplingParams};
use ropeway_grammar::GrammarSpec;

/// One sequence to be generated.
#[derive(Clone, Debug)]
pub struct TokenAsk<'a> {
    /// The model, as the upstream calls it.
    pub model: &'a str,
    /// Tokens to continue.
    pub prompt: &'a [u32],
    /// How tokens are chosen.
    pub params: &'a SamplingParams,
    /// Whether the seed among these is the caller's own. Servers choose faster without one.
    pub is_seeded: bool,
    /// Most new tokens; 0 is for scoring only.
    pub max_tokens: usize,
    /// Tokens before which no end token is chosen.
    pub min_tokens: usize,
    /// Tokens that end the sequence.
    pub ends: &'a [u32],
    /// Whether end tokens of the model that are not among `ends` are to be ignored. Where the upstream can take exactly `ends`, it does so
    /// in any case.
    pub ignore_eos: bool,
    /// What the answer has to follow.
    pub grammar: Option<&'a GrammarSpec>,
    /// Report what the model thought of each prompt token but the first, with so many alternatives.
    pub prompt_logprobs: Option<u32>,
    /// How urgent it is; for upstreams that know classes.
    pub class: Class,
    /// Divides cached prompts of different owners.
    pub cache_salt: Option<&'a str>,
    /// The conversation it is part of.
    pub session: Option<&'a str>,
    /// Its name in the upstream's log; a new one for every attempt, because some servers know requests by it.
    pub request_id: &'a str,
    /// How a text is written in tokens; for upstreams that leave out some of them.
    pub spelling: Option<Spelling>,
}

impl<'a> TokenAsk<'a> {
    /// A greedy continuation of `prompt` by at most `max_tokens`.
    pub fn greedy(model: &'a str, prompt: &'a [u32], max_tokens: usize, params: &'a SamplingParams) -> Self {
        Self {
            model,
            prompt,
            params,
            is_seeded: false,
            max_tokens,
            min_tokens: 0,
            ends: &[],
            ignore_eos: false,
            grammar: None,
            prompt_logprobs: None,
            class: Class::Default,
            cache_salt: None,
            session: None,
            request_id: "",
            spelling: None,
        }
    }
}

/// Writes a text in tokens, without those that frame a prompt.
#[derive(Clone)]
pub struct Spelling(Arc<Spell>);

type Spell = dyn Fn(&str) -> Vec<u32> + Send + Sync;

impl Spelling {
    /// By this function.
    pub fn new(spell: impl Fn(&str) -> Vec<u32> + Send + Sync + 'static) -> Self {
        Self(Arc::new(spell))
    }

    /// The tokens of a text.
    pub fn spell(&self, text: &str) -> Vec<u32> {
        (self.0)(text)
    }
}

impl fmt::Debug for Spelling {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Spelling(..)")
    }
}

/// Something that an upstream says about a sequence.
#[derive(Clone, Debug, PartialEq)]
pub enum TokenEvent {
    /// What the model thought of the prompt's tokens from the second on. At most once, and first.
    Scored(Vec<Sampled>),
    /// New tokens, at least one. Log-probabilities are there if they were asked for.
    Tokens(Vec<Sampled>),
    /// The sequence is over. Exactly once, and last.
    Finished {
        /// Why.
        ending: Ending,
        /// Prompt tokens that the upstream had cached, if it says.
        cached_tokens: Option<usize>,
    },
}

/// Why a sequence is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// It reached this end token, which is not among its tokens.
    End(u32),
    /// It stopped, and there is no end token that could have stopped it: its grammar is complete.
    Complete,
    /// It has as many tokens as were asked for, or as fit.
    Length,
}

impl Ending {
    /// Stopped by a token, known or not.
    pub(super) fn stopped(by: Option<u32>, ends: &[u32]) -> Self {
        by.or(ends.first().copied()).map_or(Self::Complete, Self::End)
    }
}

impl From<Ending> for FinishReason {
    fn from(ending: Ending) -> Self {
        match ending {
            Ending::End(token) => FinishReason::End(token),
            Ending::Complete => FinishReason::Complete,
            Ending::Length => FinishReason::Length,
        }
    }
}

/// A token without a log-probability.
pub(super) fn bare(token: u32) -> Sampled {
    Sampled { token, ..Sampled::default() }
}
