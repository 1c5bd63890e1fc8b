//! Chat templates: from a conversation to the prompt that the model was trained on.
//!
//! A template is a small Jinja program that comes with the model, written for Python's `jinja2`. It runs here on
//! `minijinja`, with what `environment` adds so that real templates give the same text as in Python. The template writes
//! BOS and all other special tokens itself.
//!
//! | module | what it is |
//! |---|---|
//! | `source` | where templates come from |
//! | `environment`, `json`, `date`, `width` | Python's side of Jinja |
//! | `guard` | from messages to ids, such that nothing in a message becomes a special token |
//! | `facts` | what a template does with tools and reasoning |
//! | `tools` | tools for templates that know none |
//! | `billing` | a line of Claude Code's that is no part of the prompt |
//!
//! Templates come with the model and are hostile until proven otherwise: a render is bounded in steps, recursion and
//! output, and has no access to anything but the conversation.

mod billing;
mod date;
mod environment;
mod facts;
mod guard;
mod json;
mod source;
mod tools;
mod width;

pub use billing::without_billing_line;
pub use guard::Readied;
pub use tools::tools_as_text;

use crate::error::TextError;
use environment::Refusal;
use minijinja::value::{Serde, Value as JinjaValue};
use minijinja::{Environment, ErrorKind};
use serde_json::{Map, Value};
use std::collections::BTreeMap;
use std::io::{self, Write};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::SystemTime;

/// The template for requests without tools, or for all if there is only one.
const DEFAULT: &str = "default";
/// The template that some models have for requests with tools.
const TOOL_USE: &str = "tool_use";

/// ChatML, for models that come without a template: `<|im_start|>role`, the content, `<|im_end|>`.
const CHATML: &str = "{% for message in messages %}<|im_start|>{{ message.role }}\n{{ message.content }}<|im_end|>\n\
                      {% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}";

/// Instructions that one render may take; a conversation of a thousand turns with tools takes about 200,000.
const MAX_STEPS: u64 = 20_000_000;

/// Bytes that one render may write: several times the longest context there is.
const MAX_OUTPUT: usize = 64 << 20;

/// A model's chat template.
#[derive(Debug)]
pub struct ChatTemplate {
    environment: Environment<'static>,
    tokens: TemplateTokens,
    source: String,
}

/// The texts of the tokens that templates write by name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TemplateTokens {
    /// `bos_token`.
    pub bos: Option<String>,
    /// `eos_token`.
    pub eos: Option<String>,
}

/// A conversation to render.
#[derive(Clone, Debug)]
pub struct ChatRequest<'a> {
    /// Objects with `role` and `content`, and `tool_calls` and the like where the model knows them.
    pub messages: &'a [Value],
    /// The tools that the model may call, as JSON schemas in the form of `OpenAI`'s API.
    pub tools: Option<&'a [Value]>,
    /// Whether the prompt ends with the opening of the assistant's turn.
    pub add_generation_prompt: bool,
    /// Further variables for the template, such as `enable_thinking`; `chat_template_kwargs` in APIs. They may replace the
    /// template's tokens, but not the conversation.
    pub variables: Map<String, Value>,
    /// The time that `strftime_now` gives, in UTC.
    pub now: SystemTime,
    /// Bytes that the prompt may have; a longer one is refused before it is tokenised.
    pub max_bytes: usize,
}

impl<'a> ChatRequest<'a> {
    /// A conversation that the assistant is to continue, without tools.
    pub fn new(messages: &'a [Value]) -> Self {
        Self {
            messages,
            tools: None,
            add_generation_prompt: true,
            variables: Map::new(),
            now: SystemTime::now(),
            max_bytes: MAX_OUTPUT,
        }
    }
}

/// A conversation in the form that templates see: a copy, so that the conversation itself need not be kept.
#[derive(Debug)]
struct Scene {
    variables: JinjaValue,
    with_tools: bool,
    max_bytes: usize,
}

impl ChatTemplate {
    /// A template from its source text.
    pub fn new(source: &str, tokens: TemplateTokens) -> Result<Self, TextError> {
        Self::with_tool_use(source, None, tokens)
    }

    /// ChatML, the most common form, for models that come without a template.
    pub fn chatml() -> Result<Self, TextError> {
        Self::new(CHATML, TemplateTokens::default())
    }

    /// Another template for the same model.
    pub fn with_source(&self, source: &str) -> Result<Self, TextError> {
        Self::new(source, self.tokens.clone())
    }

