//! SGLang's own API.

use ropeway_executor::{Sampled, SamplingParams};
use ropeway_grammar::GrammarSpec;
use ropeway_pool::error::UpstreamError;
use ropeway_pool::upstream::{Ending, TokenAsk, TokenEvent};
use serde_json::{Value, json};

use crate::scripted::{
    Reply, Seen, Server, Then, answered, ask, events, events_then, json, read, tokens, with,
};

async fn sglang(reply: impl Fn(&Seen) -> Reply + Send + Sync + 'static) -> Server {
    Server::start(move |seen| match seen.path.as_str() {
        "/v1/models" => {
            json(json!({ "data": [{ "id": "m", "owned_by": "sglang", "root": "m", "max_model_len": 4096 }] }))
        }
        "/model_info" => {
            json(json!({ "model_path": "org/model", "tokenizer_path": "org/model", "is_generation": true }))
        }
        "/server_info" => json(json!({ "version": "0.5.10" })),
        _ => reply(seen),
    })
    .await
}

/// An event with these ids, after so many tokens.
fn event(ids: &[u32], completion: usize, more: Value) -> Value {
    let meta = with(
        json!({ "id": "r", "finish_reason": null, "prompt_tokens": 3, "completion_tokens": completion, "cached_tokens": 1 }),
        more,
    );
    json!({ "text": "x", "output_ids": ids, "meta_info": meta })
}

fn stop(end: u32) -> Value {
    json!({ "finish_reason": { "type": "stop", "matched": end } })
}

fn finished(ending: Ending) -> TokenEvent {
    TokenEvent::Finished { ending, cached_tokens: Some(1) }
}

#[tokio::test]
async fn ids_are_new_ones_whether_events_repeat_all_or_not() {
    for repeats in [true, false] {
        let server = sglang(move |_| {
            let pick = |all: &[u32], new: &[u32]| if repeats { all.to_vec() } else { new.to_vec() };
            let (second, third) = (pick(&[10, 11, 12], &[11, 12]), pick(&[10, 11, 12, 2], &[2]));
            events(&[event(&[10], 1, json!({})), event(&second, 3, json!({})), event(&third, 4, stop(2))])
        })
        .await;
        let events = answered(&server.upstream(json!({})), &ask(&SamplingParams::greedy())).await;
        assert_eq!(
            events,
            [tokens(&[10]), tokens(&[11, 12]), finished(Ending::End(2))],
            "repeats: {repeats}"
        );
    }
}

#[tokio::test]
async fn what_is_asked_is_put_into_its_words() {
    let server =
        sglang(|_| events(&[event(&[10], 1, json!({ "finish_reason": { "type": "length", "length": 1 } }))]))
            .await;
    let (params, grammar) = (SamplingParams::greedy(), GrammarSpec::Choice(vec!["a.b".into(), "c".into()]));
    answered(
        &server.upstream(json!({})),
        &TokenAsk { grammar: Some(&grammar), min_tokens: 1, ..ask(&params) },
    )
    .await;
    let body = &server.asked("/generate")[0].body;
    assert_eq!(
        *body,
        json!({
            "input_ids": [5, 6, 7], "stream": true,
            "sampling_params": {
                "max_new_tokens": 8, "min_new_tokens": 1, "stop_token_ids": [2], "ignore_eos": false, "skip_special_tokens": false,
                "no_stop_trim": true, "temperature": 0.0, "top_p": 1.0, "top_k": -1, "min_p": 0.0, "repetition_penalty": 1.0,
                "presence_penalty": 0.0, "frequency_penalty": 0.0, "regex": "(a\\.b|c)",
            },
        })
    );
}

#[tokio::test]
async fn log_probabilities_of_prompt_and_answer_are_read() {
    let server = sglang(|_| {
        let logprobs = json!({
            "input_token_logprobs": [[null, 5, null], [-1.0, 6, null], [-2.0, 7, null]],
            "input_top_logprobs": [null, [[-1.0, 6, null]], [[-0.5, 9, null]]],
            "output_token_logprobs": [[-0.25, 10, null]], "output_top_logprobs": [[[-0.25, 10, null]]],
        });
        let mut more = logprobs.clone();
        more["output_token_logprobs"] = json!([[-0.25, 10, null], [-4.0, 11, null]]);
        more["output_top_logprobs"] = json!([[[-0.25, 10, null]], [[-0.125, 3, null]]]);
        more["finish_reason"] = json!({ "type": "length", "length": 2 });
        events(&[event(&[10], 1, logprobs), event(&[10, 11], 2, more)])
    })
    .await;
    let params = SamplingParams { logprobs: Some(1), ..SamplingParams::greedy() };
    let events =
        answered(&server.upstream(json!({})), &TokenAsk { prompt_logprobs: Some(1), ..ask(&params) }).await;
    let one = |token, logprob, top| Sampled { token, logprob, top: vec![top] };
    assert_eq!(
        events,
        [
            TokenEvent::Scored(vec![one(6, -1.0, (6, -1.0)), one(7, -2.0, (9, -0.5))]),
            TokenEvent::Tokens(vec![one(10, -0.25, (10, -0.25))]),
            TokenEvent::Tokens(vec![one(11, -4.0, (3, -0.125))]),
            finished(Ending::Length),
        ]
    );
}

#[tokio::test]
async fn where_it_ignores_ends_they_are_looked_for_and_the_connection_is_closed() {
    let mut server = sglang(|_| {
        events_then(&[event(&[10], 1, json!({})), event(&[10, 2, 11], 3, json!({}))], Then::Stall)
    })
    .await;
    let params = SamplingParams::greedy();
    let asked = TokenAsk { ignore_eos: true, ..ask(&params) };
    let events = answered(&server.upstream(json!({})), &asked).await;
    assert_eq!(events, [tokens(&[10]), finished(Ending::End(2))]);
    server.wait_left(1).await;
}

#[tokio::test]
async fn an_aborted_sequence_is_an_error_by_its_status() {
    let abort = |status: u16| json!({ "finish_reason": { "type": "abort", "message": "no room", "status_code": status } });
    for (status, is_the_requests) in [(400, true), (500, false)] {
        let server = sglang(move |_| events(&[event(&[], 0, abort(status))])).await;
        let params = SamplingParams::greedy();
        let stream = server.upstream(json!({})).generate(&ask(&params)).await.expect("an answer");
        let error = read(stream).await.1.expect("an error");
        assert_eq!(error.is_the_requests(), is_the_requests, "{error}");
        assert!(error.to_string().contains("no room"), "{error}");
    }
}

#[tokio::test]
async fn allowed_tokens_can_not_be_had() {
    let server = sglang(|_| Reply::Nothing).await;
    let params = SamplingParams { allowed: Some([1].into()), ..SamplingParams::default() };
    let error = server.upstream(json!({})).generate(&ask(&params)).await.err();
    assert!(matches!(error, Some(UpstreamError::Unsupported(said)) if said.contains("allowed_token_ids")));
}
