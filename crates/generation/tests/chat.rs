//! Generation on a backend that answers as text: its events pass through, and what needs a tokenizer is turned down.

use std::num::NonZeroUsize;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use std::time::Duration;

use futures_core::Stream;
use futures_util::stream;
use ropeway_engine::{Load, Usage};
use ropeway_executor::SamplingParams;
use ropeway_generation::{
    AnyBackend, ChatAsk, ChatBackend, ChatEvents, Collector, Conversation, Ending, ErrorKind, Finish,
    GenerationEvent, Generator, Job, Prompt, RequestError, Sampling, StopReason, StructuredOutput,
    ToolChoice,
};
use ropeway_grammar::GrammarSpec;
use ropeway_text::{ChatTemplate, Delta, Interrupt, TemplateTokens};
use serde_json::json;

/// Answers every job with these events, and keeps what it was asked.
#[derive(Default)]
struct Told {
    events: Vec<GenerationEvent>,
    /// Whether the stream stays open after them.
    goes_on: bool,
    asked: Mutex<Vec<ChatAsk>>,
    is_dropped: Arc<AtomicBool>,
}

/// Events, and whether somebody still reads them.
struct Watched {
    events: stream::Iter<std::vec::IntoIter<GenerationEvent>>,
    goes_on: bool,
    is_dropped: Arc<AtomicBool>,
}

impl Stream for Watched {
    type Item = GenerationEvent;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<GenerationEvent>> {
        match Pin::new(&mut self.events).poll_next(context) {
            Poll::Ready(None) if self.goes_on => Poll::Pending,
            polled => polled,
        }
    }
}

impl Drop for Watched {
    fn drop(&mut self) {
        self.is_dropped.store(true, Ordering::Relaxed);
    }
}

impl ChatBackend for Told {
    fn ask(&self, ask: ChatAsk) -> Result<ChatEvents, RequestError> {
        self.asked.lock().unwrap().push(ask);
        let events = stream::iter(self.events.clone());
        let is_dropped = Arc::clone(&self.is_dropped);
        Ok(Box::pin(Watched { events, goes_on: self.goes_on, is_dropped }))
    }

    fn context(&self) -> usize {
        4096
    }

    fn load(&self) -> Load {
        Load { queued: 1, running: 2 }
    }

    fn stop(&self) {
        self.is_dropped.store(true, Ordering::Relaxed);
    }
}

fn generator(events: Vec<GenerationEvent>, goes_on: bool) -> (Generator, Arc<Told>) {
    let told = Arc::new(Told { events, goes_on, ..Told::default() });
    (Generator::of_chat(Arc::clone(&told) as Arc<dyn ChatBackend>), told)
}

fn text(choice: usize, text: &str) -> GenerationEvent {
    GenerationEvent::Output { choice, deltas: vec![Delta::Text(text.into())], tokens: Vec::new() }
}

fn end(choice: usize, usage: Usage) -> GenerationEvent {
    let reason = StopReason::EndOfText;
    let finish = Finish { reason, end_token: None, called_tools: false, reasoning_tokens: 0, usage };
    GenerationEvent::Finished { choice, finish }
}

/// The event without the time that it took.
fn untimed(mut event: GenerationEvent) -> GenerationEvent {
    if let GenerationEvent::Finished { finish, .. } = &mut event {
        (finish.usage.total, finish.usage.first_token) = (Duration::ZERO, Duration::ZERO);
    }
    event
}

fn job(prompt: Prompt) -> Job {
    Job::with_sampling(prompt, Sampling::new(SamplingParams::greedy()).unwrap())
}

fn conversation() -> Conversation {
    Conversation { messages: vec![json!({"role": "user", "content": "Hi"})], ..Conversation::default() }
}

fn chat() -> Job {
    job(Prompt::Conversation(conversation()))
}

#[test]
fn a_job_reaches_the_backend_as_it_is_and_its_events_pass_through() {
    let usage = Usage { prompt: 20, cached: 8, generated: 5, ..Usage::default() };
    let events = vec![text(0, "Good "), text(1, "Hel"), text(0, "day"), end(0, usage), end(1, usage)];
    let (generator, told) = generator(events.clone(), false);
    let n = NonZeroUsize::new(2).unwrap();
    let mut prepared = generator.prepare(Job { n, max_tokens: Some(9), ..chat() }).unwrap();
    prepared.request.queue_timeout = Some(Duration::from_secs(3));
    let mut stream = generator.submit(prepared).unwrap();
    assert!(!stream.has_begun());
    assert!(stream.prompt_tokens() > 0, "an estimate");
    let heard: Vec<_> = std::iter::from_fn(|| stream.wait()).collect();
    assert_eq!(heard.iter().cloned().map(untimed).collect::<Vec<_>>(), events);
    assert_ne!(heard, events, "ends have a time");
    assert_eq!((stream.prompt_tokens(), stream.cached_tokens(), stream.generated_tokens()), (20, 8, 10));
    assert!(told.is_dropped.load(Ordering::Relaxed), "nothing is read after the last end");
    let ChatAsk { job, request } = told.asked.lock().unwrap().pop().unwrap();
    assert!(matches!(job.prompt, Prompt::Conversation(_)) && job.max_tokens == Some(9));
    assert_eq!((request.n, request.queue_timeout), (2, Some(Duration::from_secs(3))));
    assert!(request.prompt.is_empty());
}

