//! Bodies that are much larger in memory than on the wire.

use std::sync::Arc;

use axum::body::Bytes;
use ropeway_server::App;

use crate::app::{LARGEST_CONTEXT, app};
use crate::counting::{Cost, cost};
use crate::my_turn;

/// `{"model": "m", HEAD ITEM,ITEM,... TAIL}` of about so many bytes.
fn body(head: &str, item: &str, tail: &str, bytes: usize) -> Bytes {
    let count = bytes.saturating_sub(head.len() + tail.len()) / (item.len() + 1);
    let items = format!("{item},").repeat(count);
    format!("{{\"model\":\"m\",\"max_tokens\":1,{head}{items}{item}{tail}}}").into()
}

/// A body with one long text.
fn text_body(head: &str, piece: &str, tail: &str, bytes: usize) -> Bytes {
    let text = piece.repeat(bytes.saturating_sub(head.len() + tail.len()) / piece.len());
    format!("{{\"model\":\"m\",\"max_tokens\":1,{head}\"{text}\"{tail}}}").into()
}

/// Nested objects.
fn deep_body(head: &str, tail: &str, bytes: usize) -> Bytes {
    let levels = bytes / 6;
    let (open, close) = ("{\"a\":".repeat(levels), "}".repeat(levels));
    format!("{{\"model\":\"m\",\"max_tokens\":1,{head}{open}0{close}{tail}}}").into()
}

/// The fields of every route that a client could fill with lists or texts: what stands before and after the value.
const FIELDS: [(&str, &str, &str); 40] = [
    ("/v1/chat/completions", "\"messages\":", ""),
    ("/v1/chat/completions", "\"messages\":[{\"role\":\"user\",\"content\":", "}]"),
    ("/v1/chat/completions", "\"messages\":[{\"role\":\"assistant\",\"content\":\"\",\"tool_calls\":", "}]"),
    ("/v1/chat/completions", "\"messages\":[{\"role\":\"user\",\"content\":\"x\"}],\"tools\":", ""),
    ("/v1/chat/completions", "\"messages\":[{\"role\":\"user\",\"content\":\"x\"}],\"unknown\":", ""),
    ("/v1/chat/completions", "\"messages\":[{\"role\":\"user\",\"content\":\"x\"}],\"response_format\":", ""),
    (
        "/v1/chat/completions",
        "\"messages\":[{\"role\":\"user\",\"content\":\"x\"}],\"chat_template_kwargs\":",
        "",
    ),
    ("/v1/chat/completions", "\"messages\":[{\"role\":\"user\",\"content\":\"x\"}],\"stop\":", ""),
    ("/v1/chat/completions", "\"messages\":[{\"role\":\"user\",\"content\":\"x\"}],\"logit_bias\":", ""),
    ("/v1/completions", "\"prompt\":", ""),
    ("/v1/completions", "\"prompt\":[\"a\",", "]"),
    ("/v1/completions", "\"prompt\":[\"a\",\"b\",\"c\"],\"stop\":", ""),
    ("/v1/completions", "\"prompt\":[\"a\",\"b\",\"c\"],\"guided_json\":", ""),
    ("/v1/completions", "\"prompt\":\"x\",\"unknown\":", ""),
    ("/v1/embeddings", "\"input\":", ""),
    ("/v1/embeddings", "\"input\":[", "]"),
    ("/v1/embeddings", "\"input\":\"x\",\"unknown\":", ""),
    ("/v1/rerank", "\"query\":\"q\",\"documents\":", ""),
    ("/v1/rerank", "\"documents\":[\"a\"],\"query\":", ""),
    ("/v1/responses", "\"input\":", ""),
    ("/v1/responses", "\"input\":\"x\",\"tools\":", ""),
    ("/v1/responses", "\"input\":\"x\",\"instructions\":", ""),
    ("/v1/responses", "\"input\":\"x\",\"metadata\":", ""),
    ("/tokenize", "\"prompt\":", ""),
    ("/tokenize", "\"messages\":", ""),
    ("/detokenize", "\"tokens\":", ""),
    ("/v1/messages", "\"messages\":", ""),
    ("/v1/messages", "\"messages\":[{\"role\":\"user\",\"content\":", "}]"),
    ("/v1/messages", "\"messages\":[{\"role\":\"user\",\"content\":\"x\"}],\"system\":", ""),
    ("/v1/messages", "\"messages\":[{\"role\":\"user\",\"content\":\"x\"}],\"tools\":", ""),
    ("/v1/messages/count_tokens", "\"messages\":[{\"role\":\"user\",\"content\":", "}]"),
    ("/api/chat", "\"messages\":", ""),
    ("/api/chat", "\"messages\":[{\"role\":\"user\",\"content\":", "}]"),
    ("/api/generate", "\"prompt\":", ""),
    ("/api/generate", "\"prompt\":\"x\",\"context\":", ""),
    ("/api/embed", "\"input\":", ""),
    ("/api/embeddings", "\"prompt\":", ""),
    ("/generate", "\"prompt\":", ""),
    ("/generate/batch", "\"prompts\":", ""),
    ("/api/show", "\"unknown\":", ""),
];

