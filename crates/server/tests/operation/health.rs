//! What the server says about itself when a device is lost.

use std::sync::Arc;

use ropeway_server::{App, Models};
use ropeway_testkit::Fault;
use serde_json::{Value, json};

use crate::support::{chat, faulty_model, get, model, question, send, text};

async fn health(app: &Arc<App>) -> (u16, Value) {
    let response = send(app, get("/health", &[])).await;
    let status = response.status().as_u16();
    (status, serde_json::from_str(&text(response).await).expect("JSON"))
}

#[tokio::test]
async fn a_server_whose_device_is_lost_is_not_ready_and_says_whose_it_is() {
    let outage = Fault::Outage { first: 1, restarts: 99 };
    let Some((lost, _)) = faulty_model("lost", 8, vec![outage]) else { return };
    let models = Models::default();
    models.add(lost);
    let app = Arc::new(App::new(models));
    app.life.enter(ropeway_server::ops::health::Phase::Ready);
    assert_eq!(health(&app).await, (200, json!({ "status": "ready" })));
    let asked = question(json!({ "model": "lost" }));
    assert_eq!(send(&app, chat(&[], &asked)).await.status(), 503);
    assert_eq!(health(&app).await, (503, json!({ "status": "ready", "devices": { "lost": "lost" } })));
    let Some((working, _)) = model("working", 8) else { return };
    app.models.add(working);
    assert_eq!(health(&app).await.0, 200, "another model still answers");
}
