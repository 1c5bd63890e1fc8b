//! Speculation on the default model, through the router: the same answers with it and without, what requests may say
//! about it, and what is told of it.

mod served;

use std::sync::Arc;

use axum::body::{Body, to_bytes};
use axum::http::{Request, StatusCode};
use ropeway_engine::{Settings, Speculation};
use ropeway_server::{App, router};
use serde_json::{Value, json};
use served::{app, load, send};
use tower::ServiceExt;

const CHAT: &str = "/v1/chat/completions";

/// A text that an answer to [`copying`] quotes.
const CODE: &str = "fn area(width: u32, height: u32) -> u32 {\n    let area = width * height;\n    area\n}";

async fn ask(app: &Arc<App>, path: &str, body: &Value) -> Value {
    let (status, text) = send(app, path, body).await;
    assert_eq!(status, StatusCode::OK, "{text}");
    serde_json::from_str(&text).expect("JSON")
}

/// `body` with these fields too.
fn with(mut body: Value, extra: Value) -> Value {
    let (Value::Object(fields), Value::Object(extra)) = (&mut body, extra) else { unreachable!() };
    fields.extend(extra);
    body
}

/// A question whose answer repeats much of it.
fn copying(extra: Value) -> Value {
    let content = format!("Repeat this code exactly, three times:\n{CODE}\n{CODE}\n{CODE}");
    let messages = json!([{"role": "user", "content": content}]);
    with(json!({"messages": messages, "max_tokens": 48, "temperature": 0}), extra)
}

fn predicting(text: &str) -> Value {
    json!({"prediction": {"type": "content", "content": text}})
}

fn remove(object: &mut Value, names: &[&str]) {
    let fields = object.as_object_mut().expect("an object");
    fields.retain(|name, _| !names.contains(&name.as_str()));
}

/// An answer without what may differ: its name, its time, and what was drafted for it.
fn comparable(mut answer: Value) -> Value {
    remove(&mut answer, &["id", "created", "time_seconds", "tokens_per_second", "time_to_first_token"]);
    if let Some(details) = answer.pointer_mut("/usage/completion_tokens_details") {
        remove(details, &["accepted_prediction_tokens", "rejected_prediction_tokens"]);
    }
    if let Some(stats) = answer.get_mut("stats") {
        let drafting = ["steps", "drafted", "accepted", "acceptance_rate", "mean_depth", "queue_seconds"];
        remove(stats, &drafting);
    }
    answer
}

fn schema() -> Value {
    let properties = json!({
        "name": {"type": "string", "maxLength": 12},
        "width": {"type": "integer", "minimum": 0, "maximum": 99},
        "height": {"type": "integer", "minimum": 0, "maximum": 99},
    });
    let schema = json!({"type": "object", "properties": properties, "required": ["name", "width", "height"]});
    json!({"type": "json_schema", "json_schema": {"name": "shape", "strict": true, "schema": schema}})
}

