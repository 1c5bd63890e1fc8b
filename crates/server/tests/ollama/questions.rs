//! What a question may say, and what the answer says about itself.

use serde_json::{Value, json};

use crate::disk::{app, ask};
use crate::support::{post, question, send, text};

#[tokio::test]
async fn null_and_empty_fields_say_nothing() {
    let Some((app, _)) = app(true) else { return };
    let chat = json!({
        "model": "here:1b", "messages": [{"role": "user", "content": "Hi", "images": null, "tool_calls": null, "thinking": ""}],
        "stream": false, "options": {"num_predict": 2, "temperature": null}, "tools": null, "format": null,
        "keep_alive": null, "think": null, "logprobs": null, "top_logprobs": null,
    });
    let generate = json!({
        "model": "here:1b", "prompt": "Hi", "suffix": "", "system": "", "template": "", "context": null, "images": null,
        "raw": null, "stream": false, "options": {"num_predict": 2}, "format": "", "keep_alive": null, "think": null,
    });
    for (path, body) in [("/api/chat", chat), ("/api/generate", generate)] {
        let (status, answer) = ask(&app, path, body).await;
        assert_eq!((status, &answer["eval_count"]), (200, &json!(2)), "{path}: {answer}");
        assert!(answer.get("logprobs").is_none(), "{answer}");
    }
}

#[tokio::test]
async fn what_a_model_cannot_do_is_told() {
    let Some((app, _)) = app(true) else { return };
    let generate = |extra: Value| {
        let mut body =
            json!({"model": "here:1b", "prompt": "Hi", "stream": false, "options": {"num_predict": 1}});
        body.as_object_mut().expect("an object").extend(extra.as_object().expect("an object").clone());
        body
    };
    for (extra, told) in [
        (json!({"suffix": "end"}), "insert"),
        (json!({"images": ["aGk="]}), "images"),
        (json!({"think": true}), "does not support thinking"),
        (json!({"think": "high"}), "does not support thinking"),
        (json!({"think": "deeply"}), "think is"),
        (json!({"raw": true, "system": "Be brief."}), "raw"),
        (json!({"template": "{{ .Prompt }}"}), "template"),
        (json!({"logprobs": true, "top_logprobs": 21}), "top_logprobs"),
    ] {
        let (status, answer) = ask(&app, "/api/generate", generate(extra.clone())).await;
        assert_eq!(status, 400, "{extra}: {answer}");
        assert!(answer["error"].as_str().is_some_and(|text| text.contains(told)), "{extra}: {answer}");
    }
}

#[tokio::test]
async fn every_token_comes_with_its_probability_if_that_is_asked_for() {
    let Some((app, _)) = app(true) else { return };
    let body = question(json!({
        "model": "here:1b", "prompt": "Hi", "logprobs": true, "options": {"num_predict": 5},
    }));
    for path in ["/api/chat", "/api/generate"] {
        let lines = text(send(&app, post(path, &[], &body)).await).await;
        let lines: Vec<Value> = lines.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
        let tokens: Vec<_> = lines.iter().filter_map(|line| line["logprobs"].as_array()).flatten().collect();
        assert_eq!(tokens.len(), 5, "{path}: {lines:?}");
        for token in tokens {
            assert!(token["token"].is_string() && token["logprob"].is_number() && token["bytes"].is_array());
        }
    }
}

#[tokio::test]
async fn times_add_up_to_no_more_than_the_total() {
    let Some((app, _)) = app(true) else { return };
    let body = question(json!({"model": "here:1b", "stream": false, "options": {"num_predict": 8}}));
    for _ in 0..2 {
        let (_, answer) = ask(&app, "/api/chat", body.clone()).await;
        let time = |name: &str| answer[name].as_u64().unwrap_or_else(|| panic!("{name}: {answer}"));
        let parts = time("load_duration") + time("prompt_eval_duration") + time("eval_duration");
        assert!(parts <= time("total_duration") && time("eval_duration") > 0, "{answer}");
    }
}

#[tokio::test]
async fn thoughts_are_told_apart_for_a_model_whose_template_opens_them() {
    let Some((app, _)) = app(true) else { return };
    let template = "{% for message in messages %}{{ message.content }}{% endfor %}<think>";
    let create = json!({"model": "thinker", "from": "here:1b", "template": template, "parameters": {"num_predict": 6}});
    assert_eq!(ask(&app, "/api/create", create).await.0, 200);
    for (path, thoughts, answer) in
        [("/api/chat", "/message/thinking", "/message/content"), ("/api/generate", "/thinking", "/response")]
    {
        let asked = async |think: Value| {
            let body = question(json!({"model": "thinker", "prompt": "Hi", "stream": false, "think": think}));
            let (status, said) = ask(&app, path, body).await;
            assert_eq!(status, 200, "{path}: {said}");
            [thoughts, answer].map(|part| said.pointer(part).is_some_and(|text| text != ""))
        };
        for think in [Value::Null, json!(true), json!("high")] {
            assert_eq!(asked(think.clone()).await, [true, false], "{path}, think {think}");
        }
        assert_eq!(
            asked(json!(false)).await,
            [false, true],
            "{path}: it is all text if nobody wants thoughts"
        );
    }
    let (_, shown) = ask(&app, "/api/show", json!({"model": "thinker"})).await;
    assert_eq!(
        (&shown["template"], &shown["capabilities"][1]),
        (&json!(template), &json!("thinking")),
        "{shown}"
    );
}
