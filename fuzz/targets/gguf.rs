//! The input is a .gguf file.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| {
    ropeway_fuzz::try_files(&[("model.gguf", input)], "model.gguf");
});