#[test]
fn a_stream_that_breaks_off_ends_every_open_choice_with_an_error() {
    let (generator, _) = generator(vec![text(0, "a"), end(0, Usage::default()), text(1, "b")], false);
    let job = Job { n: NonZeroUsize::new(2).unwrap(), ..chat() };
    let mut stream = generator.submit(generator.prepare(job).unwrap()).unwrap();
    let mut collector = Collector::default();
    let failed = std::iter::from_fn(|| stream.wait()).find_map(|event| collector.push(event).err());
    assert_eq!(failed.map(|error| error.kind), Some(ErrorKind::Overloaded));
    assert_eq!(stream.wait(), None);
}

#[test]
fn a_cancelled_request_is_dropped_at_once_and_still_ends() {
    let (generator, told) = generator(vec![text(0, "a"), text(0, "b")], true);
    let mut stream = generator.submit(generator.prepare(chat()).unwrap()).unwrap();
    assert_eq!((stream.wait(), stream.wait()), (Some(text(0, "a")), Some(text(0, "b"))));
    stream.cancel();
    assert!(told.is_dropped.load(Ordering::Relaxed));
    let Some(GenerationEvent::Finished { finish, .. }) = stream.wait() else { panic!("no end") };
    assert_eq!((finish.reason, finish.usage.generated), (StopReason::EndOfText, 2));
    assert_eq!(stream.wait(), None);
}

#[test]
fn what_needs_a_tokenizer_is_turned_down_with_its_field() {
    let (generator, _) = generator(Vec::new(), false);
    let between = Prompt::Between { prefix: "a".into(), suffix: "b".into() };
    let sampled = |params| Job { sampling: Sampling::new(params).unwrap(), ..chat() };
    let plain = SamplingParams::default;
    let jobs = [
        (job(Prompt::Tokens(vec![1])), "prompt"),
        (job(Prompt::Text(String::new())), "prompt"),
        (job(between), "suffix"),
        (Job { context: vec![1], ..chat() }, "context"),
        (Job { prompt_logprobs: Some(0), ..chat() }, "prompt_logprobs"),
        (sampled(SamplingParams { logprobs: Some(0), ..plain() }), "logprobs"),
        (sampled(SamplingParams { logit_bias: [(1, 1.0)].into(), ..plain() }), "logit_bias"),
        (sampled(SamplingParams { allowed: Some([1].into()), ..plain() }), "allowed_token_ids"),
        (Job { stop_tokens: vec![1], ..chat() }, "stop_token_ids"),
        (Job { bad_words: vec!["x".into()], ..chat() }, "bad_words"),
        (Job { last_prompt_tokens: Some(5), ..chat() }, "truncate_prompt_tokens"),
        (Job { max_tokens: Some(0), ..chat() }, "max_tokens"),
        (job(Prompt::Conversation(Conversation::default())), "messages"),
        (
            job(Prompt::Conversation(Conversation { tool_choice: ToolChoice::Required, ..conversation() })),
            "tool_choice",
        ),
    ];
    for (job, field) in jobs {
        let error = generator.draft(job, &Interrupt::default()).expect_err(field);
        assert_eq!((error.kind, error.field.as_deref()), (ErrorKind::InvalidRequest, Some(field)), "{error}");
    }
    for error in [
        generator.encode(Prompt::Text("x".into())).map(|_| ()),
        generator.token_model().map(|_| ()),
        generator.with_template(ChatTemplate::new("x", TemplateTokens::default()).unwrap()).map(|_| ()),
    ] {
        assert!(error.unwrap_err().message.contains("`tokenizer` for its upstream"));
    }
}

#[test]
fn a_form_is_left_to_the_other_server_to_compile() {
    let (generator, told) = generator(vec![end(0, Usage::default())], false);
    let structured = Some(StructuredOutput::new(GrammarSpec::Regex("(".into()), "regex"));
    let continued = Conversation { ending: Ending::Continue, ..conversation() };
    let asked = Job { structured, ..job(Prompt::Conversation(continued)) };
    generator.submit(generator.prepare(asked).unwrap()).unwrap();
    assert!(told.asked.lock().unwrap()[0].job.structured.is_some());
}

#[test]
fn whoever_looks_after_a_model_needs_not_know_how_it_answers() {
    let (generator, told) = generator(Vec::new(), false);
    let backend = generator.backend();
    assert!(matches!(backend, AnyBackend::Text(_)));
    assert_eq!((generator.context(), backend.load().running), (4096, 2));
    assert!(backend.limits().is_none() && backend.engine().is_none() && backend.board().is_none());
    assert!(generator.calls_tools() && generator.thinks() && !generator.fills_in());
    backend.stop();
    assert!(told.is_dropped.load(Ordering::Relaxed));
}
