//! Every API family on the default model, through the router: shapes, streams, errors and cancellation.

mod served;

use std::sync::Arc;

use axum::body::{Body, to_bytes};
use axum::http::{Request, StatusCode};
use futures_util::StreamExt;
use ropeway_engine::Class;
use ropeway_server::router;
use serde_json::{Value, json};
use served::{app, ask, send};
use tower::ServiceExt;

/// The JSON objects of a stream of server-sent events.
fn events(text: &str) -> Vec<Value> {
    text.lines()
        .filter_map(|line| line.strip_prefix("data: "))
        .filter(|data| *data != "[DONE]")
        .map(|data| serde_json::from_str(data).expect("JSON"))
        .collect()
}

fn hello(extra: Value) -> Value {
    let mut body = json!({
        "model": "smollm2", "temperature": 0, "max_tokens": 12,
        "messages": [{"role": "user", "content": "Name three colours."}],
    });
    let (Value::Object(body_map), Value::Object(extra)) = (&mut body, extra) else { unreachable!() };
    body_map.extend(extra);
    body
}

#[tokio::test]
async fn an_openai_chat_is_the_same_streamed_or_whole() {
    let Some(app) = app() else { return };
    let whole = ask(&app, "/v1/chat/completions", &hello(json!({}))).await;
    let text = whole["choices"][0]["message"]["content"].as_str().expect("text").to_owned();
    assert_eq!(whole["choices"][0]["finish_reason"], "length");
    assert_eq!(whole["usage"]["completion_tokens"], 12);
    assert_eq!(whole["model"], "smollm2:135m");

    let options = json!({"stream": true, "stream_options": {"include_usage": true}});
    let (_, stream) = send(&app, "/v1/chat/completions", &hello(options)).await;
    assert!(stream.trim_end().ends_with("data: [DONE]"));
    let events = events(&stream);
    assert_eq!(events[0]["choices"][0]["delta"]["role"], "assistant");
    let deltas = events.iter().filter_map(|event| event["choices"][0]["delta"]["content"].as_str());
    assert_eq!(deltas.collect::<String>(), text);
    let last = events.last().expect("events");
    assert_eq!(last["usage"]["total_tokens"], whole["usage"]["total_tokens"]);
    assert_eq!(
        last["usage"]["prompt_tokens_details"]["cached_tokens"], 32,
        "the first answer is in the cache"
    );
}

#[tokio::test]
async fn several_answers_logprobs_and_stop_strings_are_honoured() {
    let Some(app) = app() else { return };
    let body = hello(json!({"n": 2, "temperature": 1, "seed": 7, "logprobs": true, "top_logprobs": 3}));
    let answer = ask(&app, "/v1/chat/completions", &body).await;
    assert_eq!(answer["choices"].as_array().map(Vec::len), Some(2));
    assert_ne!(answer["choices"][0]["message"], answer["choices"][1]["message"], "each has its own seed");
    let first = &answer["choices"][0]["logprobs"]["content"][0];
    assert_eq!(first["top_logprobs"].as_array().map(Vec::len), Some(3));
    assert!(first["logprob"].as_f64().expect("a number") <= 0.0);
    assert_eq!(answer, {
        let mut again = ask(&app, "/v1/chat/completions", &body).await;
        (again["id"], again["created"]) = (answer["id"].clone(), answer["created"].clone());
        again["usage"] = answer["usage"].clone();
        again
    });

    let whole = ask(&app, "/v1/chat/completions", &hello(json!({}))).await;
    let text = whole["choices"][0]["message"]["content"].as_str().expect("text").to_owned();
    let stop = &text[text.len() / 2..text.len() / 2 + 3];
    let cut = ask(&app, "/v1/chat/completions", &hello(json!({"stop": stop}))).await;
    assert_eq!(cut["choices"][0]["finish_reason"], "stop");
    assert_eq!(cut["choices"][0]["message"]["content"], text[..text.find(stop).expect("there")]);
}

