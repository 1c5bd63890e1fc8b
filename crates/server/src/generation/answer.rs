//! From the engine's events to pieces of text.

use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use futures_util::{Stream, StreamExt};
use ropeway_engine::{Event, EventStream, FinishReason, Usage};
use ropeway_executor::Sampled;
use ropeway_text::{Detokenizer, StopMatcher, Stopping};

use crate::error::{A_MOMENT, ApiError, Kind};
use crate::generation::Caller;
use crate::model::Model;

/// What a token was worth, as clients like to be told.
#[derive(Clone, Debug, PartialEq)]
pub struct TokenReport {
    /// The token, its log-probability and its alternatives.
    pub sampled: Sampled,
}

/// A part of an answer.
#[derive(Clone, Debug, PartialEq)]
pub enum Piece {
    /// The prompt is being read; says that the request is alive.
    Reading,
    /// What the model thought of a prompt token, from the second on.
    Scored(TokenReport),
    /// More text of answer `index`, and the tokens since the last piece. Either may be empty.
    Text {
        /// Which answer.
        index: usize,
        /// The text.
        text: String,
        /// The tokens behind it.
        tokens: Vec<TokenReport>,
    },
    /// Answer `index` is over.
    Done {
        /// Which answer.
        index: usize,
        /// Why.
        stopped: Stopped,
        /// What it used.
        usage: Usage,
    },
}

/// Why an answer is over.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Stopped {
    /// The model ended it.
    End,
    /// It came to this stop string.
    At(String),
    /// It has as many tokens as were asked for, or as fit.
    Length,
    /// It could not go on.
    Failed(ApiError),
}

/// A whole answer.
#[derive(Clone, Debug, PartialEq)]
pub struct Whole {
    /// Its text.
    pub text: String,
    /// Its tokens.
    pub tokens: Vec<TokenReport>,
    /// Why it ended.
    pub stopped: Stopped,
    /// What it used.
    pub usage: Usage,
}

/// One of a request's answers in the making.
struct Line {
    detokenizer: Detokenizer,
    stop: StopMatcher,
    /// Tokens whose text is not out yet.
    held: Vec<TokenReport>,
    generated: usize,
    open: bool,
}

/// An answer in the making: a stream of pieces. Dropping it cancels the request.
pub struct Answer {
    model: Arc<Model>,
    events: EventStream,
    lines: Vec<Line>,
    ready: VecDeque<Piece>,
    prompt_len: usize,
    cached: usize,
    /// Answers that are not over.
    open: usize,
    /// Whether the engine has begun.
    begun: bool,
    caller: Caller,
}

/// How an answer is to look.
pub(super) struct Form {
    /// How many answers.
    pub n: usize,
    /// Texts that end it.
    pub stops: Vec<String>,
    /// Whether it continues the prompt's text, rather than being a message of its own.
    pub continues: bool,
}

impl Answer {
    pub(super) fn new(
        model: Arc<Model>,
        events: EventStream,
        prompt_len: usize,
        form: &Form,
        caller: Caller,
    ) -> Self {
        let line = |_| {
            let detokenizer = model.tokenizer.detokenizer();
            Line {
                detokenizer: if form.continues {
                    detokenizer.continuing()
                } else {
                    detokenizer.showing(model.style.markup())
                },
                stop: StopMatcher::new(form.stops.clone()),
                held: Vec::new(),
                generated: 0,
                open: true,
            }
        };
        let lines = (0..form.n).map(line).collect();
        let ready = VecDeque::new();
        Self { model, events, lines, ready, prompt_len, cached: 0, open: form.n, begun: false, caller }
    }

    /// The model that answers.
    pub fn model(&self) -> &Arc<Model> {
        &self.model
    }

    /// Tokens of the prompt.
    pub fn prompt_tokens(&self) -> usize {
        self.prompt_len
    }

    /// Prompt tokens that came from the cache, as far as known.
    pub fn cached_tokens(&self) -> usize {
        self.cached
    }

    /// Waits for all answers, in order, and for what was scored of the prompt.
    pub async fn whole(mut self) -> Result<(Vec<Whole>, Vec<TokenReport>), ApiError> {
        let empty = || Whole {
            text: String::new(),
            tokens: Vec::new(),
            stopped: Stopped::End,
            usage: Usage::default(),
        };
        let mut wholes: Vec<Whole> = self.lines.iter().map(|_| empty()).collect();
        let mut scored = Vec::new();
        while let Some(piece) = self.next().await {
            match piece {
                Piece::Reading => {}
                Piece::Scored(report) => scored.push(report),
                Piece::Text { index, text, tokens } => {
                    wholes[index].text.push_str(&text);
                    wholes[index].tokens.extend(tokens);
                }
                Piece::Done { stopped: Stopped::Failed(error), .. } => return Err(error),
                Piece::Done { index, stopped, usage } => {
                    (wholes[index].stopped, wholes[index].usage) = (stopped, usage);
                }
            }
        }
        Ok((wholes, scored))
    }

