//! A real `ropeway serve` as an upstream: what a front asks in tokens is answered as a client's text is.

mod support;

use std::future::Future;

use futures_util::StreamExt;
use ropeway_executor::{Sampled, SamplingParams};
use ropeway_grammar::GrammarSpec;
use ropeway_pool::settings::{Kind, UpstreamArg};
use ropeway_pool::upstream::{Ending, ReportedLoad, TokenAsk, TokenEvent, Upstream};
use serde_json::{Value, json};
use support::server::{Server, until};
use support::smollm2;

const PROMPT: [u32; 4] = [28120, 3714, 253, 655];

fn upstream(server: &Server) -> Upstream {
    let arg: UpstreamArg = format!("near={}/v1", server.url()).parse().unwrap();
    Upstream::new(arg.resolve().unwrap()).unwrap()
}

fn wait<T>(work: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(work)
}

/// What came of a sequence.
#[derive(Debug, Default)]
struct Heard {
    scored: Vec<Sampled>,
    /// Tokens of each event.
    events: Vec<Vec<Sampled>>,
    ending: Option<Ending>,
    cached: Option<usize>,
}

impl Heard {
    fn tokens(&self) -> Vec<u32> {
        self.events.iter().flatten().map(|sampled| sampled.token).collect()
    }
}

async fn generate(upstream: &Upstream, ask: &TokenAsk<'_>) -> Heard {
    let mut heard = Heard::default();
    let mut stream = upstream.generate(ask).await.unwrap();
    while let Some(event) = stream.next().await {
        match event.unwrap() {
            TokenEvent::Scored(scored) => heard.scored = scored,
            TokenEvent::Tokens(tokens) => heard.events.push(tokens),
            TokenEvent::Finished { ending, cached_tokens } => {
                (heard.ending, heard.cached) = (Some(ending), cached_tokens);
            }
        }
    }
    heard
}

/// The ids that a client gets for the same.
fn asked_directly(server: &Server, more: &Value) -> Vec<u32> {
    let mut body = json!({
        "model": "m", "prompt": PROMPT, "temperature": 0, "max_tokens": 16, "return_token_ids": true, "ignore_eos": true,
    });
    body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    let (status, answer) = server.post("/v1/completions", body.to_string());
    assert_eq!(status, 200, "{answer}");
    let answer: Value = serde_json::from_str(&answer).unwrap();
    serde_json::from_value(answer["choices"][0]["token_ids"].clone()).unwrap()
}

#[test]
fn a_ropeway_is_known_as_one_and_answers_in_tokens() {
    let Some(model) = smollm2() else { return };
    let server = Server::start(&model, &["--no-embeddings"]);
    let upstream = upstream(&server);
    let greedy = SamplingParams::greedy();
    wait(async {
        upstream.healthy().await.unwrap();
        let described = upstream.describe().await.unwrap();
        assert_eq!((described.kind, described.models.is_empty()), (Kind::Ropeway, false));
        assert!(described.models[0].context.is_some());
        assert_eq!(upstream.reported_load().await, Some(ReportedLoad { running: 0, waiting: 0 }));

        let direct = asked_directly(&server, &json!({}));
        let plain = TokenAsk::greedy("m", &PROMPT, 16, &greedy);
        let heard = generate(&upstream, &plain).await;
        assert_eq!((heard.tokens(), heard.ending), (direct.clone(), Some(Ending::Length)));
        assert!(heard.events.iter().all(|event| event.len() == 1), "each token comes as it is chosen");
        assert!(heard.cached.is_some());

        // An end that the caller names, in the middle of the answer.
        let end = direct[9];
        let first = direct.iter().position(|token| *token == end).unwrap();
        let heard = generate(&upstream, &TokenAsk { ends: &[end], ..plain.clone() }).await;
        assert_eq!((heard.tokens(), heard.ending), (direct[..first].to_vec(), Some(Ending::End(end))));

        // A sequence that moves: the first half of an answer as part of the prompt.
        let random =
            SamplingParams { temperature: 1.5, seed: ropeway_executor::Seed(7), ..SamplingParams::default() };
        let whole = generate(&upstream, &TokenAsk { params: &random, ..plain.clone() }).await.tokens();
        let longer = [&PROMPT[..], &whole[..8]].concat();
        let rest = TokenAsk { params: &random, prompt: &longer, max_tokens: 8, ..plain.clone() };
        assert_eq!(generate(&upstream, &rest).await.tokens(), whole[8..]);

        let logprobs = SamplingParams { logprobs: Some(2), ..SamplingParams::greedy() };
        let heard = generate(&upstream, &TokenAsk { params: &logprobs, ..plain.clone() }).await;
        let likely =
            |sampled: &Sampled| sampled.top.len() == 2 && sampled.top[0] == (sampled.token, sampled.logprob);
        assert!(heard.events.iter().flatten().all(likely), "{:?}", heard.events);

        let scoring = TokenAsk { prompt_logprobs: Some(1), max_tokens: 0, ..plain.clone() };
        let heard = generate(&upstream, &scoring).await;
        assert_eq!(heard.scored.iter().map(|sampled| sampled.token).collect::<Vec<_>>(), PROMPT[1..]);
        assert!(heard.events.is_empty());

        let choice = GrammarSpec::Choice(vec!["violet".into(), "indigo".into()]);
        let heard = generate(&upstream, &TokenAsk { grammar: Some(&choice), ..plain.clone() }).await;
        let constrained = asked_directly(&server, &json!({ "guided_choice": ["violet", "indigo"] }));
        assert_eq!((heard.tokens(), heard.ending), (constrained, Some(Ending::Complete)));
    });
}

#[test]
fn a_stream_that_is_dropped_frees_its_place() {
    let Some(model) = smollm2() else { return };
    let server = Server::start(&model, &["--no-embeddings"]);
    let upstream = upstream(&server);
    let greedy = SamplingParams::greedy();
    wait(async {
        let endless = TokenAsk::greedy("m", &PROMPT, 4000, &greedy);
        let mut stream = upstream.generate(&endless).await.unwrap();
        assert!(matches!(stream.next().await, Some(Ok(TokenEvent::Tokens(_)))));
        drop(stream);
    });
    until("its place is free", || server.running() == 0);
}
