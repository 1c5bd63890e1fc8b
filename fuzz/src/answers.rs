//! Hostile answers: taken apart the same whole and character by character, in every style.

use ropeway_text::{Delta, OutputOptions, OutputParser, OutputStyle};
use std::collections::BTreeMap;

/// What tells the styles apart: each is a model that shows this mark only.
const MARKS: [&str; 12] = [
    "<|python_tag|>",
    "<function=",
    "<|python_start|>",
    "func_name1(",
    "<|tool_call_start|>",
    "[TOOL_CALLS]",
    "<｜tool▁calls▁begin｜>",
    "<|tool_calls_section_begin|>",
    "<|START_ACTION|>",
    "<think>",
    "[THINK]",
    "<|START_THINKING|>",
];

/// The text, the reasoning, and each call's arguments.
#[derive(Debug, Default, PartialEq)]
struct Parts {
    text: String,
    reasoning: String,
    calls: BTreeMap<usize, String>,
}

/// Takes an answer apart. The low four bits of `switches` are options, the high ones the style.
pub fn try_answer(switches: u8, text: &str) {
    let whole = parse(switches, std::iter::once(text));
    for json in whole.calls.values() {
        serde_json::from_str::<serde_json::Map<_, _>>(json).expect("arguments are a JSON object");
    }
    let characters = text.char_indices().map(|(start, character)| &text[start..start + character.len_utf8()]);
    assert_eq!(parse(switches, characters), whole);
}

fn parse<'t>(switches: u8, pieces: impl Iterator<Item = &'t str>) -> Parts {
    let mut parser = OutputParser::new(&style(switches >> 4), options(switches));
    let mut deltas: Vec<Delta> = pieces.flat_map(|piece| parser.push(piece)).collect();
    deltas.extend(parser.finish());
    put_together(deltas)
}

/// Every format at once, no markup, a model without a format of its own, or one that shows a single mark.
fn style(number: u8) -> OutputStyle {
    match number {
        0 => OutputStyle::detect(None, |_| true),
        1 => OutputStyle::plain(),
        2 => OutputStyle::detect(None, |_| false),
        other => {
            let mark = MARKS[usize::from(other - 3) % MARKS.len()];
            OutputStyle::detect(None, |token| token == mark)
        }
    }
}

fn options(switches: u8) -> OutputOptions {
    let known_tools = if switches & 8 == 0 { Vec::new() } else { vec!["f".to_owned()] };
    OutputOptions {
        tools: switches & 1 == 0,
        reasoning: switches & 2 == 0,
        prompt_opens_reasoning: switches & 4 != 0,
        known_tools,
    }
}

fn put_together(deltas: Vec<Delta>) -> Parts {
    let mut parts = Parts::default();
    for delta in deltas {
        match delta {
            Delta::Text(text) => parts.text += &text,
            Delta::Reasoning(text) => parts.reasoning += &text,
            Delta::ToolCall { index, name } => assert!(!name.is_empty() && index == parts.calls.len()),
            Delta::Arguments { index, json } => parts.calls.entry(index).or_default().push_str(&json),
        }
    }
    parts
}
