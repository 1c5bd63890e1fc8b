//! The input is a .gguf file.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| {
    ropeway_fuzz::checkpoints::try_files(&[("model.gguf", input)], "model.gguf");
});
