//! Generation on a backend that is no engine: canned events in, text, reasoning and tool calls out.

use std::collections::VecDeque;
use std::path::Path;
use std::sync::{Arc, Mutex};

use ropeway_engine::{
    Backend, DraftTotals, Event, EventSender, EventStream, FinishReason, Load, Rejected, Request,
    SequenceError, Usage, channel,
};
use ropeway_executor::{Limits, Sampled, SamplingParams};
use ropeway_generation::{
    Choice, Collector, Conversation, ErrorKind, GenerationEvent, GenerationStream, Generator, Job, Overflow,
    Prompt, RequestError, Sampling, StopReason, StructuredOutput, ToolChoice, collect,
};
use ropeway_grammar::GrammarSpec;
use ropeway_text::{ChatTemplate, Interrupt, SpecialTokens, Tokenizer};
use ropeway_weights::Checkpoint;
use serde_json::{Value, json};

const LIMITS: Limits = Limits {
    block_tokens: 16,
    block_bytes: 0,
    reach: None,
    blocks: 64,
    context: 256,
    step_tokens: 64,
    step_rows: 8,
    vocab: 1 << 20,
    ..Limits::EXAMPLE
};

/// Answers every request with the same events, and keeps what it was asked.
#[derive(Default)]
struct Canned {
    script: Mutex<VecDeque<Vec<Event>>>,
    asked: Mutex<Vec<Request>>,
    /// Senders that stay open, as those of requests at work do.
    open: Mutex<Vec<EventSender>>,
}

impl Backend for Canned {
    fn submit(&self, request: Request) -> Result<EventStream, Rejected> {
        request.check(&LIMITS)?;
        let (sender, stream) = channel(request.sequences());
        self.asked.lock().unwrap().push(request);
        let events = self.script.lock().unwrap().pop_front();
        events.into_iter().flatten().for_each(|event| sender.send(event));
        self.open.lock().unwrap().push(sender);
        Ok(stream)
    }

    fn limits(&self) -> Limits {
        LIMITS
    }

    fn load(&self) -> Load {
        Load { queued: 0, running: self.open.lock().unwrap().len() }
    }

    fn stop(&self) {
        self.open.lock().unwrap().clear();
    }
}

fn tokenizer() -> Tokenizer {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/fixtures/models/llama");
    Tokenizer::from_checkpoint(&Checkpoint::open(&path).expect("the fixture")).expect("a tokenizer")
}

/// A generator whose template ends with this, on a backend that sends these events.
fn generator(end: &str, events: Vec<Event>) -> (Generator, Arc<Canned>) {
    let source = format!(
        "{{% for m in messages %}}{{{{ m.content }}}}{{% endfor %}}{{% if tools %}}{{{{ tools | tojson }}}}{{% endif %}}{end}"
    );
    let template = ChatTemplate::new(&source, ropeway_text::TemplateTokens::default()).expect("a template");
    let backend = Arc::new(Canned { script: Mutex::new([events].into()), ..Canned::default() });
    (Generator::new(tokenizer(), template, Arc::clone(&backend) as Arc<dyn Backend>), backend)
}

fn token(sequence: u32, token: u32) -> Event {
    let sampled = Sampled { token, ..Sampled::default() };
    Event::Token { sequence, sampled, drafting: DraftTotals::default() }
}

/// The tokens of a text, as events of one sequence.
fn spoken(sequence: u32, text: &str) -> Vec<Event> {
    let tokens = tokenizer().encode(text, ropeway_text::Special::PROMPT).expect("tokens");
    // Some tokenizers put a token before every text; it is no part of what is spoken.
    let tokens = tokens.into_iter().filter(|id| !tokenizer().decode(&[*id], SpecialTokens::Skip).is_empty());
    tokens.map(|id| token(sequence, id)).collect()
}

fn finished(sequence: u32, reason: FinishReason) -> Event {
    Event::Finished { sequence, reason, usage: Usage { prompt: 3, generated: 2, ..Usage::default() } }
}

fn said(text: &str) -> Vec<Event> {
    [spoken(0, text), vec![finished(0, FinishReason::End(2))]].concat()
}

fn plain() -> Sampling {
    Sampling::new(SamplingParams::greedy()).expect("in range")
}

