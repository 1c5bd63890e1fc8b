//! vLLM's completions, and Ropeway's, which are the same.

use ropeway_executor::{Sampled, SamplingParams, Seed};
use ropeway_grammar::GrammarSpec;
use ropeway_pool::error::UpstreamError;
use ropeway_pool::settings::Kind;
use ropeway_pool::upstream::{Ending, TokenAsk, TokenEvent};
use serde_json::{Value, json};

use crate::scripted::{
    Reply, Seen, Server, Then, answered, ask, events, events_then, json, read, tokens, with,
};

/// A server of this version that answers completions so.
pub async fn vllm(version: &'static str, reply: impl Fn(&Seen) -> Reply + Send + Sync + 'static) -> Server {
    Server::start(move |seen| match seen.path.as_str() {
        "/v1/models" => json(json!({ "object": "list", "data": [
            { "id": "m", "object": "model", "owned_by": "vllm", "root": "org/model", "parent": null, "max_model_len": 4096 }
        ]})),
        "/version" => json(json!({ "version": version })),
        _ => reply(seen),
    })
    .await
}

pub fn chunk(ids: &[u32], more: Value) -> Value {
    let usual = json!({ "index": 0, "text": "x", "logprobs": null, "finish_reason": null, "token_ids": ids });
    let choice = with(usual, more);
    json!({ "id": "cmpl-1", "object": "text_completion", "created": 1, "model": "m", "choices": [choice] })
}

fn usage(cached: Option<usize>) -> Value {
    let mut usage = json!({ "prompt_tokens": 3, "total_tokens": 6, "completion_tokens": 3 });
    if let Some(cached) = cached {
        usage["prompt_tokens_details"] = json!({ "cached_tokens": cached });
    }
    json!({ "id": "cmpl-1", "object": "text_completion", "created": 1, "model": "m", "choices": [], "usage": usage })
}

fn finished(ending: Ending, cached_tokens: Option<usize>) -> TokenEvent {
    TokenEvent::Finished { ending, cached_tokens }
}

#[tokio::test]
async fn tokens_come_chunk_by_chunk_and_the_end_token_is_none_of_them() {
    let server = vllm("0.18.0", |_| {
        let first = chunk(&[10], json!({ "prompt_token_ids": [5, 6, 7] }));
        let last = chunk(&[13, 2], json!({ "finish_reason": "stop", "stop_reason": 2 }));
        events(&[first, chunk(&[11, 12], json!({})), last, usage(Some(2))])
    })
    .await;
    let events = answered(&server.upstream(json!({})), &ask(&SamplingParams::greedy())).await;
    let end = finished(Ending::End(2), Some(2));
    assert_eq!(events, [tokens(&[10]), tokens(&[11, 12]), tokens(&[13]), end]);
}

#[tokio::test]
async fn an_answer_that_is_cut_by_its_length_keeps_its_last_token() {
    let server =
        vllm("0.18.0", |_| events(&[chunk(&[2], json!({ "finish_reason": "length" })), usage(None)])).await;
    let events = answered(&server.upstream(json!({})), &ask(&SamplingParams::greedy())).await;
    assert_eq!(events, [tokens(&[2]), finished(Ending::Length, None)]);
}

#[tokio::test]
async fn a_stop_without_a_reason_is_the_models_own_end_token() {
    let server = vllm("0.18.0", |_| {
        events(&[chunk(&[10], json!({})), chunk(&[11, 1], json!({ "finish_reason": "stop" })), usage(None)])
    })
    .await;
    let (params, grammar) = (SamplingParams::greedy(), GrammarSpec::JsonObject);
    let asked = TokenAsk { grammar: Some(&grammar), ..ask(&params) };
    let stopped = answered(&server.upstream(json!({})), &asked).await;
    assert_eq!(stopped, [tokens(&[10]), tokens(&[11]), finished(Ending::End(1), None)]);
    assert_eq!(server.asked("/v1/completions")[0].body["ignore_eos"], false, "a grammar ends with it");
}

#[tokio::test]
async fn a_stop_without_tokens_is_the_first_end_or_a_complete_grammar() {
    let last = json!({ "finish_reason": "stop" });
    let server =
        vllm("0.18.0", move |_| events(&[chunk(&[10], json!({})), chunk(&[], last.clone()), usage(None)]))
            .await;
    let (upstream, params) = (server.upstream(json!({})), SamplingParams::greedy());
    let stopped = answered(&upstream, &ask(&params)).await;
    assert_eq!(stopped, [tokens(&[10]), finished(Ending::End(2), None)]);
    let endless = answered(&upstream, &TokenAsk { ends: &[], ..ask(&params) }).await;
    assert_eq!(endless, [tokens(&[10]), finished(Ending::Complete, None)]);
}