    fn hear(&mut self, event: Event) {
        match event {
            Event::Prefilled { cached, .. } => {
                self.cached = cached;
                self.begin();
                self.ready.push_back(Piece::Reading);
            }
            Event::Scored(sampled) => self.ready.push_back(Piece::Scored(TokenReport { sampled })),
            Event::Token { sequence, sampled } => self.token(sequence as usize, sampled),
            Event::Finished { sequence, reason, usage } => self.finished(sequence as usize, reason, usage),
        }
    }

    fn begin(&mut self) {
        if !self.begun {
            self.begun = true;
            self.caller.progress.started();
        }
    }

    fn token(&mut self, index: usize, sampled: Sampled) {
        if self.lines.iter().all(|line| line.generated == 0) {
            self.begun = true;
            self.caller.progress.first_token();
        }
        let line = &mut self.lines[index];
        if !line.open {
            return;
        }
        line.generated += 1;
        let text = line.detokenizer.push(sampled.token);
        let stopping = line.stop.push(text);
        line.held.push(TokenReport { sampled });
        match stopping {
            Stopping::Text(text) if text.is_empty() => {}
            Stopping::Text(text) => {
                let tokens = std::mem::take(&mut line.held);
                self.ready.push_back(Piece::Text { index, text, tokens });
            }
            Stopping::Stopped { text, stop } => self.stopped_at(index, text, stop),
        }
    }

    fn stopped_at(&mut self, index: usize, text: String, stop: String) {
        let line = &mut self.lines[index];
        let tokens = std::mem::take(&mut line.held);
        let generated = line.generated;
        self.events.cancel(index as u32);
        self.ready.push_back(Piece::Text { index, text, tokens });
        let usage = Usage { prompt: self.prompt_len, cached: self.cached, generated, ..Usage::default() };
        self.close(index, Stopped::At(stop), usage);
    }

    fn finished(&mut self, index: usize, reason: FinishReason, usage: Usage) {
        // An engine that fell does not know which sequence it ended.
        let Some(index) = Some(index).filter(|i| self.lines[*i].open).or_else(|| self.any_open(&reason))
        else {
            return;
        };
        let stopped = match reason {
            FinishReason::End(_) | FinishReason::Complete | FinishReason::Cancelled => Stopped::End,
            FinishReason::Length => Stopped::Length,
            FinishReason::TimedOut => Stopped::Failed(self.timed_out()),
            FinishReason::Failed(error) => Stopped::Failed(error.into()),
        };
        self.caller.progress.finished(&usage);
        let line = &mut self.lines[index];
        line.generated = line.generated.max(usage.generated);
        let rest = line.detokenizer.finish();
        let (text, stop) = match line.stop.push(&rest) {
            Stopping::Text(text) => (text + &line.stop.finish(), None),
            Stopping::Stopped { text, stop } => (text, Some(stop)),
        };
        let tokens = std::mem::take(&mut line.held);
        if !text.is_empty() || !tokens.is_empty() {
            self.ready.push_back(Piece::Text { index, text, tokens });
        }
        self.close(index, stop.map_or(stopped, Stopped::At), usage);
    }

    /// Out of time, in the queue or at work.
    fn timed_out(&self) -> ApiError {
        if !self.begun && self.caller.queue_timeout.is_some() {
            let what =
                "the server has too much to do: the request waited longer than it may; try again later";
            return ApiError::new(Kind::Overloaded, what).coded("queue_timeout").retry_after(A_MOMENT);
        }
        let what = "the request took longer than it may; ask for less, or try again later";
        ApiError::new(Kind::TimedOut, what).coded("timeout")
    }

    fn any_open(&self, reason: &FinishReason) -> Option<usize> {
        let failed = matches!(reason, FinishReason::Failed(_));
        self.lines.iter().position(|line| line.open).filter(|_| failed)
    }

    fn close(&mut self, index: usize, stopped: Stopped, usage: Usage) {
        self.lines[index].open = false;
        self.open -= 1;
        self.ready.push_back(Piece::Done { index, stopped, usage });
    }
}

impl Drop for Answer {
    /// However it ends, what was computed is booked.
    fn drop(&mut self) {
        let generated = self.lines.iter().map(|line| line.generated).sum();
        self.caller.progress.ended(self.cached, generated);
        if let Some(permit) = &self.caller.permit {
            permit.spend(self.prompt_len - self.cached.min(self.prompt_len) + generated);
        }
    }
}

impl Stream for Answer {
    type Item = Piece;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Piece>> {
        loop {
            if let Some(piece) = self.ready.pop_front() {
                return Poll::Ready(Some(piece));
            }
            if self.open == 0 {
                return Poll::Ready(None);
            }
            match self.events.poll_next_unpin(context) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(Some(event)) => self.hear(event),
                Poll::Ready(None) => self.open = 0,
            }
        }
    }
}
