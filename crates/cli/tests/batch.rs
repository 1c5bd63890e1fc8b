//! `batch` from the outside: on a tiny model of random weights for how lines are handled, on the default models for
//! what they may ask.

#[path = "../../../tests/default_models.rs"]
mod default_models;
mod support;

use std::path::Path;
use std::process::Stdio;

use serde_json::{Value, json};
use support::{Ran, Sandbox};

fn tiny() -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/fixtures/models/llama");
    path.display().to_string()
}

fn arguments<'a>(model: &'a str, more: &[&'a str]) -> Vec<&'a str> {
    let fixed = ["batch", "in.jsonl", "-o", "out.jsonl", "--kv-memory", "64MiB", "--temperature", "0"];
    [&fixed[..], &["--model", model], more].concat()
}

fn jsonl(lines: &[Value]) -> Vec<u8> {
    lines.iter().flat_map(|line| format!("{line}\n").into_bytes()).collect()
}

fn batch(sandbox: &Sandbox, lines: &[Value], more: &[&str]) -> Ran {
    sandbox.write("in.jsonl", &jsonl(lines));
    sandbox.run(&arguments(&tiny(), more))
}

fn results(sandbox: &Sandbox) -> Vec<Value> {
    let text = std::fs::read_to_string(sandbox.path("out.jsonl")).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn ids(results: &[Value]) -> Vec<&str> {
    results.iter().map(|result| result["custom_id"].as_str().unwrap()).collect()
}

fn prompts(count: usize, max_tokens: usize) -> Vec<Value> {
    let line = |number| json!({"id": format!("q{number}"), "prompt": format!("Tale {number}"), "max_tokens": max_tokens});
    (0..count).map(line).collect()
}

#[test]
fn every_kind_of_line_is_answered_in_the_form_of_its_endpoint() {
    let sandbox = Sandbox::new();
    let messages = json!([{"role": "user", "content": "Hello"}]);
    let lines = [
        json!({"prompt": "Once", "max_tokens": 3}),
        json!({"id": "chat", "messages": messages, "max_tokens": 3, "n": 2, "temperature": 1}),
        json!({"custom_id": "a", "method": "POST", "url": "/v1/chat/completions",
               "body": {"model": "any", "messages": messages, "max_completion_tokens": 2}}),
        json!({"custom_id": "b", "method": "POST", "url": "/v1/completions",
               "body": {"prompt": [5, 6, 7], "max_tokens": 4, "ignore_eos": true}}),
    ];
    let ran = batch(&sandbox, &lines, &["--ordered"]);
    assert!(ran.err.contains("4 answered, 0 failed"), "{}", ran.err);
    ran.ok();
    let results = results(&sandbox);
    assert_eq!(ids(&results), ["line-1", "chat", "a", "b"]);
    let body = |index: usize| &results[index]["response"]["body"];
    assert_eq!(
        (body(0)["object"].as_str(), body(1)["object"].as_str()),
        (Some("text_completion"), Some("chat.completion"))
    );
    assert!(body(0)["choices"][0]["text"].is_string());
    assert_eq!(body(1)["choices"].as_array().map(Vec::len), Some(2));
    assert!(body(2)["choices"][0]["message"]["content"].is_string());
    assert_eq!(body(3)["usage"]["prompt_tokens"], 3);
    assert_eq!(body(3)["usage"]["completion_tokens"], 4);
    assert_eq!(body(3)["choices"][0]["finish_reason"], "length");
    assert!(results.iter().all(|result| result["error"].is_null()));
}

#[test]
fn a_batch_says_what_run_says() {
    let sandbox = Sandbox::new();
    batch(&sandbox, &[json!({"prompt": "Once upon", "max_tokens": 8})], &[]).ok();
    let asked =
        sandbox.run(&["run", &tiny(), "--raw", "--temperature", "0", "--max-tokens", "8", "Once upon"]);
    let text = results(&sandbox)[0]["response"]["body"]["choices"][0]["text"].as_str().unwrap().to_owned();
    assert_eq!(text + "\n", asked.ok());
}

#[test]
fn one_bad_line_is_one_error_line_and_the_exit_code_says_so() {
    let sandbox = Sandbox::new();
    let mut lines = prompts(3, 2);
    lines.insert(1, json!({"id": "bad", "prompt": "x", "temperature": -3}));
    lines.push(json!({"id": "long", "prompt": "word ".repeat(300)}));
    lines.push(json!({"id": "q0", "prompt": "again"}));
    let err = batch(&sandbox, &lines, &["--ordered"]).failed();
    assert!(err.contains("3 answered, 3 failed") && err.contains("their errors are in out.jsonl"), "{err}");
    let results = results(&sandbox);
    assert_eq!(ids(&results), ["q0", "bad", "q1", "q2", "long", "q0"]);
    let told = |index: usize| results[index]["error"]["message"].as_str().unwrap().to_owned();
    assert!(
        told(1).contains("temperature") && told(4).contains("tokens") && told(5).contains("earlier line")
    );
    assert_eq!(results[1]["response"]["status_code"], 400);
}

#[test]
fn running_again_skips_what_is_there_and_repairs_a_torn_line() {
    let sandbox = Sandbox::new();
    let lines = prompts(4, 3);
    batch(&sandbox, &lines, &["--ordered"]).ok();
    let whole = results(&sandbox);
    assert!(batch(&sandbox, &lines, &[]).err.contains("0 answered, 0 failed, 4 there already"));
    assert_eq!(results(&sandbox), whole);
    let text = std::fs::read_to_string(sandbox.path("out.jsonl")).unwrap();
    sandbox.write("out.jsonl", &text.as_bytes()[..text.len() - 20]);
    let ran = batch(&sandbox, &lines, &[]);
    assert!(ran.err.contains("1 answered, 0 failed, 3 there already"), "{}", ran.err);
    let choices = |results: &[Value]| -> Vec<Value> {
        results.iter().map(|result| result["response"]["body"]["choices"].clone()).collect()
    };
    assert_eq!(choices(&results(&sandbox)), choices(&whole));
}

#[test]
fn a_stop_string_ends_the_answer_before_it() {
    let sandbox = Sandbox::new();
    let ask = |more: Value| {
        let mut line = json!({"prompt": "Once", "max_tokens": 40, "ignore_eos": true});
        line.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        let _ = std::fs::remove_file(sandbox.path("out.jsonl"));
        batch(&sandbox, &[line], &[]).ok();
        let choice = results(&sandbox)[0]["response"]["body"]["choices"][0].clone();
        (choice["text"].as_str().unwrap().to_owned(), choice["finish_reason"].as_str().unwrap().to_owned())
    };
    let (text, reason) = ask(json!({}));
    assert_eq!(reason, "length");
    let stop: String = text.chars().skip(20).take(3).collect();
    let before = &text[..text.find(&stop).unwrap()];
    assert_eq!(ask(json!({ "stop": [stop] })), (before.to_owned(), "stop".into()));
}

#[cfg(unix)]
#[test]
fn an_interrupted_batch_says_how_to_go_on_and_does() {
    let sandbox = Sandbox::new();
    // Enough that the interruption comes before the end.
    let mut lines = prompts(480, 100);
    lines[0]["max_tokens"] = json!(1);
    sandbox.write("in.jsonl", &jsonl(&lines));
    let mut command = sandbox.command(&arguments(&tiny(), &[]));
    let child = command.stderr(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let written = || std::fs::metadata(sandbox.path("out.jsonl")).is_ok_and(|file| file.len() > 0);
    while !written() {
        std::thread::yield_now();
    }
    let pid = child.id().to_string();
    assert!(std::process::Command::new("kill").args(["-INT", &pid]).status().unwrap().success());
    let ran = Ran::from(child.wait_with_output().unwrap());
    assert!(ran.err.contains("interrupted") && ran.err.contains("run the same command again"), "{}", ran.err);
    assert_eq!(ran.code, Some(1));
    sandbox.run(&arguments(&tiny(), &[])).ok();
    let results = results(&sandbox);
    let mut ids = ids(&results);
    ids.sort_unstable();
    ids.dedup();
    assert_eq!((ids.len(), results.len()), (480, 480));
}

#[test]
fn files_that_are_not_what_they_should_be_are_refused_before_anything_is_loaded() {
    let sandbox = Sandbox::new();
    let run = |arguments: &[&str]| {
        sandbox.run(&[&["batch", "--model", "no-such-model"], arguments].concat()).failed()
    };
    assert!(run(&["missing.jsonl", "-o", "out.jsonl"]).contains("could not read missing.jsonl"));
    sandbox.write("in.jsonl", b"{\"prompt\":\"x\"}\n");
    assert!(run(&["in.jsonl", "-o", "in.jsonl"]).contains("the same file"));
    sandbox.write("notes.txt", b"milk\n");
    assert!(run(&["in.jsonl", "-o", "notes.txt"]).contains("not a result of `ropeway batch`"));
    assert_eq!(std::fs::read(sandbox.path("notes.txt")).unwrap(), b"milk\n");
}

/// Answers lines with the default chat model, and gives their bodies in order.
fn bodies_of_smollm2(lines: &[Value], more: &[&str]) -> Option<Vec<Value>> {
    let model = default_models::smollm2()?.display().to_string();
    let sandbox = Sandbox::new();
    sandbox.write("in.jsonl", &jsonl(lines));
    let more = [&["--ordered", "--context", "512"], more].concat();
    let ran = sandbox.run(&arguments(&model, &more));
    let results = results(&sandbox);
    assert!(results.iter().all(|result| result["error"].is_null()), "{results:?}");
    ran.ok();
    Some(results.iter().map(|result| result["response"]["body"].clone()).collect())
}

fn line(url: &str, body: &Value) -> Value {
    json!({"custom_id": body.to_string(), "method": "POST", "url": url, "body": body})
}

fn chat(more: &Value) -> Value {
    let mut body =
        json!({"messages": [{"role": "user", "content": "How warm is it in Rome?"}], "max_tokens": 64});
    body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    line("/v1/chat/completions", &body)
}

#[test]
fn answers_follow_the_format_that_a_line_asks_for() {
    let schema = json!({"type": "object", "properties": {"degrees": {"type": "integer"}},
                        "required": ["degrees"], "additionalProperties": false});
    let format =
        json!({"type": "json_schema", "json_schema": {"name": "n", "strict": true, "schema": schema}});
    let lines = [
        chat(&json!({"response_format": format})),
        chat(&json!({"structured_outputs": {"regex": "[0-9]{2} degrees"}})),
        chat(&json!({"guided_choice": ["warm", "cold"]})),
        line("/v1/completions", &json!({"prompt": "It is", "guided_regex": " [a-z]{3}"})),
    ];
    let Some(bodies) = bodies_of_smollm2(&lines, &[]) else { return };
    let content = |index: usize| bodies[index]["choices"][0]["message"]["content"].as_str().unwrap();
    let answer: Value = serde_json::from_str(content(0)).expect("JSON");
    assert!(answer["degrees"].is_i64() && answer.as_object().unwrap().len() == 1, "{answer}");
    assert!(content(1).ends_with(" degrees") && content(1).len() == 10, "{}", content(1));
    assert!(["warm", "cold"].contains(&content(2)), "{}", content(2));
    let text = bodies[3]["choices"][0]["text"].as_str().unwrap();
    assert!(text.len() == 4 && text.starts_with(' '), "{text:?}");
}

#[test]
fn a_line_may_force_a_tool_call() {
    let tool = json!({"type": "function", "function": {"name": "thermometer", "parameters": {
        "type": "object", "properties": {"city": {"enum": ["Rome", "Oslo"]}}, "required": ["city"]}}});
    let lines = [
        chat(&json!({"tools": [tool], "tool_choice": "required"})),
        chat(&json!({"tools": [tool],
                    "tool_choice": {"type": "function", "function": {"name": "thermometer"}}})),
    ];
    let Some(bodies) = bodies_of_smollm2(&lines, &[]) else { return };
    for body in bodies {
        let choice = &body["choices"][0];
        assert_eq!(choice["finish_reason"], "tool_calls", "{body}");
        let call = &choice["message"]["tool_calls"][0]["function"];
        assert_eq!(call["name"], "thermometer");
        let arguments: Value = serde_json::from_str(call["arguments"].as_str().unwrap()).expect("JSON");
        assert!(arguments["city"] == "Rome" || arguments["city"] == "Oslo", "{arguments}");
    }
}

#[test]
fn log_probabilities_several_choices_and_several_prompts_are_as_from_the_server() {
    let lines = [
        chat(&json!({"logprobs": true, "top_logprobs": 2, "n": 2, "max_tokens": 3, "temperature": 1})),
        line(
            "/v1/completions",
            &json!({"prompt": ["One", "Two"], "max_tokens": 2, "echo": true, "logprobs": 1}),
        ),
    ];
    let Some(bodies) = bodies_of_smollm2(&lines, &[]) else { return };
    let choices = bodies[0]["choices"].as_array().unwrap();
    assert_eq!(choices.len(), 2);
    for choice in choices {
        let content = choice["logprobs"]["content"].as_array().unwrap();
        assert!(!content.is_empty() && content.len() <= 3);
        assert!(content.iter().all(|token| token["top_logprobs"].as_array().unwrap().len() == 2));
    }
    assert_eq!(bodies[0]["usage"]["completion_tokens_details"]["reasoning_tokens"], 0);
    let texts: Vec<&str> =
        bodies[1]["choices"].as_array().unwrap().iter().map(|c| c["text"].as_str().unwrap()).collect();
    assert!(texts[0].starts_with("One") && texts[1].starts_with("Two"), "{texts:?}");
    assert!(bodies[1]["choices"][0]["logprobs"]["token_logprobs"][0].is_null());
}

#[test]
fn penalties_and_other_fields_have_the_ranges_of_the_server() {
    let sandbox = Sandbox::new();
    let lines = [
        json!({"id": "warm", "prompt": "x", "max_tokens": 1, "temperature": 50, "repetition_penalty": 20}),
        json!({"id": "hot", "prompt": "x", "temperature": 101}),
        json!({"id": "tools", "messages": [{"role": "user", "content": "x"}], "functions": [{"name": "f"}]}),
        json!({"id": "top", "messages": [{"role": "user", "content": "x"}], "top_logprobs": 2}),
        json!({"id": "form", "prompt": "x", "guided_regex": "("}),
    ];
    batch(&sandbox, &lines, &["--ordered"]).failed();
    let results = results(&sandbox);
    let param = |index: usize| results[index]["response"]["body"]["error"]["param"].as_str();
    assert!(results[0]["error"].is_null(), "{}", results[0]);
    let params: Vec<_> = (1..5).map(param).collect();
    assert_eq!(params, [Some("temperature"), Some("functions"), Some("top_logprobs"), Some("guided_regex")]);
}

#[test]
fn embeddings_lines_are_answered_beside_others_and_as_the_embed_command_does() {
    let Some(minilm) = default_models::minilm() else { return };
    let minilm = minilm.display().to_string();
    let sandbox = Sandbox::new();
    let lines = [
        json!({"id": "text", "prompt": "Once", "max_tokens": 2}),
        line("/v1/embeddings", &json!({"input": ["The sky is blue.", "Grass is green."]})),
        line("/v1/embeddings", &json!({"input": "The sky is blue.", "encoding_format": "base64"})),
        line("/v1/embeddings", &json!({"input": "x", "dimensions": 100_000})),
    ];
    batch(&sandbox, &lines, &["--ordered", "--embed-model", &minilm]).failed();
    let results = results(&sandbox);
    let body = |index: usize| &results[index]["response"]["body"];
    assert!(body(0)["choices"][0]["text"].is_string());
    assert_eq!(body(1)["data"].as_array().map(Vec::len), Some(2));
    assert!(body(1)["usage"]["prompt_tokens"].as_u64() > Some(8));
    assert!(body(2)["data"][0]["embedding"].is_string());
    assert_eq!(body(3)["error"]["param"], "dimensions");
    let told = sandbox.run_with_input(&["embed", "--model", &minilm], b"The sky is blue.\n").ok();
    let alone: Value = serde_json::from_str(told.lines().next().unwrap()).unwrap();
    let vector = |value: &Value| -> Vec<f32> {
        value.as_array().unwrap().iter().map(|number| number.as_f64().unwrap() as f32).collect()
    };
    let alone = alone.get("embedding").unwrap_or(&alone);
    assert_eq!(vector(&body(1)["data"][0]["embedding"]), vector(alone));
}

#[test]
fn without_embeddings_lines_no_embedding_model_is_needed() {
    let sandbox = Sandbox::new();
    batch(&sandbox, &prompts(1, 2), &["--embed-model", "no-such-model"]).ok();
    let lines = [line("/v1/embeddings", &json!({"input": "x"}))];
    batch(&sandbox, &lines, &["--embed-model", "./no-such-model"]).failed();
    let told = results(&sandbox)[1]["error"]["message"].as_str().unwrap().to_owned();
    assert!(told.contains("no-such-model can't be loaded"), "{told}");
}
