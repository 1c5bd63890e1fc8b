//! Tokenizers from GGUF metadata (`tokenizer.ggml.*`).

use super::end_tokens::end_tokens;
use super::gguf_presets::{Compose, Preset, preset};
use crate::added::AddedTokens;
use crate::charsmap::Charsmap;
use crate::error::TextError;
use crate::model::{Bpe, Merges, Missing, Model, Ranks, Unigram, Whole, WordPiece};
use crate::normalizer::{Bert, Normalizer, Target, is_punctuation};
use crate::pattern::Pattern;
use crate::pretokenizer::{Behavior, Delimiter, PreTokenizer, Prepend, Step};
use crate::spelling::Spelling;
use crate::tokenizer::{Framing, NamedTokens, PairFrame, Parts};
use crate::vocabulary::{Kind, Vocabulary};
use ropeway_weights::gguf::Metadata;

const MODEL: &str = "tokenizer.ggml.model";
const PRE: &str = "tokenizer.ggml.pre";
const TOKENS: &str = "tokenizer.ggml.tokens";
const TYPES: &str = "tokenizer.ggml.token_type";
const MERGES: &str = "tokenizer.ggml.merges";
const SCORES: &str = "tokenizer.ggml.scores";
const ADD_SPACE: &str = "tokenizer.ggml.add_space_prefix";
const CHARSMAP: &str = "tokenizer.ggml.precompiled_charsmap";
const SQUEEZE: &str = "tokenizer.ggml.remove_extra_whitespaces";

/// The mark that SentencePiece and GGUF write for a space.
const SPACE_MARK: &str = "▁";

/// BERT takes longer words as unknown.
const MAX_WORD_CHARS: usize = 100;

/// The parts that depend on the tokenizer's model.
struct Kernel {
    normalizer: Option<Normalizer>,
    pre_tokenizer: PreTokenizer,
    model: Model,
    spelling: Spelling,
    adds_space: bool,
    adds: Adds,
}

/// Which tokens are put around a text where the file doesn't say.
#[derive(Clone, Copy)]
struct Adds {
    bos: bool,
    eos: bool,
    separator: bool,
}

pub(super) fn parts(metadata: &Metadata) -> Result<Parts, TextError> {
    let model = metadata.str(MODEL).ok_or_else(|| missing(MODEL, "any"))?;
    let vocabulary = vocabulary(metadata, model)?;
    let kernel = match model {
        "gpt2" => byte_level(metadata, &vocabulary)?,
        "llama" => sentencepiece(metadata, &vocabulary)?,
        "t5" => unigram(metadata, &vocabulary)?,
        "bert" => wordpiece(metadata, &vocabulary)?,
        other => return Err(TextError::Unsupported { part: "model", name: other.to_owned() }),
    };
    Ok(Parts {
        added: AddedTokens::of_vocabulary(&vocabulary)?,
        added_normalized: AddedTokens::new(Vec::new())?,
        normalizer: kernel.normalizer,
        pre_tokenizer: kernel.pre_tokenizer,
        model: kernel.model,
        spelling: kernel.spelling,
        adds_space: kernel.adds_space,
        framing: framing(metadata, &vocabulary, kernel.adds),
        named: named(metadata, &vocabulary),
        vocabulary,
    })
}

fn missing(key: &'static str, model: &str) -> TextError {
    TextError::MissingKey { key, model: model.to_owned() }
}

fn vocabulary(metadata: &Metadata, model: &str) -> Result<Vocabulary, TextError> {
    let tokens = metadata.strs(TOKENS).ok_or_else(|| missing(TOKENS, model))?;
    let Some(types) = metadata.i32s(TYPES) else {
        return Vocabulary::new(tokens.map(|text| (text, Kind::Normal)));
    };
    if types.len() != tokens.len() {
        let counts = format!("{} tokens but {} token types", tokens.len(), types.len());
        return Err(TextError::Inconsistent(counts));
    }
    Vocabulary::new(tokens.zip(types.map(kind)))
}

fn kind(code: i32) -> Kind {
    match code {
        2 => Kind::Unknown,
        3 => Kind::Control,
        4 => Kind::UserDefined,
        5 => Kind::Unused,
        6 => Kind::Byte,
        _ => Kind::Normal,
    }
}

