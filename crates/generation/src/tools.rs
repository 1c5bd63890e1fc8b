//! The tools that a request offers: those that its client runs, and those that only another vendor's servers could run.
//!
//! ```text
//! callable   a name and a schema    the model may call them
//! foreign    web_search, mcp, ...   left out with a line in the log; an error if a call of them is forced
//! ```

use serde_json::Value;

use crate::conversation::ToolChoice;
use crate::error::RequestError;

/// The tools that a request offers.
#[derive(Clone, Debug, Default)]
pub struct OfferedTools {
    callable: Vec<Value>,
    foreign: Vec<ForeignTool>,
}

/// A tool that can't be called here.
#[derive(Clone, Debug)]
struct ForeignTool {
    kind: String,
    name: Option<String>,
}

impl OfferedTools {
    /// Tools in the form of templates, which is that of OpenAI's chat completions and of Ollama.
    pub fn of_functions(given: Vec<Value>) -> Self {
        let mut offered = Self::default();
        for tool in given {
            match tool["type"].as_str() {
                None | Some("function") => offered.add(tool),
                Some(kind) => offered.leave_out(kind, tool["name"].as_str()),
            }
        }
        offered
    }

    /// One that may be called, as templates know it.
    pub fn add(&mut self, tool: Value) {
        self.callable.push(tool);
    }

    /// One of this kind that can't be called here, and its name where it has one.
    pub fn leave_out(&mut self, kind: &str, name: Option<&str>) {
        self.foreign.push(ForeignTool { kind: kind.into(), name: name.map(Into::into) });
    }

    /// Keeps those callable tools whose names pass.
    pub fn retain(&mut self, passes: impl Fn(&str) -> bool) {
        self.callable.retain(|tool| tool["function"]["name"].as_str().is_some_and(&passes));
    }

    /// Whether none can be called.
    pub fn is_empty(&self) -> bool {
        self.callable.is_empty()
    }

    /// The tools that may be called. An error if the choice forces a call of one that can't be.
    pub fn callable(self, choice: &ToolChoice) -> Result<Vec<Value>, RequestError> {
        if self.foreign.is_empty() {
            return Ok(self.callable);
        }
        let is_forced = match choice {
            ToolChoice::None | ToolChoice::Auto => false,
            ToolChoice::Required => self.callable.is_empty(),
            ToolChoice::Named(name) => !self.has(name) && self.foreign.iter().any(|tool| tool.is(name)),
        };
        let mut kinds: Vec<_> = self.foreign.iter().map(|tool| tool.kind.as_str()).collect();
        kinds.sort_unstable();
        kinds.dedup();
        let kinds = kinds.join(", ");
        if is_forced {
            return Err(cannot_run(&kinds));
        }
        tracing::info!(tools = kinds, "tools that this server can't run are left out of a request");
        Ok(self.callable)
    }

    fn has(&self, name: &str) -> bool {
        self.callable.iter().any(|tool| tool["function"]["name"] == name)
    }
}

impl ForeignTool {
    fn is(&self, name: &str) -> bool {
        self.kind == name || self.name.as_deref() == Some(name)
    }
}

/// The error for a forced call of a tool of this kind.
pub fn cannot_run(kind: &str) -> RequestError {
    let what = format!(
        "a call of {kind} is forced, but this server runs no tools; send it as a function that your program runs, or set \
         tool_choice to auto to go on without it"
    );
    RequestError::invalid(what).at("tool_choice")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn offered() -> OfferedTools {
        OfferedTools::of_functions(vec![
            json!({"type": "function", "function": {"name": "f"}}),
            json!({"type": "web_search_20250305", "name": "web_search"}),
        ])
    }

    #[test]
    fn foreign_tools_are_left_out_unless_they_are_forced() {
        for choice in
            [ToolChoice::Auto, ToolChoice::None, ToolChoice::Required, ToolChoice::Named("f".into())]
        {
            assert_eq!(offered().callable(&choice).expect("f is there").len(), 1, "{choice:?}");
        }
        for name in ["web_search", "web_search_20250305"] {
            let error = offered().callable(&ToolChoice::Named(name.into())).unwrap_err();
            assert_eq!(error.field.as_deref(), Some("tool_choice"));
            assert!(error.message.contains("web_search_20250305"));
        }
        let mut foreign_only = offered();
        foreign_only.retain(|_| false);
        assert!(foreign_only.clone().callable(&ToolChoice::Required).is_err());
        assert!(foreign_only.callable(&ToolChoice::Auto).expect("none is needed").is_empty());
    }
}
