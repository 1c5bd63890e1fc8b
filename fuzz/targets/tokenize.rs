//! The input is a byte that chooses a tokenizer, and a text.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| {
    let Some((&choice, text)) = input.split_first() else { return };
    ropeway_fuzz::tokenizers::try_text(choice, &String::from_utf8_lossy(text));
});