#[tokio::test]
async fn a_response_is_the_same_streamed_or_whole_and_says_what_a_chat_says() {
    let Some(app) = app() else { return };
    let body = |extra: Value| {
        let mut body = json!({"input": "Name three colours.", "temperature": 0, "max_output_tokens": 12});
        body.as_object_mut().expect("an object").extend(extra.as_object().expect("an object").clone());
        body
    };
    let whole = ask(&app, "/v1/responses", &body(json!({}))).await;
    let chat = ask(&app, "/v1/chat/completions", &hello(json!({}))).await;
    let text = &whole["output"][0]["content"][0]["text"];
    assert_eq!(*text, chat["choices"][0]["message"]["content"]);
    assert_eq!((&whole["status"], &whole["usage"]["output_tokens"]), (&json!("incomplete"), &json!(12)));

    let (_, stream) = send(&app, "/v1/responses", &body(json!({"stream": true}))).await;
    let events = events(&stream);
    let numbers: Vec<_> =
        events.iter().map(|event| event["sequence_number"].as_u64().expect("one")).collect();
    assert!(numbers.iter().enumerate().all(|(i, number)| *number == i as u64));
    let deltas = events.iter().filter(|event| event["type"] == "response.output_text.delta");
    let streamed: String = deltas.map(|event| event["delta"].as_str().expect("text")).collect();
    assert_eq!(*text, streamed);
    let last = events.last().expect("events");
    assert_eq!(last["type"], "response.incomplete");
    assert_eq!(last["response"]["output"][0]["content"], whole["output"][0]["content"]);

    for (field, value) in [
        ("previous_response_id", json!("resp_1")),
        ("tool_choice", json!({"type": "web_search"})),
        ("top_logprobs", json!(2)),
    ] {
        let (status, text) = send(&app, "/v1/responses", &body(json!({field: value}))).await;
        assert!(status == StatusCode::BAD_REQUEST && text.contains(field), "{text}");
    }
}

#[tokio::test]
async fn tokens_go_there_and_back() {
    let Some(app) = app() else { return };
    let text = "Once upon a time, <|im_start|> in Zürich";
    let tokens = ask(&app, "/tokenize", &json!({"prompt": text, "add_special_tokens": false})).await;
    assert_eq!(tokens["count"], tokens["tokens"].as_array().expect("ids").len());
    let back = ask(&app, "/detokenize", &json!({"tokens": tokens["tokens"]})).await;
    assert_eq!(back["prompt"], text);
    let chat = ask(&app, "/tokenize", &hello(json!({}))).await;
    let answer = ask(&app, "/v1/chat/completions", &hello(json!({}))).await;
    assert_eq!(chat["count"], answer["usage"]["prompt_tokens"]);
    for (path, body) in
        [("/detokenize", json!({"tokens": [99_999_999]})), ("/tokenize", json!({"model": "smollm2"}))]
    {
        assert_eq!(send(&app, path, &body).await.0, StatusCode::BAD_REQUEST);
    }
}

#[tokio::test]
async fn completions_take_every_form_of_prompt_and_score_an_echoed_one() {
    let Some(app) = app() else { return };
    let ask_for = |prompt: Value| json!({"prompt": prompt, "max_tokens": 4, "temperature": 0});
    let one = ask(&app, "/v1/completions", &ask_for(json!("Once upon a time"))).await;
    let many = ask(&app, "/v1/completions", &ask_for(json!(["Once upon a time", "Hello"]))).await;
    let ids = ask(&app, "/v1/completions", &ask_for(json!([[28120, 3714, 253, 655]]))).await;
    assert_eq!(one["choices"][0]["text"], many["choices"][0]["text"]);
    assert_eq!(many["choices"].as_array().map(Vec::len), Some(2));
    assert_eq!(ids["usage"]["prompt_tokens"], 4);
    let scored = json!({"prompt": "Once upon a time", "max_tokens": 0, "echo": true, "logprobs": 1});
    let scored = ask(&app, "/v1/completions", &scored).await;
    let choice = &scored["choices"][0];
    assert_eq!(choice["text"], "Once upon a time");
    let logprobs = choice["logprobs"]["token_logprobs"].as_array().expect("a list");
    assert!(
        logprobs[0].is_null()
            && logprobs[1..].iter().all(|logprob| logprob.as_f64().expect("a number") < 0.0)
    );
}

