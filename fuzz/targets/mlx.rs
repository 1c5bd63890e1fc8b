//! The input is a config.json and a model.safetensors.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| {
    let Some((config, weights)) = ropeway_fuzz::split(input) else { return };
    ropeway_fuzz::checkpoints::try_files(&[("config.json", config), ("model.safetensors", weights)], "");
});
