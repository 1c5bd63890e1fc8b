//! One sequence from its boarding to its end, over as many upstreams as it takes.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use futures_util::StreamExt;
use ropeway_engine::{DraftTotals, Event, EventSender, FinishReason, Request, SequenceError, Usage};
use ropeway_executor::{Sampled, SamplingParams, Seed};
use ropeway_grammar::{Compiled, GrammarSpec};
use tokio::sync::watch;

use super::Words;
use super::moving::{Diverged, Progress};
use crate::dispatch::Ended;
use crate::error::UpstreamError;
use crate::lane::{Boarding, Member, Missed, NOBODY_THERE, how_it_ended};
use crate::prefix::session_of;
use crate::settings::Kind;
use crate::upstream::{Spelling, TokenAsk, TokenEvent};

/// Numbers flights, so that upstreams can tell them apart.
static NEXT: AtomicU64 = AtomicU64::new(0);

/// What all sequences of a request have in common.
#[derive(Debug)]
pub struct Shared {
    /// The request itself.
    pub request: Request,
    /// How its model writes texts in tokens.
    pub spelling: Spelling,
    /// Whether the model's own end tokens are passed over.
    pub ignore_eos: bool,
    /// What divides cached prompts of different owners, as upstreams are told it.
    pub cache_salt: Option<String>,
    /// The conversation it is part of, as upstreams are told it.
    pub session: Option<String>,
    /// Where its events go.
    pub sender: EventSender,
}

impl Shared {
    /// A request whose events go there.
    pub fn new(request: Request, words: &Words, sender: EventSender) -> Self {
        let cache_salt = (!request.salt.is_empty()).then(|| hexadecimal(&request.salt));
        let session = session_of(request.client).map(|session| format!("{session:016x}"));
        let ignore_eos = !words.eos.iter().all(|token| request.ends.contains(token));
        Self { spelling: words.spelling.clone(), ignore_eos, request, cache_salt, session, sender }
    }
}

fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |text, byte| text + &format!("{byte:02x}"))
}

/// A sequence on its way.
#[derive(Debug)]
pub struct Flight {
    shared: Arc<Shared>,
    /// A name of its own at upstreams.
    id: u64,
    /// The request's parameters with this sequence's seed.
    params: SamplingParams,
    sequence: u32,
    /// Attempts so far.
    attempts: u32,
    /// Most tokens of the whole answer.
    most: usize,
    progress: Progress,
    usage: Usage,
    began: Instant,
}

/// Why an attempt did not come to its end.
#[derive(Debug)]
enum Failure {
    Upstream(UpstreamError),
    Diverged,
}

impl From<UpstreamError> for Failure {
    fn from(error: UpstreamError) -> Self {
        Failure::Upstream(error)
    }
}

impl From<Diverged> for Failure {
    fn from(_: Diverged) -> Self {
        Failure::Diverged
    }
}

impl Flight {
    /// Sequence `sequence` of a request, at upstreams with room for `context` tokens.
    pub fn new(shared: Arc<Shared>, sequence: u32, context: usize) -> Self {
        let request = &shared.request;
        let seed = Seed(request.params.seed.0.wrapping_add(u64::from(sequence)));
        let room = context.saturating_sub(request.prompt.len());
        Self {
            params: SamplingParams { seed, ..request.params.clone() },
            sequence,
            id: NEXT.fetch_add(1, Ordering::Relaxed),
            attempts: 0,
            most: request.max_tokens.map_or(room, |most| most.min(room)),
            progress: Progress::default(),
            usage: Usage { prompt: request.prompt.len(), ..Usage::default() },
            began: Instant::now(),
            shared,
        }
    }

