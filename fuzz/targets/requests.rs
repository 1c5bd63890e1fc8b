//! The input is a byte that chooses a path, and a body: it goes through the server's router, tokenizer, template and engine to an
//! executor that computes nothing.
#![no_main]

use ropeway_fuzz::{panics, server};

libfuzzer_sys::fuzz_target!(
    init: panics::ignore_inside(panics::GRAMMARS),
    |input: &[u8]| {
        let Some((&choice, body)) = input.split_first() else { return };
        server::try_request(choice, body);
    }
);
