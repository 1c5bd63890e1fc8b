//! Chunks of a streamed completion.

use std::borrow::Cow;
use std::collections::{HashMap, VecDeque};
use std::fmt;

use ropeway_executor::Sampled;
use serde::Deserialize;
use serde::de::{Deserializer, MapAccess, Visitor};

use super::super::{ChunkReader, Fault, Reading, best};
use crate::settings::Kind;
use crate::upstream::ask::{Ending, TokenAsk, TokenEvent, bare};
use crate::upstream::sse::DONE;

/// One chunk; what is not named here is skipped unread.
#[derive(Deserialize)]
struct Chunk<'a> {
    #[serde(borrow, default)]
    choices: Vec<Choice<'a>>,
    usage: Option<Usage>,
    error: Option<serde::de::IgnoredAny>,
}

#[derive(Deserialize)]
pub(super) struct Choice<'a> {
    pub(super) token_ids: Option<Vec<u32>>,
    pub(super) logprobs: Option<Logprobs>,
    #[serde(borrow)]
    pub(super) finish_reason: Option<Cow<'a, str>>,
    pub(super) stop_reason: Option<StopReason>,
    /// Per prompt token, in a whole answer only; the first token has none.
    pub(super) prompt_logprobs: Option<PromptLogprobs>,
}

pub(super) type PromptLogprobs = Vec<Option<HashMap<u32, PromptLogprob>>>;

#[derive(Deserialize)]
pub(super) struct PromptLogprob {
    pub(super) logprob: f32,
}

#[derive(Deserialize)]
pub(super) struct Usage {
    prompt_tokens_details: Option<PromptDetails>,
}

#[derive(Deserialize)]
struct PromptDetails {
    cached_tokens: Option<usize>,
}

impl Usage {
    pub(super) fn cached_tokens(&self) -> Option<usize> {
        self.prompt_tokens_details.as_ref().and_then(|details| details.cached_tokens)
    }
}

/// The end token, or a stop string, which nobody here asks for.
#[derive(Deserialize)]
#[serde(untagged)]
pub(super) enum StopReason {
    Token(u32),
    Text(serde::de::IgnoredAny),
}

/// Parallel lists, in the order of `token_ids`.
#[derive(Deserialize)]
pub(super) struct Logprobs {
    token_logprobs: Vec<Option<f32>>,
    top_logprobs: Option<Vec<Option<Top>>>,
}

/// `{"token_id:42": -0.5}`.
pub(super) struct Top(Vec<(u32, f32)>);

impl<'de> Deserialize<'de> for Top {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Entries;

        impl<'de> Visitor<'de> for Entries {
            type Value = Top;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("log-probabilities by `token_id:N`")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Top, A::Error> {
                let mut all = Vec::with_capacity(map.size_hint().unwrap_or(0));
                while let Some((name, logprob)) = map.next_entry::<Cow<'de, str>, f32>()? {
                    let id = name.strip_prefix("token_id:").and_then(|id| id.parse().ok());
                    let id =
                        id.ok_or_else(|| serde::de::Error::custom("a token that is not named by its id"))?;
                    all.push((id, logprob));
                }
                Ok(Top(all))
            }
        }
        deserializer.deserialize_map(Entries)
    }
}

/// What of a sequence's request its reader needs.
pub(super) struct Wants {
    pub(super) kind: Kind,
    pub(super) ends: Vec<u32>,
    /// Alternatives per token.
    pub(super) logprobs: Option<u32>,
}

impl Wants {
    pub(super) fn of(kind: Kind, ask: &TokenAsk<'_>) -> Self {
        Self { kind, ends: ask.ends.to_vec(), logprobs: ask.params.logprobs }
    }

    pub(super) fn foreign(&self, why: impl Into<String>) -> Fault {
        Fault::Foreign(self.kind, why.into())
    }
}

/// A choice's new tokens, and how it ended if it did.
pub(super) struct Gain {
    pub(super) tokens: Vec<Sampled>,
    pub(super) ending: Option<Ending>,
}