fn text_job(text: &str) -> Job {
    Job::with_sampling(Prompt::Text(text.into()), plain())
}

fn chat(tools: Vec<Value>, tool_choice: ToolChoice) -> Job {
    let messages = vec![json!({"role": "user", "content": "Hi"})];
    let conversation =
        Conversation { messages, tools, tool_choice, reasoning: true, ..Conversation::default() };
    Job::with_sampling(Prompt::Conversation(conversation), plain())
}

fn submit(generator: &Generator, job: Job) -> Result<GenerationStream, RequestError> {
    generator.submit(generator.prepare(job)?)
}

/// All choices, collected on this thread.
fn choices(stream: &mut GenerationStream) -> Result<Vec<Choice>, RequestError> {
    let mut collector = Collector::default();
    while let Some(event) = stream.wait() {
        collector.push(event)?;
    }
    Ok(collector.finish().choices)
}

#[test]
fn a_stop_string_ends_the_choice_and_cancels_its_sequence() {
    let (generator, backend) = generator("", spoken(0, "one two three four"));
    let job = Job { stop: vec!["three".into()], ..text_job("count") };
    let choices = choices(&mut submit(&generator, job).unwrap()).unwrap();
    assert_eq!(choices[0].text.trim(), "one two");
    assert_eq!(choices[0].finish.reason, StopReason::StopString("three".into()));
    assert!(backend.open.lock().unwrap()[0].is_cancelled(0));
}

#[test]
fn tokens_that_are_wanted_at_once_do_not_wait_for_their_text() {
    let answer = "It may rain.</think>one two three";
    let read = |tokens_at_once: bool| {
        let (generator, _) = generator("<think>", said(answer));
        let job =
            Job { stop: vec!["two three four".into()], tokens_at_once, ..chat(Vec::new(), ToolChoice::Auto) };
        let mut stream = submit(&generator, job).unwrap();
        std::iter::from_fn(|| stream.wait()).collect::<Vec<_>>()
    };
    let sizes = |events: &[GenerationEvent]| {
        let size = |event: &GenerationEvent| match event {
            GenerationEvent::Output { tokens, .. } if !tokens.is_empty() => Some(tokens.len()),
            _ => None,
        };
        events.iter().filter_map(size).collect::<Vec<_>>()
    };
    let (usual, at_once) = (read(false), read(true));
    assert!(sizes(&usual).iter().any(|&size| size > 1), "the stop string holds text back");
    assert!(sizes(&at_once).iter().all(|&size| size == 1), "{:?}", sizes(&at_once));
    assert_eq!(sizes(&at_once).len(), sizes(&usual).iter().sum::<usize>());
    let whole = |events: Vec<GenerationEvent>| {
        let mut collector = Collector::default();
        for event in events {
            collector.push(event).unwrap();
        }
        collector.finish().choices
    };
    let choices = whole(at_once);
    assert_eq!(choices[0].finish.end_token, Some(2));
    assert_eq!(choices, whole(usual), "text, tokens and counts are the same");
}

#[test]
fn reasoning_and_tool_calls_are_told_apart_from_text() {
    let tool = json!({"type": "function", "function": {"name": "sun", "parameters": {"type": "object"}}});
    let answer = "It may rain.</think>Let me look.<tool_call>{\"name\": \"sun\", \"arguments\": {\"at\": 1}}</tool_call>";
    let (generator, _) = generator("<think>", said(answer));
    let choices = choices(&mut submit(&generator, chat(vec![tool], ToolChoice::Auto)).unwrap()).unwrap();
    let choice = &choices[0];
    assert_eq!((choice.reasoning.as_str(), choice.text.as_str()), ("It may rain.", "Let me look."));
    assert_eq!(choice.tool_calls[0].name, "sun");
    assert_eq!(serde_json::from_str::<Value>(&choice.tool_calls[0].arguments).unwrap(), json!({"at": 1}));
    assert!(choice.finish.called_tools && choice.finish.reasoning_tokens > 0);
    assert!(choice.finish.reasoning_tokens < choice.tokens.len());
}

