//! What is sent to another Ropeway is what that reads, and what it writes is read as it was meant.

use std::num::NonZeroUsize;

use futures_util::{FutureExt, StreamExt, stream};
use proptest::prelude::*;
use ropeway_engine::Usage;
use ropeway_executor::{SamplingParams, Seed};
use ropeway_generation::{
    Choice, Collector, Conversation, Ending, Finish, GenerationEvent, Identity, Job, Prompt, Sampling,
    StopReason, StructuredOutput, ToolChoice,
};
use ropeway_grammar::{GrammarSpec, Strictness};
use ropeway_openai::chat::ChatRender;
use ropeway_openai::sampling::TokenShape;
use ropeway_openai::{ChatCompletionRequest, Defaults};
use ropeway_pool::chat::{AnswerReader, body};
use ropeway_pool::settings::Kind;
use ropeway_text::Delta;
use serde_json::{Value, json};

fn conversation() -> Conversation {
    Conversation {
        messages: vec![
            json!({"role": "system", "content": "Be brief."}),
            json!({"role": "user", "content": "Weather?"}),
            json!({"role": "assistant", "content": "", "reasoning_content": "hm",
                   "tool_calls": [{"id": "a", "type": "function", "function": {"name": "f", "arguments": {"x": 1}}}]}),
            json!({"role": "tool", "tool_call_id": "a", "content": "warm"}),
        ],
        tools: vec![json!({"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}})],
        reasoning: true,
        ..Conversation::default()
    }
}

fn params() -> impl Strategy<Value = SamplingParams> {
    let tenths = |most: u8| (0..=most).prop_map(|tenths| f32::from(tenths) / 10.0);
    let penalty = (-20_i8..=20).prop_map(|tenths| f32::from(tenths) / 10.0);
    (1_u8..=20, tenths(10), 0_u32..50, tenths(10), penalty, 1_u8..=20, any::<u32>()).prop_map(
        |(temperature, top_p, top_k, min_p, presence_penalty, repetition, seed)| SamplingParams {
            temperature: f32::from(temperature) / 10.0,
            top_p,
            top_k,
            min_p,
            presence_penalty,
            repetition_penalty: f32::from(repetition) / 10.0,
            seed: Seed(seed.into()),
            is_seeded: true,
            ..SamplingParams::default()
        },
    )
}

/// The job that another Ropeway makes of what it is sent.
fn read_there(job: &Job) -> Job {
    let sent = body(job, Kind::Ropeway, "m").expect("a body");
    let request: ChatCompletionRequest = serde_json::from_value(sent).expect("a request");
    request.into_job(&Defaults::chat()).expect("a job")
}

fn plain() -> Sampling {
    Sampling::new(SamplingParams::default()).expect("in range")
}

proptest! {
    #[test]
    fn a_job_arrives_as_it_was(params in params(), most in 1_usize..99, least in 0_usize..9, n in 1_usize..4) {
        let job = Job {
            max_tokens: Some(most),
            min_tokens: least,
            ignore_eos: least > 4,
            n: NonZeroUsize::new(n).unwrap(),
            ..Job::with_sampling(Prompt::Conversation(conversation()), Sampling::new(params).unwrap())
        };
        let there = read_there(&job);
        prop_assert_eq!(&there.sampling, &job.sampling);
        prop_assert_eq!((there.max_tokens, there.min_tokens), (job.max_tokens, job.min_tokens));
        prop_assert_eq!((there.n, there.ignore_eos), (job.n, job.ignore_eos));
        let (Prompt::Conversation(sent), Prompt::Conversation(arrived)) = (&job.prompt, &there.prompt) else {
            panic!("conversations")
        };
        prop_assert_eq!(&arrived.messages, &sent.messages);
        prop_assert_eq!(&arrived.tools, &sent.tools);
    }
}

#[test]
fn choices_of_tools_endings_and_forms_arrive_as_they_were() {
    for (tool_choice, ending) in [
        (ToolChoice::Auto, Ending::Answer),
        (ToolChoice::Required, Ending::Closed),
        (ToolChoice::Named("f".into()), Ending::Answer),
        (ToolChoice::Auto, Ending::Continue),
    ] {
        let sent = Conversation { tool_choice, ending, single_call: true, ..conversation() };
        let there = read_there(&Job::with_sampling(Prompt::Conversation(sent.clone()), plain()));
        let Prompt::Conversation(arrived) = there.prompt else { panic!("a conversation") };
        assert_eq!((arrived.tool_choice, arrived.ending), (sent.tool_choice, sent.ending));
        assert!(arrived.single_call);
    }
    for spec in [
        GrammarSpec::JsonObject,
        GrammarSpec::JsonSchema { schema: json!({"type": "integer"}), strictness: Strictness::Strict },
        GrammarSpec::Regex("a+".into()),
        GrammarSpec::Choice(vec!["a".into(), "b".into()]),
        GrammarSpec::Grammar("start: \"x\"".into()),
    ] {
        let structured = Some(StructuredOutput::new(spec.clone(), "response_format"));
        let asked = Job::with_sampling(Prompt::Conversation(conversation()), plain());
        let there = read_there(&Job { structured, ..asked });
        assert_eq!(there.structured.expect("a form").spec(), &spec);
    }
}

fn delta() -> impl Strategy<Value = Delta> {
    prop_oneof!["[a-z ]{1,8}".prop_map(Delta::Text), "[a-z ]{1,8}".prop_map(Delta::Reasoning)]
}

/// The chunks that a Ropeway streams for these events of two choices.
fn chunks(events: Vec<GenerationEvent>) -> Vec<Value> {
    let render = ChatRender {
        identity: Identity::new("c-", "m"),
        tokenizer: None,
        wants_logprobs: false,
        tokens: TokenShape::default(),
        prompt: Vec::new(),
    };
    let chunks = render.stream(stream::iter(events), 2, true).collect::<Vec<_>>();
    chunks.now_or_never().expect("nothing to wait for")
}

fn collected(events: Vec<GenerationEvent>) -> Vec<Choice> {
    let mut collector = Collector::default();
    for event in events {
        collector.push(event).expect("no failure");
    }
    collector.finish().choices
}

/// Two choices that end so, the first of which calls these tools.
fn answer(deltas: Vec<(usize, Delta)>, calls: &[String], reason: &StopReason) -> Vec<GenerationEvent> {
    let output = |choice, delta| GenerationEvent::Output { choice, deltas: vec![delta], tokens: Vec::new() };
    let mut events: Vec<_> = deltas.into_iter().map(|(choice, delta)| output(choice, delta)).collect();
    for (index, name) in calls.iter().enumerate() {
        events.push(output(0, Delta::ToolCall { index, name: name.clone() }));
        events.push(output(0, Delta::Arguments { index, json: "{\"x\":".into() }));
        events.push(output(0, Delta::Arguments { index, json: "1}".into() }));
    }
    for choice in 0..2 {
        let usage = Usage { prompt: 9, cached: 4, generated: 40, ..Usage::default() };
        let called_tools = choice == 0 && !calls.is_empty();
        let finish =
            Finish { reason: reason.clone(), end_token: None, called_tools, reasoning_tokens: 0, usage };
        events.push(GenerationEvent::Finished { choice, finish });
    }
    events
}

proptest! {
    #[test]
    fn an_answer_is_read_as_it_was_written(
        deltas in prop::collection::vec((0_usize..2, delta()), 0..20),
        calls in prop::collection::vec("[a-z]{1,5}", 0..3),
        is_cut: bool,
    ) {
        let reason = if is_cut { StopReason::Length } else { StopReason::EndOfText };
        let events = answer(deltas, &calls, &reason);
        let asked = Job::with_sampling(Prompt::Conversation(Conversation::default()), plain());
        let mut reader = AnswerReader::new(&Job { n: NonZeroUsize::new(2).unwrap(), ..asked }, "gpu1");
        let mut read = Vec::new();
        for chunk in chunks(events.clone()) {
            read.extend(reader.read(&chunk).expect("an answer"));
        }
        prop_assert!(reader.is_over());
        let (written, read) = (collected(events), collected(read));
        prop_assert_eq!(read.iter().map(|choice| choice.finish.usage.generated).sum::<usize>(), 80);
        prop_assert_eq!(written.len(), read.len());
        for (written, read) in written.iter().zip(&read) {
            prop_assert_eq!(&written.text, &read.text);
            prop_assert_eq!(&written.reasoning, &read.reasoning);
            prop_assert_eq!(&written.tool_calls, &read.tool_calls);
            prop_assert_eq!(&written.finish.reason, &read.finish.reason);
            prop_assert_eq!(written.finish.called_tools, read.finish.called_tools);
            prop_assert_eq!((read.finish.usage.prompt, read.finish.usage.cached), (9, 4));
        }
    }
}
