//! A model that generates text, in one of two ways.
//!
//! ```text
//! Tokens   tokenizer, template and grammars are here; a Backend computes tokens       an engine, or a server that speaks tokens
//! Text     a ChatBackend answers as text, and keeps its tokens to itself              any other server
//! ```
//! Callers submit jobs and read events without knowing which it is. Whoever needs tokens asks for the
//! [`TokenModel`], which a model of the second kind does not have.

mod encoding;
mod token_model;

use std::sync::Arc;

use ropeway_engine::{Backend, Request};
use ropeway_grammar::{Admitted, Workers};
use ropeway_text::{ChatTemplate, Infill, Interrupt, Tokenizer};

pub use self::token_model::TokenModel;

use self::token_model::OutputForm;
use crate::backend::AnyBackend;
use crate::chat::{self, ChatAsk, ChatBackend};
use crate::error::RequestError;
use crate::job::{Job, Prompt};
use crate::stream::{ChatStream, GenerationStream};
use crate::structured::GrammarWish;

/// A model that generates text.
pub struct Generator {
    speech: Speech,
}

/// How a model answers.
enum Speech {
    Tokens(Box<TokenModel>),
    Text(Arc<dyn ChatBackend>),
}

/// A job ready to be submitted. Whoever submits it may still set who it is for, how urgent it is and its deadlines.
#[derive(Debug)]
pub struct Prepared {
    /// What the backend gets. It has no prompt where the job itself is handed over.
    pub request: Request,
    form: Form,
}

/// What becomes of a request's answer.
#[derive(Debug)]
enum Form {
    /// Tokens become text here.
    Tokens { form: OutputForm, stop: Vec<String>, at_once: bool },
    /// It comes as text; the backend gets the job as it is.
    Text(Box<Job>),
}

/// A job whose grammar, if it has one, is not compiled yet.
#[derive(Debug)]
pub struct Drafted {
    prepared: Prepared,
    grammar: Option<GrammarWish>,
}

impl Drafted {
    /// Tokens of its prompt; 0 where nobody here can count them.
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

impl Generator {
    /// A model on a running backend that speaks tokens.
    pub fn new(tokenizer: Tokenizer, template: ChatTemplate, backend: Arc<dyn Backend>) -> Self {
        Self { speech: Speech::Tokens(Box::new(TokenModel::new(tokenizer, template, backend))) }
    }

    /// A model that answers as text: no tokenizer is here.
    pub fn of_chat(backend: Arc<dyn ChatBackend>) -> Self {
        Self { speech: Speech::Text(backend) }
    }

    /// The same model on the same backend, with another chat template. An error where prompts are not written here.
    pub fn with_template(&self, template: ChatTemplate) -> Result<Self, RequestError> {
        let model = Box::new(self.token_model()?.with_template(template));
        Ok(Self { speech: Speech::Tokens(model) })
    }

    /// Grammars of strangers are tried by these workers before this process compiles them.
    #[must_use]
    pub fn with_grammar_workers(self, workers: Workers) -> Self {
        let speech = match self.speech {
            Speech::Tokens(model) => Speech::Tokens(Box::new(model.with_grammar_workers(workers))),
            text @ Speech::Text(_) => text,
        };
        Self { speech }
    }

    /// The tokenizer, and all that goes with it. The error, where there is none, is for whoever asked for what needs it.
    pub fn token_model(&self) -> Result<&TokenModel, RequestError> {
        match &self.speech {
            Speech::Tokens(model) => Ok(model),
            Speech::Text(_) => Err(chat::no_tokenizer()),
        }
    }

    /// Text to tokens and back, where that can be done here.
    pub fn tokenizer(&self) -> Option<&Tokenizer> {
        self.token_model().ok().map(|model| &model.tokenizer)
    }

    /// What answers its requests.
    pub fn backend(&self) -> AnyBackend {
        match &self.speech {
            Speech::Tokens(model) => AnyBackend::Tokens(model.backend()),
            Speech::Text(backend) => AnyBackend::Text(Arc::clone(backend)),
        }
    }

    /// Tokens that a prompt and its answer may have together.
    pub fn context(&self) -> usize {
        self.backend().context()
    }

    /// Bytes beyond which no text fits into the context, however it is tokenised.
    pub fn max_prompt_bytes(&self) -> usize {
        self.token_model().map_or(usize::MAX, TokenModel::max_prompt_bytes)
    }

