//! What the server says about itself: which promised models can answer, and why not.

use std::sync::Arc;
use std::time::{Duration, Instant};

use ropeway_server::library;
use ropeway_server::model::EngineState;
use ropeway_server::model::promised::Arrival;
use ropeway_server::ops::health::Phase;
use ropeway_server::{Alias, App, Models};
use ropeway_testkit::Fault;
use serde_json::{Value, json};

use crate::support::{chat, faulty_model, get, model, outcome, question, send, text};

async fn health(app: &Arc<App>) -> (u16, Value) {
    let response = send(app, get("/health", &[])).await;
    let status = response.status().as_u16();
    (status, serde_json::from_str(&text(response).await).expect("JSON"))
}

fn ready(app: App) -> Arc<App> {
    app.life.enter(Phase::Ready);
    Arc::new(app)
}

#[tokio::test]
async fn a_server_whose_device_is_lost_is_not_ready_and_says_whose_it_is() {
    let outage = Fault::Outage { first: 1, restarts: 99 };
    let Some((lost, _)) = faulty_model("lost", 8, vec![outage]) else { return };
    let models = Models::default();
    models.add(lost);
    let app = ready(App::new(models));
    let told = |status: &str, lost: Value| json!({ "status": status, "models": { "lost": lost } });
    assert_eq!(health(&app).await, (200, told("ready", json!({ "state": "ready" }))));
    let asked = question(json!({ "model": "lost" }));
    for _ in 0..2 {
        assert_eq!(send(&app, chat(&[], &asked)).await.status(), 503);
        let reason = "it could not be restarted: the device was lost: the outage lasts";
        let lost = json!({ "state": "device lost", "reason": reason });
        assert_eq!(health(&app).await, (503, told("unavailable", lost)));
    }
    let Some((working, _)) = model("working", 8) else { return };
    app.models.add(working);
    assert_eq!(health(&app).await.0, 200, "another model still answers");
}

#[tokio::test]
async fn a_server_is_ready_only_if_a_promised_model_is() {
    let Some((other, _)) = model("other", 8) else { return };
    let models = Models::default();
    models.promise("promised");
    models.add(other);
    let app = ready(App::new(models));
    let (status, body) = health(&app).await;
    assert_eq!((status, &body["status"]), (503, &json!("unavailable")), "another was promised: {body}");
    assert_eq!(body["models"]["promised"]["state"], "waiting to be loaded");
    app.models.add(model("promised", 8).expect("a tokenizer").0);
    assert_eq!(health(&app).await.0, 200);
    let promised = app.models.find("promised").expect("served");
    for (state, told) in [
        (EngineState::Restarting, json!({ "state": "engine restarting" })),
        (
            EngineState::Failed { why: "no memory".into() },
            json!({ "state": "engine failed", "reason": "no memory" }),
        ),
    ] {
        promised.set_engine_state(state);
        let (status, body) = health(&app).await;
        assert_eq!((status, &body["models"]["promised"]), (503, &told));
    }
    promised.set_engine_state(EngineState::Started);
    assert_eq!(health(&app).await.0, 200);
    library::unload(&app, &promised);
    let (status, body) = health(&app).await;
    assert_eq!((status, &body["models"]["promised"]["state"]), (503, &json!("unloaded")));
}

#[tokio::test]
async fn whoever_asks_for_a_model_that_is_being_loaded_is_told_how_long_it_takes() {
    let models = Models::new(vec!["claude-*=promised:1b".parse::<Alias>().expect("an alias")]);
    models.promise("promised:1b");
    let Some(since) = Instant::now().checked_sub(Duration::from_secs(10)) else { return };
    models.arrives("promised:1b", Arrival::Loading { since, done: None });
    models.load_progress("promised:1b", 0.25);
    let app = Arc::new(App::new(models));
    let seconds = |retry: Option<String>| retry.expect("a time").parse::<u64>().expect("seconds");
    for model in [json!("promised"), json!("claude-x"), Value::Null] {
        let (status, retry, body) = outcome(&app, chat(&[], &question(json!({ "model": model })))).await;
        assert!(status == 503 && body.contains("promised:1b is still being loaded"), "{body}");
        assert!((30..=32).contains(&seconds(retry)), "three quarters are left after ten seconds");
    }
    let (status, retry, body) = outcome(&app, get("/health/ready", &[])).await;
    assert!(status == 503 && body.contains("\"progress\":0.25") && body.contains("\"loading\""), "{body}");
    assert!((29..=32).contains(&seconds(retry)));
    assert_eq!(outcome(&app, chat(&[], &question(json!({ "model": "elsewhere" })))).await.0, 404);
    app.models.arrives("promised:1b", Arrival::Failed { why: "no such file".into() });
    let (status, retry, body) = outcome(&app, get("/health/ready", &[])).await;
    assert!(status == 503 && retry.is_none() && body.contains("no such file"), "{body}");
}

#[tokio::test]
async fn a_server_without_any_model_is_not_ready() {
    let app = ready(App::new(Models::default()));
    assert_eq!(health(&app).await, (503, json!({ "status": "unavailable" })));
}
