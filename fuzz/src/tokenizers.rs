//! Hostile tokenizer files, and hostile texts for tokenizers that are known to work.

use crate::{File, folder_of};
use ropeway_text::{Around, InText, Special, SpecialTokens, Tokenizer};
use ropeway_weights::Checkpoint;
use serde_json::Value;
use std::sync::OnceLock;

/// The model whose tokenizer and chat template stand for a served model's.
pub const LLAMA: [File<'static>; 4] = [
    ("config.json", include_bytes!("../../tests/fixtures/models/llama/config.json")),
    ("model.safetensors", include_bytes!("../../tests/fixtures/models/llama/model.safetensors")),
    ("tokenizer.json", include_bytes!("../../tests/fixtures/models/llama/tokenizer.json")),
    ("tokenizer_config.json", include_bytes!("../../tests/fixtures/models/llama/tokenizer_config.json")),
];

const BYTE_LEVEL: &str = include_str!("../../crates/text/tests/fixtures/byte_level.json");

macro_rules! fixtures {
    ($($name:literal),* $(,)?) => {
        [$(include_str!(concat!("../../crates/text/tests/fixtures/tokenizers/", $name, ".json"))),*]
    };
}

/// Every kind of tokenizer: byte-level BPE with each known pre-tokenizer, SentencePiece's two kinds, and WordPiece.
const FIXTURES: [&str; 15] = fixtures![
    "command-r",
    "deepseek-coder",
    "deepseek-v3",
    "falcon",
    "gemma",
    "gpt-2",
    "gpt-4o",
    "llama",
    "llama-bpe",
    "olmo",
    "qwen2",
    "smollm",
    "tekken",
    "unigram",
    "wordpiece",
];

/// Ways to read a text.
const READINGS: [Special; 4] = [Special::TEMPLATE, Special::PROMPT, Special::PLAIN, PLAIN_ALONE];

/// Text from users with nothing around it.
const PLAIN_ALONE: Special = Special { in_text: InText::Plain, around: Around::Omit };

/// Texts for a tokenizer that loaded: words, line ends, several scripts, an emoji, special tokens spelled out, a long run.
const TEXTS: [&str; 4] = [
    "Hello, world!  It's 12345.67\r\n\tnaïve 日本語 \u{1F600}\u{200D}\u{FE0F} مرحبا",
    "<s></s><|im_start|>[CLS]\u{FFFD}\0\u{2581}\u{2581}",
    "",
    "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
];