/// A list of token ids.
fn ids(value: &Value) -> Vec<u64> {
    value.as_array().into_iter().flatten().map(|id| id.as_u64().expect("an id")).collect()
}

#[tokio::test]
async fn token_ids_come_with_an_answer_as_in_vllm() {
    let Some(app) = app() else { return };
    let prompt = [28120, 3714, 253, 655];
    let body = |more: Value| {
        let mut body = json!({
            "model": "smollm2", "prompt": prompt, "temperature": 0, "max_tokens": 8, "return_token_ids": true,
        });
        body.as_object_mut().expect("an object").extend(more.as_object().expect("an object").clone());
        body
    };
    let whole = ask(&app, "/v1/completions", &body(json!({}))).await["choices"][0].clone();
    let tokens = ids(&whole["token_ids"]);
    assert_eq!((ids(&whole["prompt_token_ids"]), tokens.len()), (prompt.to_vec(), 8));
    assert_eq!(whole["stop_reason"], Value::Null);
    let text =
        ask(&app, "/v1/completions", &body(json!({ "prompt": tokens, "echo": true, "max_tokens": 1 }))).await;
    let echoed = text["choices"][0]["text"].as_str().expect("text");
    assert!(echoed.starts_with(whole["text"].as_str().expect("text")), "{echoed}");

    // An end in the middle of the answer is the last id and the reason.
    let end = tokens[5];
    let first = tokens.iter().position(|id| *id == end).expect("it is there");
    let stop = json!({ "stop_token_ids": [end], "ignore_eos": true });
    let stopped = ask(&app, "/v1/completions", &body(stop.clone())).await["choices"][0].clone();
    assert_eq!((&stopped["stop_reason"], &stopped["finish_reason"]), (&json!(end), &json!("stop")));
    assert_eq!(ids(&stopped["token_ids"]), tokens[..=first]);

    let mut streamed = body(stop);
    streamed["stream"] = true.into();
    streamed["stream_options"] = json!({ "include_usage": true });
    let chunks = events(&send(&app, "/v1/completions", &streamed).await.1);
    let choices: Vec<_> = chunks.iter().map(|chunk| &chunk["choices"][0]).collect();
    let all: Vec<_> = choices.iter().flat_map(|choice| ids(&choice["token_ids"])).collect();
    assert_eq!(all, tokens[..=first]);
    assert_eq!(ids(&choices[0]["prompt_token_ids"]), prompt);
    assert!(choices[1..].iter().all(|choice| choice["prompt_token_ids"].is_null()));
    assert!(choices.iter().all(|choice| ids(&choice["token_ids"]).len() <= 1), "each comes as it is chosen");
    let usage = &chunks.last().expect("chunks")["usage"];
    assert_eq!(usage["completion_tokens"], first + 1);
    assert!(usage["prompt_tokens_details"]["cached_tokens"].is_u64());
}