    /// Whether it calls tools, as far as is known.
    pub fn calls_tools(&self) -> bool {
        match &self.speech {
            Speech::Tokens(model) => model.template.writes_tools(),
            Speech::Text(backend) => backend.abilities().tools,
        }
    }

    /// Whether it thinks before it answers, told apart from the answer, as far as is known.
    pub fn thinks(&self) -> bool {
        match &self.speech {
            Speech::Tokens(model) => model.style.has_reasoning(),
            Speech::Text(backend) => backend.abilities().thinking,
        }
    }

    /// Whether it was trained to fill in what is missing between two texts, and can be asked to.
    pub fn fills_in(&self) -> bool {
        self.tokenizer().is_some_and(|tokenizer| Infill::of(tokenizer).is_some())
    }

    /// The model's tokens for a prompt, also for one that does not fit into the context.
    pub fn encode(&self, prompt: Prompt) -> Result<Vec<u32>, RequestError> {
        self.encode_unless(prompt, &Interrupt::default())
    }

    /// The model's tokens for a prompt, also for one that does not fit into the context; gives up when `interrupt` is
    /// raised.
    pub fn encode_unless(&self, prompt: Prompt, interrupt: &Interrupt) -> Result<Vec<u32>, RequestError> {
        self.token_model()?.encode(prompt, interrupt)
    }

    /// Renders the template, tokenises and compiles the grammar. Blocks for a time that grows with
    /// [`Job::bytes`], and for structured output as long as [`Compiler::compile`](ropeway_grammar::Compiler::compile).
    pub fn prepare(&self, job: Job) -> Result<Prepared, RequestError> {
        let Drafted { mut prepared, grammar } = self.draft(job, &Interrupt::default())?;
        if let Some(grammar) = grammar {
            prepared.request.grammar = Some(grammar.admit_and_compile(&self.token_model()?.grammars)?);
        }
        Ok(prepared)
    }

    /// Renders the template and tokenises. Blocks for a time that grows with [`Job::bytes`], but gives up when there are more
    /// tokens than the context has room for, or when `interrupt` is raised, because nobody waits for the result any more.
    /// A job that is answered as text is only checked.
    pub fn draft(&self, job: Job, interrupt: &Interrupt) -> Result<Drafted, RequestError> {
        if let Speech::Tokens(model) = &self.speech {
            return model.draft(job, interrupt);
        }
        chat::check(&job)?;
        let request = Request { n: job.n.get(), max_tokens: job.max_tokens, ..Request::default() };
        let form = Form::Text(Box::new(job));
        Ok(Drafted { prepared: Prepared { request, form }, grammar: None })
    }

    /// Finds out whether a draft's grammar compiles within the limits, in the name of an account, without blocking.
    /// Dropped before it is done, the work ends.
    pub async fn admit(&self, drafted: Drafted, account: u64) -> Result<AdmittedDraft, RequestError> {
        let Drafted { prepared, grammar } = drafted;
        let Some(grammar) = grammar else { return Ok(AdmittedDraft { prepared, grammar: None }) };
        let admitted = grammar.admit(&self.token_model()?.grammars, account).await?;
        Ok(AdmittedDraft { prepared, grammar: Some((grammar, admitted)) })
    }

    /// Compiles a draft's grammar. Blocks for as long as it took to admit it.
    pub fn finish(&self, draft: AdmittedDraft) -> Result<Prepared, RequestError> {
        let AdmittedDraft { mut prepared, grammar } = draft;
        if let Some((grammar, admitted)) = grammar {
            prepared.request.grammar = Some(grammar.compile(&self.token_model()?.grammars, &admitted)?);
        }
        Ok(prepared)
    }

    /// Hands a prepared job to the backend. Never waits: what can't be served, or not now, is turned down at once.
    pub fn submit(&self, prepared: Prepared) -> Result<GenerationStream, RequestError> {
        let Prepared { request, form } = prepared;
        match (&self.speech, form) {
            (Speech::Tokens(model), Form::Tokens { form, stop, at_once }) => {
                let stream = model.submit(request, &form, &stop)?;
                Ok(if at_once { stream.with_tokens_at_once() } else { stream }.into())
            }
            (Speech::Text(backend), Form::Text(job)) => {
                let (choices, bytes) = (request.sequences(), job.bytes());
                let events = backend.ask(ChatAsk { job: *job, request })?;
                Ok(ChatStream::new(events, choices, bytes).into())
            }
            (Speech::Tokens(_), Form::Text(_)) | (Speech::Text(_), Form::Tokens { .. }) => {
                unreachable!("a job is submitted to the model that it was prepared for")
            }
        }
    }
}
