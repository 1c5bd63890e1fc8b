//! Token ids of OpenAI's tokenizer where a model's own are expected.
//!
//! LangChain's `OpenAIEmbeddings` cuts texts into tokens before it sends them, with the tokenizer of OpenAI's embedding models
//! whatever the model's name. Taken for the model's own, its ids would give vectors of nonsense, and nobody would notice.

use crate::texts::TextInput;

/// Whose token ids embedding requests hold.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum IdsOf {
    /// OpenAI's where the client is OpenAI's own library, which has no other tokenizer at hand; else the model's.
    #[default]
    Guess,
    /// The model's own.
    Model,
    /// OpenAI's `cl100k_base`.
    OpenAi,
}

impl IdsOf {
    /// The texts of a client that calls itself so, with foreign ids turned into the text that they stand for.
    pub fn read(self, user_agent: Option<&str>, texts: Vec<TextInput>) -> Vec<TextInput> {
        if self.are_foreign(user_agent) { texts.into_iter().map(as_text).collect() } else { texts }
    }

    /// Whether ids of a client that calls itself so are OpenAI's.
    pub fn are_foreign(self, user_agent: Option<&str>) -> bool {
        match self {
            IdsOf::Guess => user_agent.is_some_and(is_openai_library),
            IdsOf::Model => false,
            IdsOf::OpenAi => true,
        }
    }
}

/// Bytes that so many ids may stand for at most: those of the longest token, for each.
pub fn most_bytes(ids: usize) -> usize {
    ids.saturating_mul(LONGEST)
}

/// Bytes of `cl100k_base`'s longest token: many spaces.
const LONGEST: usize = 128;

/// `OpenAI/Python 2.8.0`, `AsyncOpenAI/Python 2.8.0`, `OpenAI/JS 6.9.1` and the like.
fn is_openai_library(user_agent: &str) -> bool {
    ["OpenAI/", "AsyncOpenAI/"].iter().any(|name| user_agent.starts_with(name))
}

/// Ids that OpenAI's tokenizer does not have can only be the model's own.
fn as_text(input: TextInput) -> TextInput {
    match input {
        TextInput::Tokens(ids) if !ids.is_empty() => {
            // A text that was cut into pieces may begin and end within a character.
            let bytes = tiktoken_rs::cl100k_base_singleton().decode_bytes(&ids);
            bytes.map_or(TextInput::Tokens(ids), |bytes| {
                TextInput::Text(String::from_utf8_lossy(&bytes).into_owned())
            })
        }
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// "Hello world" to `cl100k_base`.
    const HELLO: [u32; 2] = [9906, 1917];

    #[test]
    fn openais_library_sends_openais_ids_and_everyone_else_the_models_own() {
        let tokens = || vec![TextInput::Tokens(HELLO.to_vec()), TextInput::Text("x".into())];
        let text = vec![TextInput::Text("Hello world".into()), TextInput::Text("x".into())];
        assert_eq!(IdsOf::Guess.read(Some("OpenAI/Python 2.8.0"), tokens()), text);
        assert_eq!(IdsOf::Guess.read(Some("AsyncOpenAI/Python 2.8.0"), tokens()), text);
        assert_eq!(IdsOf::OpenAi.read(None, tokens()), text);
        for other in [None, Some("curl/8.5.0"), Some("python-requests/2.32")] {
            assert_eq!(IdsOf::Guess.read(other, tokens()), tokens());
        }
        assert_eq!(IdsOf::Model.read(Some("OpenAI/Python 2.8.0"), tokens()), tokens());
    }

    #[test]
    fn no_token_is_longer_than_what_is_set_aside_for_it() {
        let longest =
            (0..100_256).filter_map(|id| tiktoken_rs::cl100k_base_singleton().decode_bytes(&[id]).ok());
        assert_eq!(longest.map(|bytes| bytes.len()).max(), Some(LONGEST));
    }

    #[test]
    fn ids_that_openais_tokenizer_does_not_have_are_the_models_own() {
        let unknown = vec![TextInput::Tokens(vec![9906, 4_000_000])];
        assert_eq!(IdsOf::OpenAi.read(None, unknown.clone()), unknown);
    }
}
