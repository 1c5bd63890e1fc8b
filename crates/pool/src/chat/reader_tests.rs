use std::num::NonZeroUsize;

use proptest::prelude::*;
use ropeway_executor::SamplingParams;
use ropeway_generation::{Choice, Collector, Conversation, ErrorKind, Prompt, Sampling, StopReason};
use serde_json::json;

use super::*;

fn job(reasoning: bool) -> Job {
    let conversation = Conversation { reasoning, ..Conversation::default() };
    Job::with_sampling(
        Prompt::Conversation(conversation),
        Sampling::new(SamplingParams::default()).expect("in range"),
    )
}

#[allow(clippy::needless_pass_by_value, reason = "a literal is easier to read")]
fn piece(delta: Value) -> Value {
    json!({"id": "c", "object": "chat.completion.chunk", "choices": [{"index": 0, "delta": delta, "finish_reason": null}]})
}

fn said(text: &str) -> Value {
    piece(json!({"content": text}))
}

fn end(reason: &str) -> Value {
    json!({"choices": [{"index": 0, "delta": {}, "finish_reason": reason}]})
}

fn usage(prompt: usize, generated: usize) -> Value {
    json!({"choices": [], "usage": {"prompt_tokens": prompt, "completion_tokens": generated, "total_tokens": prompt + generated}})
}

/// The whole choices of a stream that ends after these chunks.
fn read(job: &Job, chunks: &[Value]) -> Vec<Choice> {
    let mut reader = AnswerReader::new(job, "gpu1");
    let mut collector = Collector::default();
    let mut events: Vec<_> = chunks.iter().flat_map(|chunk| reader.read(chunk).expect("an answer")).collect();
    events.extend(reader.finish());
    assert!(reader.finish().is_empty(), "ends come once");
    for event in events {
        collector.push(event).expect("no failure");
    }
    collector.finish().choices
}

fn only(job: &Job, chunks: &[Value]) -> Choice {
    let mut choices = read(job, chunks);
    assert_eq!(choices.len(), 1);
    choices.remove(0)
}

#[test]
fn vllms_stream_is_read() {
    let chunks = [
        piece(json!({"role": "assistant", "content": ""})),
        piece(json!({"reasoning": "Let me"})),
        piece(json!({"reasoning": " see."})),
        said("It is "),
        said("warm."),
        json!({"choices": [{"index": 0, "delta": {"content": ""}, "finish_reason": "stop", "stop_reason": null}]}),
        json!({"choices": [], "usage": {"prompt_tokens": 20, "completion_tokens": 9, "total_tokens": 29,
               "prompt_tokens_details": {"cached_tokens": 16}}}),
    ];
    let choice = only(&job(true), &chunks);
    assert_eq!((choice.reasoning.as_str(), choice.text.as_str()), ("Let me see.", "It is warm."));
    assert_eq!(choice.finish.reason, StopReason::EndOfText);
    let Usage { prompt, cached, generated, .. } = choice.finish.usage;
    assert_eq!((prompt, cached, generated, choice.finish.reasoning_tokens), (20, 16, 9, 2));
}

#[test]
fn ollamas_calls_come_whole_and_all_with_one_number() {
    let call = |id: &str, name: &str| {
        json!({"role": "assistant", "content": "", "tool_calls": [{"id": id, "index": 0, "type": "function",
               "function": {"name": name, "arguments": "{\"city\":\"Bern\"}"}}]})
    };
    let chunks = [piece(call("a", "now")), piece(call("b", "later")), end("tool_calls"), usage(5, 6)];
    let choice = only(&job(true), &chunks);
    let names: Vec<_> = choice.tool_calls.iter().map(|call| call.name.as_str()).collect();
    assert_eq!(names, ["now", "later"]);
    assert_eq!(choice.tool_calls[1].arguments, "{\"city\":\"Bern\"}");
    assert!(choice.finish.called_tools && choice.finish.reason == StopReason::EndOfText);
}

#[test]
fn llama_servers_stream_is_read_with_its_timings() {
    let chunks = [
        piece(json!({"role": "assistant", "content": null})),
        piece(json!({"reasoning_content": "hm"})),
        said("yes"),
        json!({"choices": [{"finish_reason": "length", "index": 0, "delta": {}}],
               "timings": {"cache_n": 4, "prompt_n": 3, "predicted_n": 2}}),
        json!({"choices": [], "usage": {"completion_tokens": 2, "prompt_tokens": 7, "total_tokens": 9},
               "timings": {"cache_n": 4, "prompt_n": 3, "predicted_n": 2}}),
    ];
    let choice = only(&job(true), &chunks);
    assert_eq!(choice.finish.reason, StopReason::Length);
    assert_eq!((choice.finish.usage.prompt, choice.finish.usage.cached), (7, 4));
}

#[test]
fn completions_are_text_as_it_is() {
    let text = Job { prompt: Prompt::Text("Once".into()), stop: vec!["END".into()], ..job(false) };
    let piece = |text: &str| json!({"object": "text_completion", "choices": [{"index": 0, "text": text}]});
    let end = json!({"choices": [{"index": 0, "text": "", "finish_reason": "stop", "matched_stop": "END"}]});
    let choice = only(&text, &[piece("<think>upon"), piece(" a time"), end]);
    assert_eq!(choice.text, "<think>upon a time");
    assert_eq!(choice.finish.reason, StopReason::StopString("END".into()));
    assert_eq!(choice.finish.usage.generated, 2, "pieces, where nobody counted");
}