/// Values that are much larger in memory than on the wire.
fn hostile(head: &str, tail: &str, bytes: usize) -> Vec<(&'static str, Bytes)> {
    let (list, end) = (format!("{head}["), format!("]{tail}"));
    vec![
        ("numbers", body(&list, "0", &end, bytes)),
        ("lists", body(&list, "[]", &end, bytes)),
        ("lists of numbers", body(&list, "[0]", &end, bytes)),
        ("objects", body(&list, "{}", &end, bytes)),
        ("objects with a field", body(&list, "{\"a\":0}", &end, bytes)),
        ("texts", body(&list, "\"\"", &end, bytes)),
        ("fields", body(&format!("{head}{{\"a\":0,"), "\"a\":0", &format!("}}{tail}"), bytes)),
        ("nested", deep_body(head, tail, bytes)),
        ("escapes", text_body(head, "\\n", tail, bytes)),
        ("a few escapes", text_body(head, "aaaa bbbb cccc dddd eeee \\u00e9", tail, bytes)),
        ("characters that errors write in full", text_body(head, "\u{7f}", tail, bytes)),
        ("one word", text_body(head, "a", tail, bytes)),
        ("short words", text_body(head, "a ", tail, bytes)),
        ("a token a byte", text_body(head, "7", tail, bytes)),
    ]
}

/// Bytes of a body as large as the server reads, and of one that is dense for its size.
const LARGE: usize = 31 << 20;
const DENSE: usize = 1 << 20;

/// The first fields of routes whose bodies are tried at full size; the others have the same types.
const TRIED_LARGE: [usize; 5] = [0, 3, 4, 9, 14];

/// Memory that a body may take: four times its bytes if it is large; else also 512 bytes for every name and value that a
/// body of its size may have.
fn bound(bytes: usize) -> usize {
    let values = if bytes > DENSE * 2 { 0 } else { (32 << 10) + bytes / 32 };
    4 * bytes + 512 * values
}

async fn check(app: &Arc<App>, (path, head, tail): (&str, &str, &str), bytes: usize) -> (f64, String) {
    let mut worst = (0.0, String::new());
    for (name, body) in hostile(head, tail, bytes) {
        let Cost { peak, status } = cost(app, path, &body).await;
        let (times, allowed) = (peak as f64 / body.len() as f64, bound(body.len()));
        let line = format!("{times:.2} times {} bytes: {path} {head} {name} ({status})", body.len());
        assert!(status < 500, "{line}");
        assert!(peak <= allowed, "{line}");
        if times > worst.0 {
            worst = (times, line);
        }
    }
    worst
}

#[tokio::test]
async fn no_body_takes_more_memory_than_is_set_aside_for_it() {
    let _turn = my_turn().await;
    let Some(app) = app(LARGEST_CONTEXT) else { return };
    let warm = body("\"input\":[", "\"a\"", "]", 20);
    assert_eq!(cost(&app, "/v1/embeddings", &warm).await.status, 200);
    let warm = text_body("\"prompt\":", "a ", "", 100);
    assert_eq!(cost(&app, "/tokenize", &warm).await.status, 200);
    let mut worst = Vec::new();
    for field in FIELDS {
        worst.push(check(&app, field, DENSE).await);
    }
    for index in TRIED_LARGE {
        worst.push(check(&app, FIELDS[index], LARGE).await);
    }
    worst.sort_by(|a, b| b.0.total_cmp(&a.0));
    for (_, line) in &worst {
        println!("{line}");
    }
    assert_eq!(app.memory.used(), 0, "all of it was given back");
}
