//! Responses that run on without their client.

use std::sync::Arc;

use axum::body::Body;
use axum::http::Request;
use ropeway_server::App;
use serde_json::{Value, json};

use crate::support::{Gate, get, models, post, send, until};
use crate::{ask, delete, events, fine, id, responses};

fn gated() -> Option<(Arc<App>, Gate)> {
    let (models, gate) = models(64)?;
    Some((Arc::new(App::new(models)), gate))
}

fn background(extra: Value) -> Request<Body> {
    let mut body = extra;
    body["background"] = true.into();
    responses(&[], &body)
}

async fn status_of(app: &Arc<App>, id: &str) -> Value {
    fine(app, get(&format!("/v1/responses/{id}"), &[])).await["status"].clone()
}

/// The response, when it is over.
async fn ended(app: &Arc<App>, id: &str) -> Value {
    loop {
        let body = fine(app, get(&format!("/v1/responses/{id}"), &[])).await;
        if !["queued", "in_progress"].contains(&body["status"].as_str().expect("a status")) {
            return body;
        }
        tokio::time::sleep(std::time::Duration::from_millis(5)).await;
    }
}

fn cancel(id: &str) -> Request<Body> {
    post(&format!("/v1/responses/{id}/cancel"), &[], &json!({}))
}

#[tokio::test]
async fn a_response_in_the_background_is_polled_until_it_is_what_one_in_front_is() {
    let Some((app, gate)) = gated() else { return };
    let held = gate.hold();
    let begun = fine(&app, background(json!({}))).await;
    assert_eq!((&begun["status"], &begun["background"]), (&json!("queued"), &json!(true)));
    assert_eq!(begun["output"], json!([]));
    until(|| gate.is_held_up()).await;
    assert_eq!(status_of(&app, id(&begun)).await, "queued");
    let (status, error) = ask(&app, responses(&[], &json!({"previous_response_id": id(&begun)}))).await;
    assert_eq!((status, &error["error"]["param"]), (400, &json!("previous_response_id")));
    drop(held);
    let done = ended(&app, id(&begun)).await;
    let front = fine(&app, responses(&[], &json!({}))).await;
    assert_eq!(done["output"][0]["content"], front["output"][0]["content"]);
    assert_eq!((&done["status"], &done["usage"]["output_tokens"]), (&front["status"], &json!(4)));
    fine(&app, responses(&[], &json!({"previous_response_id": id(&done)}))).await;
    let again = fine(&app, cancel(id(&done))).await;
    assert_eq!(again, done, "what is over stays as it is");
}

#[tokio::test]
async fn a_cancelled_response_stays_cancelled_and_frees_its_place() {
    let Some((app, gate)) = gated() else { return };
    let held = gate.hold();
    let begun = fine(&app, background(json!({}))).await;
    until(|| gate.is_held_up()).await;
    let stopped = fine(&app, cancel(id(&begun))).await;
    assert_eq!((&stopped["status"], &stopped["output"]), (&json!("cancelled"), &json!([])));
    drop(held);
    let model = app.models.loaded("smollm2:135m").expect("it is served");
    until(|| model.engine().load().running == 0 && model.engine().load().queued == 0).await;
    assert_eq!(status_of(&app, id(&begun)).await, "cancelled");
    assert_eq!(fine(&app, cancel(id(&begun))).await["status"], "cancelled", "twice is once");
}

#[tokio::test]
async fn a_response_goes_on_when_whoever_watched_it_leaves() {
    let Some((app, gate)) = gated() else { return };
    let held = gate.hold();
    let watched = send(&app, background(json!({"stream": true}))).await;
    until(|| gate.is_held_up()).await;
    let mut body = watched.into_body().into_data_stream();
    let first = futures_util::StreamExt::next(&mut body).await.expect("an event").expect("bytes");
    let first = events(&String::from_utf8_lossy(&first)).remove(0);
    assert_eq!(first["type"], "response.created");
    drop((body, held));
    let done = ended(&app, id(&first["response"])).await;
    assert_eq!(done["usage"]["output_tokens"], 4);
}

#[tokio::test]
async fn only_so_many_run_at_once_and_a_deleted_one_is_none_of_them() {
    let Some((app, gate)) = gated() else { return };
    let held = gate.hold();
    let mut running = Vec::new();
    let refused = loop {
        let (status, body) = ask(&app, background(json!({}))).await;
        if status != 200 {
            break (status, body);
        }
        running.push(id(&body).to_owned());
    };
    assert_eq!((refused.0, &refused.1["error"]["param"]), (429, &json!("background")));
    fine(&app, delete(&format!("/v1/responses/{}", running[0]), &[])).await;
    fine(&app, background(json!({}))).await;
    drop(held);
    for id in &running[1..] {
        assert_eq!(ended(&app, id).await["usage"]["output_tokens"], 4);
    }
}

#[tokio::test]
async fn what_can_not_be_cancelled_or_run_is_said() {
    let Some((app, _)) = gated() else { return };
    let front = fine(&app, responses(&[], &json!({}))).await;
    assert_eq!(ask(&app, cancel(id(&front))).await.0, 400);
    assert_eq!(ask(&app, cancel("resp_none")).await.0, 404);
    let (status, error) = ask(&app, background(json!({"store": false}))).await;
    assert_eq!((status, &error["error"]["param"]), (400, &json!("background")));
    let (status, _) = ask(&app, background(json!({"input": "word ".repeat(2000)}))).await;
    assert_eq!(status, 400, "what can't be answered is told at once");
}