#[tokio::test]
async fn a_chat_has_token_ids_and_log_probabilities_by_id_if_asked() {
    let Some(app) = app() else { return };
    let options = json!({ "return_token_ids": true, "logprobs": true, "top_logprobs": 1, "return_tokens_as_token_ids": true });
    let whole = ask(&app, "/v1/chat/completions", &hello(options.clone())).await;
    let tokens = ids(&whole["choices"][0]["token_ids"]);
    assert_eq!(
        (tokens.len(), ids(&whole["prompt_token_ids"]).len()),
        (12, whole["usage"]["prompt_tokens"].as_u64().expect("a count") as usize)
    );
    let named = whole["choices"][0]["logprobs"]["content"].as_array().expect("a list");
    let names: Vec<_> = named.iter().map(|one| one["token"].as_str().expect("a name")).collect();
    assert_eq!(names, tokens.iter().map(|id| format!("token_id:{id}")).collect::<Vec<_>>());
    let mut streamed = hello(options);
    streamed["stream"] = true.into();
    let chunks = events(&send(&app, "/v1/chat/completions", &streamed).await.1);
    let all: Vec<_> = chunks.iter().flat_map(|chunk| ids(&chunk["choices"][0]["token_ids"])).collect();
    assert_eq!(all, tokens);
    assert_eq!(chunks[0]["prompt_token_ids"], whole["prompt_token_ids"]);
    let plain = ask(&app, "/v1/chat/completions", &hello(json!({}))).await;
    assert!(plain["choices"][0].get("token_ids").is_none() && plain.get("prompt_token_ids").is_none());
}

#[tokio::test]
async fn a_prompt_is_scored_by_id_as_in_vllm() {
    let Some(app) = app() else { return };
    let body = json!({ "model": "smollm2", "prompt": [28120, 3714, 253, 655], "temperature": 0, "max_tokens": 1, "prompt_logprobs": 2 });
    let answer = ask(&app, "/v1/completions", &body).await;
    let scored = answer["choices"][0]["prompt_logprobs"].as_array().expect("a list");
    assert_eq!((scored.len(), &scored[0]), (4, &Value::Null));
    for (token, one) in [3714, 253, 655].iter().zip(&scored[1..]) {
        let own = &one[token.to_string()];
        assert!(own["logprob"].as_f64().expect("a number") <= 0.0, "{one}");
        assert!((2..=3).contains(&one.as_object().expect("an object").len()), "{one}");
    }
    for (wrong, field) in [
        (json!({ "stream": true }), "prompt_logprobs"),
        (json!({ "prompt_logprobs": 21 }), "prompt_logprobs"),
    ] {
        let mut asked = body.clone();
        asked.as_object_mut().expect("an object").extend(wrong.as_object().expect("an object").clone());
        let (status, answer) = send(&app, "/v1/completions", &asked).await;
        assert_eq!(status, StatusCode::BAD_REQUEST);
        assert!(answer.contains(field), "{answer}");
    }
}

#[tokio::test]
async fn penalties_count_the_answer_alone_in_openais_api_and_the_latest_tokens_in_ollamas() {
    let Some(app) = app() else { return };
    let prompt = format!("{}red green", "red green blue ".repeat(12));
    let openai = async |penalty: f32| {
        let body = json!({"prompt": prompt, "max_tokens": 1, "temperature": 0, "frequency_penalty": penalty});
        ask(&app, "/v1/completions", &body).await["choices"][0]["text"].clone()
    };
    assert_eq!(openai(2.0).await, openai(0.0).await);
    let ollama = async |penalty: f32| {
        let options = json!({"num_predict": 1, "temperature": 0, "frequency_penalty": penalty});
        let body =
            json!({"model": "smollm2", "prompt": prompt, "raw": true, "stream": false, "options": options});
        ask(&app, "/api/generate", &body).await["response"].clone()
    };
    assert_eq!(ollama(0.0).await, openai(0.0).await);
    assert_ne!(ollama(2.0).await, ollama(0.0).await);
}