fn scores(metadata: &Metadata, vocabulary: &Vocabulary, model: &str) -> Result<Vec<f32>, TextError> {
    let scores = metadata.f32s(SCORES).ok_or_else(|| missing(SCORES, model))?;
    if scores.len() == vocabulary.len() {
        return Ok(scores.collect());
    }
    let counts = format!("{} tokens but {} scores", vocabulary.len(), scores.len());
    Err(TextError::Inconsistent(counts))
}

fn byte_level(metadata: &Metadata, vocabulary: &Vocabulary) -> Result<Kernel, TextError> {
    let name = metadata.str(PRE).unwrap_or("default");
    let unsupported = || TextError::Unsupported { part: "pre-tokenizer", name: name.to_owned() };
    let preset: &Preset = preset(name).ok_or_else(unsupported)?;
    let pairs = metadata.strs(MERGES).ok_or_else(|| missing(MERGES, "gpt2"))?;
    let merges = Merges::new(vocabulary, pairs.filter_map(split_merge));
    Ok(Kernel {
        normalizer: (preset.compose == Compose::Nfc).then_some(Normalizer::Nfc),
        pre_tokenizer: PreTokenizer { steps: steps(preset)? },
        model: Model::Bpe(Bpe::new(Ranks::Merges(merges), Missing::default(), preset.whole)),
        spelling: Spelling::ByteLevel,
        adds_space: false,
        adds: Adds { bos: preset.adds_bos, eos: false, separator: false },
    })
}

fn steps(preset: &Preset) -> Result<Vec<Step>, TextError> {
    let isolate = |pattern: &&str| Step::isolate(pattern);
    let on_text = preset.patterns.iter().map(isolate);
    let on_bytes = preset.patterns_on_bytes.iter().map(isolate);
    on_text.chain([Ok(Step::Bytes)]).chain(on_bytes).collect()
}

/// The two sides of `left right`; the left one may begin with a space.
fn split_merge(merge: &str) -> Option<(&str, &str)> {
    let first = merge.chars().next()?.len_utf8();
    let space = first + merge[first..].find(' ')?;
    Some((&merge[..space], &merge[space + 1..]))
}

fn sentencepiece(metadata: &Metadata, vocabulary: &Vocabulary) -> Result<Kernel, TextError> {
    let adds_space = metadata.bool(ADD_SPACE).unwrap_or(true);
    let ranks = Ranks::Scores(scores(metadata, vocabulary, "llama")?);
    let missing = missing_characters(metadata, vocabulary);
    Ok(Kernel {
        normalizer: Some(mark_spaces(adds_space)),
        pre_tokenizer: PreTokenizer::default(),
        model: Model::Bpe(Bpe::new(ranks, missing, Whole::Merged)),
        spelling: Spelling::SentencePiece,
        adds_space,
        adds: Adds { bos: true, eos: false, separator: false },
    })
}

fn unigram(metadata: &Metadata, vocabulary: &Vocabulary) -> Result<Kernel, TextError> {
    let adds_space = metadata.bool(ADD_SPACE).unwrap_or(true);
    let scores = scores(metadata, vocabulary, "t5")?;
    let missing = missing_characters(metadata, vocabulary);
    let prepend = if adds_space { Prepend::Always } else { Prepend::Never };
    let replacement = '▁';
    Ok(Kernel {
        normalizer: Some(unigram_normalizer(metadata)?),
        pre_tokenizer: PreTokenizer { steps: vec![Step::Metaspace { replacement, prepend }] },
        model: Model::Unigram(Unigram::new(vocabulary, scores, missing)),
        spelling: Spelling::SentencePiece,
        adds_space,
        adds: Adds { bos: false, eos: true, separator: false },
    })
}

/// The model's own rules; then, where asked for, no spaces at the ends and one between words.
fn unigram_normalizer(metadata: &Metadata) -> Result<Normalizer, TextError> {
    let mut steps = Vec::new();
    if let Some(rules) = metadata.i32s(CHARSMAP) {
        let bytes: Vec<u8> = rules.map(|byte| byte as u8).collect();
        steps.push(Normalizer::Charsmap(Charsmap::new(&bytes)?));
    }
    if metadata.bool(SQUEEZE).unwrap_or(false) {
        let runs = Target::Pattern(Pattern::new(" {2,}")?);
        steps.push(Normalizer::Strip { left: true, right: true });
        steps.push(Normalizer::Replace { pattern: runs, with: " ".to_owned() });
    }
    Ok(Normalizer::Sequence(steps))
}

