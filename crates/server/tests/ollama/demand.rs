//! A question for a model on disk loads it, where the operator allows that.

use std::sync::Arc;

use axum::http::Method;
use ropeway_server::guard::Guard;
use ropeway_server::{App, Models};
use serde_json::{Value, json};

use crate::disk::{app, ask, send};
use crate::support::{model, outcome, post, question, until};

#[tokio::test]
async fn a_question_of_any_family_loads_a_model_that_is_on_disk() {
    for path in ["/api/chat", "/v1/chat/completions", "/v1/messages"] {
        let Some((app, disk)) = app(true) else { return };
        let (status, answer) = ask(&app, path, question(json!({"model": "here", "stream": false}))).await;
        assert_eq!(status, 200, "{path}: {answer}");
        assert_eq!(*disk.loaded.lock().expect("no panic"), ["here:1b"]);
        assert!(app.models.loaded("here:1b").expect("loaded").lease.expires().is_some(), "it goes by itself");
    }
}

#[tokio::test]
async fn where_it_is_not_allowed_nothing_is_loaded() {
    let Some((app, disk)) = app(false) else { return };
    assert_eq!(ask(&app, "/api/chat", question(json!({"model": "here"}))).await.0, 404);
    assert_eq!(disk.loads(), 0);
}

#[tokio::test]
async fn those_who_ask_meanwhile_wait_for_the_same_loading_and_other_models_answer() {
    let Some((app, disk)) = app(true) else { return };
    app.models.add(model("other", 8).expect("a tokenizer").0);
    let held = disk.hold();
    let chat = || question(json!({"model": "here:1b", "stream": false}));
    let waiting: Vec<_> = ["/api/chat", "/v1/chat/completions", "/api/chat"]
        .map(|path| {
            let app = Arc::clone(&app);
            tokio::spawn(async move { ask(&app, path, chat()).await })
        })
        .into();
    until(|| disk.loads() == 1).await;
    let (status, _) = ask(&app, "/api/chat", question(json!({"model": "other", "stream": false}))).await;
    assert_eq!(status, 200, "another model answers meanwhile");
    drop(held);
    for one in waiting {
        assert_eq!(one.await.expect("no panic").0, 200);
    }
    assert_eq!(disk.loads(), 1);
}

#[tokio::test]
async fn a_client_that_leaves_does_not_stop_the_loading() {
    let Some((app, disk)) = app(true) else { return };
    let held = disk.hold();
    let asking = {
        let app = Arc::clone(&app);
        tokio::spawn(async move { ask(&app, "/api/chat", question(json!({"model": "here:1b"}))).await })
    };
    until(|| disk.loads() == 1).await;
    asking.abort();
    let _ = asking.await;
    drop(held);
    until(|| app.models.loaded("here:1b").is_some()).await;
}

#[tokio::test]
async fn without_room_or_files_the_question_is_turned_down_and_may_be_asked_again() {
    let Some((app, disk)) = app(true) else { return };
    for _ in 0..2 {
        let (status, answer) = ask(&app, "/api/chat", question(json!({"model": "large:70b"}))).await;
        assert_eq!((status, &answer["error"]), (507, &json!("it needs 40 GiB, and 2 GiB are free")));
    }
    assert_eq!(disk.loads(), 2);
    let (status, answer) = ask(&app, "/v1/chat/completions", question(json!({"model": "nowhere"}))).await;
    assert_eq!((status, &answer["error"]["type"]), (404, &json!("invalid_request_error")), "{answer}");
}

#[tokio::test]
async fn the_name_of_a_derived_model_loads_what_it_is_made_of() {
    let Some((app, disk)) = app(true) else { return };
    ask(&app, "/api/create", json!({"model": "mario", "from": "here:1b", "system": "You are Mario."})).await;
    let (status, answer) = ask(&app, "/api/chat", question(json!({"model": "mario", "stream": false}))).await;
    assert_eq!((status, &answer["model"]), (200, &json!("mario")), "{answer}");
    assert_eq!(*disk.loaded.lock().expect("no panic"), ["here:1b"]);
}

#[tokio::test]
async fn a_key_loads_only_the_models_that_exist_for_it() {
    let Some((app, disk)) = app(true) else { return };
    let keys = "sk-0123456789 models=here:1b".parse().expect("keys");
    let Ok(App { shelf, .. }) = Arc::try_unwrap(app) else { unreachable!("nobody else has it") };
    let guard = Guard { keys, ..Guard::default() };
    let app = Arc::new(App { shelf, guard, ..App::new(Models::default()) });
    let ask = async |model: &str| {
        let body = question(json!({"model": model, "stream": false}));
        outcome(&app, post("/api/chat", &[("authorization", "Bearer sk-0123456789")], &body)).await.0
    };
    assert_eq!(ask("there:1b").await, 404);
    assert_eq!(disk.loads(), 0);
    assert_eq!(ask("here:1b").await, 200);
}

#[tokio::test]
async fn models_that_a_question_would_load_are_listed_for_openai_clients_too() {
    let names = async |loads_on_demand| {
        let (app, _) = app(loads_on_demand)?;
        ask(&app, "/api/create", json!({"model": "mario", "from": "here:1b"})).await;
        let (_, list) = send(&app, Method::GET, "/v1/models", Value::Null).await;
        let one = send(&app, Method::GET, "/v1/models/there:1b", Value::Null).await.0;
        let ids = list["data"].as_array()?.iter().map(|model| model["id"].as_str().map(str::to_owned));
        Some((ids.collect::<Option<Vec<_>>>()?, one))
    };
    let Some((on_demand, one)) = names(true).await else { return };
    assert_eq!(
        (on_demand.as_slice(), one),
        (["mario", "here:1b", "there:1b", "large:70b"].map(String::from).as_slice(), 200)
    );
    assert_eq!(names(false).await, Some((vec!["mario".into()], 404)));
}
