//! The tokenizer: text to token ids and back.
//!
//! ```text
//! text ─ added tokens ─ normalizer ─ added tokens ─ pre-tokenizer ─ model ─ framing ─> ids
//!        (as typed)                  (normalised)                            (BOS, EOS)
//! ids  ─ spelling ─> bytes ─> text
//! ```
//!
//! It relies on the sources (`source/`) to have put the parts together and holds no state of its own: one tokenizer
//! serves all threads. It must never turn plain text into control tokens, and never panic, whatever the text.

use crate::added::{AddedTokens, Part};
use crate::detokenizer::Detokenizer;
use crate::error::TextError;
use crate::interrupt::Interrupt;
use crate::model::{Alphabet, Model};
use crate::normalizer::Normalizer;
use crate::packed::PackedTokens;
use crate::pretokenizer::{Place, PreTokenizer};
use crate::sink::Sink;
use crate::spelling::Spelling;
use crate::vocabulary::{Kind, Vocabulary};
use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

/// Turns text into token ids and back. Cheap to clone; clones share everything.
#[derive(Clone)]
pub struct Tokenizer {
    parts: Arc<Parts>,
    /// Looked at between the pieces of a text.
    interrupt: Interrupt,
    /// Tokens beyond which a text is given up.
    most: usize,
}

/// What a tokenizer is made of.
pub(crate) struct Parts {
    pub(crate) vocabulary: Vocabulary,
    /// Matched in the text as it is given.
    pub(crate) added: AddedTokens,
    /// Matched after normalising.
    pub(crate) added_normalized: AddedTokens,
    pub(crate) normalizer: Option<Normalizer>,
    pub(crate) pre_tokenizer: PreTokenizer,
    pub(crate) model: Model,
    pub(crate) spelling: Spelling,
    /// Whether encoding puts a space before the text that decoding has to take away.
    pub(crate) adds_space: bool,
    pub(crate) framing: Framing,
    pub(crate) named: NamedTokens,
}

/// The tokens that the model wants around every text.
#[derive(Debug, Default)]
pub(crate) struct Framing {
    pub(crate) before: Vec<u32>,
    pub(crate) after: Vec<u32>,
    pub(crate) pair: Option<PairFrame>,
}

/// The tokens that the model wants around two texts given as one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PairFrame {
    /// Before the first text.
    pub before: Vec<u32>,
    /// Between the two.
    pub between: Vec<u32>,
    /// After the second text.
    pub after: Vec<u32>,
    /// The type of the second text's tokens and of those after it; all others are of type 0.
    pub second_type: u8,
}

/// Tokens known by their part in a text.
#[derive(Debug, Default)]
pub(crate) struct NamedTokens {
    pub(crate) bos: Option<u32>,
    pub(crate) ends: Vec<u32>,
}

/// How [`Tokenizer::encode`] treats special tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Special {
    /// Special tokens spelled out in the text.
    pub in_text: InText,
    /// The tokens that the model wants around every text, such as BOS.
    pub around: Around,
}

/// What the spelling of a special token in the text means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InText {
    /// The token itself; for text that this program or its operator wrote.
    Parse,
    /// Ordinary text; for text from users.
    Plain,
}

/// Whether the tokens that the model wants around every text are added.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Around {
    /// Added as the model wants it.
    Add,
    /// Left out.
    Omit,
}

impl Special {
    /// For a rendered chat template, which writes all special tokens itself.
    pub const TEMPLATE: Special = Special { in_text: InText::Parse, around: Around::Omit };
    /// For a raw prompt: special tokens are recognised and BOS is added where the model wants it.
    pub const PROMPT: Special = Special { in_text: InText::Parse, around: Around::Add };
    /// For text to embed or to count, from users: nothing in it is special.
    pub const PLAIN: Special = Special { in_text: InText::Plain, around: Around::Add };
}

/// Whether decoding writes special tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SpecialTokens {
    /// As their text.
    Keep,
    /// Not at all.
    Skip,
}

/// A text longer than this is refused: a million tokens of context are about 5 MB of text.
const MAX_TEXT_BYTES: usize = 16 << 20;