/// Chat requests of every kind, by name.
fn chats(greedy: &str) -> Vec<(&'static str, Value)> {
    let sampled = |temperature: f32, seed: u64| {
        copying(json!({"temperature": temperature, "seed": seed, "logprobs": true, "top_logprobs": 3}))
    };
    let stop = &greedy[greedy.len() / 2..greedy.len() / 2 + 4];
    vec![
        ("greedy", copying(json!({"logprobs": true, "top_logprobs": 2}))),
        ("temperature 0.8", with(sampled(0.8, 7), json!({"top_p": 0.9}))),
        (
            "temperature 1.5",
            with(sampled(1.5, 8), json!({"frequency_penalty": 0.5, "presence_penalty": 0.2})),
        ),
        ("a schema", copying(json!({"response_format": schema()}))),
        ("a schema, sampled", with(sampled(0.8, 9), json!({"response_format": schema()}))),
        ("n = 3", with(sampled(0.8, 10), json!({"n": 3}))),
        ("a stop string", copying(json!({"stop": [stop, "\n\n\n\n"], "logprobs": true}))),
        ("min_tokens and a bias", copying(json!({"min_tokens": 40, "logit_bias": {"2": -5.0, "198": -1.0}}))),
        ("a right prediction", copying(predicting(greedy))),
        ("a wrong prediction", copying(predicting("Nothing of this will ever be said by any model."))),
        ("a prediction of a sampled answer", with(sampled(0.8, 11), predicting(greedy))),
        ("a schema and a prediction", {
            let predicted = predicting(r#"{"name": "area", "width": 3, "height": 4}"#);
            with(copying(json!({"response_format": schema()})), predicted)
        }),
    ]
}

#[tokio::test]
async fn answers_are_the_same_with_speculation_and_without() {
    // Whatever is proposed is computed, so that nothing depends on how fast this machine is.
    let settings = Settings { speculation: Speculation::Always(8), ..Settings::default() };
    let Some(app) = load(&settings) else { return };
    let off = json!({"speculation": {"enabled": false}});
    // The first answer also fills the prefix cache, for all others alike.
    let greedy = ask(&app, CHAT, &copying(off.clone())).await;
    let greedy = greedy["choices"][0]["message"]["content"].as_str().expect("text").to_owned();
    for (name, body) in chats(&greedy) {
        let without = ask(&app, CHAT, &with(body.clone(), off.clone())).await;
        let speculated = ask(&app, CHAT, &body).await;
        assert_eq!(comparable(speculated), comparable(without), "{name}");
    }
    let text = json!({"prompt": CODE.repeat(3), "max_tokens": 40, "temperature": 0.6, "seed": 3});
    let without = json!({"use_speculative": false});
    ask(&app, "/generate", &with(text.clone(), without.clone())).await;
    let without = ask(&app, "/generate", &with(text.clone(), without)).await;
    let speculated = ask(&app, "/generate", &text).await;
    assert_eq!(without["stats"]["drafted"], 0, "{without}");
    assert_eq!(comparable(speculated), comparable(without));
    let metrics = app.models.first().expect("a model").engine().board().expect("an engine").metrics();
    let (drafted, accepted) = (metrics.drafted_tokens, metrics.accepted_tokens);
    assert!(accepted > 100 && drafted > accepted, "{accepted} of {drafted}");
}

#[tokio::test]
async fn a_prediction_is_drafted_and_its_tokens_are_told() {
    let settings = Settings { speculation: Speculation::Always(8), ..Settings::default() };
    let Some(app) = load(&settings) else { return };
    let question = |extra: Value| {
        let messages = json!([{"role": "user", "content": "Name three colours."}]);
        with(json!({"messages": messages, "max_tokens": 24, "temperature": 0}), extra)
    };
    let plain = ask(&app, CHAT, &question(json!({}))).await;
    let details = &plain["usage"]["completion_tokens_details"];
    let none =
        json!({"reasoning_tokens": 0, "accepted_prediction_tokens": 0, "rejected_prediction_tokens": 0});
    assert_eq!(*details, none, "there was no prediction");
    let text = plain["choices"][0]["message"]["content"].as_str().expect("text");
    let (head, tail) = text.split_at(text.len() / 2);
    let parts = json!([{"type": "text", "text": head}, {"type": "text", "text": tail}]);
    for content in [json!(text), parts] {
        let prediction = json!({"prediction": {"type": "content", "content": content}});
        let answer = ask(&app, CHAT, &question(prediction)).await;
        assert_eq!(answer["choices"], plain["choices"]);
        let accepted = &answer["usage"]["completion_tokens_details"]["accepted_prediction_tokens"];
        assert!(accepted.as_u64() > Some(12), "{answer}");
    }
    // Right at first: an answer that leaves a prediction with its first token has no use for it.
    let wrong = format!("{head} pigs fly over purple mountains at noon.");
    let wrong = ask(&app, CHAT, &question(predicting(&wrong))).await;
    assert_eq!(wrong["choices"], plain["choices"]);
    let rejected = &wrong["usage"]["completion_tokens_details"]["rejected_prediction_tokens"];
    assert!(rejected.as_u64() > Some(0), "{wrong}");
    let options = json!({"stream": true, "stream_options": {"include_usage": true}});
    let (_, stream) = send(&app, CHAT, &with(question(predicting(text)), options)).await;
    let last = stream.lines().rfind(|line| line.contains("\"usage\"")).expect("the usage");
    assert!(
        last.contains("accepted_prediction_tokens") && !last.contains("accepted_prediction_tokens\":0"),
        "{last}"
    );
    let continued = json!({"prompt": "Once upon a time", "max_tokens": 8, "temperature": 0});
    let plain = ask(&app, "/v1/completions", &continued).await;
    let expected = plain["choices"][0]["text"].as_str().expect("text");
    let predicted = ask(&app, "/v1/completions", &with(continued, predicting(expected))).await;
    assert_eq!(predicted["choices"], plain["choices"]);
}

/// The shortest end of the first three quarters of a text that is not said earlier.
fn said_late(text: &str) -> &str {
    let characters: Vec<usize> = text.char_indices().map(|(start, _)| start).collect();
    let begin = &text[..characters[characters.len() * 3 / 4]];
    let ends = characters.iter().rev().filter(|start| **start < begin.len()).map(|start| &begin[*start..]);
    let is_late = |end: &&str| begin.find(*end) == Some(begin.len() - end.len());
    ends.into_iter().find(is_late).expect("at the latest all of it")
}

#[tokio::test]
async fn drafts_of_an_answer_that_a_stop_string_ends_are_told() {
    let settings = Settings { speculation: Speculation::Always(8), ..Settings::default() };
    let Some(app) = load(&settings) else { return };
    let body = json!({"prompt": CODE.repeat(4), "max_tokens": 32, "temperature": 0});
    let whole = ask(&app, "/generate", &body).await;
    let text = whole["generated_text"].as_str().expect("text");
    let stop = said_late(text);
    let stopped = ask(&app, "/generate", &with(body, json!({"stop": [stop]}))).await;
    let stat = |answer: &Value, name: &str| answer["stats"][name].as_u64().expect("a number");
    let (drafted, accepted) = (stat(&stopped, "drafted"), stat(&stopped, "accepted"));
    assert!(accepted > 0 && drafted >= accepted, "{stopped}");
    let generated = stopped["tokens_generated"].as_u64().expect("a number");
    assert_eq!(stat(&stopped, "steps"), generated - accepted, "{stopped}");

    let plain = ask(&app, CHAT, &copying(json!({}))).await;
    let text = plain["choices"][0]["message"]["content"].as_str().expect("text");
    let stop = said_late(text);
    let predicted = ask(&app, CHAT, &with(copying(predicting(text)), json!({"stop": [stop]}))).await;
    let details = &predicted["usage"]["completion_tokens_details"];
    assert!(details["accepted_prediction_tokens"].as_u64() > Some(2), "{predicted}");
}

#[tokio::test]
async fn drafts_from_elsewhere_are_not_counted_as_prediction() {
    let settings = Settings { speculation: Speculation::Always(8), ..Settings::default() };
    let Some(app) = load(&settings) else { return };
    let metrics = || app.models.first().expect("a model").engine().board().expect("an engine").metrics();
    // The answer quotes the prompt, and nothing of the prediction.
    let wrong = predicting("Nothing of this will ever be said by any model.");
    let answer = ask(&app, CHAT, &copying(wrong)).await;
    let details = &answer["usage"]["completion_tokens_details"];
    assert_eq!(details["accepted_prediction_tokens"], 0, "{answer}");
    assert!(details["rejected_prediction_tokens"].as_u64() < Some(metrics().drafted_tokens), "{answer}");
    assert!(metrics().accepted_tokens > 0, "lookup drafted as well");
}

#[tokio::test]
async fn plain_generation_tells_what_speculation_did() {
    let settings = Settings { speculation: Speculation::Always(8), ..Settings::default() };
    let Some(app) = load(&settings) else { return };
    let body = json!({"prompt": CODE.repeat(4), "max_tokens": 32, "temperature": 0, "use_speculative": true});
    let stats = |answer: &Value, name: &str| answer["stats"][name].as_f64().expect("a number");
    let answer = ask(&app, "/generate", &body).await;
    let (drafted, accepted) = (stats(&answer, "drafted"), stats(&answer, "accepted"));
    assert!(accepted > 8.0 && drafted >= accepted, "{answer}");
    assert!((stats(&answer, "acceptance_rate") - accepted / drafted).abs() < 1e-9, "{answer}");
    assert!((stats(&answer, "steps") - (32.0 - accepted)).abs() < 1e-9, "{answer}");
    assert!(stats(&answer, "mean_depth") > 1.0, "{answer}");
    let shallow = ask(&app, "/generate", &with(body.clone(), json!({"speculation_depth": 2}))).await;
    assert!(stats(&shallow, "mean_depth") <= 2.0 && stats(&shallow, "drafted") > 0.0, "{shallow}");
    for off in [json!({"speculation_depth": 0}), json!({"use_speculative": false, "speculation_depth": 4})] {
        let answer = ask(&app, "/generate", &with(body.clone(), off)).await;
        let told = ["drafted", "accepted", "acceptance_rate", "mean_depth"].map(|name| stats(&answer, name));
        assert!(told.iter().all(|figure| figure.abs() < 1e-9), "{answer}");
        assert_eq!(answer["stats"]["steps"], 32);
    }
    let (_, stream) = send(&app, "/generate/stream", &body).await;
    let last = stream.lines().rfind(|line| line.contains("\"is_final\":true")).expect("an end");
    let last: Value = serde_json::from_str(last.trim_start_matches("data: ")).expect("JSON");
    assert!(last["acceptance_rate"].as_f64() > Some(0.0), "{last}");
    let many = json!({"prompts": ["Once", CODE.repeat(4)], "max_tokens": 16, "temperature": 0});
    let many = ask(&app, "/generate/batch", &many).await;
    assert!(stats(&many["results"][1], "accepted") > 0.0, "{many}");

    let page = Request::get("/metrics").body(Body::empty()).expect("a request");
    let page = router(Arc::clone(&app)).oneshot(page).await.expect("an answer");
    let page = to_bytes(page.into_body(), 1 << 20).await.expect("a body");
    let page = String::from_utf8_lossy(&page);
    let sum = |name: &str| -> f64 {
        let lines =
            page.lines().filter_map(|line| line.strip_prefix(&format!("ropeway_spec_decode_num_{name}{{")));
        lines
            .map(|line| {
                line.rsplit(' ').next().and_then(|value| value.parse::<f64>().ok()).expect("a number")
            })
            .sum()
    };
    let accepted = sum("accepted_tokens_total");
    assert!(accepted > 0.0 && sum("draft_tokens_total") >= accepted && sum("drafts_total") > 0.0, "{page}");
    assert!((sum("accepted_tokens_per_pos_total") - accepted).abs() < 1e-9, "{page}");
    assert!(page.contains("per_pos_total{model_name=\"smollm2:135m\",position=\"0\"} "), "{page}");
}

#[tokio::test]
async fn bad_input_is_refused_with_its_field_and_what_is_right() {
    let Some(app) = app() else { return };
    let content = |content: Value| json!({"prediction": {"type": "content", "content": content}});
    for (path, wrong, field, hint) in [
        (CHAT, json!({"prediction": "text"}), "prediction", "{\\\"type\\\": \\\"content\\\""),
        (CHAT, content(json!(7)), "prediction.content", "text or a list of text parts"),
        (CHAT, content(json!([{"type": "image_url"}])), "prediction.content", "text parts"),
        (CHAT, content(json!("word ".repeat(600))), "prediction", "shorten it"),
        (CHAT, content(json!("word ".repeat(200_000))), "prediction", "shorten it"),
        (CHAT, json!({"speculation": true}), "speculation", "an object"),
        (CHAT, json!({"speculation": {"enabled": 1}}), "speculation.enabled", "true or false"),
        (
            CHAT,
            json!({"speculation": {"num_speculative_tokens": 17}}),
            "speculation.num_speculative_tokens",
            "to 16",
        ),
        (
            "/v1/completions",
            json!({"prompt": ["a", "b"], "prediction": {"type": "content", "content": "c"}}),
            "prediction",
            "one by one",
        ),
        ("/v1/completions", json!({"prompt": "a", "speculation": []}), "speculation", "an object"),
        ("/generate", json!({"prompt": "a", "speculation_depth": 17}), "speculation_depth", "to 16"),
        ("/generate", json!({"prompt": "a", "speculation_depth": -1}), "speculation_depth", "to 16"),
        ("/generate/stream", json!({"prompt": "a", "speculation_depth": 99}), "speculation_depth", "to 16"),
        ("/generate/batch", json!({"prompts": ["a"], "speculation_depth": 99}), "speculation_depth", "to 16"),
    ] {
        let body = if path == CHAT { copying(wrong) } else { wrong };
        let (status, text) = send(&app, path, &body).await;
        assert_eq!(status, StatusCode::BAD_REQUEST, "{text}");
        let param = format!("\"param\":\"{field}\"");
        assert!(text.contains(&param) && text.contains(hint), "{field}, {hint}: {text}");
    }
    // Other APIs have no such fields, and take no offence.
    let message = json!({"model": "smollm2", "messages": [{"role": "user", "content": "Hi"}], "max_tokens": 2, "speculation": {"enabled": true}});
    ask(&app, "/v1/messages", &with(message.clone(), predicting("x"))).await;
    let chat = json!({"stream": false, "options": {"num_predict": 2}});
    ask(&app, "/api/chat", &with(with(message, chat), predicting("x"))).await;
    let input = json!({"input": "Hi", "max_output_tokens": 2, "speculation": {}});
    ask(&app, "/v1/responses", &with(input, predicting("x"))).await;
}
