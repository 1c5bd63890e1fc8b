//! A model that generates text: its tokenizer, its chat template, its grammars, and the backend that computes it.

use std::sync::{Arc, PoisonError, RwLock};

use ropeway_engine::request::room;
use ropeway_engine::{Backend, Request};
use ropeway_grammar::{Admitted, Compiler, Workers};
use ropeway_text::{
    Around, ChatTemplate, InText, Infill, Interrupt, OutputOptions, OutputParser, OutputStyle, Special,
    SpecialTokens, TextError, Tokenizer,
};

use crate::choice::ChoiceText;
use crate::conversation::Ending;
use crate::error::{ErrorKind, Excess, RequestError};
use crate::job::{Job, Prompt};
use crate::speculation::DraftDepth;
use crate::stream::GenerationStream;
use crate::structured::GrammarWish;

/// Tokens at the end of a prompt in which a template may have opened the model's reasoning.
const PROMPT_END: usize = 16;

/// How the middle of a text is tokenised, in which nothing is special: a predicted answer, one that was begun.
const MIDDLE: Special = Special { in_text: InText::Plain, around: Around::Omit };

/// A model that generates text.
pub struct Generator {
    /// Text to tokens and back.
    pub tokenizer: Tokenizer,
    /// Messages to text.
    pub template: ChatTemplate,
    /// How the model writes tool calls and reasoning.
    pub style: OutputStyle,
    /// Compiled grammars.
    pub grammars: Arc<Compiler>,
    /// Bytes of the longest token, where that tells how many tokens a text has at least.
    longest_token: Option<usize>,
    /// Shared with generators of the same model that write prompts by another template.
    backend: Arc<RwLock<Arc<dyn Backend>>>,
}

/// A job ready to be submitted. Whoever submits it may still set who it is for, how urgent it is and its deadlines.
#[derive(Debug)]
pub struct Prepared {
    /// What the backend gets.
    pub request: Request,
    /// How its tokens become text.
    form: OutputForm,
    stop: Vec<String>,
}

/// A job whose grammar, if it has one, is not compiled yet.
#[derive(Debug)]
pub struct Drafted {
    prepared: Prepared,
    grammar: Option<GrammarWish>,
}

impl Drafted {
    /// Tokens of its prompt.
    pub fn prompt_tokens(&self) -> usize {
        self.prepared.request.prompt.len()
    }

    /// Tokens of the predicted answer.
    pub fn prediction_tokens(&self) -> usize {
        self.prepared.request.prediction.len()
    }
}

/// A job whose grammar is known to compile within the limits.
#[derive(Debug)]
pub struct AdmittedDraft {
    prepared: Prepared,
    grammar: Option<(GrammarWish, Admitted)>,
}

impl AdmittedDraft {
    /// Whether a grammar has to be compiled.
    pub fn has_grammar(&self) -> bool {
        self.grammar.is_some()
    }
}

/// How tokens become text.
#[derive(Clone, Debug)]
enum OutputForm {
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

impl Generator {
    /// A model on a running backend.
    pub fn new(tokenizer: Tokenizer, template: ChatTemplate, backend: Arc<dyn Backend>) -> Self {
        let style = style_of(&template, &tokenizer);
        let longest_token = tokenizer.longest_token();
        let grammars = Arc::new(Compiler::new(&tokenizer));
        let backend = Arc::new(RwLock::new(backend));
        Self { tokenizer, template, style, grammars, longest_token, backend }
    }

