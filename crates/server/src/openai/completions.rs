//! `POST /v1/completions`: continue a text.

use std::sync::Arc;

use axum::Json;
use axum::response::{IntoResponse, Response};
use futures_util::{Stream, StreamExt, future, stream};
use ropeway_engine::Usage;
use serde::Deserialize;
use serde_json::{Value, json};
use utoipa::ToSchema;

use super::OpenAiError;
use super::sampling::Fields;
use super::{logprobs, sse, usage};
use crate::ask::{Ask, Opened, Wire};
use crate::error::ApiError;
use crate::generation::structure::{Extensions, Structure};
use crate::generation::{
    Answer, Caller, Job, Piece, Stopped, TokenReport, Whole, text_bytes, token_prompt, tokens,
};
use crate::identity::Identity;
use crate::model::Model;
use crate::offload::offload;

/// Prompts of one request; more belong into `/generate/batch` or a batch file.
const MOST_PROMPTS: usize = 256;

/// Default answer length, as in OpenAI's API.
const MAX_TOKENS: usize = 16;

/// What clients send.
#[derive(Clone, Debug, Deserialize, ToSchema)]
pub struct CompletionRequest {
    model: Option<String>,
    prompt: Value,
    max_tokens: Option<usize>,
    echo: Option<bool>,
    suffix: Option<String>,
    logprobs: Option<u32>,
    best_of: Option<usize>,
    response_format: Option<Value>,
    #[serde(flatten)]
    extensions: Extensions,
    #[serde(flatten)]
    fields: Fields,
}

/// One of the prompts.
struct Prompt {
    tokens: Vec<u32>,
    text: String,
}

impl Wire for CompletionRequest {
    fn model(&self) -> Option<&str> {
        self.model.as_deref()
    }

    fn user(&self) -> Option<&str> {
        self.fields.name()
    }

    fn priority(&self) -> Option<&str> {
        self.fields.class()
    }
}

pub async fn create(ask: Ask) -> Result<Response, OpenAiError> {
    let Opened::<CompletionRequest> { request, model, caller } = ask.open().await?;
    request.check()?;
    let prompts = prompts(&model, &request.prompt).await?;
    let mut answers = Vec::with_capacity(prompts.len());
    let structure = Structure::openai_or_vllm(request.response_format.as_ref(), &request.extensions)?;
    let grammar = match structure {
        Some(structure) => Some(structure.compile(&model, "").await?),
        None => None,
    };
    for prompt in &prompts {
        let job = Job { grammar: grammar.clone(), ..request.job(prompt, caller.clone())? };
        answers.push(job.submit(&model)?);
    }
    let render = Render { identity: Identity::new("cmpl-", &model.name), request, model, prompts };
    if render.request.fields.streams() {
        return Ok(sse::respond(render.stream(answers)));
    }
    Ok(Json(render.whole(answers).await?).into_response())
}

impl CompletionRequest {
    fn check(&self) -> Result<(), ApiError> {
        if self.suffix.as_ref().is_some_and(|suffix| !suffix.is_empty()) {
            return Err(
                ApiError::invalid("this model can't fill in before a suffix; leave it out").about("suffix")
            );
        }
        if self.best_of.is_some_and(|best| best != self.fields.n.unwrap_or(1)) {
            return Err(ApiError::invalid("best_of must equal n: every answer is returned").about("best_of"));
        }
        if self.echoes() && self.fields.streams() && self.logprobs.is_some() {
            return Err(
                ApiError::invalid("echo with logprobs can't be streamed; set stream to false").about("echo")
            );
        }
        Ok(())
    }

    fn echoes(&self) -> bool {
        self.echo.unwrap_or(false)
    }

    fn job(&self, prompt: &Prompt, caller: Caller) -> Result<Job, ApiError> {
        let mut job = Job { continues: true, ..Job::new(prompt.tokens.clone(), caller) };
        self.fields.clone().apply(&mut job)?;
        job.params.logprobs = self.logprobs;
        job.max_tokens = Some(self.max_tokens.unwrap_or(MAX_TOKENS));
        job.score_prompt = self.logprobs.filter(|_| self.echoes());
        Ok(job)
    }
}

/// A string, several, token ids, or several lists of them.
async fn prompts(model: &Arc<Model>, prompt: &Value) -> Result<Vec<Prompt>, ApiError> {
    let list = match prompt {
        Value::Array(list) if list.iter().any(|item| !item.is_number()) => list.as_slice(),
        one => std::slice::from_ref(one),
    };
    if list.len() > MOST_PROMPTS {
        return Err(
            ApiError::invalid(format!("at most {MOST_PROMPTS} prompts in one request")).about("prompt")
        );
    }
    let (model, list) = (Arc::clone(model), list.to_vec());
    let bytes = list.iter().map(text_bytes).sum();
    offload(bytes, move || list.iter().map(|prompt| one_prompt(&model, prompt)).collect()).await
}

fn one_prompt(model: &Model, prompt: &Value) -> Result<Prompt, ApiError> {
    match prompt {
        Value::String(text) => Ok(Prompt { tokens: tokens(model, text)?, text: text.clone() }),
        Value::Array(ids) => {
            let tokens = token_prompt(ids)?;
            let text = model.tokenizer.decode(&tokens, ropeway_text::SpecialTokens::Keep);
            Ok(Prompt { tokens, text })
        }
        _ => Err(ApiError::invalid("prompt must be text, token ids, or a list of either").about("prompt")),
    }
}