/// Loads a folder with these files and, where that works, uses the tokenizer.
pub fn try_folder(files: &[File<'_>]) {
    let folder = folder_of(files);
    if let Ok(tokenizer) = Tokenizer::from_folder(folder.path()) {
        try_tokenizer(&tokenizer);
    }
}

/// Loads the tokenizer of a GGUF file and, where that works, uses it.
pub fn try_gguf(file: &[u8]) {
    let folder = folder_of(&[("model.gguf", file)]);
    let Ok(checkpoint) = Checkpoint::open(&folder.path().join("model.gguf")) else { return };
    if let Ok(tokenizer) = Tokenizer::from_checkpoint(&checkpoint) {
        try_tokenizer(&tokenizer);
    }
}

fn try_tokenizer(tokenizer: &Tokenizer) {
    for text in TEXTS {
        read_in_every_way(tokenizer, text);
    }
    let most = tokenizer.vocab_size() as u32;
    for id in (0..most.min(64)).chain([most, u32::MAX]) {
        let _ = (tokenizer.token_text(id), tokenizer.token_bytes(id), tokenizer.is_special(id));
    }
    let _ =
        (tokenizer.eos_tokens(), tokenizer.bos_token(), tokenizer.longest_token(), tokenizer.pair_frame());
}

/// Encodes and decodes; the ids are tokens, and pieces make the whole.
fn read_in_every_way(tokenizer: &Tokenizer, text: &str) {
    for special in READINGS {
        let Ok(ids) = tokenizer.encode(text, special) else { continue };
        let pieces = in_pieces(tokenizer, &ids);
        assert_eq!(pieces, tokenizer.decode(&ids, SpecialTokens::Skip), "pieces make the whole");
        let _ = tokenizer.decode(&ids, SpecialTokens::Keep);
    }
}

fn in_pieces(tokenizer: &Tokenizer, ids: &[u32]) -> String {
    let mut detokenizer = tokenizer.detokenizer();
    let mut text: String = ids.iter().map(|id| detokenizer.push(*id).to_owned()).collect();
    text += &detokenizer.finish();
    text
}

/// A text through a known tokenizer in both of its forms. No text may fail, and ids are tokens. Where every byte of a text is
/// kept, plain text holds no control token, comes back as it was, and has the same ids in both forms.
pub fn try_text(choice: u8, text: &str) {
    let known = &known()[usize::from(choice) % FIXTURES.len()];
    let ids = |tokenizer: &Tokenizer| tokenizer.encode(text, PLAIN_ALONE).expect("any text can be read");
    for tokenizer in [&known.json, &known.gguf] {
        read_in_every_way(tokenizer, text);
        let ids = ids(tokenizer);
        assert!(ids.iter().all(|id| (*id as usize) < tokenizer.vocab_size()), "ids are tokens");
        if known.keeps_bytes {
            assert!(!ids.iter().any(|id| tokenizer.is_special(*id)), "plain text holds no control token");
            assert_eq!(tokenizer.decode(&ids, SpecialTokens::Keep), text, "a text comes back as it was");
        }
    }
    if known.keeps_bytes {
        assert_eq!(ids(&known.json), ids(&known.gguf), "both forms give the same ids");
    }
}

/// The tokenizer and the template of the small model.
pub fn llama() -> Checkpoint {
    static FOLDER: OnceLock<tempfile::TempDir> = OnceLock::new();
    let folder = FOLDER.get_or_init(|| folder_of(&LLAMA));
    Checkpoint::open(folder.path()).expect("the fixture opens")
}

/// The tokenizer of the small model.
pub fn llama_tokenizer() -> Tokenizer {
    Tokenizer::from_checkpoint(&llama()).expect("the fixture's tokenizer")
}

/// A tokenizer in both of its forms.
struct Known {
    json: Tokenizer,
    gguf: Tokenizer,
    /// Whether every byte of a text ends up in a token.
    keeps_bytes: bool,
}

fn known() -> &'static [Known] {
    static KNOWN: OnceLock<Vec<Known>> = OnceLock::new();
    KNOWN.get_or_init(|| FIXTURES.iter().map(|text| load(text)).collect())
}

fn load(text: &str) -> Known {
    let mut fixture: Value = serde_json::from_str(text).expect("fixtures are JSON");
    if fixture.get("base").is_some() {
        let base: Value = serde_json::from_str(BYTE_LEVEL).expect("fixtures are JSON");
        underlay(&mut fixture["tokenizer"]["model"], &base["model"]);
        underlay(&mut fixture["gguf"], &base["gguf"]);
    }
    let folder = folder_of(&[("tokenizer.json", fixture["tokenizer"].to_string().as_bytes())]);
    let path = folder.path().join("tokenizer.gguf");
    gguf_file::write(&path, fixture["gguf"].as_object().expect("metadata"));
    let json = Tokenizer::from_folder(folder.path()).expect("a fixture");
    let gguf = Tokenizer::from_checkpoint(&Checkpoint::open(&path).expect("a fixture")).expect("a fixture");
    let keeps_bytes = [&json, &gguf].iter().all(|tokenizer| tokenizer.longest_token().is_some());
    Known { json, gguf, keeps_bytes }
}

/// Adds the entries of `base` that `object` lacks.
fn underlay(object: &mut Value, base: &Value) {
    let (Value::Object(object), Value::Object(base)) = (object, base) else { return };
    for (key, value) in base {
        object.entry(key.clone()).or_insert_with(|| value.clone());
    }
}

#[path = "../../crates/text/tests/common/gguf.rs"]
mod gguf_file;
