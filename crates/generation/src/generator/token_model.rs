//! A model whose tokens are chosen through its own tokenizer here: prompts to tokens, tokens to text.

use std::sync::{Arc, PoisonError, RwLock};

use ropeway_engine::request::room;
use ropeway_engine::{Backend, Request};
use ropeway_grammar::{Compiler, Workers};
use ropeway_text::{ChatTemplate, Interrupt, OutputOptions, OutputParser, OutputStyle, Tokenizer};

use super::{Drafted, Form, Prepared};
use crate::choice::ChoiceText;
use crate::conversation::Ending;
use crate::error::RequestError;
use crate::job::{Job, Prompt};
use crate::speculation::DraftDepth;
use crate::stream::TokenStream;

/// A model's tokenizer, chat template and grammars, and the backend that computes its tokens.
pub struct TokenModel {
    /// Text to tokens and back.
    pub tokenizer: Tokenizer,
    /// Messages to text.
    pub template: ChatTemplate,
    /// How the model writes tool calls and reasoning.
    pub style: OutputStyle,
    /// Compiled grammars.
    pub grammars: Arc<Compiler>,
    /// Bytes of the longest token, where that tells how many tokens a text has at least.
    pub(super) longest_token: Option<usize>,
    /// Shared with generators of the same model that write prompts by another template.
    backend: Arc<RwLock<Arc<dyn Backend>>>,
}

/// How tokens become text.
#[derive(Clone, Debug)]
pub(super) enum OutputForm {
    /// They continue the prompt's text.
    Continuation,
    /// They are a message of their own.
    Message {
        /// What it is parsed for, if for anything.
        options: Option<OutputOptions>,
        /// Whether it ends before a second call of a tool.
        single_call: bool,
        /// Whether its beginning is part of the prompt.
        begun: bool,
    },
}

impl TokenModel {
    pub(super) fn new(tokenizer: Tokenizer, template: ChatTemplate, backend: Arc<dyn Backend>) -> Self {
        let style = style_of(&template, &tokenizer);
        let longest_token = tokenizer.longest_token();
        let grammars = Arc::new(Compiler::new(&tokenizer));
        let backend = Arc::new(RwLock::new(backend));
        Self { tokenizer, template, style, grammars, longest_token, backend }
    }

    /// The same model on the same backend, with another chat template.
    pub(super) fn with_template(&self, template: ChatTemplate) -> Self {
        Self {
            tokenizer: self.tokenizer.clone(),
            style: style_of(&template, &self.tokenizer),
            template,
            grammars: Arc::clone(&self.grammars),
            longest_token: self.longest_token,
            backend: Arc::clone(&self.backend),
        }
    }

    /// Grammars of strangers are tried by these workers before this process compiles them.
    pub(super) fn with_grammar_workers(mut self, workers: Workers) -> Self {
        let grammars = Arc::into_inner(self.grammars).unwrap_or_else(|| Compiler::new(&self.tokenizer));
        self.grammars = Arc::new(grammars.with_workers(workers));
        self
    }

