//! Answers of the default model that follow a grammar: every finished one is valid, and each is what it would have been
//! alone. And of the grammars by themselves: what they let through, and what is turned down.

mod conformance;
#[path = "../../../../tests/default_models.rs"]
mod default_models;
mod forms;
mod model;
mod schemas;

use std::sync::Arc;
use std::time::Instant;

use model::{Model, my_turn};
use ropeway_engine::{FinishReason, Request};
use ropeway_executor::{SamplingParams, Seed};
use ropeway_grammar::{GrammarSpec, Strictness};
use serde_json::{Value, json};

fn strict(schema: Value) -> GrammarSpec {
    GrammarSpec::JsonSchema { schema, strictness: Strictness::Strict }
}

fn sampled(seed: u64) -> SamplingParams {
    SamplingParams { temperature: 0.8, seed: Seed(seed), ..SamplingParams::default() }
}

#[test]
fn every_finished_answer_is_valid_under_its_schema() {
    let _turn = my_turn();
    let Some(model) = Model::open() else { return };
    let schemas = schemas::all();
    assert!(schemas.len() >= 50, "{}", schemas.len());
    let mut asked = Vec::new();
    for (index, (name, schema)) in schemas.iter().enumerate() {
        let grammar =
            model.compile(&strict(schema.clone())).unwrap_or_else(|error| panic!("{name}: {error}"));
        for params in [SamplingParams::greedy(), sampled(index as u64)] {
            let request =
                model.request(&format!("Fill in the form `{name}` about a trip of Alice and Bob to Paris."));
            asked.push((name, schema, Request { grammar: Some(grammar.clone()), params, ..request }));
        }
    }
    let answers = model.together(asked.iter().map(|(.., request)| request.clone()));
    let mut finished = 0;
    for ((name, schema, _), answer) in asked.iter().zip(&answers) {
        if answer.reason == FinishReason::Length {
            continue;
        }
        finished += 1;
        assert!(matches!(answer.reason, FinishReason::Complete | FinishReason::End(_)), "{name}: {answer:?}");
        let text = model.text(answer);
        let value: Value =
            serde_json::from_str(&text).unwrap_or_else(|error| panic!("{name}: {error}: {text}"));
        let validator = jsonschema::options().should_validate_formats(true).build(schema).expect("a schema");
        assert!(validator.is_valid(&value), "{name}: {text}");
    }
    println!("{finished} of {} answers finished, all of them valid", answers.len());
    assert!(finished * 2 > answers.len(), "only {finished} of {} finished", answers.len());
}

#[test]
fn batched_answers_are_bit_for_bit_those_given_alone() {
    let _turn = my_turn();
    let Some(model) = Model::open() else { return };
    let schemas = schemas::all();
    let request = |number: usize| {
        let params = if number.is_multiple_of(2) { SamplingParams::greedy() } else { sampled(number as u64) };
        // Some say what the model thought: then nothing is forced.
        let params = SamplingParams { logprobs: number.is_multiple_of(5).then_some(2), ..params };
        let request = model.request(&format!("Write a short text about the number {number}."));
        let grammar = (number % 4 != 3).then(|| {
            model.compile(&strict(schemas[number * 2 % schemas.len()].1.clone())).expect("compiles")
        });
        Request { params, grammar: grammar.map(|grammar| grammar as Arc<_>), max_tokens: Some(48), ..request }
    };
    let requests: Vec<Request> = (0..24).map(request).collect();
    let bits = |answer: &ropeway_engine::Completion| -> Vec<(u32, u32)> {
        answer.tokens.iter().map(|sampled| (sampled.token, sampled.logprob.to_bits())).collect()
    };
    let batched = model.together(requests.clone());
    let fullest = model.handle.board().records_after(0).iter().map(|record| record.guided).max();
    assert!(fullest >= Some(9), "at most {fullest:?} constrained rows ran together");
    for (number, (request, batched)) in requests.into_iter().zip(&batched).enumerate() {
        let alone = &model.together([Request { salt: format!("alone {number}").into(), ..request }])[0];
        assert_eq!(bits(alone), bits(batched), "request {number}");
        assert_eq!(alone.reason, batched.reason, "request {number}");
    }
}

#[test]
fn a_cut_answer_says_so_and_forced_tokens_count() {
    let _turn = my_turn();
    let Some(model) = Model::open() else { return };
    let schema = json!({"type": "object", "properties": {"a_rather_long_name": {"const": "a rather long value"}},
                        "required": ["a_rather_long_name"]});
    let grammar = model.compile(&strict(schema)).expect("compiles");
    let ask = |max_tokens| {
        let request = model.request("Go on.");
        let grammar: Arc<dyn ropeway_engine::Grammar> = grammar.clone();
        model
            .together([Request { grammar: Some(grammar), max_tokens: Some(max_tokens), ..request }])
            .remove(0)
    };
    let whole = ask(100);
    assert_eq!(model.text(&whole), r#"{"a_rather_long_name":"a rather long value"}"#);
    assert_eq!(whole.reason, FinishReason::Complete);
    let cut = ask(3);
    assert_eq!((cut.tokens.len(), cut.reason), (3, FinishReason::Length));
}

#[test]
fn an_answer_that_runs_out_of_room_is_brought_to_its_end() {
    let _turn = my_turn();
    let Some(model) = Model::open() else { return };
    let fact = json!({"type": "object", "properties": {"fact": {"type": "string"}, "year": {"type": ["integer", "null"]}},
                      "required": ["fact", "year"]});
    let schema = json!({"type": "object", "properties": {"facts": {"type": "array", "items": fact}}, "required": ["facts"]});
    let grammar = model.compile(&strict(schema)).expect("compiles");
    let ask = |seed| {
        let grammar: Arc<dyn ropeway_engine::Grammar> = grammar.clone();
        let request = model.request("Write down everything that happened in Europe since the year 1000.");
        Request { grammar: Some(grammar), params: sampled(seed), max_tokens: Some(80), ..request }
    };
    let answers = model.together((0..12).map(ask));
    for answer in &answers {
        let text = model.text(answer);
        assert!(serde_json::from_str::<Value>(&text).is_ok(), "{:?}: {text}", answer.reason);
    }
    assert!(answers.iter().any(|answer| answer.reason == FinishReason::Length), "nobody ran out of room");
}

#[test]
fn the_schemas_of_a_knowledge_graph_pipeline_compile_in_little_time() {
    let Some(compiler) = model::compiler() else { return };
    compiler.compile(&GrammarSpec::JsonObject, None).expect("compiles");
    for (name, schema) in schemas::graphiti() {
        let began = Instant::now();
        let first = compiler.compile(&strict(schema.clone()), None).expect("compiles");
        println!("{name}: {:?}", began.elapsed());
        let again = compiler.compile(&strict(schema), None).expect("compiles");
        assert!(Arc::ptr_eq(&first, &again), "{name} was compiled twice");
    }
    assert_eq!(compiler.stats().hits, schemas::graphiti().len() as u64);
}