#[tokio::test]
async fn an_anthropic_message_streams_its_blocks_in_order() {
    let Some(app) = app() else { return };
    let body = hello(json!({"model": "claude-sonnet-4-5", "system": "Be brief."}));
    let whole = ask(&app, "/v1/messages", &body).await;
    assert_eq!((&whole["type"], &whole["stop_reason"]), (&json!("message"), &json!("max_tokens")));
    assert_eq!(whole["model"], "smollm2:135m");
    let counted = ask(&app, "/v1/messages/count_tokens", &body).await;
    let usage = &whole["usage"];
    let read = usage["input_tokens"].as_u64().expect("a count")
        + usage["cache_read_input_tokens"].as_u64().expect("a count");
    assert_eq!(counted["input_tokens"], read);

    let (_, stream) =
        send(&app, "/v1/messages", &hello(json!({"system": "Be brief.", "stream": true}))).await;
    let events = events(&stream);
    let kinds: Vec<_> = events
        .iter()
        .map(|event| event["type"].as_str().expect("a type"))
        .filter(|kind| *kind != "ping")
        .collect();
    assert_eq!(kinds[..2], ["message_start", "content_block_start"]);
    assert_eq!(kinds[kinds.len() - 3..], ["content_block_stop", "message_delta", "message_stop"]);
    let deltas = events.iter().filter_map(|event| event["delta"]["text"].as_str());
    assert_eq!(deltas.collect::<String>(), whole["content"][0]["text"].as_str().expect("text"));
}

#[tokio::test]
async fn ollama_streams_lines_and_ends_with_figures() {
    let Some(app) = app() else { return };
    let options = json!({"temperature": 0, "num_predict": 6});
    let messages = json!([{"role": "user", "content": "Hi"}]);
    let body = json!({"model": "smollm2", "messages": messages, "options": options});
    let (_, stream) = send(&app, "/api/chat", &body).await;
    let lines: Vec<Value> = stream.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    let (last, lines) = lines.split_last().expect("lines");
    assert!(lines.iter().all(|line| line["done"] == false));
    assert_eq!(
        (&last["done"], &last["done_reason"], &last["eval_count"]),
        (&json!(true), &json!("length"), &json!(6))
    );
    let body = json!({"model": "smollm2", "prompt": "Hi", "stream": false, "options": options});
    let whole = ask(&app, "/api/generate", &body).await;
    let text: String = lines.iter().filter_map(|line| line["message"]["content"].as_str()).collect();
    assert_eq!(whole["response"], text);
    let loaded = ask(&app, "/api/generate", &json!({"model": "smollm2"})).await;
    assert_eq!(loaded["done_reason"], "load");
    assert!(ask(&app, "/api/show", &json!({"model": "smollm2"})).await["template"].is_string());
}

#[tokio::test]
async fn plain_generation_batches_and_one_bad_prompt_is_one_error() {
    let Some(app) = app() else { return };
    let long = "word ".repeat(2000);
    let body = json!({"prompts": ["Once upon", long, "Hello"], "max_tokens": 3, "temperature": 0});
    let answer = ask(&app, "/generate/batch", &body).await;
    assert_eq!(answer["total_prompts"], 3);
    assert!(answer["results"][1]["error"].as_str().expect("an error").contains("maximum context length"));
    for index in [0, 2] {
        assert_eq!(answer["results"][index]["tokens_generated"], 3);
    }
    let alone = ask(&app, "/generate", &json!({"prompt": "Hello", "max_tokens": 3, "temperature": 0})).await;
    assert_eq!(alone["generated_text"], answer["results"][2]["generated_text"]);
}

