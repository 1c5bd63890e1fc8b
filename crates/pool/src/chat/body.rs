//! A job as the body of a streamed chat completion, or of a completion, in a server's dialect.
//!
//! What the caller did not ask for is left out, so that the server's own defaults hold; temperature and `top_p` are always sent, because
//! servers disagree about their defaults.

use ropeway_generation::{Conversation, Ending, Job, Prompt, RequestError, StructuredOutput, ToolChoice};
use ropeway_grammar::{GrammarSpec, Strictness};
use serde_json::{Map, Value, json};

use super::dialect::{largest_seed, names_stop_strings, unsupported, word};
use super::messages::messages;
use crate::settings::Kind;

/// Where a job is sent.
pub fn path(job: &Job) -> &'static str {
    match job.prompt {
        Prompt::Conversation(_) => "/v1/chat/completions",
        Prompt::Text(_) | Prompt::Between { .. } | Prompt::Tokens(_) => "/v1/completions",
    }
}

/// The body of a streamed request for `model`, as a server of this kind reads it. An error names the field that it has no word for.
pub fn body(job: &Job, kind: Kind, model: &str) -> Result<Value, RequestError> {
    let mut body = Body { kind, fields: Map::new() };
    body.set("model", model);
    body.set("stream", true);
    body.set("stream_options", json!({ "include_usage": true }));
    match &job.prompt {
        Prompt::Conversation(conversation) => body.conversation(conversation)?,
        Prompt::Text(text) => body.set("prompt", text.as_str()),
        Prompt::Between { .. } => return Err(unsupported(kind, "suffix")),
        Prompt::Tokens(_) => return Err(unsupported(kind, "prompt")),
    }
    body.sampling(job)?;
    body.lengths(job)?;
    if let Some(structured) = &job.structured {
        body.structured(structured, matches!(job.prompt, Prompt::Conversation(_)))?;
    }
    if let Some(prediction) = &job.prediction {
        body.set_if_known("prediction", json!({ "type": "content", "content": prediction }));
    }
    Ok(Value::Object(body.fields))
}

/// Divides cached prompts from those of other salts, where the server has a word for that.
pub fn salt(body: &mut Value, kind: Kind, salt: &[u8]) {
    let divides = matches!(kind, Kind::Vllm | Kind::Sglang | Kind::Ropeway);
    if divides && !salt.is_empty() {
        let digit = |nibble: u8| char::from_digit(u32::from(nibble), 16).unwrap_or_default();
        let text: String = salt.iter().flat_map(|byte| [digit(byte >> 4), digit(byte & 15)]).collect();
        body["cache_salt"] = text.into();
    }
}

struct Body {
    kind: Kind,
    fields: Map<String, Value>,
}

impl Body {
    fn set(&mut self, field: &str, value: impl Into<Value>) {
        self.fields.insert(field.into(), value.into());
    }

    /// Sets what changes nothing about the text where the server has no word for it.
    fn set_if_known(&mut self, ours: &'static str, value: impl Into<Value>) {
        if let Some(field) = word(self.kind, ours) {
            self.set(field, value);
        }
    }

    /// Sets what was asked for, or says that it can't be.
    fn ask(&mut self, ours: &'static str, value: Option<impl Into<Value>>) -> Result<(), RequestError> {
        let Some(value) = value else { return Ok(()) };
        let field = word(self.kind, ours).ok_or_else(|| unsupported(self.kind, ours))?;
        self.set(field, value);
        Ok(())
    }

    fn conversation(&mut self, conversation: &Conversation) -> Result<(), RequestError> {
        self.set("messages", messages(&conversation.messages, self.kind));
        self.tools(conversation)?;
        self.thinking(&conversation.variables)?;
        match conversation.ending {
            Ending::Answer => Ok(()),
            // Ollama continues a last message of the assistant's by itself.
            Ending::Continue if self.kind == Kind::Ollama => Ok(()),
            Ending::Continue => {
                self.ask("continue_final_message", Some(true))?;
                self.set_if_known("add_generation_prompt", false);
                Ok(())
            }
            Ending::Closed => self.ask("add_generation_prompt", Some(false)),
        }
    }

