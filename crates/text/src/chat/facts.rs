//! What a template does, found out by using it.

use super::{ChatRequest, ChatTemplate, Value};
use crate::output::OutputStyle;
use serde_json::{Map, json};

impl ChatTemplate {
    /// The template's own text.
    pub fn source(&self) -> &str {
        &self.source
    }

    /// Whether the template writes the tools of a request; if not, [`tools_as_text`](super::tools_as_text) can. A template
    /// that refuses the example is taken at its word.
    pub fn writes_tools(&self) -> bool {
        const NAME: &str = "ropeway_example_tool";
        let function =
            json!({"name": NAME, "description": "x", "parameters": {"type": "object", "properties": {}}});
        let tools = [json!({"type": "function", "function": function})];
        let messages = example();
        let request = ChatRequest { tools: Some(&tools), ..ChatRequest::new(&messages) };
        match self.render(&request) {
            Ok(prompt) => prompt.contains(NAME),
            Err(_) => self.source.contains("tools"),
        }
    }

    /// Whether a prompt with these variables ends inside the model's thoughts, so that its answer begins with them.
    pub fn opens_reasoning(&self, variables: &Map<String, Value>) -> bool {
        let messages = example();
        let request = ChatRequest { variables: variables.clone(), ..ChatRequest::new(&messages) };
        let style = OutputStyle::detect(Some(&self.source), |_| false);
        self.render(&request).is_ok_and(|prompt| style.is_reasoning_open(&prompt))
    }
}

fn example() -> [Value; 1] {
    [json!({"role": "user", "content": "Hi"})]
}
