//! Whatever a model writes, its events come in order and add up.

use std::path::Path;

use proptest::prelude::*;
use ropeway_engine::Usage;
use ropeway_generation::{ErrorKind, Identity};
use ropeway_text::Tokenizer;
use ropeway_weights::Checkpoint;

use super::super::request::Included;
use super::super::tools::Toolbox;
use super::*;

#[path = "../../../../tests/responses/order.rs"]
mod order;

fn tokenizer() -> Tokenizer {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/fixtures/models/llama");
    Tokenizer::from_checkpoint(&Checkpoint::open(&path).expect("the fixture")).expect("a tokenizer")
}

fn render(tokenizer: &Tokenizer, is_background: bool) -> Render {
    let tools = vec![
        json!({"type": "function", "name": "f"}),
        json!({"type": "namespace", "name": "n", "tools": [{"type": "function", "name": "g"}]}),
        json!({"type": "custom", "name": "patch"}),
        json!({"type": "local_shell"}),
    ];
    Render {
        identity: Identity::new("resp_", "m"),
        tokenizer: Some(tokenizer.clone()),
        is_background,
        included: Included { logprobs: false, sealed_reasoning: true },
        tools: Toolbox::read(tools).expect("tools"),
        echo: json!({}),
    }
}

/// What a model may write, in pieces: a call's arguments follow it.
fn written() -> impl Strategy<Value = Vec<Delta>> {
    let text = "[a-z ]{1,4}";
    let call = (prop::sample::select(vec!["f", "n__g", "patch", "local_shell", "unknown"]), 0..4usize);
    prop::collection::vec(
        prop_oneof![
            text.prop_map(|text| vec![Delta::Text(text)]),
            text.prop_map(|text| vec![Delta::Reasoning(text)]),
            call.prop_map(|(name, pieces)| {
                let arguments = (0..pieces).map(|_| Delta::Arguments { index: 0, json: "{}".into() });
                let call = Delta::ToolCall { index: 0, name: name.into() };
                [call].into_iter().chain(arguments).collect()
            }),
        ],
        0..8,
    )
    .prop_map(|parts| parts.concat())
}

fn finish(reason: StopReason) -> GenerationEvent {
    let finish =
        Finish { reason, end_token: None, called_tools: false, reasoning_tokens: 0, usage: Usage::default() };
    GenerationEvent::Finished { choice: 0, finish }
}

fn write(render: Render, deltas: Vec<Delta>, reason: StopReason) -> (Vec<Value>, Ended) {
    let mut writer = Writer::new(render);
    let mut events = writer.hello();
    for delta in deltas {
        events.extend(writer.take(GenerationEvent::Output {
            choice: 0,
            deltas: vec![delta],
            tokens: vec![],
        }));
    }
    events.extend(writer.take(finish(reason)));
    (events, writer.ended.expect("it ended"))
}

#[test]
fn whatever_is_written_comes_in_order_and_adds_up() {
    let tokenizer = tokenizer();
    let ends = prop::sample::select(vec![StopReason::EndOfText, StopReason::Length]);
    proptest!(|(deltas in written(), reason in ends, is_background: bool)| {
        let (events, ended) = write(render(&tokenizer, is_background), deltas.clone(), reason.clone());
        order::check(&events);
        let said = |wanted: &str, text: &str| -> String {
            let items = ended.response["output"].as_array().expect("a list").iter();
            items.filter(|item| item["type"] == wanted).filter_map(|item| item[text][0]["text"].as_str()).collect()
        };
        let meant = |part: fn(&Delta) -> Option<&str>| deltas.iter().filter_map(part).collect::<String>();
        prop_assert_eq!(said("message", "content"), meant(|delta| match delta {
            Delta::Text(text) => Some(text),
            _ => None,
        }));
        prop_assert_eq!(said("reasoning", "content"), meant(|delta| match delta {
            Delta::Reasoning(text) => Some(text),
            _ => None,
        }));
        prop_assert_eq!(&ended.response["status"], status(&reason));
        prop_assert!(ended.error.is_none());
    });
}

#[test]
fn thoughts_are_sealed_for_clients_that_send_them_back() {
    let (_, ended) =
        write(render(&tokenizer(), false), vec![Delta::Reasoning("hm".into())], StopReason::EndOfText);
    assert_eq!(ended.response["output"][0]["encrypted_content"], "ropeway:hm");
}

#[test]
fn a_failure_is_told_in_the_last_event_and_to_whoever_waits() {
    let error = RequestError::new(ErrorKind::Timeout, "it took too long");
    let (events, ended) = write(render(&tokenizer(), false), vec![], StopReason::Failed(error.clone()));
    assert_eq!(events.last().expect("an event")["type"], "response.failed");
    assert_eq!(
        (&ended.response["status"], &ended.response["error"]["code"]),
        (&json!("failed"), &json!("timeout"))
    );
    assert_eq!(ended.error, Some(error));
}