    fn tools(&mut self, conversation: &Conversation) -> Result<(), RequestError> {
        let Conversation { tools, tool_choice, single_call, .. } = conversation;
        if tools.is_empty() || *tool_choice == ToolChoice::None {
            return Ok(());
        }
        let is_forced = matches!(tool_choice, ToolChoice::Required | ToolChoice::Named(_));
        if is_forced && self.kind == Kind::Ollama {
            return Err(unsupported(self.kind, "tool_choice"));
        }
        let mut offered: Vec<Value> = tools.iter().map(typed).collect();
        match tool_choice {
            ToolChoice::None | ToolChoice::Auto => {}
            ToolChoice::Required => self.set("tool_choice", "required"),
            // It reads words only, and takes anything else for `auto`.
            ToolChoice::Named(name) if self.kind == Kind::LlamaServer => {
                offered.retain(|tool| tool["function"]["name"] == *name);
                self.set("tool_choice", "required");
            }
            ToolChoice::Named(name) => {
                self.set("tool_choice", json!({ "type": "function", "function": { "name": name } }));
            }
        }
        self.set("tools", offered);
        if *single_call {
            // Answers are ended here before a second call as well.
            self.set_if_known("parallel_tool_calls", false);
        }
        Ok(())
    }

    /// Variables of templates, where prompts are written by one that takes them; otherwise those that have a word in OpenAI's API.
    fn thinking(&mut self, variables: &Map<String, Value>) -> Result<(), RequestError> {
        if variables.is_empty() {
            return Ok(());
        }
        if word(self.kind, "chat_template_kwargs").is_some() {
            self.set("chat_template_kwargs", variables.clone());
            return Ok(());
        }
        for (name, value) in variables {
            match (name.as_str(), value) {
                ("enable_thinking", Value::Bool(true)) => {}
                ("enable_thinking", Value::Bool(false)) => self.set("reasoning_effort", "none"),
                ("reasoning_effort", Value::String(effort)) => self.set("reasoning_effort", effort.as_str()),
                _ => return Err(unsupported(self.kind, format!("chat_template_kwargs.{name}"))),
            }
        }
        Ok(())
    }

    #[allow(clippy::float_cmp, reason = "only exactly neutral values are the same as none")]
    fn sampling(&mut self, job: &Job) -> Result<(), RequestError> {
        let params = job.sampling.params();
        let unless = |value: f32, neutral: f32| (value != neutral).then(|| number(value));
        self.set("temperature", number(params.temperature));
        self.set("top_p", number(params.top_p));
        if params.is_seeded && params.temperature > 0.0 {
            self.set("seed", params.seed.0 & largest_seed(self.kind));
        }
        for (field, value) in [
            ("presence_penalty", unless(params.presence_penalty, 0.0)),
            ("frequency_penalty", unless(params.frequency_penalty, 0.0)),
        ] {
            if let Some(value) = value {
                self.set(field, value);
            }
        }
        self.ask("top_k", Some(params.top_k).filter(|k| *k > 0))?;
        self.ask("min_p", unless(params.min_p, 0.0))?;
        self.ask("typical_p", unless(params.typical_p, 1.0))?;
        self.ask("repetition_penalty", unless(params.repetition_penalty, 1.0))?;
        self.ask("repeat_last_n", params.penalty_window.filter(|_| params.uses_history()))
    }

    fn lengths(&mut self, job: &Job) -> Result<(), RequestError> {
        if let Some(most) = job.max_tokens {
            self.set("max_tokens", most);
        }
        // Who does not say which stop string it was is not told of any: the answer is ended here. Choices that run side by side
        // can't be ended one by one.
        if !job.stop.is_empty() && (names_stop_strings(self.kind) || job.n.get() > 1) {
            self.set("stop", job.stop.clone());
        }
        self.ask("n", Some(job.n.get()).filter(|n| *n > 1))?;
        self.ask("min_tokens", Some(job.min_tokens).filter(|least| *least > 0))?;
        self.ask("ignore_eos", job.ignore_eos.then_some(true))
    }