    /// The same model on the same backend, with another chat template.
    #[must_use]
    pub fn with_template(&self, template: ChatTemplate) -> Self {
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
    #[must_use]
    pub fn with_grammar_workers(mut self, workers: Workers) -> Self {
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

    /// The model's tokens for a prompt, also for one that does not fit into the context.
    pub fn encode(&self, prompt: Prompt) -> Result<Vec<u32>, RequestError> {
        self.encode_unless(prompt, &Interrupt::default())
    }

    /// The model's tokens for a prompt, also for one that does not fit into the context; gives up when `interrupt` is
    /// raised.
    pub fn encode_unless(&self, prompt: Prompt, interrupt: &Interrupt) -> Result<Vec<u32>, RequestError> {
        let tokenizer = self.tokenizer.interrupted_by(interrupt);
        match prompt {
            Prompt::Conversation(mut conversation) => conversation.encode(self, &tokenizer),
            Prompt::Text(text) => self.encode_text(&text, &tokenizer),
            Prompt::Between { prefix, suffix } => self.encode_between(&prefix, &suffix, &tokenizer),
            Prompt::Tokens(tokens) => Ok(tokens),
        }
    }

    /// Whether the model was trained to fill in what is missing between two texts.
    pub fn fills_in(&self) -> bool {
        Infill::of(&self.tokenizer).is_some()
    }

    fn encode_between(
        &self,
        prefix: &str,
        suffix: &str,
        tokenizer: &Tokenizer,
    ) -> Result<Vec<u32>, RequestError> {
        let Some(infill) = Infill::of(tokenizer) else {
            let message = "this model can't fill in before a suffix: it has no tokens for that; leave it out";
            return Err(RequestError::invalid(message).at("suffix"));
        };
        let part = |text: &str| tokenizer.encode(text, MIDDLE).map_err(|error| self.unread(error));
        Ok(infill.prompt(part(prefix)?, part(suffix)?))
    }

    /// The tokens of an answer's beginning, after those of its prompt: thoughts that the template opened are over then.
    pub(crate) fn encode_begun(
        &self,
        prompt: &[u32],
        text: &str,
        tokenizer: &Tokenizer,
    ) -> Result<Vec<u32>, RequestError> {
        let mut tokens = Vec::new();
        if let Some(close) = self.style.open_reasoning(&self.prompt_end(prompt)) {
            let close = tokenizer.encode(&format!("{close}\n\n"), Special::TEMPLATE);
            tokens.extend(close.map_err(|error| self.unread(error))?);
        }
        tokens.extend(tokenizer.encode(text, MIDDLE).map_err(|error| self.unread(error))?);
        Ok(tokens)
    }

    /// The tokens that words consist of, each with and without a space before it.
    fn single_tokens(&self, words: &[String]) -> Result<Vec<u32>, RequestError> {
        let mut tokens = Vec::new();
        for word in words {
            if word.trim().is_empty() {
                return Err(RequestError::invalid("a word has at least one character").at("bad_words"));
            }
            let before = tokens.len();
            for form in [word.clone(), format!(" {}", word.trim_start())] {
                if let [token] = self.tokenizer.encode(&form, MIDDLE)?[..] {
                    tokens.push(token);
                }
            }
            if tokens.len() == before {
                let message = format!(
                    "{word:?} is more than one token to this model, and can't be kept out of its answer; leave it out"
                );
                return Err(RequestError::invalid(message).at("bad_words"));
            }
        }
        Ok(tokens)
    }

    fn encode_text(&self, text: &str, tokenizer: &Tokenizer) -> Result<Vec<u32>, RequestError> {
        if text.len() > self.max_prompt_bytes() {
            return Err(self.prompt_too_long());
        }
        tokenizer.encode(text, Special::PROMPT).map_err(|error| self.unread(error))
    }

    /// The error for a prompt that could not be turned into tokens.
    pub(crate) fn unread(&self, error: TextError) -> RequestError {
        match error {
            TextError::TemplateTooLong(_) if self.longest_token.is_some() => self.prompt_too_long(),
            TextError::TooManyTokens { most } => self.too_many_tokens(most),
            other => other.into(),
        }
    }

    /// The error for a prompt that was given up after so many tokens.
    fn too_many_tokens(&self, most: usize) -> RequestError {
        let room = self.context();
        let message = format!(
            "This model's maximum context length is {room} tokens for prompt and answer together. However, the prompt has more \
             than {most} tokens; shorten it, or raise --context or --kv-memory"
        );
        RequestError::too_long(Excess { tokens: most + 1, room }, message)
    }

    /// The error for a text that can't fit, however it is tokenised.
    fn prompt_too_long(&self) -> RequestError {
        let (bytes, room) = (self.max_prompt_bytes(), self.context());
        let message = format!(
            "This model's maximum context length is {room} tokens for prompt and answer together. However, the prompt has more \
             than {bytes} bytes, which never fit; shorten it, or raise --context or --kv-memory"
        );
        RequestError::too_long(Excess { tokens: room + 1, room }, message)
    }

    /// The model's tokens for a predicted answer, which may have as many as a prompt.
    fn predict(&self, text: &str, tokenizer: &Tokenizer) -> Result<Vec<u32>, RequestError> {
        let room = self.context();
        if text.len() <= self.max_prompt_bytes() {
            match tokenizer.encode(text, MIDDLE) {
                Ok(tokens) if tokens.len() < room => return Ok(tokens),
                Ok(_) | Err(TextError::TooManyTokens { .. }) => {}
                Err(error) => return Err(error.into()),
            }
        }
        let message = format!(
            "the prediction does not fit into the {room} tokens that prompt and answer have room for; shorten it to what \
             the answer may hold"
        );
        Err(RequestError::new(ErrorKind::ContextLengthExceeded, message).at("prediction"))
    }

    /// Renders the template, tokenises and compiles the grammar. Blocks for a time that grows with
    /// [`Job::bytes`], and for structured output as long as [`Compiler::compile`].
    pub fn prepare(&self, job: Job) -> Result<Prepared, RequestError> {
        let Drafted { mut prepared, grammar } = self.draft(job, &Interrupt::default())?;
        let compiled = grammar.map(|grammar| grammar.admit_and_compile(&self.grammars));
        prepared.request.grammar = compiled.transpose()?;
        Ok(prepared)
    }

    /// Renders the template and tokenises. Blocks for a time that grows with [`Job::bytes`], but gives up when there are more
    /// tokens than the context has room for, or when `interrupt` is raised, because nobody waits for the result any more.
    pub fn draft(&self, job: Job, interrupt: &Interrupt) -> Result<Drafted, RequestError> {
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
        params.logit_bias.extend(banned.into_iter().map(|token| (token, f32::NEG_INFINITY)));
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
        Ok(Drafted { prepared: Prepared { request, form, stop: job.stop }, grammar })
    }

    /// Finds out whether a draft's grammar compiles within the limits, in the name of an account, without blocking.
    /// Dropped before it is done, the work ends.
    pub async fn admit(&self, drafted: Drafted, account: u64) -> Result<AdmittedDraft, RequestError> {
        let Drafted { prepared, grammar } = drafted;
        let Some(grammar) = grammar else { return Ok(AdmittedDraft { prepared, grammar: None }) };
        let admitted = grammar.admit(&self.grammars, account).await?;
        Ok(AdmittedDraft { prepared, grammar: Some((grammar, admitted)) })
    }

    /// Compiles a draft's grammar. Blocks for as long as it took to admit it.
    pub fn finish(&self, draft: AdmittedDraft) -> Result<Prepared, RequestError> {
        let AdmittedDraft { mut prepared, grammar } = draft;
        let compiled = grammar.map(|(grammar, admitted)| grammar.compile(&self.grammars, &admitted));
        prepared.request.grammar = compiled.transpose()?;
        Ok(prepared)
    }

    /// Hands a prepared job to the backend. Never waits: what can't be served, or not now, is turned down at once.
    pub fn submit(&self, prepared: Prepared) -> Result<GenerationStream, RequestError> {
        let Prepared { request, form, stop } = prepared;
        let choices = (0..request.sequences()).map(|_| self.choice(&form, &stop)).collect();
        let prompt_tokens = request.prompt.len();
        let queue_timeout = request.queue_timeout;
        let events = self.backend().submit(request)?;
        Ok(GenerationStream::new(events, choices, prompt_tokens, queue_timeout))
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

    /// The end of a prompt, as text.
    fn prompt_end(&self, tokens: &[u32]) -> String {
        let from = tokens.len().saturating_sub(PROMPT_END);
        self.tokenizer.decode(&tokens[from..], SpecialTokens::Keep)
    }
}

/// How a model with this template and vocabulary writes tool calls and reasoning.
fn style_of(template: &ChatTemplate, tokenizer: &Tokenizer) -> OutputStyle {
    OutputStyle::detect(Some(template.source()), |token| tokenizer.token_id(token).is_some())
}
