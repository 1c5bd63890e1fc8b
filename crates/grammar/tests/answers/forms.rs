//! Every form of grammar by itself: what it lets through, and what is turned down.

use ropeway_engine::{Grammar, Progress};
use ropeway_executor::guides::{allows, mask_words};
use ropeway_grammar::{Compiler, GrammarError, GrammarSpec, Reasoning, Strictness};
use ropeway_text::{Around, InText, Special, Tokenizer};
use serde_json::{Value, json};

use crate::model;

/// Whether a grammar lets exactly this text through.
pub fn lets_through(tokenizer: &Tokenizer, grammar: &dyn Grammar, text: &str) -> bool {
    let special = Special { in_text: InText::Plain, around: Around::Omit };
    let mut guide = grammar.begin();
    let mut mask = vec![0; mask_words(tokenizer.vocab_size())];
    let mut progress = Progress::Open;
    for token in tokenizer.encode(text, special).expect("tokens") {
        if progress == Progress::Complete || guide.allow(&mut mask).is_err() {
            return false;
        }
        // Where bytes are forced, only the canonical token is: any other way to write the same is as good.
        if !allows(&mask, token) {
            return false;
        }
        progress = guide.accept(token).expect("an allowed token");
    }
    let ends = || tokenizer.eos_tokens().iter();
    progress == Progress::Complete
        || (guide.allow(&mut mask).is_ok() && ends().any(|end| allows(&mask, *end)))
}

fn check(spec: &GrammarSpec, good: &[&str], bad: &[&str]) {
    let Some(tokenizer) = model::tokenizer() else { return };
    let grammar = Compiler::new(&tokenizer).compile(spec, None).expect("compiles");
    for text in good {
        assert!(lets_through(&tokenizer, &*grammar, text), "{spec:?} should allow {text}");
    }
    for text in bad {
        assert!(!lets_through(&tokenizer, &*grammar, text), "{spec:?} should not allow {text}");
    }
}

#[test]
fn a_list_of_choices_allows_these_and_nothing_else() {
    let choices = ["yes", "no", "no way", "\"quoted\"\n", "grün 🌳"].map(String::from).to_vec();
    check(
        &GrammarSpec::Choice(choices),
        &["yes", "no", "no way", "\"quoted\"\n", "grün 🌳"],
        &["yes!", "n", "way"],
    );
}

#[test]
fn a_regular_expression_is_matched_as_a_whole() {
    let spec = GrammarSpec::Regex(r"\d{4}-\d\d/[a-c]+".into());
    check(&spec, &["2024-01/abc"], &["2024-01/", "x2024-01/a", "2024-01/abcd"]);
}

#[test]
fn a_json_object_is_any_object_and_no_other_value() {
    check(&GrammarSpec::JsonObject, &["{}", r#"{"a":[1,{"b":null}]}"#], &["[]", "1", r#"{"a":}"#]);
}

#[test]
fn grammars_are_lark_or_gbnf() {
    let lark = "start: \"(\" start \")\" | DIGITS\nDIGITS: /[0-9]+/";
    let gbnf = "root ::= \"(\" root \")\" | some-digits\nsome-digits ::= [0-9]+  # at least one\n";
    for grammar in [lark, gbnf] {
        check(&GrammarSpec::Grammar(grammar.into()), &["12", "((7))"], &["(7", "()", "7)"]);
    }
}

#[test]
fn thoughts_come_before_the_answer_and_are_free() {
    let Some(tokenizer) = model::tokenizer() else { return };
    let reasoning = Reasoning { close: "</think>".into(), is_control: false };
    let spec = GrammarSpec::Choice(vec!["yes".into(), "no".into()]);
    let grammar = Compiler::new(&tokenizer).compile(&spec, Some(&reasoning)).expect("compiles");
    for (text, good) in [
        ("Hm, \"no\"?\nLet me {see}.</think>\n\nyes", true),
        ("</think>no", true),
        ("yes", false),
        ("Hm.</think>maybe", false),
    ] {
        assert_eq!(lets_through(&tokenizer, &*grammar, text), good, "{text}");
    }
}

#[test]
fn what_can_not_be_used_is_turned_down_with_the_reason() {
    let Some(compiler) = model::compiler() else { return };
    let schema = |schema: Value| GrammarSpec::JsonSchema { schema, strictness: Strictness::Strict };
    let mut deep = json!({"type": "integer"});
    for _ in 0..100 {
        deep = json!({"type": "array", "items": deep, "minItems": 50, "maxItems": 50});
    }
    let wide: Vec<Value> = (0..6000).map(|i| json!(format!("value {i} {}", "x".repeat(30)))).collect();
    let alternatives: Vec<Value> =
        (0..40).map(|i| json!({"pattern": format!("^(a|b)*a(a|b){{{}}}$", 40 + i)})).collect();
    let cases = [
        (schema(json!({"type": "intger"})), "intger"),
        (schema(json!({"$ref": "#/$defs/None"})), "None"),
        (schema(json!({"$ref": "http://example.com/schema"})), "example.com"),
        (schema(json!({"type": "array", "uniqueItems": true})), "uniqueItems"),
        (schema(json!({"type": "string", "minLength": 5, "maxLength": 2})), "Unsatisfiable"),
        (schema(json!({"enum": wide})), "bytes"),
        (schema(json!({"allOf": alternatives})), "40 patterns"),
        (schema(json!({"type": "integer", "multipleOf": 999_983})), "multipleOf"),
        (GrammarSpec::Regex("(".into()), ""),
        (GrammarSpec::Grammar("start: foo".into()), "foo"),
        (GrammarSpec::Grammar("root ::= \"a".into()), "not closed"),
        (GrammarSpec::Choice(vec![]), "at least one"),
    ];
    for (spec, reason) in cases {
        let began = std::time::Instant::now();
        let error = compiler.compile(&spec, None).map(|_| ()).expect_err(&format!("{spec:?}"));
        assert!(error.to_string().contains(reason), "{error}");
        assert!(!matches!(error, GrammarError::Bug { .. }), "{error}");
        assert!(!error.to_string().contains('<'), "notes for developers: {error}");
        println!("{:?}: {error}", began.elapsed());
    }
    // Whatever comes of it, it comes soon.
    let _ = compiler.compile(&schema(deep), None);
}

#[test]
fn a_lenient_schema_ignores_what_can_not_be_enforced() {
    let schema = json!({"type": "array", "items": {"type": "integer"}, "uniqueItems": true});
    let spec = GrammarSpec::JsonSchema { schema, strictness: Strictness::Lenient };
    check(&spec, &["[1,2]", "[1,1]"], &["[\"a\"]"]);
}
