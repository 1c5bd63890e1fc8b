//! The input is a request (length as `u16` first) and a chat template that renders it.
#![no_main]

use ropeway_fuzz::{panics, split, templates};

libfuzzer_sys::fuzz_target!(
    init: panics::ignore_inside(panics::TEMPLATES),
    |input: &[u8]| {
        let Some((request, source)) = split(input) else { return };
        let Ok(source) = std::str::from_utf8(source) else { return };
        templates::try_template(source, request);
    }
);
