//! Text in and out: tokenizers, incremental detokenisation, chat templates, answers taken apart.
//!
//! ```text
//! messages ─ ChatTemplate::encode ─> ids
//! ids ─ Detokenizer::push ─> text ─ OutputParser::push ─> text, reasoning, tool calls
//! ```
//!
//! | module | what it is |
//! |---|---|
//! | `tokenizer` | the public [`Tokenizer`]: its parts and the order in which they work |
//! | `source` | builds the parts from GGUF metadata or from a folder with tokenizer.json |
//! | `added`, `normalizer`, `charsmap`, `pretokenizer`, `model`, `sink` | the steps from text to ids |
//! | `vocabulary`, `spelling`, `detokenizer` | the token table, and from ids to text |
//! | `packed` | many ids in little memory |
//! | `pattern` | regular expressions in linear time |
//! | `stop` | stop strings across token borders |
//! | `chat` | the public [`ChatTemplate`] |
//! | `output` | the public [`OutputParser`] |
//!
//! It relies on `ropeway-weights` for the files. Files are hostile until proven otherwise: whatever they say, loading
//! and using them ends in a result or a [`TextError`] in bounded time and memory.

mod added;
mod charsmap;
mod chat;
mod detokenizer;
mod error;
mod infill;
mod interrupt;
mod model;
mod normalizer;
mod output;
mod packed;
mod pattern;
mod pretokenizer;
mod sink;
mod source;
mod spelling;
mod stop;
mod tokenizer;
mod vocabulary;

pub use chat::{ChatRequest, ChatTemplate, Readied, TemplateTokens, tools_as_text, without_billing_line};
pub use detokenizer::Detokenizer;
pub use error::TextError;
pub use infill::Infill;
pub use interrupt::Interrupt;
pub use output::{Delta, OutputOptions, OutputParser, OutputStyle};
pub use packed::PackedTokens;
pub use stop::{StopMatcher, Stopping};
pub use tokenizer::{Around, InText, PairFrame, Special, SpecialTokens, Tokenizer};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokenizers_and_templates_are_shared_between_threads() {
        fn shared<T: Send + Sync>() {}
        shared::<Tokenizer>();
        shared::<Detokenizer>();
        shared::<ChatTemplate>();
    }
}
