//! A real server that speaks tokens, named by `ROPEWAY_TEST_UPSTREAM` (a URL, or settings as JSON); without it nothing is tried. The scripts
//! in `tests/upstreams` start one.
//!
//! Whatever its model is: tokens in, tokens out, ends, log-probabilities, grammars, a sequence that goes on from its middle, a stream that
//! is dropped. The prompt is of ids that every vocabulary has, or of those in `ROPEWAY_TEST_PROMPT` (separated by commas), of which a real model makes more
//! sense.

use std::sync::LazyLock;

use futures_util::StreamExt;
use ropeway_executor::{Sampled, SamplingParams};
use ropeway_grammar::{GrammarSpec, Strictness};
use ropeway_pool::error::UpstreamError;
use ropeway_pool::settings::UpstreamArg;
use ropeway_pool::upstream::{Ending, Spelling, TokenAsk, TokenEvent, Upstream};
use serde_json::json;

static PROMPT: LazyLock<Vec<u32>> = LazyLock::new(|| match std::env::var("ROPEWAY_TEST_PROMPT") {
    Ok(ids) => ids.split(',').map(|id| id.trim().parse().expect("a token id")).collect(),
    Err(_) => (105..117).collect(),
});

/// The server, if one is named.
fn upstream() -> Option<Upstream> {
    let Ok(named) = std::env::var("ROPEWAY_TEST_UPSTREAM") else {
        println!("skipped: ROPEWAY_TEST_UPSTREAM names no server");
        return None;
    };
    let settings = named.parse::<UpstreamArg>().and_then(UpstreamArg::resolve).expect("settings");
    Some(Upstream::new(settings).expect("an upstream"))
}

async fn model(upstream: &Upstream) -> String {
    let described = upstream.describe().await.expect("a description");
    println!("{} {:?}: {:?}", described.kind.name(), described.version, described.models);
    assert!(described.kind.speaks_tokens());
    described.models[0].id.clone()
}

/// A server may leave out ids in the middle of a character. There is no tokenizer here: such tokens stay unknown.
fn ask<'a>(model: &'a str, params: &'a SamplingParams) -> TokenAsk<'a> {
    let spelling = Some(Spelling::new(|_| Vec::new()));
    TokenAsk {
        ignore_eos: true,
        request_id: "live",
        spelling,
        ..TokenAsk::greedy(model, &PROMPT, 24, params)
    }
}

async fn heard(upstream: &Upstream, ask: &TokenAsk<'_>) -> (Vec<Sampled>, Ending) {
    let mut tokens = Vec::new();
    let mut stream = upstream.generate(ask).await.expect("an answer");
    while let Some(event) = stream.next().await {
        match event.expect("an event") {
            TokenEvent::Scored(_) => {}
            TokenEvent::Tokens(more) => tokens.extend(more),
            TokenEvent::Finished { ending, .. } => return (tokens, ending),
        }
    }
    panic!("the stream ended without an end");
}

fn ids(tokens: &[Sampled]) -> Vec<u32> {
    tokens.iter().map(|sampled| sampled.token).collect()
}

#[tokio::test]
async fn tokens_go_there_and_back_and_exactly_the_named_ends_end_a_sequence() {
    let Some(upstream) = upstream() else { return };
    let (model, greedy) = (model(&upstream).await, SamplingParams::greedy());
    upstream.healthy().await.expect("health");
    println!("load: {:?}", upstream.reported_load().await);
    let (tokens, ending) = heard(&upstream, &ask(&model, &greedy)).await;
    let tokens = ids(&tokens);
    println!("{tokens:?}");
    assert_eq!((tokens.len(), ending), (24, Ending::Length));
    let end = tokens[tokens.len() / 2];
    let first = tokens.iter().position(|token| *token == end).expect("it is there");
    let (cut, ending) = heard(&upstream, &TokenAsk { ends: &[end], ..ask(&model, &greedy) }).await;
    assert_eq!((ids(&cut), ending), (tokens[..first].to_vec(), Ending::End(end)));
}

#[tokio::test]
async fn log_probabilities_come_with_the_tokens() {
    let Some(upstream) = upstream() else { return };
    let params = SamplingParams { logprobs: Some(3), ..SamplingParams::greedy() };
    let model = model(&upstream).await;
    let (tokens, _) = heard(&upstream, &ask(&model, &params)).await;
    for sampled in tokens {
        assert_eq!(sampled.top.len(), 3, "{sampled:?}");
        assert!(sampled.logprob <= 0.0 && sampled.top[0].1 >= sampled.top[1].1, "{sampled:?}");
        assert!((sampled.top[0].1 - sampled.logprob).abs() < 0.02, "the most likely is chosen: {sampled:?}");
    }
}

#[tokio::test]
async fn a_sequence_goes_on_from_its_middle() {
    let Some(upstream) = upstream() else { return };
    let (model, greedy) = (model(&upstream).await, SamplingParams::greedy());
    let whole = ids(&heard(&upstream, &ask(&model, &greedy)).await.0);
    let prompt = [&PROMPT[..], &whole[..12]].concat();
    let rest =
        ids(&heard(&upstream, &TokenAsk { prompt: &prompt, max_tokens: 12, ..ask(&model, &greedy) }).await.0);
    // Kernels of other servers may round differently by the length of a prompt.
    println!("went on as it was: {}", rest == whole[12..]);
    assert_eq!(rest.len(), 12);
}

#[tokio::test]
async fn a_prompt_is_scored_or_the_server_is_said_not_to() {
    let Some(upstream) = upstream() else { return };
    let (model, greedy) = (model(&upstream).await, SamplingParams::greedy());
    let asked = TokenAsk { prompt_logprobs: Some(1), max_tokens: 0, ..ask(&model, &greedy) };
    match upstream.generate(&asked).await {
        Err(UpstreamError::Unsupported(said)) => println!("{said}"),
        Err(error) => panic!("{error}"),
        Ok(mut stream) => {
            let Some(Ok(TokenEvent::Scored(scored))) = stream.next().await else { panic!("no scores") };
            assert_eq!(ids(&scored), PROMPT[1..]);
            assert!(scored.iter().all(|sampled| sampled.logprob < 0.0));
        }
    }
}

#[tokio::test]
async fn structured_output_is_taken() {
    let Some(upstream) = upstream() else { return };
    let (model, greedy) = (model(&upstream).await, SamplingParams::greedy());
    let schema =
        GrammarSpec::JsonSchema { schema: json!({ "type": "boolean" }), strictness: Strictness::Strict };
    for grammar in [schema, GrammarSpec::Choice(vec!["red".into(), "blue".into()])] {
        let asked = TokenAsk { grammar: Some(&grammar), ignore_eos: false, ..ask(&model, &greedy) };
        let (tokens, ending) = heard(&upstream, &asked).await;
        println!("{grammar:?}: {:?} {ending:?}", ids(&tokens));
        assert!(!tokens.is_empty() && ending != Ending::Length, "{tokens:?}");
    }
}

#[tokio::test]
async fn a_dropped_stream_leaves_the_server_well() {
    let Some(upstream) = upstream() else { return };
    let (model, greedy) = (model(&upstream).await, SamplingParams::greedy());
    for _ in 0..8 {
        let mut stream = upstream
            .generate(&TokenAsk { max_tokens: 100, ..ask(&model, &greedy) })
            .await
            .expect("an answer");
        assert!(stream.next().await.is_some_and(|event| event.is_ok()));
    }
    let (tokens, _) = heard(&upstream, &TokenAsk { max_tokens: 2, ..ask(&model, &greedy) }).await;
    assert_eq!(tokens.len(), 2);
}