    /// What computes it.
    pub fn backend(&self) -> Arc<dyn Backend> {
        Arc::clone(&self.backend.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Another backend takes over; requests of the old one end with it.
    pub fn replace_backend(&self, backend: Arc<dyn Backend>) {
        *self.backend.write().unwrap_or_else(PoisonError::into_inner) = backend;
    }

    /// Tokens that a prompt and its answer may have together.
    pub fn context(&self) -> usize {
        room(&self.backend().limits())
    }

    /// Bytes beyond which no text fits into the context, however it is tokenised.
    pub fn max_prompt_bytes(&self) -> usize {
        self.longest_token.map_or(usize::MAX, |longest| longest.saturating_mul(self.context()))
    }

    /// Renders the template and tokenises.
    pub(super) fn draft(&self, job: Job, interrupt: &Interrupt) -> Result<Drafted, RequestError> {
        let Job { prompt, context, structured, prediction, .. } = job;
        // A prompt that is to be cut may be longer than the context.
        let most = if job.last_prompt_tokens.is_some() { usize::MAX } else { self.context() };
        let tokenizer = self.tokenizer.interrupted_by(interrupt).at_most(most);
        let (mut tokens, form, structured) = match prompt {
            Prompt::Conversation(mut conversation) => {
                let tokens = conversation.encode(self, &tokenizer)?;
                let options = conversation.output_options(&self.style, &self.prompt_end(&tokens));
                let (single_call, begun) =
                    (conversation.single_call, conversation.ending == Ending::Continue);
                let form = OutputForm::Message { options, single_call, begun };
                (tokens, form, conversation.structured(structured))
            }
            Prompt::Text(text) => {
                (self.encode_text(&text, &tokenizer)?, OutputForm::Continuation, structured)
            }
            Prompt::Between { prefix, suffix } => {
                (self.encode_between(&prefix, &suffix, &tokenizer)?, OutputForm::Continuation, structured)
            }
            Prompt::Tokens(tokens) => (tokens, OutputForm::Continuation, structured),
        };
        if let Some(most) = job.last_prompt_tokens {
            tokens.drain(..tokens.len().saturating_sub(most));
        }
        let grammar = structured.map(|structured| structured.after(self, &self.prompt_end(&tokens)));
        if !context.is_empty() {
            tokens.splice(..0, context);
        }
        let prediction = prediction.map(|text| self.predict(&text, &tokenizer)).transpose()?;
        let own_ends = if job.ignore_eos { &[] } else { self.tokenizer.eos_tokens() };
        let mut params = job.sampling.into_params();
        let banned = self.single_tokens(&job.bad_words)?;
        params.logit_bias = params.logit_bias.with_banned(banned);
        let request = Request {
            prompt: tokens,
            params,
            max_tokens: job.max_tokens,
            min_tokens: job.min_tokens,
            score_prompt: job.prompt_logprobs,
            ends: [own_ends, &job.stop_tokens].concat(),
            n: job.n.get(),
            speculation: job.speculation.map(DraftDepth::get),
            prediction: prediction.unwrap_or_default(),
            ..Request::default()
        };
        let form = Form::Tokens { form, stop: job.stop, at_once: job.tokens_at_once };
        Ok(Drafted { prepared: Prepared { request, form }, grammar })
    }

    /// Hands a request to the backend.
    pub(super) fn submit(
        &self,
        request: Request,
        form: &OutputForm,
        stop: &[String],
    ) -> Result<TokenStream, RequestError> {
        let choices = (0..request.sequences()).map(|_| self.choice(form, stop)).collect();
        let prompt_tokens = request.prompt.len();
        let queue_timeout = request.queue_timeout;
        let events = self.backend().submit(request)?;
        Ok(TokenStream::new(events, choices, prompt_tokens, queue_timeout))
    }

    fn choice(&self, form: &OutputForm, stop: &[String]) -> ChoiceText {
        let detokenizer = self.tokenizer.detokenizer();
        match form {
            OutputForm::Continuation => ChoiceText::new(detokenizer.continuing(), stop, None),
            OutputForm::Message { options, single_call, begun } => {
                let parser = options.clone().map(|options| OutputParser::new(&self.style, options));
                let detokenizer = detokenizer.showing(self.style.markup());
                let detokenizer = if *begun { detokenizer.continuing() } else { detokenizer };
                let mut choice = ChoiceText::new(detokenizer, stop, parser);
                choice.most_calls = if *single_call { 1 } else { usize::MAX };
                choice
            }
        }
    }
}

/// How a model with this template and vocabulary writes tool calls and reasoning.
fn style_of(template: &ChatTemplate, tokenizer: &Tokenizer) -> OutputStyle {
    OutputStyle::detect(Some(template.source()), |token| tokenizer.token_id(token).is_some())
}
