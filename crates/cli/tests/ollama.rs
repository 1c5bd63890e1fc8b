//! What Ollama's users expect of the real command: models of the store come when they are asked for, models made of others
//! outlive the server, and Ollama's port is a port like any other.

mod support;

use std::fs;
use std::net::TcpListener;
use std::path::Path;

use serde_json::{Value, json};
use support::server::Server;
use support::{Sandbox, smollm2};

/// A home whose store has the default model, and that model's file; `None` (and a reason on the screen) without it.
fn home() -> Option<(Sandbox, String)> {
    let model = smollm2()?;
    let folder = Path::new(&model).parent()?;
    if !folder.join("manifest.json").is_file() {
        eprintln!("skipped: the default model was not pulled by ropeway");
        return None;
    }
    let sandbox = Sandbox::new();
    let store = sandbox.path("home/models/smollm2-135m");
    fs::create_dir_all(&store).unwrap();
    for entry in fs::read_dir(folder).unwrap().flatten() {
        fs::copy(entry.path(), store.join(entry.file_name())).unwrap();
    }
    Some((sandbox, model))
}

fn start(sandbox: &Sandbox, model: &str, more: &[&str]) -> Server {
    let fixed = ["serve", "--listen", "127.0.0.1:0", "--model", model, "--kv-memory", "64MiB"];
    Server::launch(Sandbox::new(), sandbox.command(&[&fixed, more].concat()))
}

fn ask(server: &Server, path: &str, body: &Value) -> (u16, Value) {
    let (status, text) = server.post(path, body.to_string());
    (status, serde_json::from_str(text.lines().last().unwrap_or_default()).unwrap_or_default())
}

fn question(model: &str) -> Value {
    json!({"model": model, "messages": [{"role": "user", "content": "Hi"}], "stream": false, "max_tokens": 2,
        "options": {"num_predict": 2}})
}

#[test]
fn a_question_loads_a_model_of_the_store_and_what_is_made_of_it_outlives_the_server() {
    let Some((sandbox, model)) = home() else { return };
    let server = start(&sandbox, &model, &[]);
    let shown = ask(&server, "/api/show", &json!({"model": "smollm2:latest"}));
    assert_eq!((shown.0, &shown.1["model_info"]["llama.context_length"]), (200, &json!(8192)), "{}", shown.1);
    let (status, answer) = ask(&server, "/v1/chat/completions", &question("smollm2"));
    assert_eq!((status, &answer["model"]), (200, &json!("smollm2:135m")), "{answer}");
    let mario = json!({"model": "mario", "from": "smollm2", "system": "You are Mario.", "parameters": {"num_predict": 1}, "stream": false});
    assert_eq!(ask(&server, "/api/create", &mario).1, json!({"status": "success"}));
    drop(server);

    let server = start(&sandbox, &model, &[]);
    let mut asked = question("mario");
    asked["options"] = Value::Null;
    let (status, answer) = ask(&server, "/api/chat", &asked);
    assert_eq!(
        (status, &answer["model"], &answer["eval_count"]),
        (200, &json!("mario"), &json!(1)),
        "{answer}"
    );
    let delete = |name: &str| server.request("DELETE", "/api/delete", json!({ "model": name }).to_string());
    assert_eq!(delete("smollm2").0, 409, "something is made of it");
    assert_eq!((delete("mario").0, delete("smollm2").0), (200, 200));
    assert_eq!(ask(&server, "/api/chat", &question("mario")).0, 404);
}

#[test]
fn an_operator_may_forbid_that_questions_load_models() {
    let Some((sandbox, model)) = home() else { return };
    let server = start(&sandbox, &model, &["--load-on-demand=false"]);
    let (status, answer) = ask(&server, "/api/chat", &question("smollm2:135m"));
    assert_eq!(status, 404, "{answer}");
    assert_eq!(ask(&server, "/api/generate", &json!({"model": "smollm2:135m"})).1["done_reason"], "load");
    assert_eq!(ask(&server, "/api/chat", &question("smollm2:135m")).0, 200);
}

#[test]
fn ollamas_port_is_one_more_door_to_the_same_server() {
    let Some(model) = smollm2() else { return };
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let mut server = start(&Sandbox::new(), &model, &["--ollama-port", &port.to_string()]);
    let answers = [server.address.port(), port].map(|port| {
        server.address.set_port(port);
        server.request("GET", "/api/tags", "")
    });
    assert_eq!(answers[0].0, 200);
    assert_eq!(answers[0], answers[1]);
}
