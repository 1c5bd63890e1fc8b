//! Grammars that are meant to hurt, sent to a real server: each is answered with 400, nobody else notices, and no process is
//! left behind. On the default model, whose vocabulary is that of a real one.

#[path = "../../../tests/default_models.rs"]
mod default_models;
mod support;

use std::path::PathBuf;

use serde_json::{Value, json};
use support::server::{Server, until};

const CHAT: &str = "/v1/chat/completions";

/// Memory that a server may grow by, in MB: a trie of the vocabulary, and what an honest grammar takes.
const MAX_GROWTH_MB: f64 = 150.0;

fn server() -> Option<Server> {
    let model = default_models::smollm2()?;
    Some(Server::start(&model.display().to_string(), &["--context", "512"]))
}

fn ask(form: &Value) -> String {
    let mut body = json!({"messages": [{"role": "user", "content": "Say something."}], "max_tokens": 8});
    body.as_object_mut().unwrap().extend(form.as_object().unwrap().clone());
    body.to_string()
}

/// Divisors that are combined by reference, which no check sees before it is compiled.
fn costly() -> Value {
    json!({"allOf": [{"$ref": "#/$defs/a"}, {"$ref": "#/$defs/b"}],
        "$defs": {"a": {"type": "integer", "multipleOf": 9973}, "b": {"type": "integer", "multipleOf": 9967}}})
}

fn attacks() -> Vec<Value> {
    let both =
        json!({"allOf": [{"type": "integer", "multipleOf": 9973}, {"type": "integer", "multipleOf": 9967}]});
    let joined: Vec<String> = (0..30).map(|index| format!("/(.*[a-z]{{{}}}){{1,50}}/", index + 3)).collect();
    let parameters = json!({"properties": {"x": {"allOf": costly()["allOf"]}}, "$defs": costly()["$defs"]});
    let tool = json!({"type": "function", "function": {"name": "f", "parameters": parameters}});
    vec![
        json!({"guided_json": both}),
        json!({"guided_json": costly()}),
        json!({"guided_json": {"type": "integer", "multipleOf": 999_983}}),
        json!({"guided_grammar": format!("start: %json {both}\n")}),
        json!({"guided_grammar": format!("start: %json {}\n", costly())}),
        json!({"guided_grammar": format!("start: T\nT: {}\n", joined.join(" & "))}),
        json!({"tools": [tool], "tool_choice": "required"}),
    ]
}

#[test]
fn attacks_are_answered_with_400_and_others_are_served_as_before() {
    let Some(server) = server() else { return };
    let honest = ask(&json!({"guided_json": {"type": "object", "properties": {"a": {"type": "boolean"}}}}));
    assert_eq!(server.post(CHAT, &honest).0, 200);
    let before = server.resident_mb();
    for attack in attacks() {
        let (status, body) = server.post(CHAT, ask(&attack));
        assert_eq!(status, 400, "{attack}: {body}");
        assert!(body.contains("simplify") || body.contains("multipleOf"), "{body}");
    }
    let grown = server.resident_mb() - before;
    assert!(grown < MAX_GROWTH_MB, "grew by {grown} MB");
    assert_eq!(server.post(CHAT, &honest).0, 200);
}

#[test]
fn a_crowd_of_attackers_that_leave_blocks_nobody() {
    let Some(server) = server() else { return };
    for number in 0..20 {
        let mut schema = costly();
        schema["title"] = json!(format!("number {number}"));
        drop(server.send(CHAT, ask(&json!({"guided_json": schema}))));
    }
    let honest = ask(&json!({"guided_json": {"type": "boolean"}}));
    assert_eq!(server.post(CHAT, honest).0, 200);
}

#[test]
fn no_worker_outlives_a_server_that_is_killed() {
    let Some(server) = server() else { return };
    let waiting = server.send(CHAT, ask(&json!({"guided_json": costly()})));
    until("a worker runs", || !server.children().is_empty());
    let workers = server.children();
    drop(server);
    drop(waiting);
    until("the workers are gone", || workers.iter().all(|worker| !is_running(worker)));
}

/// Whether a process is there and has not ended.
fn is_running(process: &str) -> bool {
    let stat = std::fs::read_to_string(PathBuf::from("/proc").join(process).join("stat")).unwrap_or_default();
    stat.rsplit(") ").next().is_some_and(|rest| !rest.is_empty() && !rest.starts_with('Z'))
}
