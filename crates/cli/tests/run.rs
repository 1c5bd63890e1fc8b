//! `run` from the outside: on a tiny model for what goes wrong and what ends an answer, on the default model for what
//! it says.

mod support;

use std::path::Path;

use support::{Ran, Sandbox, smollm2};

/// A model of random weights with a tokenizer and a chat template, for 128 tokens.
fn tiny() -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/fixtures/models/llama");
    path.display().to_string()
}

fn run(arguments: &[&str]) -> Ran {
    Sandbox::new().run(&[&["run"], arguments].concat())
}

fn run_with_input(arguments: &[&str], input: &str) -> Ran {
    Sandbox::new().run_with_input(&[&["run"], arguments].concat(), input.as_bytes())
}

#[test]
fn the_default_model_knows_the_capital_of_france() {
    let Some(model) = smollm2() else { return };
    let question = "What is the capital of France?";
    let exact = [&model, "--precision", "f32", "--temperature", "0"];
    let expected = "The capital of France is Paris.\n";
    assert_eq!(run(&[&exact[..], &[question]].concat()).ok(), expected);
    assert_eq!(run_with_input(&exact, question).ok(), expected);
}

#[test]
fn a_draft_model_changes_no_word() {
    let Some(model) = smollm2() else { return };
    let exact = [&model, "--precision", "f32", "--max-tokens", "40", "--seed", "7", "--temperature", "0.8"];
    let ask = |more: &[&str]| run(&[&exact[..], &["Name five colours."], more].concat());
    let alone = ask(&[]).ok();
    assert_eq!(ask(&["--draft-model", &model]).ok(), alone);
}

#[test]
fn a_draft_model_with_another_tokenizer_is_refused_with_what_differs() {
    let Some(model) = smollm2() else { return };
    let refused = run(&[&model, "--draft-model", &tiny(), "Hello"]).failed();
    assert!(refused.contains("another tokenizer: it has"), "{refused}");
    assert!(refused.contains("of the same family"), "{refused}");
}

#[test]
fn a_system_message_changes_the_answer() {
    let Some(model) = smollm2() else { return };
    let greedy = |more: &[&str]| {
        run(&[&[&model, "--temperature", "0", "--max-tokens", "24", "Who are you?"], more].concat()).ok()
    };
    assert_ne!(greedy(&[]), greedy(&["--system", "You are a pirate called Jack."]));
}

#[test]
fn the_same_seed_gives_the_same_text_and_another_seed_another() {
    let say = |seed: &str| run(&[&tiny(), "--seed", seed, "--max-tokens", "24", "Hello"]).ok();
    assert_eq!(say("7"), say("7"));
    assert_ne!(say("7"), say("8"));
}

#[test]
fn several_words_are_one_prompt() {
    let say =
        |words: &[&str]| run(&[&[&tiny(), "--temperature", "0", "--max-tokens", "8"], words].concat()).ok();
    assert_eq!(say(&["a", "b", "c"]), say(&["a b c"]));
}

#[test]
fn max_tokens_ends_the_answer_and_says_so_beside_it() {
    let ran = run(&[&tiny(), "--temperature", "0", "--max-tokens", "5", "Hello"]);
    assert!(ran.err.contains("stopped after 5 tokens (--max-tokens)"), "{}", ran.err);
    assert!(ran.ok().ends_with('\n'));
}

#[test]
fn a_full_context_ends_the_answer_and_says_so_beside_it() {
    let ran = run(&[&tiny(), "--temperature", "0", "--context", "32", "--raw", "Hello"]);
    assert!(ran.err.contains("the context of 32 tokens is full"), "{}", ran.err);
    ran.ok();
}

#[test]
fn verbose_tells_speed_and_memory_on_standard_error() {
    let arguments = [&tiny(), "--temperature", "0", "--max-tokens", "3", "Hello"];
    let quiet = run(&arguments);
    let verbose = run(&[&arguments[..], &["--verbose"]].concat());
    for word in ["prompt ", "prefill ", "first token ", "generated    3 tokens", "decode ", "tok/s"] {
        assert!(verbose.err.contains(word), "{word} is missing in:\n{}", verbose.err);
    }
    assert_eq!(verbose.ok(), quiet.ok());
}

#[test]
fn raw_text_is_continued_without_the_template() {
    let count = |more: &[&str]| {
        let err = run(&[&[&tiny(), "--verbose", "--max-tokens", "1", "Hello"], more].concat()).err;
        err.lines().find_map(|line| line.strip_prefix("prompt ").map(str::to_owned)).expect("a report")
    };
    assert_ne!(count(&[]), count(&["--raw"]));
}

#[test]
fn a_prompt_that_does_not_fit_fails_with_the_numbers_and_a_hint() {
    let long = "word ".repeat(200);
    for prompt_in in [run(&[&tiny(), &long]), run_with_input(&[&tiny()], &long)] {
        let err = prompt_in.failed();
        assert!(err.contains("only 128 with the answer fit into the context"), "{err}");
        assert!(err.contains("hint: ") && err.contains("--context"), "{err}");
    }
}

#[test]
fn an_empty_prompt_is_refused_before_anything_is_loaded() {
    for ran in [run_with_input(&["no-such-model"], " \n"), run(&["no-such-model", ""])] {
        assert!(ran.failed().contains("the prompt is empty"));
    }
    let err = Sandbox::new().run_with_input(&["run", "no-such-model"], b"\xff").failed();
    assert!(err.contains("standard input is not UTF-8 text"), "{err}");
}

#[test]
fn a_question_in_place_of_the_model_is_told_where_it_belongs() {
    let err = run(&["Why is the sky blue?"]).failed();
    assert!(err.contains("hint: the model comes first: `ropeway run smollm2:135m \"Why is"), "{err}");
}

#[test]
fn options_out_of_range_are_wrong_usage_and_told_the_range() {
    for (option, value, told) in [
        ("--temperature", "-1", "from 0 to 100"),
        ("--top-p", "2", "from 0 to 1"),
        ("--min-p", "lots", "from 0 to 1"),
        ("--repeat-penalty", "0", "from 0.01 to 100"),
        ("--max-tokens", "0", "0"),
    ] {
        let ran = run(&[&tiny(), &format!("{option}={value}"), "Hello"]);
        assert_eq!(ran.code, Some(2), "{option}");
        assert!(ran.err.contains(option) && ran.err.contains(told), "{}", ran.err);
    }
}
