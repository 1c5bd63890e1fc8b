//! One request from its boarding to its end, as text.

use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::StreamExt;
use ropeway_engine::Usage;
use ropeway_generation::{ChatAsk, Finish, GenerationEvent, RequestError, StopReason};
use tokio::sync::mpsc::UnboundedSender;
use tokio::sync::watch;

use crate::chat::{self, AnswerReader};
use crate::dispatch::Ended;
use crate::error::UpstreamError;
use crate::lane::{Boarding, Member, how_it_ended, missed_place, overloaded, timed_out};
use crate::settings::Kind;

/// A request on its way.
pub struct Flight {
    ask: ChatAsk,
    events: UnboundedSender<GenerationEvent>,
    /// Whether each choice is over.
    is_over: Vec<bool>,
    /// Whether anything of the answer was handed out.
    has_begun: bool,
    queued: Option<Duration>,
    first_token: Option<Duration>,
    began: Instant,
}

impl Flight {
    /// A request whose events go there.
    pub fn new(ask: ChatAsk, events: UnboundedSender<GenerationEvent>) -> Self {
        let is_over = vec![false; ask.job.n.get()];
        Self {
            ask,
            events,
            is_over,
            has_begun: false,
            queued: None,
            first_token: None,
            began: Instant::now(),
        }
    }

    /// Answers until the end, unless the reader, the deadline or the operator ends it before.
    pub async fn fly(mut self, boarding: Boarding, mut stopped: watch::Receiver<bool>) {
        let (events, deadline) = (self.events.clone(), self.ask.request.deadline);
        let late = async {
            match deadline {
                Some(deadline) => tokio::time::sleep(deadline).await,
                None => std::future::pending().await,
            }
        };
        // What is dropped here is withdrawn, and its connection closed: the upstream stops at once.
        let failed = tokio::select! {
            answered = self.answer(boarding) => answered.err(),
            () = events.closed() => None,
            () = late => Some(timed_out()),
            _ = stopped.wait_for(|stopped| *stopped) => Some(overloaded("the server is shutting down".into())),
        };
        if let Some(error) = failed {
            self.fail(&error);
        }
    }

    async fn answer(&mut self, mut boarding: Boarding) -> Result<(), RequestError> {
        loop {
            let member = boarding.placed().await.map_err(missed_place)?.member;
            self.placed(&member);
            let error = match self.attempt(&member, &mut boarding).await {
                Ok(()) => {
                    boarding.end(Ended::Done);
                    return Ok(());
                }
                Err(error) => error,
            };
            boarding = self.survive(&member, &error, boarding)?;
        }
    }

    /// After a failed attempt: a place elsewhere, or the end.
    fn survive(
        &self,
        member: &Member,
        error: &UpstreamError,
        mut boarding: Boarding,
    ) -> Result<Boarding, RequestError> {
        if error.is_the_requests() {
            boarding.end(Ended::Refused);
            return Err(RequestError::invalid(error.to_string()));
        }
        let (upstream, model) = (member.upstream.name(), member.model.id.as_str());
        tracing::warn!(target: "pool", upstream, model, %error, "an attempt failed");
        if self.has_begun {
            boarding.end(how_it_ended(error));
            let what =
                "the server of this model failed, and its answer can't be continued elsewhere; send it again";
            return Err(overloaded(what.into()));
        }
        match boarding.again(how_it_ended(error), error.to_string()) {
            Ok(()) => Ok(boarding),
            Err(spent) => {
                Err(overloaded(format!("the server of this model failed; {spent}, send it again later")))
            }
        }
    }

    fn placed(&mut self, member: &Member) {
        self.queued.get_or_insert_with(|| self.began.elapsed());
        for choice in 0..self.is_over.len() {
            let upstream = Arc::clone(member.upstream.shared_name());
            let _ = self.events.send(GenerationEvent::Placed { choice, upstream });
        }
    }

    /// One upstream's answer.
    async fn attempt(&mut self, member: &Member, boarding: &mut Boarding) -> Result<(), UpstreamError> {
        let (upstream, job) = (&member.upstream, &self.ask.job);
        let kind = upstream.kind().unwrap_or(Kind::Openai);
        let mut body = chat::body(job, kind, &member.model.id)
            .map_err(|error| UpstreamError::Unsupported(error.to_string()))?;
        chat::salt(&mut body, kind, &self.ask.request.salt);
        let mut reader = AnswerReader::new(job, upstream.name());
        let mut chunks = upstream.post_stream(chat::path(job), &body).await?;
        while let Some(chunk) = chunks.next().await {
            // After the end of all choices nothing more is needed, however the connection ends.
            let chunk = match chunk {
                Err(_) if reader.is_complete() => break,
                chunk => chunk?,
            };
            let events = reader.read(&chunk)?;
            self.hand_out(events, boarding);
            if reader.is_over() {
                break;
            }
        }
        if !reader.is_complete() {
            let why = "the stream ended before the answer did".into();
            return Err(UpstreamError::BrokenOff { upstream: upstream.name().into(), why });
        }
        let events = reader.finish();
        self.hand_out(events, boarding);
        Ok(())
    }

    fn hand_out(&mut self, events: Vec<GenerationEvent>, boarding: &mut Boarding) {
        for mut event in events {
            match &mut event {
                GenerationEvent::Output { .. } => {
                    self.has_begun = true;
                    self.first_token.get_or_insert_with(|| self.began.elapsed());
                    boarding.tokens(1);
                }
                GenerationEvent::Finished { choice, finish } => {
                    self.is_over[*choice] = true;
                    self.time(&mut finish.usage);
                }
                _ => {}
            }
            let _ = self.events.send(event);
        }
    }

    fn time(&self, usage: &mut Usage) {
        usage.queued = self.queued.unwrap_or_default();
        usage.first_token = self.first_token.unwrap_or_default();
        usage.total = self.began.elapsed();
    }

    /// Ends every open choice.
    fn fail(&mut self, error: &RequestError) {
        for choice in 0..self.is_over.len() {
            if self.is_over[choice] {
                continue;
            }
            let reason = StopReason::Failed(error.clone());
            let mut usage = Usage::default();
            self.time(&mut usage);
            let finish = Finish { reason, end_token: None, called_tools: false, reasoning_tokens: 0, usage };
            let _ = self.events.send(GenerationEvent::Finished { choice, finish });
        }
    }
}
