//! What can go wrong with tokenizers and templates, in words that say what to do next.

use std::path::PathBuf;

/// Why a tokenizer or a chat template can't be loaded or used.
#[derive(Debug, thiserror::Error)]
pub enum TextError {
    /// The checkpoint has no tokenizer at all.
    #[error(
        "{} has no tokenizer: put the model's tokenizer.json beside its weights, or use a GGUF file, which carries its own",
        .0.display()
    )]
    NoTokenizer(PathBuf),
    /// A file could not be read.
    #[error("{} could not be read: {source}; check that the download is complete and readable", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// What the operating system said.
        source: std::io::Error,
    },
    /// A file is larger than any real one of its kind.
    #[error("{} is {bytes} bytes long, more than the {limit} a file of this kind may have; it is probably not the right file", path.display())]
    FileTooLarge {
        /// The file.
        path: PathBuf,
        /// Its length.
        bytes: u64,
        /// The most that is read.
        limit: u64,
    },
    /// A JSON file is malformed.
    #[error("{} is not valid: {source}; download the model again", path.display())]
    BadJson {
        /// The file.
        path: PathBuf,
        /// Where and why.
        source: serde_json::Error,
    },
    /// A GGUF key that the tokenizer needs is missing or has another type.
    #[error(
        "the GGUF file has no usable `{key}`, which its `{model}` tokenizer needs; convert the model again with a current converter"
    )]
    MissingKey {
        /// The metadata key.
        key: &'static str,
        /// The tokenizer model that needs it.
        model: String,
    },
    /// A tokenizer part that this program doesn't know.
    #[error(
        "this tokenizer's {part} is `{name}`, which is not supported; a GGUF or tokenizer.json of the same model with another one works"
    )]
    Unsupported {
        /// Which part: model, normalizer, pre-tokenizer.
        part: &'static str,
        /// What the file calls it.
        name: String,
    },
    /// The parts of a tokenizer contradict each other.
    #[error("the tokenizer is inconsistent: {0}; download or convert the model again")]
    Inconsistent(String),
    /// A pre-tokenizer or normalizer pattern does not compile or is too costly.
    #[error("the tokenizer's pattern `{pattern}` can't be used: {reason}")]
    BadPattern {
        /// The regular expression.
        pattern: String,
        /// Why.
        reason: String,
    },
    /// All token texts together exceed what offsets can hold.
    #[error("the vocabulary's texts exceed 4 GiB; this is not a real tokenizer")]
    VocabularyTooLarge,
    /// The text is too long to tokenize.
    #[error("the text is {bytes} bytes long; at most {limit} can be tokenized at once, split it")]
    TextTooLong {
        /// Its length.
        bytes: usize,
        /// The most that is taken.
        limit: usize,
    },
    /// The text has more tokens than were asked for.
    #[error("the text has more than {most} tokens; shorten it")]
    TooManyTokens {
        /// The most that were wanted.
        most: usize,
    },
    /// Tokenising was interrupted.
    #[error("reading the text was given up, because nobody waits for it any more")]
    Interrupted,
    /// The chat template does not parse.
    #[error("the model's chat template has an error: {0}; give another template")]
    BadTemplate(String),
    /// The chat template refused the conversation (`raise_exception`).
    #[error("the model's chat template refuses this conversation: {0}")]
    Refused(String),
    /// The chat template failed on this conversation.
    #[error(
        "the model's chat template failed: {0}; check the roles and contents of the messages, or give another template"
    )]
    TemplateFailed(String),
    /// The chat template ran too long.
    #[error(
        "the model's chat template did not end within {0} instructions; shorten the conversation or give another template"
    )]
    TemplateTooSlow(u64),
    /// The chat template wrote too much.
    #[error(
        "the model's chat template wrote more than {0} bytes; shorten the conversation or give another template"
    )]
    TemplateTooLong(usize),
    /// A conversation leaves no character to mark its own texts with.
    #[error("the conversation uses all of U+FDD0 to U+FDEF, which are no characters; leave them out")]
    NoCharacterLeft,
    /// The checkpoint's files could not be used.
    #[error(transparent)]
    Weights(#[from] ropeway_weights::WeightsError),
}
