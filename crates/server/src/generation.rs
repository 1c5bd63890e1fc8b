//! Jobs of HTTP requests: checked against the caller's limits, prepared off the threads that streams run on, submitted
//! in the caller's name, and observed until they end.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use futures_util::{Stream, StreamExt};
use ropeway_engine::Request;
use ropeway_generation::{
    AnyBackend, Drafted, ErrorKind, GenerationEvent, GenerationStream, Job, Prepared, Prompt, StopReason,
};
use ropeway_text::Interrupt;

use crate::agents::Turn;
use crate::caller::Caller;
use crate::error::ApiError;
use crate::guard::limits::Sizes;
use crate::intake::Intake;
use crate::model::Model;
use crate::offload::{Effort, Served, offload};

/// Prepares a job and submits it.
pub async fn generate(model: &Arc<Model>, job: Job, caller: Caller) -> Result<ObservedStream, ApiError> {
    let prepared = prepare(model, job, &caller).await?;
    submit(model, prepared, caller)
}

/// A prompt's tokens, for questions that generate nothing.
pub async fn encode(model: &Arc<Model>, mut prompt: Prompt, intake: &Intake) -> Result<Vec<u32>, ApiError> {
    if let Some(derived) = &model.derived {
        derived.introduce(&mut prompt);
    }
    let (model, effort) = (Arc::clone(model), Effort::Bytes(prompt.bytes()));
    offload(intake, effort, move |interrupt| model.generator.encode_unless(prompt, interrupt)).await
}

/// Checks a job and prepares it.
pub async fn prepare(model: &Arc<Model>, job: Job, caller: &Caller) -> Result<Prepared, ApiError> {
    caller.count_as(job.n.get())?;
    let (owner, limits, effort) = (Arc::clone(model), caller.limits, Effort::Bytes(job.bytes()));
    let draft = move |interrupt: &_| draft(&owner, limits, job, interrupt);
    let drafted = offload(&caller.intake, effort, draft).await?;
    finish(model, drafted, caller).await
}

/// Checks and prepares many jobs; one that is wrong is an error of its own.
pub async fn prepare_all(
    model: &Arc<Model>,
    jobs: Vec<Job>,
    caller: &Caller,
) -> Result<Vec<Result<Prepared, ApiError>>, ApiError> {
    caller.count_as(jobs.iter().map(|job| job.n.get()).fold(0, usize::saturating_add))?;
    let (owner, limits) = (Arc::clone(model), caller.limits);
    let bytes = jobs.iter().map(Job::bytes).fold(0, usize::saturating_add);
    let drafted = offload(&caller.intake, Effort::Bytes(bytes), move |interrupt| {
        let drafted = jobs.into_iter().map(|job| draft(&owner, limits, job, interrupt));
        Ok::<_, ApiError>(drafted.collect::<Vec<_>>())
    });
    let mut prepared = Vec::new();
    for drafted in drafted.await? {
        prepared.push(match drafted {
            Ok(drafted) => finish(model, drafted, caller).await,
            Err(error) => Err(error),
        });
    }
    Ok(prepared)
}

fn draft(model: &Model, limits: Sizes, mut job: Job, interrupt: &Interrupt) -> Result<Drafted, ApiError> {
    limits.check(&job)?;
    if let Some(derived) = &model.derived {
        derived.complete(&mut job);
    }
    let drafted = model.generator.draft(job, interrupt)?;
    limits.check_prompt(drafted.prompt_tokens())?;
    limits.check_prediction(drafted.prediction_tokens())?;
    Ok(drafted)
}

/// Compiles a draft's grammar, after it was found to compile within the limits. That is found out in the caller's name, by
/// processes that have a queue of their own; it ends with the request.
async fn finish(model: &Arc<Model>, drafted: Drafted, caller: &Caller) -> Result<Prepared, ApiError> {
    let admitted = model.generator.admit(drafted, caller.client.account).await?;
    let effort = if admitted.has_grammar() { Effort::Grammar } else { Effort::Bytes(0) };
    let model = Arc::clone(model);
    offload(&caller.intake, effort, move |_| model.generator.finish(admitted)).await
}

/// Hands a prepared job to the model's backend, in the caller's name.
pub fn submit(model: &Model, mut prepared: Prepared, caller: Caller) -> Result<ObservedStream, ApiError> {
    prepared.request = Request {
        client: caller.client,
        class: caller.class,
        salt: caller.salt.clone(),
        deadline: caller.deadline,
        queue_timeout: caller.queue_timeout,
        ..prepared.request
    };
    let turn = caller.agent.clone().map(|agent| Turn::new(agent, model, &prepared.request));
    let stream = model.generator.submit(prepared)?;
    caller.intake.release();
    caller.progress.submitted(caller.class, stream.prompt_tokens());
    let (backend, served) = (model.engine(), Served::begin());
    Ok(ObservedStream { stream, caller, backend, seen: Seen::Nothing, turn, _served: served })
}

/// How far a request was seen to be.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Seen {
    Nothing,
    Begun,
    FirstToken,
}

/// A request's text as it is generated. Its progress is told to the log, and its tokens are booked when it is dropped.
pub struct ObservedStream {
    stream: GenerationStream,
    caller: Caller,
    backend: AnyBackend,
    seen: Seen,
    /// What is noted about the agent or session that it belongs to.
    turn: Option<Turn>,
    _served: Served,
}

impl ObservedStream {
    /// Tokens of the prompt.
    pub fn prompt_tokens(&self) -> usize {
        self.stream.prompt_tokens()
    }

    /// Prompt tokens that came from the prefix cache, as far as known.
    pub fn cached_tokens(&self) -> usize {
        self.stream.cached_tokens()
    }

    fn observe(&mut self) {
        if self.seen < Seen::Begun && self.stream.has_begun() {
            self.seen = Seen::Begun;
            self.caller.progress.started();
        }
        if self.seen < Seen::FirstToken && self.stream.generated_tokens() > 0 {
            self.seen = Seen::FirstToken;
            self.caller.progress.first_token();
        }
    }
}

impl Stream for ObservedStream {
    type Item = GenerationEvent;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<GenerationEvent>> {
        let mut polled = self.stream.poll_next_unpin(context);
        self.observe();
        if let (Poll::Ready(Some(event)), Some(turn)) = (&polled, &mut self.turn) {
            turn.see(event);
        }
        if let Poll::Ready(Some(GenerationEvent::Finished { finish, .. })) = &mut polled {
            self.caller.progress.finished(&finish.usage);
            if let StopReason::Failed(error) = &mut finish.reason
                && error.kind == ErrorKind::QueueTimeout
            {
                error.retry_after = Some(self.backend.queue_wait());
            }
        }
        polled
    }
}

impl Drop for ObservedStream {
    /// However it ends, what was computed is booked.
    fn drop(&mut self) {
        let (cached, generated) = (self.stream.cached_tokens(), self.stream.generated_tokens());
        self.caller.progress.ended(cached, generated);
        self.caller.spend(self.stream.prompt_tokens().saturating_sub(cached) + generated);
    }
}
