//! Conversations: messages and tools in the form that chat templates know (that of OpenAI's API). API families
//! translate their own messages into it.

use ropeway_text::{ChatRequest, OutputOptions, OutputStyle, Tokenizer, tools_as_text};
use serde_json::{Map, Value};

use crate::error::{ErrorKind, RequestError};
use crate::generator::TokenModel;
use crate::structured::StructuredOutput;

/// Which tools the model may, or must, call.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum ToolChoice {
    /// It may call none, even if there are some.
    None,
    /// It may call any.
    #[default]
    Auto,
    /// It must call one.
    Required,
    /// It must call this one.
    Named(String),
}

/// What happens to a conversation that does not fit into the context.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Overflow {
    /// It is turned down.
    #[default]
    Refuse,
    /// Its oldest messages are left out, but for those of the system.
    DropOldest {
        /// Tokens that the answer is to have room for, as far as a quarter of the context goes.
        answer: usize,
    },
}

/// How the prompt of a conversation ends.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Ending {
    /// With the opening of the assistant's next message.
    #[default]
    Answer,
    /// With the last message, which is the assistant's and goes on.
    Continue,
    /// With the end of the last message.
    Closed,
}

/// A conversation to be answered.
#[derive(Clone, Debug, Default)]
pub struct Conversation {
    /// Messages as templates know them.
    pub messages: Vec<Value>,
    /// Tools as templates know them: `{"type": "function", "function": {...}}`.
    pub tools: Vec<Value>,
    /// Which of them may be called.
    pub tool_choice: ToolChoice,
    /// Further variables for the template.
    pub variables: Map<String, Value>,
    /// Whether reasoning is told apart from the answer; otherwise its tags are text.
    pub reasoning: bool,
    /// Whether the answer ends before a second call of a tool.
    pub single_call: bool,
    /// What happens if it does not fit into the context.
    pub overflow: Overflow,
    /// How its prompt ends.
    pub ending: Ending,
}

impl Conversation {
    /// The model's tokens for it. It has no messages then: they would be held in vain.
    pub(crate) fn encode(
        &mut self,
        model: &TokenModel,
        tokenizer: &Tokenizer,
    ) -> Result<Vec<u32>, RequestError> {
        self.check()?;
        let Overflow::DropOldest { answer } = self.overflow else {
            let messages = std::mem::take(&mut self.messages);
            return self.encode_messages(messages, model, tokenizer);
        };
        let context = model.context();
        let room = context - answer.min(context / 4).max(1).min(context);
        self.encode_latest(room, model, tokenizer)
    }

    /// The tokens for the latest messages that fit into so many tokens. The system's messages at the beginning stay, and
    /// results of tools stay with their calls.
    fn encode_latest(
        &mut self,
        room: usize,
        model: &TokenModel,
        tokenizer: &Tokenizer,
    ) -> Result<Vec<u32>, RequestError> {
        let messages = std::mem::take(&mut self.messages);
        let head = messages.iter().take_while(|message| message["role"] == "system").count();
        let cuts: Vec<usize> = (head..messages.len()).filter(|at| messages[*at]["role"] != "tool").collect();
        let kept = |cut: usize| messages[..head].iter().chain(&messages[cut..]).cloned().collect();
        let encode = |cut: usize| match self.encode_messages(kept(cut), model, tokenizer) {
            Ok(tokens) if tokens.len() > room => Ok(None),
            Ok(tokens) => Ok(Some(tokens)),
            Err(error) if error.kind == ErrorKind::ContextLengthExceeded => Ok(None),
            Err(error) => Err(error),
        };
        // The first cut leaves nothing out. Cuts before `from` are known not to fit, one at `to` is known to.
        let (mut from, mut to, mut best) = (0, cuts.len(), None);
        while from < to {
            let middle = if from == 0 && to == cuts.len() { 0 } else { from.midpoint(to) };
            match encode(cuts[middle])? {
                Some(tokens) => (to, best) = (middle, Some(tokens)),
                None => from = middle + 1,
            }
        }
        best.map_or_else(
            || {
                let last = cuts.last().copied().unwrap_or(messages.len());
                self.encode_messages(kept(last), model, tokenizer)
            },
            Ok,
        )
    }

