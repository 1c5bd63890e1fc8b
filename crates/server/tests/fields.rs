//! Fields that clients send beyond the usual ones: each does what it says, or is refused by name.

mod served;

use axum::http::StatusCode;
use serde_json::{Value, json};
use served::{app, ask, send};

const CHAT: &str = "/v1/chat/completions";
const COMPLETIONS: &str = "/v1/completions";

fn chat(extra: &Value) -> Value {
    with(
        json!({"temperature": 0, "max_tokens": 16, "messages": [{"role": "user", "content": "Name three colours."}]}),
        extra,
    )
}

fn completion(extra: &Value) -> Value {
    with(json!({"temperature": 0, "max_tokens": 12, "prompt": "Once upon a time"}), extra)
}

fn with(mut body: Value, extra: &Value) -> Value {
    body["model"] = "smollm2".into();
    body.as_object_mut().unwrap().extend(extra.as_object().unwrap().clone());
    body
}

fn text(answer: &Value) -> &str {
    let choice = &answer["choices"][0];
    choice["message"]["content"].as_str().or_else(|| choice["text"].as_str()).expect("text")
}

/// The JSON objects of a stream of server-sent events.
fn events(text: &str) -> Vec<Value> {
    let data = text.lines().filter_map(|line| line.strip_prefix("data: "));
    data.filter(|data| *data != "[DONE]").map(|data| serde_json::from_str(data).expect("JSON")).collect()
}

#[tokio::test]
async fn an_answer_that_was_begun_goes_on_where_it_was_left() {
    let Some(app) = app() else { return };
    let whole = ask(&app, CHAT, &chat(&json!({"logprobs": true}))).await;
    let tokens = whole["choices"][0]["logprobs"]["content"].as_array().unwrap();
    let begun: String = tokens[..4].iter().map(|token| token["token"].as_str().unwrap()).collect();
    let rest = text(&whole).strip_prefix(&begun).expect("its own beginning");
    let messages = json!([
        {"role": "user", "content": "Name three colours."}, {"role": "assistant", "content": begun}]);
    let continued = json!({"messages": messages, "continue_final_message": true, "max_tokens": 12});
    assert_eq!(text(&ask(&app, CHAT, &chat(&continued)).await), rest);
    let prefilled = json!({"model": "claude-x", "max_tokens": 12, "temperature": 0, "messages": messages});
    let message = ask(&app, "/v1/messages", &prefilled).await;
    assert_eq!(message["content"][0]["text"], rest);
    let both = json!({"messages": messages, "continue_final_message": true, "add_generation_prompt": true});
    refused(&app, CHAT, &chat(&both), "continue_final_message").await;
    refused(&app, CHAT, &chat(&json!({"continue_final_message": true})), "messages").await;
}

async fn refused(app: &std::sync::Arc<ropeway_server::App>, path: &str, body: &Value, field: &str) {
    let (status, answer) = send(app, path, body).await;
    assert_eq!(status, StatusCode::BAD_REQUEST, "{answer}");
    let error: Value = serde_json::from_str(&answer).unwrap();
    assert_eq!(error["error"]["param"], field, "{answer}");
}

#[tokio::test]
async fn tokens_and_words_can_end_an_answer_or_be_kept_out_of_it() {
    let Some(app) = app() else { return };
    let plain = json!({"logprobs": 0});
    let whole = ask(&app, COMPLETIONS, &completion(&plain)).await;
    let tokens = whole["choices"][0]["logprobs"]["tokens"].as_array().unwrap();
    let word = tokens[3].as_str().unwrap();
    let ids =
        ask(&app, "/tokenize", &json!({"model": "smollm2", "prompt": word, "add_special_tokens": false}))
            .await;
    let id = ids["tokens"][0].as_u64().expect("an id");

    let ended = ask(&app, COMPLETIONS, &completion(&json!({"stop_token_ids": [id]}))).await;
    assert_eq!(text(&ended), tokens[..3].iter().map(|token| token.as_str().unwrap()).collect::<String>());
    assert_eq!(ended["choices"][0]["finish_reason"], "stop");

    let without = ask(&app, COMPLETIONS, &completion(&json!({"bad_words": [word.trim()]}))).await;
    assert!(!text(&without).contains(word), "{word:?} in {without}");
    refused(
        &app,
        COMPLETIONS,
        &completion(&json!({"bad_words": ["antidisestablishmentarianism"]})),
        "bad_words",
    )
    .await;

    let only = ask(&app, COMPLETIONS, &completion(&json!({"allowed_token_ids": [id, 1_000_000]}))).await;
    assert_eq!(text(&only), word.repeat(12));
    refused(&app, COMPLETIONS, &completion(&json!({"allowed_token_ids": []})), "allowed_token_ids").await;
}

#[tokio::test]
async fn a_prompt_can_be_cut_and_what_can_not_be_done_is_refused() {
    let Some(app) = app() else { return };
    let cut = ask(&app, COMPLETIONS, &completion(&json!({"truncate_prompt_tokens": 2}))).await;
    assert_eq!(cut["usage"]["prompt_tokens"], 2);
    refused(&app, COMPLETIONS, &completion(&json!({"suffix": "The end."})), "suffix").await;
    refused(&app, COMPLETIONS, &completion(&json!({"use_beam_search": true})), "use_beam_search").await;
    refused(&app, CHAT, &chat(&json!({"reasoning_effort": "enormous"})), "reasoning_effort").await;
    ask(&app, CHAT, &chat(&json!({"reasoning_effort": "low"}))).await;
}

#[tokio::test]
async fn streamed_echoes_stand_before_every_choice_and_offsets_go_on() {
    let Some(app) = app() else { return };
    let wish = json!({"echo": true, "n": 2, "stream": true, "temperature": 1, "seed": 3});
    let (_, stream) = send(&app, COMPLETIONS, &completion(&wish)).await;
    for choice in 0..2 {
        let of = |event: &&Value| event["choices"][0]["index"] == choice;
        let events = events(&stream);
        let text: String =
            events.iter().filter(of).filter_map(|event| event["choices"][0]["text"].as_str()).collect();
        assert!(text.starts_with("Once upon a time") && text.len() > 20, "{text}");
    }
    let (_, stream) = send(&app, COMPLETIONS, &completion(&json!({"logprobs": 1, "stream": true}))).await;
    let whole = ask(&app, COMPLETIONS, &completion(&json!({"logprobs": 1}))).await;
    let events = events(&stream);
    let offsets = events.iter().filter_map(|event| event["choices"][0]["logprobs"]["text_offset"].as_array());
    let offsets: Vec<Value> = offsets.flatten().cloned().collect();
    assert_eq!(Value::from(offsets), whole["choices"][0]["logprobs"]["text_offset"]);
}

#[tokio::test]
async fn a_prompt_that_is_too_long_is_told_in_the_words_that_clients_look_for() {
    let Some(app) = app() else { return };
    let long = json!([{"role": "user", "content": "word ".repeat(700)}]);
    let (status, openai) = send(&app, CHAT, &chat(&json!({"messages": long}))).await;
    assert_eq!(status, StatusCode::BAD_REQUEST);
    assert!(openai.contains("This model's maximum context length is 512 tokens"), "{openai}");
    assert!(openai.contains("context_length_exceeded"));
    let body = json!({"model": "claude-x", "max_tokens": 5, "messages": long});
    let (_, anthropic) = send(&app, "/v1/messages", &body).await;
    assert!(anthropic.contains("prompt is too long: 513 tokens > 512 maximum"), "{anthropic}");
}