#[test]
fn an_answer_that_may_call_one_tool_ends_before_the_second_call() {
    let tool = json!({"type": "function", "function": {"name": "sun", "parameters": {"type": "object"}}});
    let call = "<tool_call>{\"name\": \"sun\", \"arguments\": {\"at\": 1}}</tool_call>";
    for (single_call, calls) in [(false, 2), (true, 1)] {
        let (generator, backend) = generator("", said(&format!("{call}\n{call}")));
        let mut job = chat(vec![tool.clone()], ToolChoice::Auto);
        let Prompt::Conversation(conversation) = &mut job.prompt else { unreachable!() };
        conversation.single_call = single_call;
        let mut stream = submit(&generator, job).unwrap();
        let choices = choices(&mut stream).unwrap();
        assert_eq!(choices[0].tool_calls.len(), calls);
        assert_eq!(choices[0].tool_calls[0].arguments, "{\"at\": 1}");
        assert_eq!((&choices[0].finish.reason, choices[0].text.as_str()), (&StopReason::EndOfText, ""));
        assert_eq!(backend.open.lock().unwrap()[0].is_cancelled(0), single_call);
    }
}

#[test]
fn the_oldest_messages_make_room_and_results_stay_with_their_calls() {
    let (generator, _) = generator("", Vec::new());
    let message = |role: &str, text: &str| json!({"role": role, "content": format!("{text} ").repeat(20)});
    for turns in 1..30 {
        let mut messages = vec![message("system", "rule")];
        for turn in 0..turns {
            messages.extend([
                message("user", &format!("ask{turn}")),
                json!({"role": "assistant", "content": format!("call{turn}")}),
                message("tool", &format!("result{turn}")),
            ]);
        }
        let whole = Conversation {
            messages,
            overflow: Overflow::DropOldest { answer: 16 },
            ..Conversation::default()
        };
        let tokens = generator.encode(Prompt::Conversation(whole)).unwrap();
        let text = generator.tokenizer().expect("a tokenizer").decode(&tokens, SpecialTokens::Keep);
        assert!(tokens.len() <= generator.context() - 16, "{turns}");
        assert!(text.contains("rule") && text.contains(&format!("result{}", turns - 1)), "{turns}: {text}");
        for turn in 0..turns {
            let (call, result) = (format!("call{turn}"), format!("result{turn} "));
            assert!(!text.contains(&result) || text.contains(&call), "{turns}: {text}");
        }
    }
}

#[test]
fn a_continuation_keeps_markup_as_text() {
    let (generator, _) = generator("", said("<think>no</think>"));
    let choices = choices(&mut submit(&generator, text_job("x")).unwrap()).unwrap();
    assert_eq!(choices[0].text.trim(), "<think>no</think>");
}

#[test]
fn choices_are_kept_apart_and_awaited_or_waited_for_alike() {
    let events = || {
        let (one, two) = (spoken(0, "left side"), spoken(1, "right side"));
        let ends = [finished(1, FinishReason::Length), finished(0, FinishReason::End(2))];
        [&one[..1], &two, &one[1..], &ends].concat()
    };
    let job = || Job { n: 2.try_into().unwrap(), ..text_job("x") };
    let (waiting, _) = generator("", events());
    let waited = choices(&mut submit(&waiting, job()).unwrap()).unwrap();
    let (awaiting, _) = generator("", events());
    let stream = submit(&awaiting, job()).unwrap();
    let awaited = futures_util::FutureExt::now_or_never(collect(stream)).expect("all there").unwrap();
    assert_eq!(awaited.choices, waited);
    assert_eq!((waited[0].text.trim(), waited[1].text.trim()), ("left side", "right side"));
    assert_eq!(waited[1].finish.reason, StopReason::Length);
}

#[test]
fn a_backend_that_stops_fails_every_open_choice() {
    let (generator, backend) = generator("", spoken(0, "half"));
    let mut stream = submit(&generator, Job { n: 2.try_into().unwrap(), ..text_job("x") }).unwrap();
    assert_eq!(generator.backend().load(), Load { queued: 0, running: 1 });
    backend.stop();
    let events: Vec<_> = std::iter::from_fn(|| stream.wait()).collect();
    let failed = |event: &&GenerationEvent| {
        let gone = RequestError::from(SequenceError::EngineGone);
        matches!(event, GenerationEvent::Finished { finish, .. } if finish.reason == StopReason::Failed(gone.clone()))
    };
    assert_eq!(events.iter().filter(failed).count(), 2);
}

