//! The input is a tokenizer_config.json (length as `u16` first) and a tokenizer.json or, if that begins as one, a .gguf file.
#![no_main]

use ropeway_fuzz::{split, tokenizers};

libfuzzer_sys::fuzz_target!(|input: &[u8]| {
    let Some((config, file)) = split(input) else { return };
    if file.starts_with(b"GGUF") {
        return tokenizers::try_gguf(file);
    }
    match config {
        [] => tokenizers::try_folder(&[("tokenizer.json", file)]),
        _ => tokenizers::try_folder(&[("tokenizer_config.json", config), ("tokenizer.json", file)]),
    }
});
