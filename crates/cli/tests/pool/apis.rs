//! What clients see of a model that others compute: the same as of a local one.

use serde_json::{Value, json};

use super::support::server::{Server, until};
use super::{front, greedy, model, text, upstream, upstreams, with_tokenizer};

/// An upstream and a server in front of it.
fn pair() -> (Server, Server) {
    let behind = upstream(&[]);
    let front = front(&[behind.url()], &with_tokenizer(), &[]);
    (behind, front)
}

fn post(server: &Server, path: &str, body: &Value) -> Value {
    let (status, answer) = server.post(path, body.to_string());
    assert_eq!(status, 200, "{path}: {answer}");
    serde_json::from_str(&answer).unwrap()
}

/// Both servers' answers, without what is never the same.
fn both(pair: &(Server, Server), path: &str, body: &Value) -> (Value, Value) {
    let strip = |mut answer: Value| {
        for key in ["id", "created", "system_fingerprint", "created_at"] {
            answer.as_object_mut().unwrap().remove(key);
        }
        answer.as_object_mut().unwrap().retain(|key, _| !key.ends_with("_duration"));
        answer
    };
    (strip(post(&pair.0, path, body)), strip(post(&pair.1, path, body)))
}

#[test]
fn greedy_answers_of_every_api_equal_the_upstreams_own() {
    let pair = pair();
    let messages = json!([{"role": "user", "content": "abc"}]);
    let cases = [
        ("/v1/completions", greedy(1, 40)),
        (
            "/v1/completions",
            json!({"model": "m", "prompt": "abc", "max_tokens": 8, "temperature": 0, "logprobs": 3}),
        ),
        (
            "/v1/completions",
            json!({"model": "m", "prompt": "abc", "max_tokens": 4, "temperature": 0, "echo": true, "logprobs": 1}),
        ),
        (
            "/v1/completions",
            json!({"model": "m", "prompt": "abc", "max_tokens": 8, "temperature": 1, "seed": 7, "n": 3}),
        ),
        (
            "/v1/chat/completions",
            json!({"model": "m", "messages": messages, "max_tokens": 8, "temperature": 0}),
        ),
        (
            "/api/chat",
            json!({"model": "m", "messages": messages, "stream": false, "options": {"num_predict": 8, "temperature": 0}}),
        ),
        ("/v1/messages", json!({"model": "m", "messages": messages, "max_tokens": 8, "temperature": 0})),
        ("/generate", json!({"prompt": "abc", "max_tokens": 8, "temperature": 0})),
    ];
    for (path, body) in cases {
        let (own, through) = both(&pair, path, &body);
        assert_eq!(own["choices"], through["choices"], "{path} {body}");
        assert_eq!(
            (&own["message"], &own["content"]),
            (&through["message"], &through["content"]),
            "{path} {body}"
        );
    }
}

#[test]
fn structured_output_follows_its_schema_through_the_pool() {
    let (_behind, front) = pair();
    let schema = json!({"type": "object", "properties": {"a": {"type": "boolean"}}, "required": ["a"], "additionalProperties": false});
    let format =
        json!({"type": "json_schema", "json_schema": {"name": "x", "schema": schema, "strict": true}});
    let body = json!({
        "model": "m", "messages": [{"role": "user", "content": "abc"}], "max_tokens": 60, "response_format": format,
    });
    let answer = post(&front, "/v1/chat/completions", &body);
    let content: Value =
        serde_json::from_str(answer["choices"][0]["message"]["content"].as_str().unwrap()).unwrap();
    assert!(content["a"].is_boolean(), "{content}");
}

#[test]
fn models_of_upstreams_are_listed_with_their_aliases_and_nothing_is_loaded_here() {
    let (_behind, front) = pair();
    let (_, models) = front.request("GET", "/v1/models", "");
    let models: Value = serde_json::from_str(&models).unwrap();
    let names: Vec<_> =
        models["data"].as_array().unwrap().iter().map(|model| model["id"].as_str().unwrap()).collect();
    assert_eq!(names, ["llama", "m"]);
    assert_eq!(models["data"][0]["max_model_len"], 128);
    let (_, tags) = front.request("GET", "/api/tags", "");
    assert!(tags.contains("\"name\":\"llama:latest\""), "{tags}");
    let (status, health) = front.request("GET", "/health", "");
    assert!(status == 200 && health.contains("\"llama\":{\"state\":\"ready\"}"), "{health}");
    assert!(health.contains("\"upstreams\":{\"u0\":{\"state\":\"up\""), "{health}");
    let told = upstreams(&front);
    assert_eq!(
        (&told["upstreams"][0]["state"], &told["upstreams"][0]["kind"]),
        (&json!("up"), &json!("ropeway"))
    );
    assert_eq!(told["upstreams"][0]["models"][0]["speaks"], "tokens");
}

#[test]
fn local_models_and_upstreams_serve_side_by_side() {
    let behind = upstream(&["--served-model-name", "far"]);
    let local = model().display().to_string();
    let front =
        front(&[behind.url()], &format!("{}\nmodels = [\"far\"]", with_tokenizer()), &["--model", &local]);
    let body = |name: &str| {
        let mut body = greedy(1, 20);
        body["model"] = name.into();
        body
    };
    assert_eq!(text(&front, &body("far")), text(&front, &body("llama")));
    assert_eq!(upstreams(&front)["upstreams"][0]["models"][0]["requests"], 1);
}

#[test]
fn a_client_that_leaves_frees_the_upstream_at_once() {
    let (behind, front) = pair();
    let mut body = greedy(1, 110);
    (body["stream"], body["n"]) = (json!(true), json!(16));
    let streams: Vec<_> = (0..16).map(|_| front.send("/v1/completions", body.to_string())).collect();
    until("the upstream computes them", || behind.running() > 0);
    drop(streams);
    behind.settle();
    until("the front has forgotten them", || {
        upstreams(&front)["upstreams"][0]["models"][0]["in_flight"] == 0
    });
}

#[test]
fn the_log_names_the_upstream() {
    let behind = upstream(&[]);
    let front = front(&[behind.url()], &with_tokenizer(), &[]);
    text(&front, &greedy(1, 4));
    assert!(front.count("upstream_tokens_total", "upstream=\"u0\"") >= 4);
    assert_eq!(front.count("upstream_requests_total", "upstream=\"u0\""), 1);
}