#[test]
fn an_answer_is_ended_here_at_a_stop_string_and_before_a_call_too_many() {
    let stop = Job { stop: vec!["three".into()], ..job(false) };
    let mut reader = AnswerReader::new(&stop, "gpu1");
    let mut events = Vec::new();
    for text in ["one two th", "ree", " four"] {
        events.extend(reader.read(&said(text)).unwrap());
    }
    assert!(reader.is_over() && reader.is_complete());
    let mut collector = Collector::default();
    for event in events {
        collector.push(event).unwrap();
    }
    let choice = collector.finish().only().unwrap();
    assert_eq!(
        (choice.text.as_str(), choice.finish.reason),
        ("one two ", StopReason::StopString("three".into()))
    );

    let conversation = Conversation { single_call: true, ..Conversation::default() };
    let single = Job { prompt: Prompt::Conversation(conversation), ..job(false) };
    let call = |index: usize| {
        piece(
            json!({"tool_calls": [{"index": index, "id": index.to_string(), "function": {"name": "f", "arguments": "{}"}}]}),
        )
    };
    let empty = piece(json!({"tool_calls": [{"index": 0, "id": "0", "function": {"name": "f"}}]}));
    for first in [call(0), empty] {
        let calls = only(&single, &[first, call(1)]).tool_calls;
        assert_eq!((calls.len(), calls[0].arguments.as_str()), (1, "{}"));
    }
}

#[test]
fn choices_side_by_side_share_what_was_counted() {
    let two = Job { n: NonZeroUsize::new(2).unwrap(), ..job(false) };
    let of = |index: usize, text: &str| json!({"choices": [{"index": index, "delta": {"content": text}}]});
    let end = |index: usize| json!({"choices": [{"index": index, "delta": {}, "finish_reason": "stop"}]});
    let chunks = [of(0, "a"), of(1, "x"), of(1, "y"), end(1), of(0, "b"), end(0), of(9, "?"), usage(4, 7)];
    let choices = read(&two, &chunks);
    assert_eq!((choices[0].text.as_str(), choices[1].text.as_str()), ("ab", "xy"));
    let generated: Vec<_> = choices.iter().map(|choice| choice.finish.usage.generated).collect();
    assert_eq!(generated, [2, 5]);
}

#[test]
fn a_stream_that_breaks_off_leaves_its_choice_without_an_end() {
    let mut reader = AnswerReader::new(&job(false), "gpu1");
    reader.read(&said("half")).unwrap();
    assert!(!reader.is_complete() && reader.finish().is_empty());
}

#[test]
fn errors_in_the_stream_are_told_apart_by_their_code() {
    let mut reader = AnswerReader::new(&job(false), "gpu1");
    let mut failed = |chunk: Value| reader.read(&chunk).expect_err("an error");
    let refused = failed(json!({"error": {"message": "too long", "type": "BadRequestError", "code": 400}}));
    assert!(refused.is_the_requests() && refused.to_string() == "too long");
    let failure = failed(json!({"error": "out of memory"}));
    assert_eq!(failure.to_string(), "gpu1 failed: out of memory");
    assert!(matches!(
        failed(json!({"object": "error", "message": "x", "code": 500})),
        UpstreamError::Failed { .. }
    ));
    assert!(matches!(failed(json!({"error": {"code": 503}})), UpstreamError::Busy { status: 503, .. }));
    assert!(reader.read(&json!({"error": null, "choices": []})).is_ok());
}

#[test]
fn what_the_server_withheld_is_an_error_and_not_an_end() {
    for (reason, kind) in [("content_filter", ErrorKind::InvalidRequest), ("abort", ErrorKind::Internal)] {
        let mut reader = AnswerReader::new(&job(false), "gpu1");
        reader.read(&end(reason)).unwrap();
        let Some(GenerationEvent::Finished { finish, .. }) = reader.finish().pop() else { panic!("an end") };
        let StopReason::Failed(error) = finish.reason else { panic!("a failure") };
        assert_eq!(error.kind, kind);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    #[test]
    fn an_answer_is_the_same_however_it_is_cut(
        text in "(<think>)?[a-z <>/]{0,20}(</think>)?[a-zE ND]{0,30}",
        arguments in "\\{\"x\": \"[a-z]{0,12}\"\\}",
        cuts in prop::collection::vec(0usize..40, 0..8),
    ) {
        let job = Job { stop: vec!["END".into()], ..job(true) };
        let call = |id: Option<&str>, part: &str| piece(json!({"tool_calls": [{"index": 0, "id": id,
            "function": {"name": id.map(|_| "f"), "arguments": part}}]}));
        let whole = [said(&text), call(Some("a"), &arguments), end("stop"), usage(3, 9)];
        let mut cut: Vec<_> = parts(&text, &cuts).into_iter().map(said).collect();
        cut.push(call(Some("a"), ""));
        cut.extend(parts(&arguments, &cuts).into_iter().map(|part| call(None, part)));
        cut.extend([end("stop"), usage(3, 9)]);
        let (whole, cut) = (only(&job, &whole), only(&job, &cut));
        prop_assert_eq!(&whole.text, &cut.text);
        prop_assert_eq!(&whole.reasoning, &cut.reasoning);
        prop_assert_eq!(&whole.tool_calls, &cut.tool_calls);
        prop_assert_eq!(&whole.finish.reason, &cut.finish.reason);
    }
}

/// The text cut at these places.
fn parts<'a>(text: &'a str, cuts: &[usize]) -> Vec<&'a str> {
    let mut places: Vec<_> = cuts.iter().map(|cut| cut % (text.len() + 1)).collect();
    places.extend([0, text.len()]);
    places.sort_unstable();
    places.windows(2).map(|pair| &text[pair[0]..pair[1]]).collect()
}
