//! Completions as clients receive them: whole, or as a stream of chunks.

use std::task::Poll;

use futures_util::{Stream, StreamExt, stream};
use ropeway_engine::Usage;
use ropeway_executor::Sampled;
use ropeway_generation::{Choice, Finish, Generated, GenerationEvent, Identity, StopReason, text_of};
use ropeway_text::Tokenizer;
use serde_json::{Value, json};

use super::CompletionShape;
use crate::logprobs::TokenNames;
use crate::object::object;
use crate::{error, logprobs, usage};

/// What an echo shows of a prompt.
#[derive(Clone, Debug, Default)]
pub struct PromptEcho {
    /// Its text; empty if nothing is echoed.
    pub text: String,
    /// Its first token, which has no probability.
    pub first: Option<u32>,
    /// All of its tokens, if the response has ids.
    pub tokens: Vec<u32>,
}

impl PromptEcho {
    /// Of a prompt with these tokens, for a response of this shape.
    pub fn new(text: String, tokens: &[u32], shape: &CompletionShape) -> Self {
        let ids = if shape.tokens.ids { tokens.to_vec() } else { Vec::new() };
        Self { text, first: tokens.first().copied(), tokens: ids }
    }
}

/// Renders the answers to one request's prompts.
pub struct CompletionRender {
    /// The response's name.
    pub identity: Identity,
    /// For the texts of tokens; where there is none, no log-probabilities were asked for.
    pub tokenizer: Option<Tokenizer>,
    /// How the response looks.
    pub shape: CompletionShape,
    /// The request's prompts.
    pub prompts: Vec<PromptEcho>,
}

impl CompletionRender {
    /// The whole response; what was generated is in the order of the prompts.
    pub fn whole(&self, generated: &[Generated]) -> Value {
        let (mut choices, mut usages) = (Vec::new(), Vec::new());
        for (prompt, generated) in self.prompts.iter().zip(generated) {
            for choice in &generated.choices {
                choices.push(self.choice(choices.len(), prompt, &generated.prompt_logprobs, choice));
                usages.push(choice.finish.usage);
            }
        }
        let mut response = object(&self.identity, "text_completion");
        response["choices"] = choices.into();
        response["usage"] = self.usage(&usages);
        response
    }

    fn choice(&self, index: usize, prompt: &PromptEcho, scored: &[Sampled], choice: &Choice) -> Value {
        let (first, echoed) = if self.shape.echo { (prompt.first, scored) } else { (None, &[][..]) };
        let logprobs = |names| {
            let tokens = echoed.iter().chain(&choice.tokens);
            logprobs::completions(names, first, tokens, &mut 0)
        };
        let mut rendered = json!({
            "index": index,
            "text": format!("{}{}", prompt.text, choice.text),
            "logprobs": self.for_logprobs().map(logprobs),
            "finish_reason": finish_reason(&choice.finish.reason),
        });
        if let Some(tokenizer) = self.tokenizer.as_ref().filter(|_| self.shape.prompt_logprobs.is_some()) {
            rendered["prompt_logprobs"] = logprobs::prompt(tokenizer, scored);
        }
        if self.shape.tokens.ids {
            rendered["prompt_token_ids"] = prompt.tokens.as_slice().into();
            show_ids(&mut rendered, &choice.tokens, choice.finish.end_token);
        }
        rendered
    }