    fn encode_messages(
        &self,
        mut messages: Vec<Value>,
        model: &TokenModel,
        tokenizer: &Tokenizer,
    ) -> Result<Vec<u32>, RequestError> {
        let begun = if self.ending == Ending::Continue { Some(begun(&mut messages)?) } else { None };
        let mut tokens = self.encode_whole(messages, model, tokenizer)?;
        if let Some(text) = begun {
            tokens.extend(model.encode_begun(&tokens, &text, tokenizer)?);
        }
        Ok(tokens)
    }

    fn encode_whole(
        &self,
        messages: Vec<Value>,
        model: &TokenModel,
        tokenizer: &Tokenizer,
    ) -> Result<Vec<u32>, RequestError> {
        let tools = if self.tool_choice == ToolChoice::None { &[][..] } else { &self.tools };
        let described =
            (!tools.is_empty() && !model.template.writes_tools()).then(|| tools_as_text(&messages, tools));
        let request = ChatRequest {
            tools: Some(tools).filter(|tools| !tools.is_empty() && described.is_none()),
            variables: self.variables.clone(),
            max_bytes: model.max_prompt_bytes(),
            add_generation_prompt: self.ending != Ending::Closed,
            ..ChatRequest::new(described.as_deref().unwrap_or(&messages))
        };
        let template = &model.template;
        let readied = template.ready(&request, tokenizer).map_err(|error| model.unread(error))?;
        drop((described, messages));
        template.encode_readied(readied, tokenizer).map_err(|error| model.unread(error))
    }

    /// Turns down what can't be rendered.
    pub(crate) fn check(&self) -> Result<(), RequestError> {
        if self.messages.is_empty() {
            return Err(RequestError::invalid("there are no messages; send at least one").at("messages"));
        }
        let bad = |message: String| Err(RequestError::invalid(message).at("tool_choice"));
        match &self.tool_choice {
            ToolChoice::Required if self.tools.is_empty() => {
                bad("there is no tool to call; send tools".into())
            }
            ToolChoice::Named(name) if self.callable().is_empty() => {
                bad(format!("there is no tool {name:?}"))
            }
            _ => Ok(()),
        }
    }

    /// The form its answer has to follow: a forced call, the form asked for, or either of these.
    pub(crate) fn structured(&self, asked: Option<StructuredOutput>) -> Option<StructuredOutput> {
        let tools = self.callable();
        match (&self.tool_choice, asked) {
            (ToolChoice::Required | ToolChoice::Named(_), _) => {
                Some(StructuredOutput::tool_call(&tools, None))
            }
            (ToolChoice::Auto, asked @ Some(_)) if !tools.is_empty() => {
                Some(StructuredOutput::tool_call(&tools, asked))
            }
            (_, asked) => asked,
        }
    }

    /// What its answer is parsed for; `None` if it is all text.
    pub(crate) fn output_options(&self, style: &OutputStyle, prompt_end: &str) -> Option<OutputOptions> {
        let tools = self.tool_choice != ToolChoice::None && !self.tools.is_empty();
        (tools || self.reasoning).then(|| OutputOptions {
            tools,
            reasoning: self.reasoning,
            prompt_opens_reasoning: style.is_reasoning_open(prompt_end),
            known_tools: self.tools.iter().filter_map(tool_name).map(Into::into).collect(),
        })
    }

    /// The tools that may be called.
    fn callable(&self) -> Vec<&Value> {
        let may = |tool: &&Value| match &self.tool_choice {
            ToolChoice::None => false,
            ToolChoice::Auto | ToolChoice::Required => tool_name(tool).is_some(),
            ToolChoice::Named(name) => tool_name(tool) == Some(name),
        };
        self.tools.iter().filter(may).collect()
    }
}

/// Takes the text of the last message, which is the beginning of the answer.
fn begun(messages: &mut Vec<Value>) -> Result<String, RequestError> {
    let bad = |message: &str| RequestError::invalid(message).at("messages");
    let last = messages.pop().filter(|last| last["role"] == "assistant");
    let last = last.ok_or_else(|| bad("only a last message of the assistant can be continued"))?;
    if messages.is_empty() {
        return Err(bad("there is no message before the one to continue"));
    }
    if last.get("tool_calls").is_some_and(|calls| calls.as_array().is_some_and(|calls| !calls.is_empty())) {
        return Err(bad("a message that calls tools can't be continued"));
    }
    Ok(last["content"].as_str().unwrap_or_default().to_owned())
}

fn tool_name(tool: &Value) -> Option<&str> {
    tool["function"]["name"].as_str()
}
