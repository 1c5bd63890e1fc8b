//! Prompts, beginnings of answers and single words as a model's tokens, and what is said of those that are too long.

use ropeway_text::{Around, InText, Infill, Interrupt, Special, SpecialTokens, TextError, Tokenizer};

use super::TokenModel;
use crate::error::{ErrorKind, Excess, RequestError};
use crate::job::Prompt;

/// Tokens at the end of a prompt in which a template may have opened the model's reasoning.
const PROMPT_END: usize = 16;

/// How the middle of a text is tokenised, in which nothing is special: a predicted answer, one that was begun.
const MIDDLE: Special = Special { in_text: InText::Plain, around: Around::Omit };

impl TokenModel {
    /// The model's tokens for a prompt, also for one that does not fit into the context; gives up when `interrupt` is
    /// raised.
    pub(super) fn encode(&self, prompt: Prompt, interrupt: &Interrupt) -> Result<Vec<u32>, RequestError> {
        let tokenizer = self.tokenizer.interrupted_by(interrupt);
        match prompt {
            Prompt::Conversation(mut conversation) => conversation.encode(self, &tokenizer),
            Prompt::Text(text) => self.encode_text(&text, &tokenizer),
            Prompt::Between { prefix, suffix } => self.encode_between(&prefix, &suffix, &tokenizer),
            Prompt::Tokens(tokens) => Ok(tokens),
        }
    }

    pub(super) fn encode_between(
        &self,
        prefix: &str,
        suffix: &str,
        tokenizer: &Tokenizer,
    ) -> Result<Vec<u32>, RequestError> {
        let Some(infill) = Infill::of(tokenizer) else {
            let message = "this model can't fill in before a suffix: it has no tokens for that; leave it out";
            return Err(RequestError::invalid(message).at("suffix"));
        };
        let part = |text: &str| tokenizer.encode(text, MIDDLE).map_err(|error| self.unread(error));
        Ok(infill.prompt(part(prefix)?, part(suffix)?))
    }

    /// The tokens of an answer's beginning, after those of its prompt: thoughts that the template opened are over then.
    pub(crate) fn encode_begun(
        &self,
        prompt: &[u32],
        text: &str,
        tokenizer: &Tokenizer,
    ) -> Result<Vec<u32>, RequestError> {
        let mut tokens = Vec::new();
        if let Some(close) = self.style.open_reasoning(&self.prompt_end(prompt)) {
            let close = tokenizer.encode(&format!("{close}\n\n"), Special::TEMPLATE);
            tokens.extend(close.map_err(|error| self.unread(error))?);
        }
        tokens.extend(tokenizer.encode(text, MIDDLE).map_err(|error| self.unread(error))?);
        Ok(tokens)
    }

    /// The tokens that words consist of, each with and without a space before it.
    pub(super) fn single_tokens(&self, words: &[String]) -> Result<Vec<u32>, RequestError> {
        let mut tokens = Vec::new();
        for word in words {
            if word.trim().is_empty() {
                return Err(RequestError::invalid("a word has at least one character").at("bad_words"));
            }
            let before = tokens.len();
            for form in [word.clone(), format!(" {}", word.trim_start())] {
                if let [token] = self.tokenizer.encode(&form, MIDDLE)?[..] {
                    tokens.push(token);
                }
            }
            if tokens.len() == before {
                let message = format!(
                    "{word:?} is more than one token to this model, and can't be kept out of its answer; leave it out"
                );
                return Err(RequestError::invalid(message).at("bad_words"));
            }
        }
        Ok(tokens)
    }

    pub(super) fn encode_text(&self, text: &str, tokenizer: &Tokenizer) -> Result<Vec<u32>, RequestError> {
        if text.len() > self.max_prompt_bytes() {
            return Err(self.prompt_too_long());
        }
        tokenizer.encode(text, Special::PROMPT).map_err(|error| self.unread(error))
    }

    /// The error for a prompt that could not be turned into tokens.
    pub(crate) fn unread(&self, error: TextError) -> RequestError {
        match error {
            TextError::TemplateTooLong(_) if self.longest_token.is_some() => self.prompt_too_long(),
            TextError::TooManyTokens { most } => self.too_many_tokens(most),
            other => other.into(),
        }
    }

    /// The error for a prompt that was given up after so many tokens.
    fn too_many_tokens(&self, most: usize) -> RequestError {
        let room = self.context();
        let message = format!(
            "This model's maximum context length is {room} tokens for prompt and answer together. However, the prompt has more \
             than {most} tokens; shorten it, or raise --context or --kv-memory"
        );
        RequestError::too_long(Excess { tokens: most + 1, room }, message)
    }

    /// The error for a text that can't fit, however it is tokenised.
    fn prompt_too_long(&self) -> RequestError {
        let (bytes, room) = (self.max_prompt_bytes(), self.context());
        let message = format!(
            "This model's maximum context length is {room} tokens for prompt and answer together. However, the prompt has more \
             than {bytes} bytes, which never fit; shorten it, or raise --context or --kv-memory"
        );
        RequestError::too_long(Excess { tokens: room + 1, room }, message)
    }

    /// The model's tokens for a predicted answer, which may have as many as a prompt.
    pub(super) fn predict(&self, text: &str, tokenizer: &Tokenizer) -> Result<Vec<u32>, RequestError> {
        let room = self.context();
        if text.len() <= self.max_prompt_bytes() {
            match tokenizer.encode(text, MIDDLE) {
                Ok(tokens) if tokens.len() < room => return Ok(tokens),
                Ok(_) | Err(TextError::TooManyTokens { .. }) => {}
                Err(error) => return Err(error.into()),
            }
        }
        let message = format!(
            "the prediction does not fit into the {room} tokens that prompt and answer have room for; shorten it to what \
             the answer may hold"
        );
        Err(RequestError::new(ErrorKind::ContextLengthExceeded, message).at("prediction"))
    }

    /// The end of a prompt, as text.
    pub(super) fn prompt_end(&self, tokens: &[u32]) -> String {
        let from = tokens.len().saturating_sub(PROMPT_END);
        self.tokenizer.decode(&tokens[from..], SpecialTokens::Keep)
    }
}