    /// How tokens are named, if log-probabilities are wanted.
    fn for_logprobs(&self) -> Option<TokenNames<'_>> {
        let by_id = self.shape.tokens.named_by_id;
        self.tokenizer
            .as_ref()
            .filter(|_| self.shape.logprobs)
            .map(|tokenizer| TokenNames { tokenizer, by_id })
    }

    /// Every prompt counts once, however many choices it got.
    fn usage(&self, usages: &[Usage]) -> Value {
        let firsts = usages.iter().step_by(self.shape.n);
        let (prompt, cached) =
            firsts.fold((0, 0), |(prompt, cached), usage| (prompt + usage.prompt, cached + usage.cached));
        usage::totals(prompt, cached, usages.iter().map(|usage| usage.generated).sum())
    }

    /// Chunks of all prompts' choices as they are generated.
    pub fn stream(
        self,
        events: Vec<impl Stream<Item = GenerationEvent> + Send + Unpin + 'static>,
    ) -> impl Stream<Item = Value> + Send + 'static {
        let n = self.shape.n;
        let numbered = events
            .into_iter()
            .enumerate()
            .map(move |(prompt, events)| events.map(move |event| (prompt, event)));
        let mut told = Told::new(self.prompts.iter().flat_map(|prompt| std::iter::repeat_n(prompt, n)));
        let mut ended = false;
        let mut events = stream::select_all(numbered);
        let mut echoed = !self.shape.echo;
        stream::poll_fn(move |context| {
            if !echoed {
                echoed = true;
                let echo = |index: usize| self.text(index, &self.prompts[index / n].text, None, None);
                return Poll::Ready(Some((0..self.prompts.len() * n).map(echo).collect::<Vec<_>>()));
            }
            match events.poll_next_unpin(context) {
                Poll::Pending => Poll::Pending,
                Poll::Ready(Some((prompt, event))) => {
                    Poll::Ready(Some(self.event(prompt * n, event, &mut told).into_iter().collect()))
                }
                Poll::Ready(None) if ended || !self.shape.include_usage => Poll::Ready(None),
                Poll::Ready(None) => {
                    ended = true;
                    let mut last = object(&self.identity, "text_completion");
                    (last["choices"], last["usage"]) = (json!([]), self.usage(&told.usages));
                    Poll::Ready(Some(vec![last]))
                }
            }
        })
        .flat_map(stream::iter)
    }

    /// `first` is the number of the prompt's first choice among all.
    fn event(&self, first: usize, event: GenerationEvent, told: &mut Told) -> Option<Value> {
        match event {
            GenerationEvent::Placed { .. }
            | GenerationEvent::PromptProgress { .. }
            | GenerationEvent::PromptLogprob(_) => None,
            GenerationEvent::Output { choice, deltas, tokens } => {
                let offset = &mut told.characters[first + choice];
                let logprobs = self.for_logprobs().filter(|_| !tokens.is_empty());
                let logprobs = logprobs.map(|names| logprobs::completions(names, None, &tokens, offset));
                let mut chunk = self.text(first + choice, &text_of(deltas), logprobs, None);
                self.show_ids(&mut chunk, first + choice, told, (&tokens, None));
                Some(chunk)
            }
            GenerationEvent::Finished {
                finish: Finish { reason: StopReason::Failed(failed), .. }, ..
            } => Some(error::body(&failed)),
            GenerationEvent::Finished { choice, finish } => {
                told.usages[first + choice] = finish.usage;
                let mut chunk = self.text(first + choice, "", None, Some(&finish.reason));
                self.show_ids(&mut chunk, first + choice, told, (&[], finish.end_token));
                Some(chunk)
            }
        }
    }

    /// Adds ids to a chunk, if they are wanted: its own, and the prompt's to the first.
    fn show_ids(&self, chunk: &mut Value, index: usize, told: &mut Told, news: (&[Sampled], Option<u32>)) {
        if !self.shape.tokens.ids {
            return;
        }
        let choice = &mut chunk["choices"][0];
        show_ids(choice, news.0, news.1);
        if !std::mem::replace(&mut told.prompts[index], true) {
            choice["prompt_token_ids"] = self.prompts[index / self.shape.n].tokens.as_slice().into();
        }
    }

    fn text(&self, index: usize, text: &str, logprobs: Option<Value>, reason: Option<&StopReason>) -> Value {
        let mut chunk = object(&self.identity, "text_completion");
        chunk["choices"] = json!([{
            "index": index,
            "text": text,
            "logprobs": logprobs.unwrap_or_default(),
            "finish_reason": reason.map(finish_reason),
        }]);
        chunk
    }
}

/// Adds the ids of a choice's tokens, its end token included, and names the latter as the reason, as vLLM does.
pub(crate) fn show_ids(choice: &mut Value, tokens: &[Sampled], end: Option<u32>) {
    choice["token_ids"] = tokens.iter().map(|sampled| sampled.token).chain(end).collect();
    choice["stop_reason"] = end.into();
}

/// What a stream has told of each choice.
struct Told {
    usages: Vec<Usage>,
    /// Whether its prompt's ids were told.
    prompts: Vec<bool>,
    /// Characters, those of the echo included.
    characters: Vec<usize>,
}

impl Told {
    /// Nothing but the echoes of these choices' prompts.
    fn new<'a>(echoes: impl Iterator<Item = &'a PromptEcho>) -> Self {
        let characters: Vec<_> = echoes.map(|echo| echo.text.chars().count()).collect();
        let choices = characters.len();
        Self { usages: vec![Usage::default(); choices], prompts: vec![false; choices], characters }
    }
}

/// Why a choice ended, in OpenAI's words.
pub fn finish_reason(reason: &StopReason) -> &'static str {
    match reason {
        StopReason::EndOfText | StopReason::StopString(_) => "stop",
        StopReason::Length => "length",
        StopReason::Failed(_) => "error",
    }
}