/// Everything that renders answers.
struct Render {
    identity: Identity,
    request: CompletionRequest,
    model: Arc<Model>,
    prompts: Vec<Prompt>,
}

impl Render {
    async fn whole(self, answers: Vec<Answer>) -> Result<Value, OpenAiError> {
        let wholes = future::try_join_all(answers.into_iter().map(Answer::whole)).await?;
        let (mut choices, mut all) = (Vec::new(), Vec::new());
        for (prompt, (wholes, scored)) in self.prompts.iter().zip(wholes) {
            for whole in wholes {
                choices.push(self.choice(choices.len(), prompt, &scored, &whole));
                all.push((prompt.tokens.len(), whole.usage));
            }
        }
        let mut response = self.identity.object("text_completion");
        response["choices"] = choices.into();
        response["usage"] = self.usage(&all);
        Ok(response)
    }

    fn choice(&self, index: usize, prompt: &Prompt, scored: &[TokenReport], whole: &Whole) -> Value {
        let echoed = if self.request.echoes() { prompt.text.as_str() } else { "" };
        json!({
            "index": index,
            "text": format!("{echoed}{}", whole.text),
            "logprobs": self.request.logprobs.map(|_| self.logprobs(prompt, scored, &whole.tokens)),
            "finish_reason": finish_reason(&whole.stopped),
        })
    }

    fn logprobs(&self, prompt: &Prompt, scored: &[TokenReport], new: &[TokenReport]) -> Value {
        let reports = std::iter::once(None).chain(scored.iter().cloned().map(Some));
        let echoed = prompt.tokens.iter().copied().zip(reports).filter(|_| self.request.echoes());
        let new = new.iter().cloned().map(|report| (report.sampled.token, Some(report)));
        logprobs::completions(&self.model.tokenizer, echoed.chain(new), 0)
    }

    /// Every prompt counts once, however many answers it got.
    fn usage(&self, answers: &[(usize, Usage)]) -> Value {
        let n = self.request.fields.n.unwrap_or(1).max(1);
        let firsts = answers.iter().step_by(n);
        let (prompt, cached) =
            firsts.fold((0, 0), |(prompt, cached), (len, usage)| (prompt + len, cached + usage.cached));
        usage::totals(prompt, cached, answers.iter().map(|(_, usage)| usage.generated).sum())
    }

    fn stream(self, answers: Vec<Answer>) -> impl Stream<Item = Value> + Send + 'static {
        let n = self.request.fields.n.unwrap_or(1).max(1);
        let numbered = answers
            .into_iter()
            .enumerate()
            .map(move |(prompt, answer)| answer.map(move |piece| (prompt, piece)));
        let mut usages = vec![(0, Usage::default()); self.prompts.len() * n];
        let mut ended = false;
        let mut pieces = stream::select_all(numbered);
        let mut greeted = !self.request.echoes();
        stream::poll_fn(move |context| {
            use std::task::Poll;
            if !greeted {
                greeted = true;
                let echo = |(i, prompt): (usize, &Prompt)| self.text(i * n, &prompt.text, &[], None);
                return Poll::Ready(Some(self.prompts.iter().enumerate().map(echo).collect::<Vec<_>>()));
            }
            match pieces.poll_next_unpin(context) {
                Poll::Pending => Poll::Pending,
                Poll::Ready(Some((prompt, piece))) => {
                    Poll::Ready(Some(self.piece(prompt, n, piece, &mut usages).into_iter().collect()))
                }
                Poll::Ready(None) if ended || !self.request.fields.includes_usage() => Poll::Ready(None),
                Poll::Ready(None) => {
                    ended = true;
                    let mut last = self.identity.object("text_completion");
                    (last["choices"], last["usage"]) = (json!([]), self.usage(&usages));
                    Poll::Ready(Some(vec![last]))
                }
            }
        })
        .flat_map(stream::iter)
    }

    fn piece(&self, prompt: usize, n: usize, piece: Piece, usages: &mut [(usize, Usage)]) -> Option<Value> {
        match piece {
            Piece::Reading | Piece::Scored(_) => None,
            Piece::Text { index, text, tokens } => Some(self.text(prompt * n + index, &text, &tokens, None)),
            Piece::Done { stopped: Stopped::Failed(error), .. } => Some(OpenAiError(error).body()),
            Piece::Done { index, stopped, usage } => {
                usages[prompt * n + index] = (self.prompts[prompt].tokens.len(), usage);
                Some(self.text(prompt * n + index, "", &[], Some(&stopped)))
            }
        }
    }

    fn text(&self, index: usize, text: &str, tokens: &[TokenReport], stopped: Option<&Stopped>) -> Value {
        let reports = tokens.iter().cloned().map(|report| (report.sampled.token, Some(report)));
        let logprobs = self.request.logprobs.filter(|_| !tokens.is_empty());
        let mut chunk = self.identity.object("text_completion");
        chunk["choices"] = json!([{
            "index": index,
            "text": text,
            "logprobs": logprobs.map(|_| logprobs::completions(&self.model.tokenizer, reports, 0)),
            "finish_reason": stopped.map(finish_reason),
        }]);
        chunk
    }
}

/// Why an answer ended, in OpenAI's words.
pub fn finish_reason(stopped: &Stopped) -> &'static str {
    match stopped {
        Stopped::End | Stopped::At(_) => "stop",
        Stopped::Length => "length",
        Stopped::Failed(_) => "error",
    }
}