impl Choice<'_> {
    pub(super) fn gain(self, wants: &Wants) -> Result<Gain, Fault> {
        let ending = self.ending(wants)?;
        let ids = self.token_ids.ok_or_else(|| {
            wants.foreign("it gives no token ids with an answer; vLLM does so from 0.10.2 on, or set its kind to openai")
        })?;
        let mut tokens = match (wants.logprobs, self.logprobs) {
            (Some(most), Some(logprobs)) => logprobs.of(&ids, most, wants)?,
            (Some(_), None) if !ids.is_empty() => return Err(wants.foreign("log-probabilities are missing")),
            _ => ids.into_iter().map(bare).collect(),
        };
        // The end token is told both ways: as the last id, and as the reason.
        if let Some(Ending::End(end)) = ending
            && tokens.last().is_some_and(|last| last.token == end)
        {
            tokens.pop();
        }
        Ok(Gain { tokens, ending })
    }

    fn ending(&self, wants: &Wants) -> Result<Option<Ending>, Fault> {
        // vLLM gives no reason for the model's own end token alone, so that the last token is one; Ropeway for a complete grammar.
        let is_own = |last: &&u32| wants.kind == Kind::Vllm || wants.ends.contains(last);
        let last = self.token_ids.as_ref().and_then(|ids| ids.last()).filter(is_own);
        match (self.finish_reason.as_deref(), &self.stop_reason) {
            (None, _) => Ok(None),
            (Some("length"), _) => Ok(Some(Ending::Length)),
            (Some("stop"), Some(StopReason::Token(end))) => Ok(Some(Ending::End(*end))),
            (Some("stop"), _) => Ok(Some(Ending::stopped(last.copied(), &wants.ends))),
            (Some(other), _) => Err(Fault::GaveUp(format!("it ended the answer with `{other}`"))),
        }
    }
}

impl Logprobs {
    fn of(self, ids: &[u32], most: u32, wants: &Wants) -> Result<Vec<Sampled>, Fault> {
        let mut tops = self.top_logprobs.unwrap_or_default().into_iter();
        if self.token_logprobs.len() != ids.len() {
            return Err(wants.foreign("there are more or fewer log-probabilities than tokens"));
        }
        let described = ids.iter().zip(self.token_logprobs).map(|(&token, logprob)| {
            let top = tops.next().flatten().map_or_else(Vec::new, |Top(top)| best(top, most));
            Sampled { token, logprob: logprob.unwrap_or(0.0), top }
        });
        Ok(described.collect())
    }
}

/// Reads the chunks of one sequence.
pub(super) struct Reader {
    wants: Wants,
    ending: Option<Ending>,
    cached_tokens: Option<usize>,
}

impl Reader {
    pub(super) fn new(kind: Kind, ask: &TokenAsk<'_>) -> Self {
        Self { wants: Wants::of(kind, ask), ending: None, cached_tokens: None }
    }

    fn take(&mut self, choice: Choice<'_>, events: &mut VecDeque<TokenEvent>) -> Result<(), Fault> {
        let Gain { tokens, ending } = choice.gain(&self.wants)?;
        self.ending = self.ending.or(ending);
        if !tokens.is_empty() {
            events.push_back(TokenEvent::Tokens(tokens));
        }
        Ok(())
    }

    /// Hands out the end, if it has come.
    fn close(&mut self, events: &mut VecDeque<TokenEvent>) -> Reading {
        match self.finished() {
            Some(finished) => {
                events.push_back(finished);
                Reading::Over
            }
            None => Reading::More,
        }
    }
}

impl ChunkReader for Reader {
    fn read(&mut self, data: &[u8], events: &mut VecDeque<TokenEvent>) -> Result<Reading, Fault> {
        if data == DONE {
            let over = self.close(events);
            return if over == Reading::Over {
                Ok(over)
            } else {
                Err(self.wants.foreign("it said [DONE] before an end"))
            };
        }
        let chunk: Chunk<'_> =
            serde_json::from_slice(data).map_err(|error| self.wants.foreign(error.to_string()))?;
        if chunk.error.is_some() {
            return Err(Fault::Reported(serde_json::from_slice(data).unwrap_or_default()));
        }
        for choice in chunk.choices {
            self.take(choice, events)?;
        }
        // The usage follows the last token: what is cached is known now.
        let Some(usage) = chunk.usage else { return Ok(Reading::More) };
        self.cached_tokens = usage.cached_tokens();
        Ok(self.close(events))
    }

    fn finished(&mut self) -> Option<TokenEvent> {
        let cached_tokens = self.cached_tokens;
        self.ending.take().map(|ending| TokenEvent::Finished { ending, cached_tokens })
    }
}