impl Tokenizer {
    pub(crate) fn from_parts(mut parts: Parts) -> Self {
        if let Model::Bpe(bpe) = &mut parts.model
            && parts.pre_tokenizer.leave_bytes_to_model()
        {
            bpe.alphabet = Alphabet::Bytes;
        }
        Self { parts: Arc::new(parts), interrupt: Interrupt::default(), most: usize::MAX }
    }

    /// The same tokenizer; encoding ends with [`TextError::Interrupted`] once `interrupt` is raised.
    #[must_use]
    pub fn interrupted_by(&self, interrupt: &Interrupt) -> Self {
        Self { interrupt: interrupt.clone(), ..self.clone() }
    }

    /// The same tokenizer; encoding ends with [`TextError::TooManyTokens`] once there are more than `most`.
    #[must_use]
    pub fn at_most(&self, most: usize) -> Self {
        Self { most, ..self.clone() }
    }

    /// The token ids of `text`.
    pub fn encode(&self, text: &str, special: Special) -> Result<Vec<u32>, TextError> {
        Ok(self.encode_packed(text, special)?.into_vec())
    }

    /// The token ids of `text`, packed: together with the text they take no more than four times its bytes.
    pub fn encode_packed(&self, text: &str, special: Special) -> Result<PackedTokens, TextError> {
        let Framing { before, after, .. } = &self.parts.framing;
        let add = special.around == Around::Add;
        let mut sink = Sink::new(self.most, &self.interrupt);
        if add {
            sink.ids.extend_from_slice(before);
        }
        let special = special.in_text == InText::Parse;
        self.parts.encode(text, Reading { special, ignored: None }, &mut sink)?;
        if add {
            sink.ids.extend_from_slice(after);
        }
        sink.finish()
    }

    /// The tokens that the model wants before and after every text.
    pub fn frame(&self) -> (&[u32], &[u32]) {
        (&self.parts.framing.before, &self.parts.framing.after)
    }

    /// The tokens that the model wants around a pair of texts, if it takes pairs.
    pub fn pair_frame(&self) -> Option<&PairFrame> {
        self.parts.framing.pair.as_ref()
    }

    /// The token ids of a rendered template, in which `ignored` keeps text from being read as special tokens and is no
    /// text itself.
    pub(crate) fn encode_guarded(&self, text: &str, ignored: char) -> Result<Vec<u32>, TextError> {
        let mut sink = Sink::new(self.most, &self.interrupt);
        self.parts.encode(text, Reading { special: true, ignored: Some(ignored) }, &mut sink)?;
        Ok(sink.finish()?.into_vec())
    }

    /// An opportunity to stop work that belongs to a text.
    pub(crate) fn check_interrupt(&self) -> Result<(), TextError> {
        self.interrupt.check()
    }

    /// Whether `text` begins with the text of a special token, or is the beginning of one.
    pub(crate) fn begins_special(&self, text: &str) -> bool {
        self.parts.added.begins_special(text) || self.parts.added_normalized.begins_special(text)
    }

    /// The text of `ids`. Bytes that are no UTF-8 become U+FFFD, ids that are no tokens are left out.
    pub fn decode(&self, ids: &[u32], special: SpecialTokens) -> String {
        let mut detokenizer = Detokenizer::new(self.clone(), special);
        let mut text = String::new();
        for &id in ids {
            text.push_str(detokenizer.push(id));
        }
        text.push_str(&detokenizer.finish());
        text
    }

    /// A decoder that takes tokens one by one, leaving special tokens out.
    pub fn detokenizer(&self) -> Detokenizer {
        Detokenizer::new(self.clone(), SpecialTokens::Skip)
    }

    /// Bytes of the longest token, where every byte of a text ends up in a token: no text has fewer tokens than its bytes
    /// divided by this. `None` for tokenizers that may leave text out. Looks at the whole vocabulary.
    pub fn longest_token(&self) -> Option<usize> {
        let keeps_all = self.parts.spelling == Spelling::ByteLevel && self.parts.normalizer.is_none();
        let lengths = (0..self.vocab_size() as u32).map(|id| self.token_bytes(id).len());
        lengths.max().filter(|longest| keeps_all && *longest > 0)
    }

