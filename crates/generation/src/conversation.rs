//! Conversations: messages and tools in the form that chat templates know (that of OpenAI's API). API families
//! translate their own messages into it.

use ropeway_text::{ChatRequest, OutputOptions, OutputStyle, Tokenizer, tools_as_text};
use serde_json::{Map, Value};

use crate::error::RequestError;
use crate::generator::Generator;
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
}

impl Conversation {
    /// The model's tokens for it. It has no messages then: they would be held in vain.
    pub(crate) fn encode(
        &mut self,
        generator: &Generator,
        tokenizer: &Tokenizer,
    ) -> Result<Vec<u32>, RequestError> {
        self.check()?;
        let tools = if self.tool_choice == ToolChoice::None { &[][..] } else { &self.tools };
        let described = (!tools.is_empty() && !generator.template.writes_tools())
            .then(|| tools_as_text(&self.messages, tools));
        let request = ChatRequest {
            tools: Some(tools).filter(|tools| !tools.is_empty() && described.is_none()),
            variables: self.variables.clone(),
            max_bytes: generator.max_prompt_bytes(),
            ..ChatRequest::new(described.as_deref().unwrap_or(&self.messages))
        };
        let template = &generator.template;
        let readied = template.ready(&request, tokenizer).map_err(|error| generator.unread(error))?;
        drop(described);
        self.messages = Vec::new();
        template.encode_readied(readied, tokenizer).map_err(|error| generator.unread(error))
    }

    /// Turns down what can't be rendered.
    fn check(&self) -> Result<(), RequestError> {
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

fn tool_name(tool: &Value) -> Option<&str> {
    tool["function"]["name"].as_str()
}