    /// A template with another one for requests with tools.
    fn with_tool_use(
        source: &str,
        tool_use: Option<&str>,
        tokens: TemplateTokens,
    ) -> Result<Self, TextError> {
        let mut environment = environment::new(MAX_STEPS);
        for (name, source) in [(DEFAULT, Some(source)), (TOOL_USE, tool_use)] {
            let Some(source) = source else { continue };
            environment
                .add_template_owned(name, environment::without_generation_tags(source))
                .map_err(|error| TextError::BadTemplate(format!("{error:#}")))?;
        }
        Ok(Self { environment, tokens, source: source.to_owned() })
    }

    /// The prompt for a conversation, as text. [`ChatTemplate::encode`] gives its token ids.
    pub fn render(&self, request: &ChatRequest<'_>) -> Result<String, TextError> {
        self.render_scene(self.scene(request))
    }

    /// What the template will see of a conversation.
    fn scene(&self, request: &ChatRequest<'_>) -> Scene {
        Scene {
            variables: self.variables(request),
            with_tools: request.tools.is_some_and(|tools| !tools.is_empty()),
            max_bytes: request.max_bytes,
        }
    }

    fn render_scene(&self, scene: Scene) -> Result<String, TextError> {
        let Scene { variables, with_tools, max_bytes } = scene;
        let tool_use = self.environment.get_template(TOOL_USE).ok().filter(|_| with_tools);
        let template = match tool_use {
            Some(template) => template,
            None => self.environment.get_template(DEFAULT).map_err(|error| failure(&error))?,
        };
        let mut output = Bounded::new(max_bytes.min(MAX_OUTPUT));
        // The engine of templates panics in places, such as `()[::-1]`; what was written until then is thrown away.
        let rendered = catch_unwind(AssertUnwindSafe(|| {
            template.render_captured_to(variables, &mut output).map(|_| ())
        }));
        match rendered {
            Ok(Ok(())) => output.into_text(),
            Ok(Err(_)) if output.full => Err(TextError::TemplateTooLong(output.most)),
            Ok(Err(error)) => Err(failure(&error)),
            Err(_) => Err(TextError::TemplateFailed("an expression that can't be computed".into())),
        }
    }

    fn variables(&self, request: &ChatRequest<'_>) -> JinjaValue {
        let mut variables: BTreeMap<String, JinjaValue> = BTreeMap::new();
        let token = |text: &Option<String>| JinjaValue::from(text.clone().unwrap_or_default());
        variables.insert("bos_token".to_owned(), token(&self.tokens.bos));
        variables.insert("eos_token".to_owned(), token(&self.tokens.eos));
        for (name, value) in &request.variables {
            variables.insert(name.clone(), Serde(value).into());
        }
        variables.insert("messages".to_owned(), Serde(request.messages).into());
        variables.insert("tools".to_owned(), Serde(request.tools).into());
        variables.entry("documents".to_owned()).or_insert_with(|| JinjaValue::from(()));
        variables.insert("add_generation_prompt".to_owned(), request.add_generation_prompt.into());
        variables.insert("strftime_now".to_owned(), environment::strftime_at(request.now));
        JinjaValue::from(variables)
    }
}

fn failure(error: &minijinja::Error) -> TextError {
    let mut source: Option<&(dyn std::error::Error + 'static)> = Some(error);
    while let Some(cause) = source {
        if let Some(Refusal(message)) = cause.downcast_ref() {
            return TextError::Refused(message.clone());
        }
        if cause.downcast_ref().map(minijinja::Error::kind) == Some(ErrorKind::OutOfFuel) {
            return TextError::TemplateTooSlow(MAX_STEPS);
        }
        source = cause.source();
    }
    TextError::TemplateFailed(format!("{error:#}"))
}

/// A writer that refuses to grow without end.
struct Bounded {
    bytes: Vec<u8>,
    most: usize,
    full: bool,
}

impl Bounded {
    fn new(most: usize) -> Self {
        Self { bytes: Vec::new(), most, full: false }
    }

    fn into_text(self) -> Result<String, TextError> {
        String::from_utf8(self.bytes).map_err(|error| TextError::TemplateFailed(error.to_string()))
    }
}

impl Write for Bounded {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.bytes.len() + bytes.len() > self.most {
            self.full = true;
            return Err(io::ErrorKind::StorageFull.into());
        }
        if self.bytes.len() + bytes.len() > self.bytes.capacity() {
            // By a quarter rather than by as much again: prompts are long.
            self.bytes.reserve_exact(bytes.len().max(self.bytes.len() / 4));
        }
        self.bytes.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
