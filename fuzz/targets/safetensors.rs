//! The input is a shard index and a shard `s`; with an empty index the shard is the folder's single file.
#![no_main]

const CONFIG: (&str, &[u8]) = ("config.json", b"{}");

libfuzzer_sys::fuzz_target!(|input: &[u8]| {
    let Some((index, shard)) = ropeway_fuzz::split(input) else { return };
    match index {
        [] => ropeway_fuzz::checkpoints::try_files(&[CONFIG, ("model.safetensors", shard)], ""),
        _ => ropeway_fuzz::checkpoints::try_files(
            &[CONFIG, ("model.safetensors.index.json", index), ("s", shard)],
            "",
        ),
    }
});
