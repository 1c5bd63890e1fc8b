//! Answers taken apart: every format, every cut, and whatever else a model may write.

use proptest::prelude::*;
use ropeway_text::{Delta, OutputOptions, OutputParser, OutputStyle};
use serde_json::{Value, json};

/// An answer put together again.
#[derive(Debug, Default, PartialEq, Eq)]
struct Answer {
    text: String,
    reasoning: String,
    calls: Vec<(String, String)>,
}

impl Answer {
    fn add(&mut self, deltas: Vec<Delta>) {
        for delta in deltas {
            match delta {
                Delta::Text(text) => self.text += &text,
                Delta::Reasoning(text) => self.reasoning += &text,
                Delta::ToolCall { index, name } => {
                    assert_eq!(index, self.calls.len());
                    self.calls.push((name, String::new()));
                }
                Delta::Arguments { index, json } => {
                    assert_eq!(index, self.calls.len() - 1);
                    self.calls[index].1 += &json;
                }
            }
        }
    }
}

fn everything() -> OutputStyle {
    OutputStyle::detect(None, |_| true)
}

fn options() -> OutputOptions {
    let known_tools = vec!["weather".to_owned(), "clock".to_owned()];
    OutputOptions { tools: true, reasoning: true, prompt_opens_reasoning: false, known_tools }
}

fn parse_pieces<'t>(options: OutputOptions, pieces: impl IntoIterator<Item = &'t str>) -> Answer {
    let mut parser = OutputParser::new(&everything(), options);
    let mut answer = Answer::default();
    for piece in pieces {
        answer.add(parser.push(piece));
    }
    answer.add(parser.finish());
    answer
}

fn parse(text: &str) -> Answer {
    parse_pieces(options(), [text])
}

fn calls(text: &str) -> Vec<(String, Value)> {
    let answer = parse(text);
    assert_eq!(answer.text, "", "of {text}");
    answer.calls.into_iter().map(|(name, json)| (name, serde_json::from_str(&json).unwrap())).collect()
}

const PARIS: &str = r#"{"city": "Paris", "days": [1, 2.5e0, null]}"#;

