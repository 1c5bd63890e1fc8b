//! The input is a byte of switches and a model's answer: it is taken apart the same whole and character by character.
#![no_main]

use ropeway_text::{Delta, OutputOptions, OutputParser, OutputStyle};
use std::collections::BTreeMap;

/// The text, the reasoning, and each call's arguments.
#[derive(Debug, Default, PartialEq)]
struct Answer {
    text: String,
    reasoning: String,
    calls: BTreeMap<usize, String>,
}

fn parse<'t>(switches: u8, pieces: impl Iterator<Item = &'t str>) -> Answer {
    let known_tools = if switches & 8 == 0 { Vec::new() } else { vec!["f".to_owned()] };
    let options = OutputOptions {
        tools: switches & 1 == 0,
        reasoning: switches & 2 == 0,
        prompt_opens_reasoning: switches & 4 != 0,
        known_tools,
    };
    let mut parser = OutputParser::new(&OutputStyle::detect(None, |_| true), options);
    let mut deltas: Vec<Delta> = pieces.flat_map(|piece| parser.push(piece)).collect();
    deltas.extend(parser.finish());
    let mut answer = Answer::default();
    for delta in deltas {
        match delta {
            Delta::Text(text) => answer.text += &text,
            Delta::Reasoning(text) => answer.reasoning += &text,
            Delta::ToolCall { index, name } => assert!(!name.is_empty() && index == answer.calls.len()),
            Delta::Arguments { index, json } => answer.calls.entry(index).or_default().push_str(&json),
        }
    }
    answer
}

libfuzzer_sys::fuzz_target!(|input: &[u8]| {
    let Some((&switches, text)) = input.split_first() else { return };
    let text = String::from_utf8_lossy(text);
    let whole = parse(switches, std::iter::once(&*text));
    for json in whole.calls.values() {
        serde_json::from_str::<serde_json::Map<_, _>>(json).expect("arguments are a JSON object");
    }
    let starts = text.char_indices().map(|(start, character)| &text[start..start + character.len_utf8()]);
    assert_eq!(parse(switches, starts), whole);
});