    /// The token's spelling in the vocabulary, `None` for ids that are no tokens.
    pub fn token_text(&self, id: u32) -> Option<&str> {
        self.parts.vocabulary.text(id)
    }

    /// The bytes that the token stands for inside a text; special tokens give their spelling.
    pub fn token_bytes(&self, id: u32) -> Vec<u8> {
        let mut bytes = Vec::new();
        self.write_token(id, SpecialTokens::Keep, false, &mut bytes);
        bytes
    }

    /// The id of the token spelled exactly `text` in the vocabulary.
    pub fn token_id(&self, text: &str) -> Option<u32> {
        self.parts.vocabulary.id(text)
    }

    /// Whether the token steers the model and is no text.
    pub fn is_special(&self, id: u32) -> bool {
        matches!(self.parts.vocabulary.kind(id), Kind::Control | Kind::Unknown)
    }

    /// How many token ids there are, from 0 on.
    pub fn vocab_size(&self) -> usize {
        self.parts.vocabulary.len()
    }

    /// Every token that ends a generation, sorted.
    pub fn eos_tokens(&self) -> &[u32] {
        &self.parts.named.ends
    }

    /// The token that begins a text, if the model has one.
    pub fn bos_token(&self) -> Option<u32> {
        self.parts.named.bos
    }

    pub(crate) fn starts_with_added_space(&self) -> bool {
        self.parts.adds_space
    }

    /// Appends the bytes of a token; `first` says that it is the first of its text.
    pub(crate) fn write_token(&self, id: u32, special: SpecialTokens, first: bool, out: &mut Vec<u8>) {
        let Parts { vocabulary, spelling, .. } = &*self.parts;
        if special == SpecialTokens::Skip && self.is_special(id) {
            return;
        }
        if let Some(text) = vocabulary.text(id) {
            spelling.write(text, vocabulary.kind(id), first, out);
        }
    }
}

impl fmt::Debug for Tokenizer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tokenizer")
            .field("vocab_size", &self.vocab_size())
            .field("named", &self.parts.named)
            .finish_non_exhaustive()
    }
}

/// How a text is read.
#[derive(Clone, Copy)]
struct Reading {
    /// Whether the texts of special tokens mean these.
    special: bool,
    /// A character that is left out once special tokens have been looked for.
    ignored: Option<char>,
}

impl Parts {
    fn encode(&self, text: &str, reading: Reading, sink: &mut Sink<'_>) -> Result<(), TextError> {
        if text.len() > MAX_TEXT_BYTES {
            return Err(TextError::TextTooLong { bytes: text.len(), limit: MAX_TEXT_BYTES });
        }
        self.added.split(text, reading.special, sink.interrupt, |part| match part {
            Part::Token(id) => {
                sink.ids.push(id);
                sink.checkpoint()
            }
            Part::Text(text, start) => {
                let normalized = match &self.normalizer {
                    Some(normalizer) => normalizer.apply(Cow::Borrowed(text))?,
                    None => Cow::Borrowed(text),
                };
                let place = if start == 0 { Place::Start } else { Place::Inside };
                self.encode_normalized(&normalized, place, reading, sink)
            }
        })
    }

    fn encode_normalized(
        &self,
        text: &str,
        place: Place,
        reading: Reading,
        sink: &mut Sink<'_>,
    ) -> Result<(), TextError> {
        self.added_normalized.split(text, reading.special, sink.interrupt, |part| match part {
            Part::Token(id) => {
                sink.ids.push(id);
                sink.checkpoint()
            }
            Part::Text(text, start) => {
                let place = if start == 0 { place } else { Place::Inside };
                let text = without(text, reading.ignored);
                let interrupt = sink.interrupt;
                let tokenize = &mut |piece: &str| self.model.tokenize(&self.vocabulary, piece, sink);
                self.pre_tokenizer.split(&text, place, interrupt, tokenize)
            }
        })
    }
}

fn without(text: &str, ignored: Option<char>) -> Cow<'_, str> {
    match ignored {
        Some(ignored) if text.contains(ignored) => Cow::Owned(text.replace(ignored, "")),
        _ => Cow::Borrowed(text),
    }
}
