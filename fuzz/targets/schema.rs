//! The input is a byte of switches and a JSON schema.
#![no_main]

use ropeway_fuzz::grammars::follow;
use ropeway_fuzz::panics;
use ropeway_grammar::{GrammarSpec, Strictness, Tool, either, tool_call};

libfuzzer_sys::fuzz_target!(
    init: panics::ignore_inside(panics::GRAMMARS),
    |input: &[u8]| {
        let Some((&switches, text)) = input.split_first() else { return };
        let Ok(schema) = serde_json::from_slice(text) else { return };
        let strictness = if switches & 1 == 0 { Strictness::Strict } else { Strictness::Lenient };
        // As the answer's own schema, as the arguments of a tool, or as either.
        let call = tool_call(&[Tool { name: "f", parameters: Some(&schema) }, Tool { name: "g", parameters: None }]);
        let schema = match switches >> 1 & 3 {
            0 | 1 => schema,
            2 => call,
            _ => either(&schema, &call),
        };
        follow(&GrammarSpec::JsonSchema { schema, strictness });
    }
);
