//! llama.cpp's own API.

use ropeway_executor::{Sampled, SamplingParams};
use ropeway_grammar::GrammarSpec;
use ropeway_pool::error::UpstreamError;
use ropeway_pool::upstream::{Ending, Spelling, TokenAsk, TokenEvent};
use serde_json::{Value, json};

use crate::scripted::{Reply, Seen, Server, Then, answered, ask, events_then, json, tokens};

async fn llama(reply: impl Fn(&Seen) -> Reply + Send + Sync + 'static) -> Server {
    Server::start(move |seen| match seen.path.as_str() {
        "/v1/models" => json(json!({ "data": [{ "id": "m", "owned_by": "llamacpp", "meta": { "n_ctx": 512 } }] })),
        "/props" => json(json!({
            "default_generation_settings": { "n_ctx": 256 }, "model_path": "/models/m.gguf", "chat_template": "{{ x }}",
            "build_info": "b6000-abcdef",
        })),
        _ => reply(seen),
    })
    .await
}

fn event(token: u32, content: &str, predicted: usize) -> Value {
    json!({ "index": 0, "content": content, "tokens": [token], "stop": false, "id_slot": 0, "tokens_predicted": predicted, "tokens_evaluated": 3 })
}

fn last(stop_type: &str) -> Value {
    json!({
        "index": 0, "content": "", "tokens": [], "stop": true, "stop_type": stop_type, "stopping_word": "", "tokens_cached": 9,
        "tokens_predicted": 2, "timings": { "cache_n": 2, "prompt_n": 1 },
    })
}

fn finished(ending: Ending) -> TokenEvent {
    TokenEvent::Finished { ending, cached_tokens: Some(2) }
}

#[tokio::test]
async fn its_own_end_token_is_none_of_the_answer_and_keeps_the_connection() {
    let server = llama(|_| events_then(&[event(10, "a", 1), event(2, "", 2), last("eos")], Then::End)).await;
    let upstream = server.upstream(json!({}));
    let params = SamplingParams::greedy();
    for _ in 0..2 {
        assert_eq!(answered(&upstream, &ask(&params)).await, [tokens(&[10]), finished(Ending::End(2))]);
    }
}

#[tokio::test]
async fn an_end_of_its_own_that_nobody_named_is_none_of_the_answer_either() {
    let server = llama(|_| events_then(&[event(10, "a", 1), event(0, "", 2), last("eos")], Then::End)).await;
    let params = SamplingParams::greedy();
    let events = answered(&server.upstream(json!({})), &ask(&params)).await;
    assert_eq!(events, [tokens(&[10]), finished(Ending::End(0))]);
    // A token that shows nothing and is no end comes with what follows it.
    let server = llama(|_| {
        events_then(&[event(1, "", 1), event(10, "a", 2), event(1, "", 3), last("limit")], Then::End)
    })
    .await;
    let events = answered(&server.upstream(json!({})), &ask(&params)).await;
    assert_eq!(events, [tokens(&[1, 10]), tokens(&[1]), finished(Ending::Length)]);
}

#[tokio::test]
async fn an_end_that_it_does_not_know_closes_the_connection() {
    let mut server =
        llama(|_| events_then(&[event(10, "a", 1), event(2, "b", 2), event(11, "c", 3)], Then::Stall)).await;
    let events = answered(&server.upstream(json!({})), &ask(&SamplingParams::greedy())).await;
    assert_eq!(events, [tokens(&[10]), TokenEvent::Finished { ending: Ending::End(2), cached_tokens: None }]);
    server.wait_left(1).await;
}