#[tokio::test]
async fn mistakes_get_their_family_s_shape_and_status() {
    let Some(app) = app() else { return };
    let unknown = hello(json!({"model": "gpt-9"}));
    let (status, body) = send(&app, "/v1/chat/completions", &unknown).await;
    assert_eq!(status, StatusCode::NOT_FOUND);
    let body: Value = serde_json::from_str(&body).expect("JSON");
    assert_eq!(body["error"]["code"], "model_not_found");
    let (status, body) = send(&app, "/v1/messages", &unknown).await;
    assert_eq!(status, StatusCode::NOT_FOUND);
    assert!(body.contains("\"type\":\"not_found_error\""), "{body}");
    let (status, body) = send(&app, "/api/chat", &unknown).await;
    assert_eq!(status, StatusCode::NOT_FOUND);
    assert!(body.starts_with("{\"error\":\""), "{body}");
    let long = json!({"messages": [{"role": "user", "content": "word ".repeat(2000)}]});
    for (wrong, code) in [
        (hello(json!({"temperature": -1})), "temperature"),
        (hello(json!({"messages": []})), "messages"),
        (hello(json!({"n": 1_000_000_000_u64})), "\"n\""),
        (hello(json!({"n": 0})), "\"n\""),
        (hello(json!({"tool_choice": "required", "tools": []})), "tool_choice"),
        (hello(json!({"response_format": {"type": "yaml"}})), "response_format"),
        (hello(json!({"guided_json": {"type": "number", "not": {"const": 1}}})), "Unimplemented"),
        (hello(json!({"structured_outputs": {"regex": "("}})), "structured_outputs.regex"),
        (hello(json!({"tool_choice": {"type": "function", "function": {"name": "f"}}})), "no tool"),
        (hello(json!({"logit_bias": {"x": 1}})), "logit_bias"),
        (hello(long), "context_length_exceeded"),
        (json!("no object"), "invalid_json"),
    ] {
        let (status, body) = send(&app, "/v1/chat/completions", &wrong).await;
        assert_eq!(status, StatusCode::BAD_REQUEST, "{body}");
        assert!(body.contains(code), "{code}: {body}");
    }
}

/// A form that leaves little to the model.
fn form() -> Value {
    json!({"type": "object", "properties": {"colour": {"enum": ["red", "green"]}, "bright": {"type": "boolean"}},
           "required": ["colour", "bright"]})
}

fn fills_form(text: &Value) -> bool {
    let value: Value = serde_json::from_str(text.as_str().expect("text")).expect("JSON");
    (value["colour"] == "red" || value["colour"] == "green") && value["bright"].is_boolean()
}

#[tokio::test]
async fn answers_follow_the_format_of_every_family() {
    let Some(app) = app() else { return };
    let room = json!({"max_tokens": 60});
    let with = |name: &str, value: Value| {
        let mut body = hello(room.clone());
        body[name] = value;
        body
    };
    let schema =
        json!({"type": "json_schema", "json_schema": {"name": "f", "strict": true, "schema": form()}});
    for body in [
        with("response_format", schema.clone()),
        with("guided_json", form()),
        with("structured_outputs", json!({"json": form()})),
    ] {
        let answer = ask(&app, "/v1/chat/completions", &body).await;
        assert_eq!(answer["choices"][0]["finish_reason"], "stop", "{answer}");
        assert!(fills_form(&answer["choices"][0]["message"]["content"]), "{answer}");
    }
    let cut = hello(json!({"max_tokens": 3, "response_format": schema}));
    assert_eq!(ask(&app, "/v1/chat/completions", &cut).await["choices"][0]["finish_reason"], "length");
    let choice = with("guided_choice", json!(["maybe", "perhaps"]));
    let answer = ask(&app, "/v1/chat/completions", &choice).await;
    let content = &answer["choices"][0]["message"]["content"];
    assert!(content == "maybe" || content == "perhaps", "{answer}");
    let continued = json!({"prompt": "A year:", "guided_regex": "[0-9]{4}", "temperature": 0});
    let answer = ask(&app, "/v1/completions", &continued).await;
    let year = answer["choices"][0]["text"].as_str().expect("text");
    assert!(year.len() == 4 && year.parse::<u32>().is_ok(), "{answer}");

    let format = json!({"type": "json_schema", "name": "f", "schema": form()});
    let body = json!({"input": "A colour?", "max_output_tokens": 60, "text": {"format": format}});
    let answer = ask(&app, "/v1/responses", &body).await;
    assert!(fills_form(&answer["output"][0]["content"][0]["text"]), "{answer}");
    let format = json!({"format": {"type": "json_schema", "schema": form()}});
    let mut body = with("output_config", format);
    body["model"] = "claude-x".into();
    let answer = ask(&app, "/v1/messages", &body).await;
    assert!(fills_form(&answer["content"][0]["text"]) && answer["stop_reason"] == "end_turn", "{answer}");
    let mut body = with("format", form());
    body["stream"] = false.into();
    assert!(fills_form(&ask(&app, "/api/chat", &body).await["message"]["content"]));
    let body = json!({"model": "smollm2", "prompt": "A colour?", "format": form(), "stream": false});
    assert!(fills_form(&ask(&app, "/api/generate", &body).await["response"]));

    let body = hello(json!({"max_tokens": 60, "stream": true, "guided_json": form()}));
    let (_, stream) = send(&app, "/v1/chat/completions", &body).await;
    let events = events(&stream);
    let deltas = events.iter().filter_map(|event| event["choices"][0]["delta"]["content"].as_str());
    assert!(fills_form(&deltas.collect::<String>().into()));
    let page = router(Arc::clone(&app))
        .oneshot(Request::get("/metrics").body(Body::empty()).expect("a request"))
        .await
        .expect("an answer");
    let page = to_bytes(page.into_body(), 1 << 20).await.expect("a body");
    assert!(
        String::from_utf8_lossy(&page)
            .contains("ropeway_grammar_cache_hits_total{model_name=\"smollm2:135m\"}")
    );
}