    fn structured(&mut self, structured: &StructuredOutput, is_chat: bool) -> Result<(), RequestError> {
        let refused = || unsupported(self.kind, structured.field());
        let (field, value) = match structured.spec() {
            GrammarSpec::JsonSchema { schema, strictness } => {
                self.json(Some((schema, *strictness)), is_chat).ok_or_else(refused)?
            }
            GrammarSpec::JsonObject => self.json(None, is_chat).ok_or_else(refused)?,
            other => constraint(self.kind, other).ok_or_else(refused)?,
        };
        self.set(field, value);
        Ok(())
    }

    /// The field that asks for JSON, valid under a schema if there is one.
    fn json(&self, schema: Option<(&Value, Strictness)>, is_chat: bool) -> Option<(&'static str, Value)> {
        if !is_chat {
            match self.kind {
                Kind::Ollama | Kind::Openai => return None,
                Kind::LlamaServer => {
                    let any = json!({ "type": "object" });
                    return Some(("json_schema", schema.map_or(any, |(schema, _)| schema.clone())));
                }
                Kind::Vllm | Kind::Sglang | Kind::Ropeway => {}
            }
        }
        let format = match schema {
            None => json!({ "type": "json_object" }),
            Some((schema, strictness)) => json!({ "type": "json_schema", "json_schema": {
                "name": "answer", "schema": schema, "strict": strictness == Strictness::Strict,
            }}),
        };
        Some(("response_format", format))
    }
}

/// The field that asks for a form other than JSON; `None` if a server has none for it.
fn constraint(kind: Kind, spec: &GrammarSpec) -> Option<(&'static str, Value)> {
    let choices = |texts: &[String], quoted: fn(&str) -> String, between: &str| {
        texts.iter().map(|text| quoted(text)).collect::<Vec<_>>().join(between)
    };
    match (kind, spec) {
        (Kind::Vllm | Kind::Ropeway, GrammarSpec::Regex(regex)) => {
            Some(("structured_outputs", json!({ "regex": regex })))
        }
        (Kind::Vllm | Kind::Ropeway, GrammarSpec::Choice(texts)) => {
            Some(("structured_outputs", json!({ "choice": texts })))
        }
        (Kind::Vllm | Kind::Ropeway, GrammarSpec::Grammar(grammar)) => {
            Some(("structured_outputs", json!({ "grammar": grammar })))
        }
        (Kind::Sglang, GrammarSpec::Regex(regex)) => Some(("regex", regex.as_str().into())),
        (Kind::Sglang, GrammarSpec::Choice(texts)) => {
            Some(("regex", format!("({})", choices(texts, escaped, "|")).into()))
        }
        (Kind::Sglang, GrammarSpec::Grammar(grammar)) => Some(("ebnf", grammar.as_str().into())),
        (Kind::LlamaServer, GrammarSpec::Choice(texts)) => {
            // GBNF escapes texts as JSON does.
            let quoted = |text: &str| Value::from(text).to_string();
            Some(("grammar", format!("root ::= {}", choices(texts, quoted, " | ")).into()))
        }
        (Kind::LlamaServer, GrammarSpec::Grammar(grammar)) => Some(("grammar", grammar.as_str().into())),
        _ => None,
    }
}

/// A text as a regular expression that matches nothing else.
fn escaped(text: &str) -> String {
    let mut expression = String::new();
    for character in text.chars() {
        if r"\.+*?()|[]{}^$".contains(character) {
            expression.push('\\');
        }
        expression.push(character);
    }
    expression
}

/// Ollama's clients leave the type out.
fn typed(tool: &Value) -> Value {
    let mut tool = tool.clone();
    tool["type"] = "function".into();
    tool
}

/// The number as it was written: 0.7 is not 0.699999988079071.
fn number(value: f32) -> Value {
    value.to_string().parse::<f64>().map_or(Value::Null, Into::into)
}

#[cfg(test)]
#[path = "body_tests.rs"]
mod tests;