fn missing_characters(metadata: &Metadata, vocabulary: &Vocabulary) -> Missing {
    let unknown = metadata.u32("tokenizer.ggml.unknown_token_id");
    Missing { bytes: vocabulary.byte_tokens(), unknown, fuse: true }
}

fn mark_spaces(adds_space: bool) -> Normalizer {
    let space = Target::Text(" ".to_owned());
    let replace = Normalizer::Replace { pattern: space, with: SPACE_MARK.to_owned() };
    if !adds_space {
        return replace;
    }
    Normalizer::Sequence(vec![Normalizer::Prepend(SPACE_MARK.to_owned()), replace])
}

fn wordpiece(metadata: &Metadata, vocabulary: &Vocabulary) -> Result<Kernel, TextError> {
    const UNKNOWN: &str = "tokenizer.ggml.unknown_token_id";
    let unknown =
        metadata.u32(UNKNOWN).or_else(|| vocabulary.id("[UNK]")).ok_or_else(|| missing(UNKNOWN, "bert"))?;
    // The file doesn't say whether case matters, but a vocabulary with capitals was made from text with capitals.
    let cased = vocabulary.id("▁A").is_some();
    let bert = Bert { clean_text: true, space_ideographs: true, strip_accents: !cased, lowercase: !cased };
    let first = SPACE_MARK.to_owned();
    let model = WordPiece { first, later: String::new(), unknown, max_chars: MAX_WORD_CHARS };
    Ok(Kernel {
        normalizer: Some(Normalizer::Bert(bert)),
        pre_tokenizer: PreTokenizer { steps: words_and_punctuation() },
        model: Model::WordPiece(model),
        spelling: Spelling::SentencePiece,
        adds_space: true,
        adds: Adds { bos: true, eos: false, separator: true },
    })
}

/// BERT's pre-tokenizer.
pub(super) fn words_and_punctuation() -> Vec<Step> {
    vec![
        Step::split(Delimiter::Chars(char::is_whitespace), Behavior::Removed),
        Step::split(Delimiter::Chars(is_punctuation), Behavior::Isolated),
    ]
}

/// A token id that the file gives under `key`, if the vocabulary has it.
fn token(metadata: &Metadata, vocabulary: &Vocabulary, key: &str) -> Option<u32> {
    metadata.u32(key).filter(|id| (*id as usize) < vocabulary.len())
}

fn framing(metadata: &Metadata, vocabulary: &Vocabulary, adds: Adds) -> Framing {
    let wanted = |key: &str, otherwise: bool| metadata.bool(key).unwrap_or(otherwise);
    let some = |wanted: bool, key: &str| wanted.then(|| token(metadata, vocabulary, key)).flatten();
    let bos = some(wanted("tokenizer.ggml.add_bos_token", adds.bos), "tokenizer.ggml.bos_token_id");
    let eos = some(wanted("tokenizer.ggml.add_eos_token", adds.eos), "tokenizer.ggml.eos_token_id");
    // The format's own spelling of "separator".
    let separator =
        some(wanted("tokenizer.ggml.add_sep_token", adds.separator), "tokenizer.ggml.seperator_token_id");
    let (before, after): (Vec<_>, Vec<_>) =
        (bos.into_iter().collect(), separator.or(eos).into_iter().collect());
    let pair = (!after.is_empty()).then(|| pair(&before, &after, adds));
    Framing { before, after, pair }
}

/// The file doesn't say how it takes pairs: as BERT does where texts end with separators, else as XLM-RoBERTa.
fn pair(before: &[u32], after: &[u32], adds: Adds) -> PairFrame {
    let between = after.repeat(if adds.separator { 1 } else { 2 });
    PairFrame {
        before: before.to_vec(),
        between,
        after: after.to_vec(),
        second_type: u8::from(adds.separator),
    }
}

fn named(metadata: &Metadata, vocabulary: &Vocabulary) -> NamedTokens {
    const ENDS: [&str; 3] =
        ["tokenizer.ggml.eos_token_id", "tokenizer.ggml.eot_token_id", "tokenizer.ggml.eom_token_id"];
    let named = ENDS.iter().filter_map(|key| metadata.u32(key));
    let bos = token(metadata, vocabulary, "tokenizer.ggml.bos_token_id");
    NamedTokens { bos, ends: end_tokens(vocabulary, named) }
}