    /// Answers until the end, unless the reader, the deadline or the operator ends it before.
    pub async fn fly(mut self, boarding: Boarding, mut stopped: watch::Receiver<bool>) {
        let (shared, sequence) = (Arc::clone(&self.shared), self.sequence);
        let deadline = shared.request.deadline;
        let late = async {
            match deadline {
                Some(deadline) => tokio::time::sleep(deadline).await,
                None => std::future::pending().await,
            }
        };
        // What is dropped here is withdrawn, and its connection closed: the upstream stops at once.
        let reason = tokio::select! {
            reason = self.answer(boarding) => reason,
            () = shared.sender.cancelled(sequence) => FinishReason::Cancelled,
            () = late => FinishReason::TimedOut,
            _ = stopped.wait_for(|stopped| *stopped) => FinishReason::Failed(SequenceError::EngineGone),
        };
        self.finish(reason);
    }

    async fn answer(&mut self, mut boarding: Boarding) -> FinishReason {
        loop {
            let member = match boarding.placed().await {
                Ok(placement) => placement.member,
                Err(missed) => return self.missed(missed),
            };
            self.placed(&member);
            let failure = match self.attempt(&member, &mut boarding).await {
                Ok(reason) => {
                    boarding.end(Ended::Done);
                    return reason;
                }
                Err(failure) => failure,
            };
            match self.survive(&member, failure, boarding) {
                Ok(next) => boarding = next,
                Err(reason) => return reason,
            }
        }
    }

    /// After a failed attempt: a place elsewhere, or the end.
    fn survive(
        &self,
        member: &Member,
        failure: Failure,
        mut boarding: Boarding,
    ) -> Result<Boarding, FinishReason> {
        let error = match failure {
            Failure::Upstream(error) if error.is_the_requests() => {
                boarding.end(Ended::Refused);
                return Err(FinishReason::Failed(SequenceError::Refused(error.to_string())));
            }
            Failure::Upstream(error) => error,
            Failure::Diverged => {
                boarding.end(Ended::Refused);
                return Err(broken_off(
                    "the answer could not be continued: it came out differently elsewhere",
                ));
            }
        };
        let sent = self.progress.sent().len();
        let (upstream, model) = (member.upstream.name(), member.model.id.as_str());
        tracing::warn!(target: "pool", upstream, model, %error, sent_tokens = sent, "an attempt failed");
        match boarding.again(how_it_ended(&error), error.to_string()) {
            Ok(()) => Ok(boarding),
            Err(spent) => {
                Err(broken_off(&format!("the server of this model failed; {spent}, send it again later")))
            }
        }
    }

    fn missed(&self, missed: Missed) -> FinishReason {
        match missed {
            // Before the first token this is the queue's timeout; later there is nobody to go on.
            Missed::Overdue if self.progress.sent().is_empty() => FinishReason::TimedOut,
            Missed::Overdue => broken_off("no other upstream was free to continue the answer"),
            Missed::NobodyThere => broken_off(NOBODY_THERE),
        }
    }

    fn placed(&mut self, member: &Member) {
        if self.usage.queued.is_zero() {
            self.usage.queued = self.began.elapsed().max(Duration::from_nanos(1));
        }
        let upstream = Arc::clone(member.upstream.shared_name());
        self.shared.sender.send(Event::Placed { sequence: self.sequence, upstream });
    }

    /// One upstream's part of the answer.
    async fn attempt(&mut self, member: &Member, boarding: &mut Boarding) -> Result<FinishReason, Failure> {
        let shared = Arc::clone(&self.shared);
        let request = &shared.request;
        let leg = self.progress.begin(request, self.most);
        if leg.max_tokens == 0 && request.score_prompt.is_none() {
            return Ok(FinishReason::Length);
        }
        let prompt = [&request.prompt, &self.progress.sent()[..leg.begun]].concat();
        self.attempts += 1;
        let request_id = format!("ropeway-{:x}-{}-{}", std::process::id(), self.id, self.attempts);
        let ask = TokenAsk {
            params: &self.params,
            prompt: &prompt,
            max_tokens: leg.max_tokens,
            min_tokens: leg.min_tokens,
            prompt_logprobs: request.score_prompt.filter(|_| leg.begun == 0),
            request_id: &request_id,
            ..ask(member, &shared)
        };
        let mut stream = member.upstream.generate(&ask).await?;
        while let Some(event) = stream.next().await {
            match event? {
                TokenEvent::Scored(scores) => self.scored(scores),
                TokenEvent::Tokens(tokens) => {
                    boarding.tokens(tokens.len());
                    for sampled in tokens {
                        // An upstream that does not stop by itself is stopped here.
                        if self.progress.sent().len() >= self.most && self.most > 0 {
                            return Ok(FinishReason::Length);
                        }
                        self.token(sampled)?;
                    }
                }
                TokenEvent::Finished { ending, cached_tokens } => {
                    self.progress.may_end()?;
                    self.usage.cached = cached_tokens.unwrap_or(0).min(request.prompt.len());
                    return Ok(ending.into());
                }
            }
        }
        let why = "the stream ended before the answer did".into();
        Err(UpstreamError::BrokenOff { upstream: member.upstream.name().into(), why }.into())
    }

