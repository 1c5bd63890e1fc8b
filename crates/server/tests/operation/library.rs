//! Models come, stay and go by explicit request only.

use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};

use axum::body::BodyDataStream;
use futures_util::StreamExt;
use ropeway_server::error::{ApiError, Kind};
use ropeway_server::guard::Guard;
use ropeway_server::library::{
    BlobDigest, Description, Detail, Download, Fetching, FileProgress, Installed, Library, Shelf,
};
use ropeway_server::model::derived::Derived;
use ropeway_server::model::same_name;
use ropeway_server::{App, Model, ModelFacts, Models};
use serde_json::{Value, json};

use crate::support::{Gate, get, model, outcome, post, question, send, text};

/// A disk with `here:1b` on it, and a memory too small for `large:70b`.
#[derive(Default)]
struct Drawer {
    gate: Mutex<Option<Gate>>,
    /// Downloads that began, by model.
    began: Mutex<Vec<String>>,
}

/// A download from nowhere. One of a model called `hang...` lasts until it is stopped.
struct FakeDownload {
    model: String,
    stop: Sender<()>,
    stopped: Mutex<Receiver<()>>,
    drawer: Arc<Drawer>,
}

impl Download for FakeDownload {
    fn model(&self) -> &str {
        &self.model
    }

    fn run(&self, report: &mut dyn FnMut(Fetching)) -> Result<(), ApiError> {
        self.drawer.began.lock().expect("no panic").push(self.model.clone());
        let file = FileProgress { digest: "sha256:ab".into(), done: 5, total: 10 };
        report(Fetching { status: "pulling ab".into(), file: Some(file) });
        if self.model.starts_with("hang") {
            let _ = self.stopped.lock().expect("no panic").recv();
            return Err(ApiError::new(Kind::Overloaded, "stopped"));
        }
        match self.model.as_str() {
            "here:1b" => Ok(()),
            other => Err(ApiError::new(Kind::NotFound, format!("nobody has {other}"))),
        }
    }

    fn stop(&self) {
        let _ = self.stop.send(());
    }
}

/// The library that a server is given.
struct Shelved(Arc<Drawer>);

impl Library for Shelved {
    fn installed(&self) -> Result<Vec<Installed>, ApiError> {
        Ok(["here:1b", "large:70b"]
            .map(|name| Installed { name: name.into(), facts: ModelFacts::default() })
            .into())
    }

    fn download(&self, name: &str) -> Result<Arc<dyn Download>, ApiError> {
        let (stop, stopped) = channel();
        let (model, drawer) = (name.to_owned(), Arc::clone(&self.0));
        Ok(Arc::new(FakeDownload { model, stop, stopped: Mutex::new(stopped), drawer }))
    }

    fn load(&self, name: &str) -> Result<Arc<Model>, ApiError> {
        match name {
            "here:1b" => {
                let (model, gate) = model(name, 8).expect("a tokenizer");
                *self.0.gate.lock().expect("no panic") = Some(gate);
                Ok(model)
            }
            "large:70b" => Err(ApiError::new(Kind::NoRoom, "it needs 40 GiB, and 2 GiB are free")),
            other => Err(ApiError::new(Kind::NotFound, format!("{other} is not on this machine"))),
        }
    }

    fn copy(&self, model: &str, _name: &str) -> Result<String, ApiError> {
        Ok(model.into())
    }

    fn delete(&self, name: &str) -> Result<String, ApiError> {
        Ok(name.into())
    }

    fn describe(&self, name: &str, _: Detail) -> Result<Description, ApiError> {
        let installed = self.installed()?.into_iter().find(|model| same_name(&model.name, name));
        let installed =
            installed.ok_or_else(|| ApiError::new(Kind::NotFound, format!("{name} not found")))?;
        Ok(Description { name: installed.name, facts: installed.facts, ..Description::default() })
    }

    fn keep_derived(&self, _: &Derived) -> Result<(), ApiError> {
        Ok(())
    }

    fn forget_derived(&self, _: &str) -> Result<(), ApiError> {
        Ok(())
    }

    fn blob(&self, digest: &BlobDigest) -> std::path::PathBuf {
        std::env::temp_dir().join(digest.hex())
    }
}

/// An app that serves nothing yet; `None` without a tokenizer.
fn app() -> Option<(Arc<App>, Arc<Drawer>)> {
    model("probe", 1)?;
    let drawer = Arc::new(Drawer::default());
    Some((Arc::new(App { shelf: Some(shelf(&drawer)), ..App::new(Models::default()) }), drawer))
}

