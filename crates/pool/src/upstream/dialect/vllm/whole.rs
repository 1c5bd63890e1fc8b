//! A completion in one piece, with what the model thought of the prompt.

use std::collections::{HashMap, VecDeque};

use bytes::Bytes;
use ropeway_executor::Sampled;
use serde::Deserialize;

use super::super::{Fault, WholeReader, best};
use super::chunk::{Choice, Gain, PromptLogprob, PromptLogprobs, Usage, Wants};
use crate::settings::Kind;
use crate::upstream::ask::{Ending, TokenAsk, TokenEvent};

#[derive(Deserialize)]
struct Whole<'a> {
    #[serde(borrow)]
    choices: Vec<Choice<'a>>,
    usage: Option<Usage>,
}

/// Reads one sequence.
pub(super) struct Reader {
    wants: Wants,
    prompt: Vec<u32>,
    alternatives: u32,
    /// Whether the answer's own tokens are wanted.
    generates: bool,
}

impl Reader {
    pub(super) fn new(kind: Kind, ask: &TokenAsk<'_>) -> Self {
        Self {
            wants: Wants::of(kind, ask),
            prompt: ask.prompt.to_vec(),
            alternatives: ask.prompt_logprobs.unwrap_or(0),
            generates: ask.max_tokens > 0,
        }
    }

    fn scored(&self, given: Option<PromptLogprobs>) -> Result<Vec<Sampled>, Fault> {
        let given = given.filter(|given| given.len() == self.prompt.len());
        let given = given.ok_or_else(|| self.wants.foreign("log-probabilities of the prompt are missing"))?;
        let tokens = self.prompt.iter().zip(given).skip(1);
        tokens.map(|(token, given)| self.scored_one(*token, given.unwrap_or_default())).collect()
    }

    /// The server lists the token itself and the most likely ones.
    fn scored_one(&self, token: u32, given: HashMap<u32, PromptLogprob>) -> Result<Sampled, Fault> {
        let own =
            given.get(&token).ok_or_else(|| self.wants.foreign("a prompt token has no log-probability"))?;
        let logprob = own.logprob;
        let all = given.into_iter().map(|(token, given)| (token, given.logprob)).collect();
        Ok(Sampled { token, logprob, top: best(all, self.alternatives) })
    }
}

impl WholeReader for Reader {
    fn read(&mut self, body: &Bytes) -> Result<VecDeque<TokenEvent>, Fault> {
        let whole: Whole<'_> =
            serde_json::from_slice(body).map_err(|error| self.wants.foreign(error.to_string()))?;
        let Some(mut choice) = whole.choices.into_iter().next() else {
            return Err(self.wants.foreign("there is no choice in its answer"));
        };
        let cached_tokens = whole.usage.and_then(|usage| usage.cached_tokens());
        let mut events = VecDeque::from([TokenEvent::Scored(self.scored(choice.prompt_logprobs.take())?)]);
        let Gain { tokens, ending } = choice.gain(&self.wants)?;
        if self.generates && !tokens.is_empty() {
            events.push_back(TokenEvent::Tokens(tokens));
        }
        let ending = if self.generates { ending.unwrap_or(Ending::Length) } else { Ending::Length };
        events.push_back(TokenEvent::Finished { ending, cached_tokens });
        Ok(events)
    }
}