#[test]
fn a_wait_in_the_queue_is_told_from_slow_work() {
    for (progress, kind) in [
        (None, ErrorKind::QueueTimeout),
        (Some(Event::Prefilled { computed: 1, cached: 0 }), ErrorKind::Timeout),
    ] {
        let events = progress.into_iter().chain([finished(0, FinishReason::TimedOut)]).collect();
        let (generator, _) = generator("", events);
        let mut prepared = generator.prepare(text_job("x")).unwrap();
        prepared.request.queue_timeout = Some(std::time::Duration::from_secs(1));
        let error = choices(&mut generator.submit(prepared).unwrap()).unwrap_err();
        assert_eq!((error.kind, error.kind.code().is_some()), (kind, true));
    }
}

#[test]
fn a_job_reaches_the_backend_as_it_was_asked() {
    let (generator, backend) = generator("", said("ok"));
    let job = Job {
        context: vec![7, 8],
        max_tokens: Some(5),
        min_tokens: 2,
        ignore_eos: true,
        prompt_logprobs: Some(1),
        structured: Some(StructuredOutput::new(GrammarSpec::Regex("[a-z]+".into()), "guided_regex")),
        ..Job::with_sampling(Prompt::Tokens(vec![9, 10]), plain())
    };
    submit(&generator, job).unwrap();
    let asked = backend.asked.lock().unwrap();
    assert_eq!(asked[0].prompt, [7, 8, 9, 10]);
    assert_eq!((asked[0].max_tokens, asked[0].min_tokens, asked[0].score_prompt), (Some(5), 2, Some(1)));
    assert!(asked[0].ends.is_empty() && asked[0].grammar.is_some());
}

#[test]
fn what_can_not_be_answered_is_refused_with_its_field() {
    let (generator, _) = generator("", Vec::new());
    let refused = |job: Job| submit(&generator, job).map(drop).unwrap_err();
    let bad = StructuredOutput::new(GrammarSpec::Regex("(".into()), "guided_regex");
    for (job, kind, field) in [
        (Job { structured: Some(bad), ..text_job("x") }, ErrorKind::InvalidRequest, "guided_regex"),
        (chat(Vec::new(), ToolChoice::Required), ErrorKind::InvalidRequest, "tool_choice"),
        (chat(Vec::new(), ToolChoice::Named("f".into())), ErrorKind::InvalidRequest, "tool_choice"),
        (text_job(&"word ".repeat(100_000)), ErrorKind::ContextLengthExceeded, "messages"),
        (
            Job::with_sampling(Prompt::Tokens(vec![1; 300]), plain()),
            ErrorKind::ContextLengthExceeded,
            "messages",
        ),
        (Job::with_sampling(Prompt::Tokens(Vec::new()), plain()), ErrorKind::InvalidRequest, "prompt"),
    ] {
        let error = refused(job);
        assert_eq!((error.kind, error.field.as_deref()), (kind, Some(field)), "{error}");
    }
}

#[test]
fn a_prompt_is_given_up_once_it_can_not_fit_but_counted_to_its_end() {
    let (generator, _) = generator("", Vec::new());
    let (room, text) = (generator.context(), "word ".repeat(generator.context()));
    let conversation = Prompt::Conversation(Conversation {
        messages: vec![json!({"role": "user", "content": text})],
        ..Conversation::default()
    });
    for prompt in [Prompt::Text(text), conversation] {
        assert!(generator.encode(prompt.clone()).unwrap().len() > room + 1);
        let error = generator.draft(Job::with_sampling(prompt, plain()), &Interrupt::default()).unwrap_err();
        let told = format!(
            "This model's maximum context length is {room} tokens for prompt and answer together. However, the prompt has \
             more than {room} tokens;"
        );
        assert!(error.message.starts_with(&told), "{error}");
        assert_eq!(error.kind, ErrorKind::ContextLengthExceeded);
    }
    let predicted = Job { prediction: Some("word ".repeat(room)), ..text_job("x") };
    let error = generator.draft(predicted, &Interrupt::default()).unwrap_err();
    assert_eq!((error.kind, error.field.as_deref()), (ErrorKind::ContextLengthExceeded, Some("prediction")));
}