    fn scored(&mut self, scores: Vec<Sampled>) {
        // All sequences of a request have the same prompt, and a repeated attempt scores it again.
        if self.sequence == 0 && self.progress.sent().is_empty() {
            for score in scores {
                self.shared.sender.send(Event::Scored(score));
            }
        }
    }

    fn token(&mut self, sampled: Sampled) -> Result<(), Diverged> {
        let Some(sampled) = self.progress.take(sampled)? else { return Ok(()) };
        if self.usage.first_token.is_zero() {
            self.usage.first_token = self.began.elapsed();
            self.prefilled();
        }
        let (sequence, drafting) = (self.sequence, DraftTotals::default());
        self.shared.sender.send(Event::Token { sequence, sampled, drafting });
        Ok(())
    }

    fn prefilled(&self) {
        let Usage { prompt, cached, .. } = self.usage;
        self.shared.sender.send(Event::Prefilled { computed: prompt, cached });
    }

    fn finish(mut self, reason: FinishReason) {
        if self.usage.cached > 0 {
            self.prefilled();
        }
        let ends = usize::from(matches!(reason, FinishReason::End(_)));
        self.usage.generated = self.progress.sent().len() + ends;
        self.usage.total = self.began.elapsed();
        self.shared.sender.send(Event::Finished { sequence: self.sequence, reason, usage: self.usage });
    }
}

/// Whether an upstream could do what a request asks.
pub fn check(member: &Member, shared: &Shared) -> Result<(), UpstreamError> {
    // What can be asked does not depend on the prompt, which may be long.
    member.upstream.check(&TokenAsk { prompt: &[], ..ask(member, shared) })
}

/// A request as an upstream is asked it first.
fn ask<'a>(member: &'a Member, shared: &'a Shared) -> TokenAsk<'a> {
    let request = &shared.request;
    TokenAsk {
        model: &member.model.id,
        prompt: &request.prompt,
        params: &request.params,
        is_seeded: is_seeded(member, &request.params),
        max_tokens: request.max_tokens.unwrap_or(1),
        min_tokens: request.min_tokens,
        ends: &request.ends,
        ignore_eos: shared.ignore_eos,
        grammar: grammar_of(request),
        prompt_logprobs: request.score_prompt,
        class: request.class,
        cache_salt: shared.cache_salt.as_deref(),
        session: shared.session.as_deref(),
        request_id: "",
        spelling: Some(shared.spelling.clone()),
    }
}

/// Whether an upstream is told the seed. A Ropeway always is: its choices depend on seed and position alone, so that an answer goes on
/// elsewhere as it would have here.
fn is_seeded(member: &Member, params: &SamplingParams) -> bool {
    params.temperature > 0.0 && (params.is_seeded || member.upstream.kind() == Some(Kind::Ropeway))
}

/// What the request's grammar was compiled from.
fn grammar_of(request: &Request) -> Option<&GrammarSpec> {
    let grammar = request.grammar.as_ref()?;
    grammar.as_any().downcast_ref::<Compiled>().map(Compiled::spec)
}

fn broken_off(why: &str) -> FinishReason {
    FinishReason::Failed(SequenceError::Upstream(why.into()))
}