/// One answer in each format, each with a call of `weather` with `PARIS`, and one of `clock` where there may be two.
fn formats() -> Vec<(String, usize)> {
    let object = |key: &str| format!(r#"{{"name": "weather", "{key}": {PARIS}}}"#);
    let clock = r#"{"name": "clock", "arguments": {}}"#;
    let python = r#"weather(city="Paris", days=[1, 2.5e0, None])"#;
    let arguments = object("arguments");
    vec![
        (format!("<tool_call>\n{arguments}\n</tool_call>\n<tool_call>{clock}</tool_call>"), 2),
        (format!("<tool_call>{arguments}"), 1),
        (format!("<|python_tag|>{}", object("parameters")), 1),
        (format!("{}; {}", object("parameters"), clock), 2),
        (format!(r#"{{"type": "function", "function": "weather", "parameters": {PARIS}}}"#), 1),
        (format!("<function=weather>{PARIS}</function>"), 1),
        (format!("[{python}, clock()]"), 2),
        (format!("<|python_start|>[{python}]<|python_end|>"), 1),
        (format!("<|tool_call_start|>[{python}]<|tool_call_end|>"), 1),
        (format!("[TOOL_CALLS] [{arguments}, {clock}]"), 2),
        (format!("[TOOL_CALLS]weather[ARGS]{PARIS}[TOOL_CALLS]clock[CALL_ID]abcdefghi[ARGS]{{}}"), 2),
        (
            format!(
                "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>weather\n```json\n{PARIS}\n```<｜tool▁call▁end｜>\n\
                 <｜tool▁call▁begin｜>function<｜tool▁sep｜>clock\n```json\n{{}}\n```<｜tool▁call▁end｜><｜tool▁calls▁end｜>"
            ),
            2,
        ),
        (
            format!(
                "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>weather<｜tool▁sep｜>{PARIS}<｜tool▁call▁end｜><｜tool▁calls▁end｜>"
            ),
            1,
        ),
        (
            format!(
                "<|tool_calls_section_begin|><|tool_call_begin|>functions.weather:0<|tool_call_argument_begin|>{PARIS}\
                 <|tool_call_end|><|tool_calls_section_end|>"
            ),
            1,
        ),
        (
            format!(
                r#"<|START_ACTION|>[{{"tool_call_id": "0", "tool_name": "weather", "parameters": {PARIS}}}]<|END_ACTION|>"#
            ),
            1,
        ),
        (arguments.clone(), 1),
        (format!("[{arguments}, {clock}]"), 2),
    ]
}

#[test]
fn calls_of_every_format_are_found() {
    let paris: Value = serde_json::from_str(PARIS).unwrap();
    for (text, count) in formats() {
        let found = calls(&text);
        assert_eq!(found[0], ("weather".to_owned(), paris.clone()), "of {text}");
        assert_eq!(found.len(), count, "of {text}");
        assert!(found[1..].iter().all(|call| call == &("clock".to_owned(), json!({}))));
    }
}

#[test]
fn reasoning_and_text_stand_beside_calls() {
    for (text, count) in formats() {
        let answer = parse(&format!("\n<think>\nHm, <b>\n\nso.\n</think>\n\n{text}"));
        assert_eq!((answer.reasoning.as_str(), answer.text.as_str()), ("Hm, <b>\n\nso.", ""), "of {text}");
        assert_eq!(answer.calls.len(), count, "of {text}");
    }
    let answer =
        parse(&format!("I look.\n<tool_call>{{\"name\": \"weather\", \"arguments\": {PARIS}}}</tool_call>"));
    assert_eq!((answer.text.as_str(), answer.calls.len()), ("I look.\n", 1));
}

#[test]
fn a_prompt_that_opened_reasoning_starts_in_it() {
    let options = || OutputOptions { prompt_opens_reasoning: true, ..options() };
    for text in ["Hm.\n</think>\n\nYes.", "<think>\nHm.\n</think>\n\nYes.", "\nHm.</think>Yes."] {
        let answer = parse_pieces(options(), [text]);
        assert_eq!((answer.reasoning.as_str(), answer.text.as_str()), ("Hm.", "Yes."), "of {text}");
    }
    let cut = parse_pieces(options(), ["Hm.\n</th"]);
    assert_eq!((cut.reasoning.as_str(), cut.text.as_str()), ("Hm.\n</th", ""));
    let off = parse_pieces(OutputOptions { reasoning: false, ..options() }, ["Hm.</think>Yes."]);
    assert_eq!(off.text, "Hm.</think>Yes.");
}

#[test]
fn without_tools_nothing_is_a_call() {
    for (text, _) in formats() {
        let answer = parse_pieces(OutputOptions { tools: false, ..options() }, [text.as_str()]);
        assert_eq!((answer.text, answer.calls), (text, vec![]));
    }
}

#[test]
fn a_plain_style_finds_nothing() {
    for (text, _) in formats() {
        let text = format!(" <think>x</think>{text}");
        let mut parser = OutputParser::new(&OutputStyle::plain(), options());
        assert_eq!(parser.push(&text), [Delta::Text(text)]);
        assert_eq!(parser.finish(), []);
    }
}

#[test]
fn arguments_stream_while_they_come() {
    let mut parser = OutputParser::new(&everything(), options());
    assert_eq!(parser.push("<tool_call>{\"name\": \"weather\", \"argum"), []);
    let name = "weather".to_owned();
    let arguments = |json: &str| Delta::Arguments { index: 0, json: json.to_owned() };
    assert_eq!(parser.push("ents\": {\"city\""), [Delta::ToolCall { index: 0, name }, arguments("{")]);
    assert_eq!(parser.push(": \"Pa"), [arguments("\"city\": \"Pa")]);
    assert_eq!(parser.push("ris\\"), [arguments("ris")]);
    assert_eq!(parser.push("n\"}"), [arguments("\\n\"}")]);
    assert_eq!(parser.push("}</tool_call>\n"), []);
    assert_eq!(parser.finish(), []);
    assert_eq!(parser.unfinished_call(), None);
}

#[test]
fn arguments_may_be_a_string_come_first_or_be_missing() {
    let paris = ("weather".to_owned(), serde_json::from_str::<Value>(PARIS).unwrap());
    let string = serde_json::to_string(PARIS).unwrap();
    for text in [
        format!(r#"<tool_call>{{"name": "weather", "arguments": {string}}}</tool_call>"#),
        format!(r#"{{"name": "weather", "arguments": {string}}}"#),
        format!(r#"<tool_call>{{"arguments": {PARIS}, "n": 1, "name": "weather"}}</tool_call>"#),
        format!(r#"<tool_call>{{"id": 7, "name": "weather", "arguments": {PARIS}, "x": [1]}}</tool_call>"#),
    ] {
        assert_eq!(calls(&text), std::slice::from_ref(&paris), "of {text}");
    }
    for text in ["{\"name\": \"clock\"}", "{\"name\": \"clock\", \"arguments\": null}"] {
        let text = format!("<tool_call>{text}</tool_call>");
        assert_eq!(calls(&text)[0].1, json!({}), "of {text}");
    }
}

#[test]
fn what_is_no_call_stays_text() {
    for text in [
        "<tool_call>weather</tool_call>",
        "<tool_call>{\"name\": 1}</tool_call>",
        "<tool_call>{\"name\": \"weather\", \"arguments\": [1]}</tool_call>",
        "<tool_call>{\"name\": \"weather\", \"arguments\": \"Paris\"}</tool_call>",
        "<tool_call>{'name': 'weather'}</tool_call>",
        "Use <tool_call> or <|python_tag|>.",
        "{\"name\": \"Bob\", \"arguments\": {}}",
        "{\"name\": \"clock\"}",
        "{\"answer\": 1}",
        "[1, 2]",
        "[TOO",
        "[clock] is",
        "[weather(\"Paris\")]",
        "[other()]",
        "[]",
        "{",
        "  ",
        "Say {\"name\": \"clock\", \"arguments\": {}}",
        "a <think> b",
        "<toolx",
        "[TOOL_CALLS]{}",
        "[TOOL_CALLS]what is this{",
        "<｜tool▁calls▁begin｜> none",
    ] {
        assert_eq!(parse(text), Answer { text: text.to_owned(), ..Answer::default() }, "of {text}");
    }
}

#[test]
fn a_call_that_ends_early_is_text_or_is_closed() {
    let whole = format!("<tool_call>{{\"name\": \"weather\", \"arguments\": {PARIS}");
    let begun = whole.find(": {").unwrap() + 2;
    for end in 1..=whole.len() {
        let mut parser = OutputParser::new(&everything(), options());
        let mut answer = Answer::default();
        answer.add(parser.push(&whole[..end]));
        answer.add(parser.finish());
        let is_closed = (begun + 1..whole.len()).contains(&end);
        assert_eq!(parser.unfinished_call(), is_closed.then_some(0), "of {}", &whole[..end]);
        match answer.calls.first() {
            None => assert_eq!(answer.text, whole[..end]),
            Some((_, json)) => assert!(serde_json::from_str::<Value>(json).is_ok(), "{json}"),
        }
        assert_eq!(answer.calls.is_empty(), end <= begun);
    }
}

#[test]
fn a_call_that_goes_wrong_is_closed_and_its_rest_is_text() {
    let answer = parse("<tool_call>{\"name\": \"weather\", \"arguments\": {\"a\": 1, b}}</tool_call> x");
    assert_eq!(answer.calls, [("weather".to_owned(), "{\"a\": 1}".to_owned())]);
    assert_eq!(answer.text, ", b}}</tool_call> x");
    let answer = parse("[TOOL_CALLS]weather{\"a\": 1\"}");
    assert_eq!(answer.calls, [("weather".to_owned(), "{}".to_owned())]);
    assert_eq!(answer.text, "\"a\": 1\"}");
}

#[test]
fn text_waits_only_while_it_may_be_a_tag() {
    let longest = everything().markup().map(str::len).max().unwrap();
    let text = "Text < with <tool and [ or {\"name\": 1} and <|pyth in it. ".repeat(5);
    let mut parser = OutputParser::new(&everything(), options());
    let mut given = 0;
    for (index, character) in text.char_indices() {
        for delta in parser.push(&text[index..index + character.len_utf8()]) {
            let Delta::Text(text) = delta else { panic!("{delta:?}") };
            given += text.len();
        }
        assert!(index + 1 - given < longest);
    }
}

#[test]
fn a_call_that_never_ends_is_given_back() {
    let start = "<tool_call>{\"name\": \"weather\", \"arguments\": \"";
    let text = format!("{start}{}", "x".repeat(2 << 20));
    let mut parser = OutputParser::new(&everything(), options());
    let mut answer = Answer::default();
    answer.add(parser.push(&text));
    assert!(answer.text.len() > 1 << 20);
    answer.add(parser.finish());
    assert_eq!(answer.text, text);
}

/// Text made of what the parser looks for.
fn markup() -> impl Strategy<Value = String> {
    let mut pieces: Vec<String> = everything().markup().map(str::to_owned).collect();
    pieces.extend(formats().into_iter().map(|format| format.0));
    let words = [
        "{",
        "}",
        "[",
        "]",
        "(",
        ")",
        "\"",
        "\\",
        ",",
        ":",
        "=",
        "'",
        " ",
        "\n",
        "name",
        "arguments",
        "weather",
        "clock",
        "1",
        "-",
        "é",
        "😀",
        "\"name\": \"weather\", ",
        "\"arguments\": {",
        "\\ud83d",
        "a=",
        ";",
        "```",
    ];
    pieces.extend(words.map(str::to_owned));
    let cut_piece =
        (prop::sample::select(pieces), 0_usize..400, any::<bool>()).prop_map(|(piece, at, cut)| {
            let at = at.min(piece.chars().count());
            if cut { piece.chars().take(at).collect() } else { piece }
        });
    prop::collection::vec(cut_piece, 0..12).prop_map(|pieces| pieces.concat())
}

/// Whether the text that came back is found, in order, in the text that was given.
fn is_part(text: &str, given: &str) -> bool {
    let mut rest = given.chars();
    text.chars().all(|wanted| rest.any(|character| character == wanted))
}

fn check_every_cut(text: &str, options: &OutputOptions) -> Result<(), TestCaseError> {
    let whole = parse_pieces(options.clone(), [text]);
    for (_, json) in &whole.calls {
        prop_assert!(serde_json::from_str::<serde_json::Map<String, Value>>(json).is_ok(), "{}", json);
    }
    prop_assert!(is_part(&whole.text, text) && is_part(&whole.reasoning, text), "{:?}", whole);
    if whole.calls.is_empty() && !options.reasoning {
        prop_assert_eq!(&whole.text, text);
    }
    let characters: Vec<String> = text.chars().map(String::from).collect();
    prop_assert_eq!(&parse_pieces(options.clone(), characters.iter().map(String::as_str)), &whole);
    for (cut, _) in text.char_indices() {
        prop_assert_eq!(&parse_pieces(options.clone(), [&text[..cut], &text[cut..]]), &whole);
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn the_answer_does_not_depend_on_how_it_was_cut(
        text in markup(),
        reasoning in any::<bool>(),
        prompt_opens_reasoning in any::<bool>(),
    ) {
        check_every_cut(&text, &OutputOptions { reasoning, prompt_opens_reasoning, ..options() })?;
    }

    #[test]
    fn any_text_is_taken(text in r"[\PC\n\t]{0,60}") {
        check_every_cut(&text, &OutputOptions { reasoning: false, ..options() })?;
        let unnamed = OutputOptions { known_tools: Vec::new(), ..options() };
        check_every_cut(&text, &unnamed)?;
    }
}
