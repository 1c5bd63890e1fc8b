//! Long texts and long lists of tokens: what they take until they are tokens, or text.

use std::sync::Arc;

use axum::body::Bytes;
use ropeway_server::App;
use serde_json::{Value, json};

use crate::app::{LARGEST_CONTEXT, app};
use crate::counting::{Cost, cost};
use crate::my_turn;

/// Bytes of a text.
const LONG: usize = 1 << 20;

/// Tokens of a context that none of the texts fits into.
const CONTEXT: usize = 32 << 10;

const CHAT: &str = "/v1/chat/completions";
const SPECIAL: &str = "special tokens";

/// Texts that tokenizers find easy and hard.
fn texts() -> Vec<(&'static str, String)> {
    let prose = "The cable car carries people from the station to the summit, slowly, every morning. ";
    let cut = |piece: &str| piece.repeat(LONG / piece.len());
    vec![
        ("prose", cut(prose)),
        ("one letter", cut("a")),
        ("spaces", cut(" ")),
        ("lines", cut("\n")),
        ("digits", cut("7")),
        ("ideographs", cut("山上的缆车每天早晨把人们从车站慢慢送到山顶")),
        ("random characters", random_characters()),
        (SPECIAL, cut("<|im_end|>")),
    ]
}

/// Characters of all of the first plane, in no order.
fn random_characters() -> String {
    let (mut text, mut state) = (String::with_capacity(LONG), 1_u32);
    while text.len() < LONG - 4 {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        text.extend(char::from_u32(state >> 16).filter(|character| !character.is_control()));
    }
    text
}

fn text_bodies(text: &str) -> [(&'static str, Value); 3] {
    [
        ("/v1/completions", json!({"model": "m", "prompt": text})),
        (CHAT, json!({"model": "m", "messages": [{"role": "user", "content": text}]})),
        ("/tokenize", json!({"model": "m", "prompt": text})),
    ]
}

/// What any request takes, whatever its size.
const FIXED: usize = 64 << 10;

/// Times its bytes that a body may take.
const TIMES: usize = 4;

/// The same for a conversation that is full of special tokens' texts, which are marked before the template copies them.
const TIMES_MARKED: usize = 6;

/// A body that was sent, and what it took.
struct Sent {
    path: &'static str,
    what: String,
    bytes: usize,
    cost: Cost,
}

impl Sent {
    async fn to(app: &Arc<App>, path: &'static str, what: impl Into<String>, body: String) -> Self {
        let body = Bytes::from(body);
        let cost = cost(app, path, &body).await;
        Self { path, what: what.into(), bytes: body.len(), cost }
    }

    /// Whether it took no more than so many times its bytes, and `more`.
    fn check(&self, times: usize, more: usize) {
        let Sent { path, what, bytes, cost: Cost { peak, status } } = self;
        let took = *peak as f64 / *bytes as f64;
        println!("{took:5.2} times {bytes} bytes: {path}, {what} ({status})");
        assert!([200, 400].contains(status), "{path}, {what}: {status}");
        assert!(*peak <= times * bytes + more + FIXED, "{path}, {what}: {took:.2} times its bytes");
    }
}

/// A server that has read all kinds of characters: what regular expressions keep of them is theirs.
async fn warm_app(context: usize) -> Option<Arc<App>> {
    let app = app(context)?;
    for (path, body) in text_bodies(&random_characters()) {
        Sent::to(&app, path, "warm", body.to_string()).await;
    }
    Some(app)
}

#[tokio::test]
async fn a_text_that_does_not_fit_takes_no_more_than_four_times_its_bytes() {
    let _turn = my_turn().await;
    let Some(app) = warm_app(CONTEXT).await else { return };
    for (what, text) in texts() {
        for (path, body) in text_bodies(&text) {
            let is_marked = what == SPECIAL && path == CHAT;
            let times = if is_marked { TIMES_MARKED } else { TIMES };
            Sent::to(&app, path, what, body.to_string()).await.check(times, 0);
        }
    }
}

#[tokio::test]
async fn a_text_that_fits_takes_its_tokens_beside_that() {
    let _turn = my_turn().await;
    let Some(app) = warm_app(LARGEST_CONTEXT).await else { return };
    for (what, text) in texts() {
        for (path, body) in text_bodies(&text) {
            let is_marked = what == SPECIAL && path == CHAT;
            let times = if is_marked { TIMES_MARKED } else { TIMES };
            // A token has four bytes, and a text at most one for each of its bytes; the tokens' answer is never held whole.
            let tokens = if path == "/tokenize" { 0 } else { 4 * text.len() };
            Sent::to(&app, path, what, body.to_string()).await.check(times, tokens);
        }
    }
}

#[tokio::test]
async fn a_list_of_tokens_takes_no_more_than_four_times_its_bytes_also_as_text() {
    let _turn = my_turn().await;
    let Some(app) = warm_app(LARGEST_CONTEXT).await else { return };
    // Of one to six bytes each in a body, and of one to thirteen as text.
    for token in ["0", "7", "17", "260", "49000"] {
        let list = vec![token; LONG / (token.len() + 1)].join(",");
        for (path, field) in [("/detokenize", "tokens"), ("/v1/completions", "prompt")] {
            let body = format!("{{\"model\":\"m\",\"{field}\":[{list}]}}");
            Sent::to(&app, path, format!("tokens {token}"), body).await.check(TIMES, 0);
        }
    }
}