fn shelf(drawer: &Arc<Drawer>) -> Shelf {
    Shelf::new(Arc::new(Shelved(Arc::clone(drawer))))
}

async fn ask(app: &Arc<App>, path: &str, body: Value) -> (u16, Value) {
    let (status, _, text) = outcome(app, post(path, &[], &body)).await;
    (status, serde_json::from_str(&text).unwrap_or(Value::String(text)))
}

async fn loaded(app: &Arc<App>) -> Vec<Value> {
    let (_, _, ps) = outcome(app, get("/api/ps", &[])).await;
    serde_json::from_str::<Value>(&ps).expect("JSON")["models"].as_array().expect("a list").clone()
}

#[tokio::test]
async fn a_question_never_loads_a_model_and_an_empty_prompt_does() {
    let Some((app, _)) = app() else { return };
    let chat = question(json!({"model": "here:1b", "stream": false}));
    for path in ["/api/chat", "/v1/chat/completions", "/v1/messages"] {
        let (status, error) = ask(&app, path, chat.clone()).await;
        assert_eq!(status, 404, "{error}");
        assert!(error.to_string().contains("/api/generate"), "{error} says how to load");
    }
    assert!(loaded(&app).await.is_empty());

    let (status, answer) = ask(&app, "/api/generate", json!({"model": "here:1b"})).await;
    assert_eq!((status, &answer["done_reason"], &answer["response"]), (200, &json!("load"), &json!("")));
    assert_eq!(ask(&app, "/api/chat", chat.clone()).await.0, 200);

    let (status, answer) =
        ask(&app, "/api/chat", json!({"model": "here:1b", "messages": [], "keep_alive": 0})).await;
    assert_eq!((status, &answer["done_reason"]), (200, &json!("unload")));
    assert_eq!(answer["message"]["role"], "assistant");
    assert_eq!(ask(&app, "/api/chat", chat).await.0, 404);
    assert!(loaded(&app).await.is_empty());
}

#[tokio::test]
async fn a_model_without_room_or_file_is_told_apart() {
    let Some((app, _)) = app() else { return };
    let (status, error) = ask(&app, "/api/generate", json!({"model": "large:70b"})).await;
    assert_eq!((status, &error["error"]), (507, &json!("it needs 40 GiB, and 2 GiB are free")));
    assert_eq!(ask(&app, "/api/generate", json!({"model": "nowhere"})).await.0, 404);
    let (status, error) = ask(&app, "/api/generate", json!({"model": "here:1b", "keep_alive": "soon"})).await;
    assert_eq!(status, 400);
    assert!(error["error"].as_str().expect("text").contains("5m"), "{error}");
}

#[tokio::test]
async fn only_models_that_clients_loaded_expire() {
    let Some((app, _)) = app() else { return };
    app.models.add(model("fixed", 1).expect("a tokenizer").0);
    let wish = json!({"model": "here:1b", "keep_alive": "1h"});
    ask(&app, "/api/generate", wish).await;
    ask(&app, "/api/generate", json!({"model": "fixed", "keep_alive": "1h"})).await;
    let rows = loaded(&app).await;
    let expiry = |name: &str| {
        rows.iter().find(|row| row["name"].as_str().is_some_and(|row| row.starts_with(name))).expect("loaded")
            ["expires_at"]
            .as_str()
            .expect("a time")
            .to_owned()
    };
    assert!(expiry("fixed").starts_with("9999"));
    assert!(expiry("here:1b").starts_with("20"));

    // No time at all after the last question is soon over.
    ask(&app, "/api/chat", question(json!({"model": "here:1b", "stream": false, "keep_alive": 0}))).await;
    while app.models.loaded("here:1b").is_some() {
        tokio::time::sleep(std::time::Duration::from_millis(5)).await;
    }
    assert!(app.models.loaded("fixed").is_some());
}

#[tokio::test]
async fn a_model_that_goes_finishes_what_it_began() {
    let Some((app, drawer)) = app() else { return };
    ask(&app, "/api/generate", json!({"model": "here:1b", "keep_alive": -1})).await;
    let gate = drawer.gate.lock().expect("no panic").take().expect("loaded");
    let held = gate.hold();
    let running = send(&app, post("/api/chat", &[], &question(json!({"model": "here:1b"})))).await;
    ask(&app, "/api/generate", json!({"model": "here:1b", "keep_alive": 0})).await;
    assert!(loaded(&app).await.is_empty());
    drop(held);
    let lines = text(running).await;
    let last: Value = serde_json::from_str(lines.lines().last().expect("lines")).expect("JSON");
    assert_eq!(last["done"], true, "{lines}");
}

