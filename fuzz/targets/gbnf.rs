//! The input is a grammar in llama.cpp's syntax.
#![no_main]

use ropeway_fuzz::grammars::follow;
use ropeway_fuzz::panics;
use ropeway_grammar::GrammarSpec;

libfuzzer_sys::fuzz_target!(
    init: panics::ignore_inside(panics::GRAMMARS),
    |input: &[u8]| {
        let Ok(text) = std::str::from_utf8(input) else { return };
        // Without it the text would be read as Lark's syntax, which has a target of its own.
        if text.contains("::=") {
            follow(&GrammarSpec::Grammar(text.to_owned()));
        }
    }
);