#[tokio::test]
async fn tokens_within_a_character_are_spelled_again() {
    let server = llama(|_| {
        events_then(&[event(10, "a", 1), event(23, "😀", 4), event(11, "b", 5), last("limit")], Then::End)
    })
    .await;
    let params = SamplingParams::greedy();
    // As a tokenizer that puts a space before every text.
    let spelling = Spelling::new(|text| if text == "😀" { vec![1, 21, 22, 23] } else { vec![] });
    let asked = TokenAsk { spelling: Some(spelling), ..ask(&params) };
    let events = answered(&server.upstream(json!({})), &asked).await;
    let ids = |event: &TokenEvent| match event {
        TokenEvent::Tokens(tokens) => tokens.iter().map(|sampled| sampled.token).collect(),
        _ => vec![],
    };
    assert_eq!(events.iter().flat_map(ids).collect::<Vec<_>>(), [10, 21, 22, 23, 11]);
    let lost = server.upstream(json!({})).generate(&ask(&params)).await.expect("an answer");
    assert!(
        matches!(crate::scripted::read(lost).await.1, Some(UpstreamError::Foreign { why, .. }) if why.contains("left out"))
    );
}

#[tokio::test]
async fn log_probabilities_are_read() {
    let server = llama(|_| {
        let mut scored = event(10, "a", 1);
        scored["completion_probabilities"] = json!([{
            "id": 10, "token": "a", "bytes": [97], "logprob": -0.5,
            "top_logprobs": [{ "id": 10, "token": "a", "bytes": [97], "logprob": -0.5 }, { "id": 4, "token": "b", "bytes": [98], "logprob": -1.5 }],
        }]);
        events_then(&[scored, last("limit")], Then::End)
    })
    .await;
    let params = SamplingParams { logprobs: Some(2), ..SamplingParams::greedy() };
    let events = answered(&server.upstream(json!({})), &ask(&params)).await;
    let sampled = Sampled { token: 10, logprob: -0.5, top: vec![(10, -0.5), (4, -1.5)] };
    assert_eq!(events, [TokenEvent::Tokens(vec![sampled]), finished(Ending::Length)]);
}

#[tokio::test]
async fn what_is_asked_is_put_into_its_words() {
    let server = llama(|_| events_then(&[last("limit")], Then::End)).await;
    let logit_bias = [(3, f32::NEG_INFINITY), (4, 1.5)].into();
    let params = SamplingParams { logit_bias, presence_penalty: 0.5, ..SamplingParams::greedy() };
    let grammar = GrammarSpec::Choice(vec!["say \"a\"".into(), "b".into()]);
    answered(&server.upstream(json!({})), &TokenAsk { grammar: Some(&grammar), ..ask(&params) }).await;
    let body = &server.asked("/completion")[0].body;
    assert_eq!(
        *body,
        json!({
            "model": "m", "prompt": [5, 6, 7], "n_predict": 8, "stream": true, "return_tokens": true, "cache_prompt": true,
            "temperature": 0.0, "top_p": 1.0, "top_k": 0, "min_p": 0.0, "typical_p": 1.0, "repeat_penalty": 1.0,
            "presence_penalty": 0.5, "frequency_penalty": 0.0, "repeat_last_n": 11, "ignore_eos": false,
            "logit_bias": [[3, false], [4, 1.5]], "grammar": "root ::= \"say \\\"a\\\"\" | \"b\"",
        })
    );
}

#[tokio::test]
async fn what_it_can_not_do_is_refused_by_name() {
    let server = llama(|_| Reply::Nothing).await;
    let (upstream, params) = (server.upstream(json!({})), SamplingParams::greedy());
    let (regex, lark) = (GrammarSpec::Regex("a".into()), GrammarSpec::Grammar("start: \"a\"".into()));
    for (asked, named) in [
        (TokenAsk { min_tokens: 1, ..ask(&params) }, "min_tokens"),
        (TokenAsk { prompt_logprobs: Some(0), ..ask(&params) }, "log-probabilities of the prompt"),
        (TokenAsk { grammar: Some(&regex), ..ask(&params) }, "regular expression"),
        (TokenAsk { grammar: Some(&lark), ..ask(&params) }, "GBNF"),
    ] {
        let Err(error) = upstream.generate(&asked).await else { panic!("an answer") };
        assert!(matches!(&error, UpstreamError::Unsupported(said) if said.contains(named)), "{error}");
    }
}
