//! Who a request is for, as a backend that is no engine sees it.

use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex};

use axum::body::Body;
use axum::extract::ConnectInfo;
use axum::http::Request as HttpRequest;
use ropeway_engine::{
    Backend, ClientId, Event, EventStream, FinishReason, Load, Rejected, Request, Usage, channel,
};
use ropeway_executor::Limits;
use ropeway_server::{App, Model, ModelFacts, Models};
use ropeway_text::{ChatTemplate, Tokenizer};
use ropeway_weights::Checkpoint;
use serde_json::{Value, json};

use crate::default_models;
use crate::support::{chat, question, send};

/// Answers nothing, and keeps who asked.
#[derive(Clone, Default)]
struct Register(Arc<Mutex<Vec<ClientId>>>);

impl Backend for Register {
    fn submit(&self, request: Request) -> Result<EventStream, Rejected> {
        self.0.lock().unwrap().push(request.client);
        let (sender, stream) = channel(request.sequences());
        sender.send(Event::Finished { sequence: 0, reason: FinishReason::Length, usage: Usage::default() });
        Ok(stream)
    }

    fn limits(&self) -> Limits {
        Limits {
            block_tokens: 16,
            block_bytes: 0,
            blocks: 64,
            context: 512,
            step_tokens: 64,
            step_rows: 8,
            vocab: 1 << 20,
            ..Limits::EXAMPLE
        }
    }

    fn load(&self) -> Load {
        Load::default()
    }

    fn stop(&self) {}
}

fn served(keys: Option<&str>) -> Option<(Arc<App>, Register)> {
    let checkpoint = Checkpoint::open(&default_models::smollm2()?).expect("the default model");
    let tokenizer = Tokenizer::from_checkpoint(&checkpoint).expect("a tokenizer");
    let template = ChatTemplate::from_checkpoint(&checkpoint).expect("readable").expect("a template");
    let register = Register::default();
    let models = Models::default();
    let facts = ModelFacts::default();
    models.add(Arc::new(Model::new("smollm2:135m".into(), tokenizer, template, facts, register.clone())));
    let mut app = App::new(models);
    if let Some(keys) = keys {
        app.guard.keys = keys.parse().expect("keys");
    }
    Some((Arc::new(app), register))
}

fn from(address: &str, mut request: HttpRequest<Body>) -> HttpRequest<Body> {
    let peer = SocketAddr::new(address.parse::<IpAddr>().unwrap(), 4242);
    request.extensions_mut().insert(ConnectInfo(peer));
    request
}

#[tokio::test]
async fn without_keys_an_address_is_an_account_whatever_a_client_calls_itself() {
    let Some((app, register)) = served(None) else { return };
    for (address, key, session) in
        [("10.0.0.1", "Bearer a", "1"), ("10.0.0.1", "Bearer b", "2"), ("10.0.0.2", "Bearer a", "1")]
    {
        let headers = [("authorization", key), ("x-session-id", session)];
        let response = send(&app, from(address, chat(&headers, &question(json!({}))))).await;
        assert_eq!(response.status(), 200);
    }
    let clients = register.0.lock().unwrap().clone();
    assert_eq!(clients[0].account, clients[1].account);
    assert_ne!(clients[0].session, clients[1].session);
    assert_ne!(clients[0].account, clients[2].account);
    assert_eq!(clients[0].session, clients[2].session);
}

#[tokio::test]
async fn a_key_is_an_account_wherever_its_holder_is_and_users_are_within_it() {
    let Some((app, register)) = served(Some("sk-alice-1\nsk-bob-1234")) else { return };
    let ask = async |address: &str, key: &str, body: Value| {
        let request = chat(&[("x-api-key", key)], &question(body));
        assert_eq!(send(&app, from(address, request)).await.status(), 200);
    };
    ask("10.0.0.1", "sk-alice-1", json!({"user": "u"})).await;
    ask("10.0.0.2", "sk-alice-1", json!({"user": "v"})).await;
    ask("10.0.0.1", "sk-bob-1234", json!({"user": "u"})).await;
    let clients = register.0.lock().unwrap().clone();
    assert_eq!(clients[0].account, clients[1].account);
    assert_ne!(clients[0].session, clients[1].session);
    assert_ne!(clients[0].account, clients[2].account);
}
