//! The input is what a client sends over a connection: requests, parts of some, or anything else.
#![no_main]

use ropeway_fuzz::{panics, server};

libfuzzer_sys::fuzz_target!(
    init: panics::ignore_inside(panics::GRAMMARS),
    |input: &[u8]| server::try_connection(input)
);