#[tokio::test]
async fn everything_that_is_asked_is_put_into_its_words() {
    let server =
        vllm("0.18.0", |_| events(&[chunk(&[2], json!({ "finish_reason": "stop", "stop_reason": 2 }))]))
            .await;
    let params = SamplingParams {
        temperature: 0.5,
        top_k: 4,
        top_p: 0.25,
        min_p: 0.125,
        repetition_penalty: 1.5,
        presence_penalty: 0.5,
        frequency_penalty: -0.5,
        logit_bias: [(9, -2.0), (3, f32::NEG_INFINITY)].into(),
        allowed: Some([1, 2].into()),
        seed: Seed(u64::MAX),
        logprobs: None,
        ..SamplingParams::default()
    };
    let grammar = GrammarSpec::Regex("a+".into());
    let asked = TokenAsk {
        is_seeded: true,
        min_tokens: 3,
        grammar: Some(&grammar),
        cache_salt: Some("salt"),
        session: Some("s"),
        ..ask(&params)
    };
    answered(&server.upstream(json!({})), &asked).await;
    let seen = &server.asked("/v1/completions")[0];
    assert!(seen.head.contains("x-request-id: req-1"), "{}", seen.head);
    assert_eq!(
        seen.body,
        json!({
            "model": "m", "prompt": [5, 6, 7], "max_tokens": 8, "stream": true, "stream_options": { "include_usage": true },
            "temperature": 0.5, "top_p": 0.25, "top_k": 4, "min_p": 0.125, "repetition_penalty": 1.5, "presence_penalty": 0.5,
            "frequency_penalty": -0.5, "ignore_eos": false, "stop_token_ids": [2], "min_tokens": 3, "skip_special_tokens": false,
            "return_token_ids": true, "seed": -1, "logit_bias": { "3": -100.0, "9": -2.0 }, "allowed_token_ids": [1, 2],
            "cache_salt": "salt", "session_id": "s", "structured_outputs": { "regex": "a+" },
        })
    );
}

#[tokio::test]
async fn an_older_server_gets_the_older_words() {
    let server =
        vllm("0.10.2", |_| events(&[chunk(&[2], json!({ "finish_reason": "stop", "stop_reason": 2 }))]))
            .await;
    let (params, grammar) = (SamplingParams::greedy(), GrammarSpec::Choice(vec!["a".into()]));
    answered(&server.upstream(json!({})), &TokenAsk { grammar: Some(&grammar), ..ask(&params) }).await;
    let body = &server.asked("/v1/completions")[0].body;
    assert_eq!((&body["guided_choice"], &body["structured_outputs"]), (&json!(["a"]), &Value::Null));
}

#[tokio::test]
async fn a_server_too_old_for_token_ids_is_spoken_to_in_text_unless_the_operator_insists() {
    let server = vllm("0.9.1", |_| events(&[])).await;
    let described = server.upstream(json!({})).describe().await.expect("a description");
    assert_eq!(described.kind, Kind::Openai);
    let insisted = server.upstream(json!({ "kind": "vllm" }));
    let params = SamplingParams::greedy();
    let Err(error) = insisted.generate(&ask(&params)).await else { panic!("an answer") };
    assert!(error.is_the_requests() && error.to_string().contains("0.10.2"), "{error}");
}

#[tokio::test]
async fn log_probabilities_are_read_by_ids_and_sorted() {
    let logprobs = json!({
        "tokens": ["token_id:10"], "token_logprobs": [-3.0], "text_offset": [0],
        "top_logprobs": [{ "token_id:10": -3.0, "token_id:8": -0.5, "token_id:9": -0.25 }],
    });
    let server = vllm("0.18.0", move |_| {
        let first = chunk(&[10], json!({ "logprobs": logprobs }));
        events(&[first, chunk(&[], json!({ "finish_reason": "length", "token_ids": [] }))])
    })
    .await;
    let params = SamplingParams { logprobs: Some(2), ..SamplingParams::greedy() };
    let events = answered(&server.upstream(json!({})), &ask(&params)).await;
    let sampled = Sampled { token: 10, logprob: -3.0, top: vec![(9, -0.25), (8, -0.5)] };
    assert_eq!(events[0], TokenEvent::Tokens(vec![sampled]));
    let body = &server.asked("/v1/completions")[0].body;
    assert_eq!((&body["logprobs"], &body["return_tokens_as_token_ids"]), (&json!(2), &json!(true)));
}