#[tokio::test]
async fn a_download_tells_how_far_it_is_and_how_it_ended() {
    let Some((app, _)) = app() else { return };
    let response = send(&app, post("/api/pull", &[], &json!({"model": "here:1b"}))).await;
    assert_eq!(response.headers()["content-type"], "application/x-ndjson");
    let mut stream = response.into_body().into_data_stream();
    let mut lines = String::new();
    while let Some(bytes) = stream.next().await {
        lines += &String::from_utf8_lossy(&bytes.expect("bytes"));
    }
    let lines: Vec<Value> = lines.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    assert_eq!(lines[0], json!({"status": "pulling ab", "digest": "sha256:ab", "completed": 5, "total": 10}));
    assert_eq!(lines.last(), Some(&json!({"status": "success"})));
    assert!(loaded(&app).await.is_empty(), "nothing is loaded by it");

    let (status, whole) = ask(&app, "/api/pull", json!({"name": "here:1b", "stream": false})).await;
    assert_eq!((status, whole), (200, json!({"status": "success"})));
    assert_eq!(ask(&app, "/api/pull", json!({"model": "nowhere", "stream": false})).await.0, 404);
}

#[tokio::test]
async fn a_copy_is_another_name_and_deleting_unloads() {
    let Some((app, _)) = app() else { return };
    ask(&app, "/api/generate", json!({"model": "here:1b"})).await;
    let (status, _) = ask(&app, "/api/copy", json!({"source": "here:1b", "destination": "mine"})).await;
    assert_eq!(status, 200);
    let chat = question(json!({"model": "mine", "stream": false}));
    assert_eq!(ask(&app, "/api/chat", chat.clone()).await.0, 200);
    let delete = |name: &str| {
        let mut request = post("/api/delete", &[], &json!({ "model": name }));
        *request.method_mut() = axum::http::Method::DELETE;
        request
    };
    assert_eq!(outcome(&app, delete("mine")).await.0, 200);
    assert_eq!(ask(&app, "/api/chat", chat).await.0, 404);
    assert_eq!(loaded(&app).await.len(), 1);
    assert_eq!(outcome(&app, delete("here:1b")).await.0, 200);
    assert!(loaded(&app).await.is_empty());
}

#[tokio::test]
async fn what_is_on_disk_is_listed_with_what_is_served_from_elsewhere() {
    let Some((app, _)) = app() else { return };
    app.models.add(model("own-file", 1).expect("a tokenizer").0);
    let (_, _, tags) = outcome(&app, get("/api/tags", &[])).await;
    let tags: Value = serde_json::from_str(&tags).expect("JSON");
    let names: Vec<_> =
        tags["models"].as_array().expect("a list").iter().map(|row| row["name"].clone()).collect();
    assert_eq!(names, ["here:1b", "large:70b", "own-file:latest"]);
}

#[tokio::test]
async fn a_server_with_fixed_models_says_so() {
    let Some((app, _)) = app() else { return };
    let mut fixed = App::new(Models::default());
    fixed.models.add(model("fixed", 1).expect("a tokenizer").0);
    fixed.shelf = None;
    drop(app);
    let app = Arc::new(fixed);
    assert_eq!(ask(&app, "/api/pull", json!({"model": "here:1b"})).await.0, 403);
    assert_eq!(ask(&app, "/api/generate", json!({"model": "here:1b"})).await.0, 404);
    assert_eq!(ask(&app, "/api/generate", json!({"model": "fixed", "keep_alive": 0})).await.0, 403);
    assert_eq!(ask(&app, "/api/generate", json!({"model": "fixed"})).await.1["done_reason"], "load");
}

/// A client that follows a download and reads it line by line.
async fn follow(app: &Arc<App>, model: &str) -> BodyDataStream {
    let response = send(app, post("/api/pull", &[], &json!({ "model": model }))).await;
    assert_eq!(response.status(), 200);
    response.into_body().into_data_stream()
}

async fn line(client: &mut BodyDataStream) -> Option<Value> {
    let bytes = client.next().await?.expect("bytes");
    Some(serde_json::from_slice(&bytes).expect("a line of JSON"))
}

#[tokio::test]
async fn clients_of_one_model_share_a_download_that_stops_with_the_last_of_them() {
    let Some((app, drawer)) = app() else { return };
    let mut first = follow(&app, "hang").await;
    let pulling = json!({"status": "pulling ab", "digest": "sha256:ab", "completed": 5, "total": 10});
    assert_eq!(line(&mut first).await, Some(pulling.clone()));
    let second = follow(&app, "hang").await;
    drop(first);
    let mut third = follow(&app, "hang").await;
    drop(second);
    assert_eq!(*drawer.began.lock().expect("no panic"), ["hang"], "one download for all");
    drop(third);
    third = follow(&app, "hang").await;
    assert_eq!(line(&mut third).await, Some(pulling), "one who comes later begins anew");
    assert_eq!(drawer.began.lock().expect("no panic").len(), 2);
}

