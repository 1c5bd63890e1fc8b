//! The input is what a client sends over a connection: requests, parts of some, or anything else.
#![no_main]

use ropeway_fuzz::{grammars, server};

libfuzzer_sys::fuzz_target!(
    init: grammars::ignore_caught_panics(),
    |input: &[u8]| server::try_connection(input)
);