#[tokio::test]
async fn a_prompt_is_scored_in_one_piece() {
    let server = vllm("0.18.0", |_| {
        let mut whole = chunk(&[10], json!({ "finish_reason": "length" }));
        whole["choices"][0]["prompt_logprobs"] = json!([
            null,
            { "6": { "logprob": -2.0, "rank": 3, "decoded_token": "a" }, "1": { "logprob": -0.5, "rank": 1, "decoded_token": "b" } },
            { "7": { "logprob": -0.25, "rank": 1, "decoded_token": "c" } },
        ]);
        json(whole)
    })
    .await;
    let (upstream, params) = (server.upstream(json!({})), SamplingParams::greedy());
    let scored = TokenEvent::Scored(vec![
        Sampled { token: 6, logprob: -2.0, top: vec![(1, -0.5)] },
        Sampled { token: 7, logprob: -0.25, top: vec![(7, -0.25)] },
    ]);
    let both = TokenAsk { prompt_logprobs: Some(1), ..ask(&params) };
    let end = finished(Ending::Length, None);
    assert_eq!(answered(&upstream, &both).await, [scored.clone(), tokens(&[10]), end.clone()]);
    let only = TokenAsk { max_tokens: 0, ..both };
    assert_eq!(answered(&upstream, &only).await, [scored, end]);
    let body = &server.asked("/v1/completions")[1].body;
    assert_eq!((&body["stream"], &body["max_tokens"]), (&json!(false), &json!(1)));
}

#[tokio::test]
async fn what_it_has_no_word_for_is_refused_by_name_and_nothing_is_sent() {
    let server = vllm("0.18.0", |_| Reply::Nothing).await;
    let upstream = server.upstream(json!({}));
    let typical = SamplingParams { typical_p: 0.5, ..SamplingParams::default() };
    let window =
        SamplingParams { presence_penalty: 1.0, penalty_window: Some(4), ..SamplingParams::default() };
    for (params, field) in [(typical, "typical_p"), (window, "repeat_last_n")] {
        let Err(error) = upstream.generate(&ask(&params)).await else { panic!("an answer") };
        assert!(
            matches!(&error, UpstreamError::Unsupported(said) if said.contains(field) && said.contains("vllm")),
            "{error}"
        );
    }
    assert!(server.asked("/v1/completions").is_empty());
    let unused = SamplingParams { penalty_window: Some(4), ..SamplingParams::default() };
    assert!(!upstream.generate(&ask(&unused)).await.expect_err("no answer").is_the_requests());
}

#[tokio::test]
async fn a_ropeway_knows_more_words_and_classes() {
    let server = Server::start(|seen| match seen.path.as_str() {
        "/v1/models" => {
            json(json!({ "data": [{ "id": "m", "owned_by": "ropeway", "max_model_len": 2048 }] }))
        }
        "/version" => json(json!({ "version": "0.1.0" })),
        _ => events(&[chunk(&[10], json!({ "finish_reason": "length" })), usage(Some(0))]),
    })
    .await;
    let params = SamplingParams {
        typical_p: 0.5,
        presence_penalty: 1.0,
        penalty_window: Some(4),
        ..SamplingParams::default()
    };
    let events = answered(&server.upstream(json!({})), &ask(&params)).await;
    assert_eq!(events, [tokens(&[10]), finished(Ending::Length, Some(0))]);
    let body = &server.asked("/v1/completions")[0].body;
    assert_eq!(
        (&body["typical_p"], &body["repeat_last_n"], &body["priority"], &body["seed"]),
        (&json!(0.5), &json!(4), &json!("default"), &json!(0))
    );
}

#[tokio::test]
async fn an_error_in_the_stream_is_told_in_the_servers_words() {
    let server = vllm("0.18.0", |_| {
        let error = json!({ "error": { "message": "engine died", "type": "InternalServerError", "param": null, "code": 500 } });
        events(&[chunk(&[10], json!({})), error])
    })
    .await;
    let params = SamplingParams::greedy();
    let stream = server.upstream(json!({})).generate(&ask(&params)).await.expect("an answer");
    let (events, error) = read(stream).await;
    assert_eq!(events, [tokens(&[10])]);
    assert_eq!(error, Some(UpstreamError::Failed { upstream: "gpu".into(), why: "engine died".into() }));
}

#[tokio::test]
async fn a_connection_that_breaks_after_the_last_token_loses_nothing() {
    let server = vllm("0.18.0", |_| {
        events_then(&[chunk(&[2], json!({ "finish_reason": "stop", "stop_reason": 2 }))], Then::Cut)
    })
    .await;
    let events = answered(&server.upstream(json!({})), &ask(&SamplingParams::greedy())).await;
    assert_eq!(events, [finished(Ending::End(2), None)]);
}