#[tokio::test]
async fn downloads_that_hang_do_not_block_those_after_them() {
    let Some((app, _)) = app() else { return };
    let mut hung = Vec::new();
    for number in 0..4 {
        let mut client = follow(&app, &format!("hang-{number}")).await;
        line(&mut client).await.expect("it runs");
        hung.push(client);
    }
    let mut later = follow(&app, "here:1b").await;
    assert_eq!(line(&mut later).await, Some(json!({"status": "waiting: 4 other downloads run"})));
    drop(hung.pop());
    let mut last = None;
    while let Some(next) = line(&mut later).await {
        last = Some(next);
    }
    assert_eq!(last, Some(json!({"status": "success"})));
}

#[tokio::test]
async fn a_waiting_download_whose_client_leaves_never_begins_and_too_many_are_turned_away() {
    let Some((app, drawer)) = app() else { return };
    let mut clients = Vec::new();
    for number in 0..32 {
        clients.push(follow(&app, &format!("hang-{number}")).await);
    }
    let (status, retry, _) = outcome(&app, post("/api/pull", &[], &json!({"model": "here:1b"}))).await;
    assert_eq!((status, retry.is_some()), (503, true));
    for client in &mut clients[..4] {
        line(client).await.expect("it runs");
    }
    clients.truncate(4);
    let mut last = follow(&app, "here:1b").await;
    assert_eq!(line(&mut last).await, Some(json!({"status": "waiting: 4 other downloads run"})));
    drop(clients);
    while line(&mut last).await.is_some_and(|line| line["status"] != "success") {}
    assert_eq!(
        drawer.began.lock().expect("no panic").len(),
        5,
        "of 33, those that waited in vain never began"
    );
}

#[tokio::test]
async fn downloads_end_with_the_server_and_their_clients_are_told() {
    let Some((app, _)) = app() else { return };
    let mut client = follow(&app, "hang").await;
    line(&mut client).await.expect("it runs");
    app.shelf().expect("a shelf").close();
    assert_eq!(line(&mut client).await, Some(json!({"error": "stopped"})));
    assert_eq!(line(&mut client).await, None);
    assert_eq!(ask(&app, "/api/pull", json!({"model": "here:1b"})).await.0, 503);
}

/// An app whose operator gave `here:1b`.
fn operators(keys: &str) -> Option<Arc<App>> {
    model("probe", 1)?;
    let drawer = Arc::new(Drawer::default());
    let models = Models::default().giving(["here:1b".to_owned()]);
    models.add(model("here:1b", 8)?.0);
    let guard = Guard { keys: keys.parse().expect("keys"), ..Guard::default() };
    Some(Arc::new(App { shelf: Some(shelf(&drawer)), guard, ..App::new(models) }))
}

#[tokio::test]
async fn without_the_right_an_operators_model_is_neither_unloaded_nor_deleted() {
    let Some(app) = operators("sk-0123456789") else { return };
    let key = [("authorization", "Bearer sk-0123456789")];
    let ask = async |path: &str, body: Value| outcome(&app, post(path, &key, &body)).await;
    let (status, _, answer) = ask("/api/generate", json!({"model": "here:1b", "keep_alive": 0})).await;
    assert_eq!(status, 403, "{answer}");
    ask("/api/generate", json!({"model": "here:1b", "keep_alive": "1s"})).await;
    ask("/api/chat", question(json!({"model": "here:1b", "stream": false, "keep_alive": 0}))).await;
    let mut delete = post("/api/delete", &key, &json!({"model": "here"}));
    *delete.method_mut() = axum::http::Method::DELETE;
    assert_eq!(outcome(&app, delete).await.0, 403);
    let model = app.models.loaded("here:1b").expect("it stays");
    assert_eq!(model.lease.expires(), None, "for good");
}

#[tokio::test]
async fn an_operators_model_that_comes_back_stays_for_good() {
    let Some(app) = operators("") else { return };
    ask(&app, "/api/generate", json!({"model": "here:1b", "keep_alive": 0})).await;
    assert!(loaded(&app).await.is_empty(), "without keys everyone is the operator");
    ask(&app, "/api/generate", json!({"model": "here:1b", "keep_alive": "1s"})).await;
    assert_eq!(app.models.loaded("here:1b").expect("loaded").lease.expires(), None);
}