#[tokio::test]
async fn a_tool_call_can_be_forced() {
    let Some(app) = app() else { return };
    let tool = |name: &str| json!({"type": "function", "function": {"name": name, "parameters": form()}});
    let tools = json!([tool("paint"), tool("wash")]);
    let required = hello(json!({"max_tokens": 80, "tools": tools, "tool_choice": "required"}));
    let named = json!({"type": "function", "function": {"name": "wash"}});
    let named = hello(json!({"max_tokens": 80, "tools": tools, "tool_choice": named}));
    for (body, names) in [(required, &["paint", "wash"][..]), (named, &["wash"])] {
        let answer = ask(&app, "/v1/chat/completions", &body).await;
        let choice = &answer["choices"][0];
        assert_eq!(choice["finish_reason"], "tool_calls", "{answer}");
        let call = &choice["message"]["tool_calls"][0]["function"];
        assert!(names.iter().any(|name| call["name"] == *name), "{answer}");
        assert!(fills_form(&call["arguments"]), "{answer}");
    }
    let tools = json!([{"name": "paint", "input_schema": form()}]);
    let body = hello(json!({"max_tokens": 80, "tools": tools, "tool_choice": {"type": "any"}}));
    let answer = ask(&app, "/v1/messages", &body).await;
    assert_eq!(answer["stop_reason"], "tool_use", "{answer}");
    assert!(fills_form(&answer["content"][0]["input"].to_string().into()), "{answer}");
    // With a format as well, the answer is that or a call.
    let either = json!({"max_tokens": 80, "guided_json": form(), "tools": [tool("paint")]});
    let answer = ask(&app, "/v1/chat/completions", &hello(either)).await;
    let message = &answer["choices"][0]["message"];
    assert!(message["tool_calls"].is_array() || fills_form(&message["content"]), "{answer}");
}

#[tokio::test]
async fn a_client_that_leaves_frees_its_place() {
    let Some(app) = app() else { return };
    let body = hello(
        json!({"stream": true, "max_tokens": 400, "ignore_eos": true, "messages": [{"role": "user", "content": "Count."}]}),
    );
    // No other test asks in this class.
    let request = Request::post("/v1/chat/completions").header("x-priority", "bulk");
    let request = request.body(Body::from(body.to_string())).expect("a request");
    let response = router(Arc::clone(&app)).oneshot(request).await.expect("an answer");
    let mut stream = response.into_body().into_data_stream();
    for _ in 0..3 {
        stream.next().await.expect("a piece").expect("readable");
    }
    drop(stream);
    let engine = app.models.first().expect("a model").engine();
    for _ in 0..600 {
        if engine.board().expect("an engine").metrics().class(Class::Bulk).finished[2] > 0 {
            return;
        }
        tokio::time::sleep(std::time::Duration::from_millis(10)).await;
    }
    panic!("nothing was cancelled");
}
