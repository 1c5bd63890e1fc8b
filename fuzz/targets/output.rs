//! The input is a byte of switches and a model's answer.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| {
    let Some((&switches, text)) = input.split_first() else { return };
    ropeway_fuzz::answers::try_answer(switches, &String::from_utf8_lossy(text));
});
