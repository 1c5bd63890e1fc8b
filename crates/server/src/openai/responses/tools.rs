//! Tools of a request, as the model sees them and as the client does.
//!
//! | sent as | shown to the model as | a call comes back as |
//! |---|---|---|
//! | `function` | itself | `function_call` |
//! | `namespace` of functions | `namespace__name` | `function_call` with `namespace` |
//! | `custom` | a function with one text, `input` | `custom_tool_call` |
//! | `local_shell` | a function with a command | `local_shell_call` |
//! | anything else | left out | |

use std::collections::HashMap;

use ropeway_generation::tools::cannot_run;
use ropeway_generation::{OfferedTools, RequestError, ToolChoice};
use ropeway_openai::tool_choice;
use serde_json::{Value, json};

use crate::field::take;

/// The name of the shell among functions.
pub const LOCAL_SHELL: &str = "local_shell";

/// How a tool is called and by which name its client knows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ToolForm {
    /// What its calls are.
    pub kind: CallKind,
    /// The group that it is part of.
    pub namespace: Option<String>,
    /// Its name within that group.
    pub name: String,
}

/// What a call of a tool is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CallKind {
    /// JSON arguments.
    Function,
    /// A text.
    Custom,
    /// A command.
    LocalShell,
}

/// A request's tools.
#[derive(Clone, Debug, Default)]
pub struct Toolbox {
    offered: OfferedTools,
    /// Those that may be called, by the names that the model sees.
    forms: HashMap<String, ToolForm>,
}

/// The name that the model sees.
pub fn shown_name(namespace: Option<&str>, name: &str) -> String {
    match namespace.filter(|namespace| !namespace.is_empty()) {
        Some(namespace) => format!("{namespace}__{name}"),
        None => name.into(),
    }
}

impl Toolbox {
    /// Reads the tools of a request.
    pub fn read(given: Vec<Value>) -> Result<Self, RequestError> {
        let mut tools = Self::default();
        for (index, tool) in given.into_iter().enumerate() {
            tools.add(None, tool).map_err(|error| error.at(format!("tools.{index}")))?;
        }
        Ok(tools)
    }

    /// How a tool that the model called is known to the client.
    pub fn form(&self, shown: &str) -> ToolForm {
        let unknown = || ToolForm { kind: CallKind::Function, namespace: None, name: shown.into() };
        self.forms.get(shown).cloned().unwrap_or_else(unknown)
    }

    fn add(&mut self, namespace: Option<&str>, mut tool: Value) -> Result<(), RequestError> {
        match tool["type"].as_str() {
            Some("function") => {
                let name = name_of(&tool)?;
                let shown = self.enter(CallKind::Function, namespace, name)?;
                self.offered.add(function(tool, &shown));
            }
            Some("custom") => {
                let name = name_of(&tool)?;
                let shown = self.enter(CallKind::Custom, namespace, name)?;
                self.offered.add(free_text(&tool, &shown));
            }
            Some("namespace") if namespace.is_none() => {
                let name = name_of(&tool)?;
                let Value::Array(inside) = take(&mut tool, "tools") else {
                    return Err(RequestError::invalid("a namespace has a list of tools"));
                };
                for tool in inside {
                    self.add(Some(&name), tool)?;
                }
            }
            Some(LOCAL_SHELL) => {
                let shown = self.enter(CallKind::LocalShell, namespace, LOCAL_SHELL.into())?;
                self.offered.add(shell(&shown));
            }
            Some(other) => self.offered.leave_out(other, None),
            None => return Err(RequestError::invalid("every tool has a type")),
        }
        Ok(())
    }

    fn enter(
        &mut self,
        kind: CallKind,
        namespace: Option<&str>,
        name: String,
    ) -> Result<String, RequestError> {
        let shown = shown_name(namespace, &name);
        let form = ToolForm { kind, namespace: namespace.map(Into::into), name };
        if self.forms.insert(shown.clone(), form).is_some() {
            let what = format!("two tools are called {shown}; the model can't tell them apart, rename one");
            return Err(RequestError::invalid(what));
        }
        Ok(shown)
    }

    /// The choice among these tools, and those that may be called.
    pub fn choose(mut self, choice: Option<&Value>) -> Result<(ToolChoice, Vec<Value>), RequestError> {
        let choice = match choice {
            Some(choice) if choice["type"] == "allowed_tools" => self.allow(choice)?,
            choice => tool_choice(choice)?,
        };
        let tools = self.offered.callable(&choice)?;
        Ok((choice, tools))
    }

    /// Leaves out what a choice of `allowed_tools` does not name.
    fn allow(&mut self, choice: &Value) -> Result<ToolChoice, RequestError> {
        let bad = |what: &str| RequestError::invalid(what).at("tool_choice");
        let Some(allowed) = choice["tools"].as_array() else {
            return Err(bad("allowed_tools has a list of tools"));
        };
        let names: Vec<_> = allowed.iter().filter_map(chosen_name).collect();
        self.offered.retain(|name| names.iter().any(|allowed| allowed == name));
        match choice["mode"].as_str() {
            Some("required") => Ok(ToolChoice::Required),
            None | Some("auto") if self.offered.is_empty() => Ok(ToolChoice::None),
            None | Some("auto") => Ok(ToolChoice::Auto),
            Some(_) => Err(bad("the mode of allowed_tools is auto or required")),
        }
    }
}

fn name_of(tool: &Value) -> Result<String, RequestError> {
    let name = tool["name"].as_str().filter(|name| !name.is_empty());
    name.map(Into::into).ok_or_else(|| RequestError::invalid("a tool of this type has a name"))
}

/// The name that the model sees of a tool that a choice names.
fn chosen_name(chosen: &Value) -> Option<String> {
    match chosen["type"].as_str() {
        Some("function" | "custom") => {
            Some(shown_name(chosen["namespace"].as_str(), chosen["name"].as_str()?))
        }
        Some(LOCAL_SHELL) => Some(LOCAL_SHELL.into()),
        _ => None,
    }
}

/// A choice that is a word or names one tool.
fn tool_choice(choice: Option<&Value>) -> Result<ToolChoice, RequestError> {
    if let Some(name) = choice.and_then(chosen_name) {
        return Ok(ToolChoice::Named(name));
    }
    match choice.and_then(|choice| choice["type"].as_str()) {
        Some(kind) if !matches!(kind, "function" | "custom") => Err(cannot_run(kind)),
        _ => tool_choice::read(
            choice,
            |_| None,
            "tool_choice is none, auto, required, allowed_tools or a tool with a name",
        ),
    }
}

fn function(mut tool: Value, shown: &str) -> Value {
    let mut function = json!({ "name": shown });
    for field in ["description", "parameters", "strict"] {
        match take(&mut tool, field) {
            Value::Null => {}
            value => function[field] = value,
        }
    }
    json!({ "type": "function", "function": function })
}

/// A tool that takes a text. A regular expression holds where a call is forced; of a grammar the model is told.
fn free_text(tool: &Value, shown: &str) -> Value {
    let mut description = tool["description"].as_str().unwrap_or_default().to_owned();
    let mut input = json!({ "type": "string" });
    let format = tool.get("format").map_or(&Value::Null, |format| format.get("grammar").unwrap_or(format));
    if let Some(definition) = format["definition"].as_str() {
        let syntax = format["syntax"].as_str().unwrap_or("lark");
        description = format!("{description}\n\nThe input follows this {syntax} grammar:\n{definition}");
        if syntax == "regex" {
            input["pattern"] = format!("^(?:{definition})$").into();
        }
    }
    let parameters = json!({ "type": "object", "properties": { "input": input }, "required": ["input"] });
    json!({ "type": "function", "function": {
        "name": shown, "description": description.trim(), "parameters": parameters,
    } })
}

fn shell(shown: &str) -> Value {
    let parameters = json!({
        "type": "object",
        "properties": {
            "command": { "type": "array", "items": { "type": "string" }, "description": "Program and arguments." },
            "working_directory": { "type": "string" },
            "timeout_ms": { "type": "integer" },
        },
        "required": ["command"],
    });
    let description = "Runs a command on the user's machine and returns its output.";
    json!({ "type": "function", "function": {
        "name": shown, "description": description, "parameters": parameters,
    } })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn codex() -> Vec<Value> {
        let function =
            |name: &str| json!({"type": "function", "name": name, "strict": false, "parameters": {}});
        vec![
            function("exec_command"),
            json!({"type": "namespace", "name": "agents", "description": "d", "tools": [function("spawn")]}),
            json!({"type": "custom", "name": "patch",
                   "format": {"type": "grammar", "syntax": "regex", "definition": "a|b"}}),
            json!({"type": "local_shell"}),
            json!({"type": "web_search", "external_web_access": false}),
        ]
    }

    #[test]
    fn tools_of_codex_are_shown_by_plain_names_and_known_by_their_own() {
        let tools = Toolbox::read(codex()).unwrap();
        let form = |shown: &str| tools.form(shown);
        assert_eq!(form("agents__spawn").namespace.as_deref(), Some("agents"));
        assert_eq!(form("agents__spawn").name, "spawn");
        assert_eq!((form("patch").kind, form("local_shell").kind), (CallKind::Custom, CallKind::LocalShell));
        let (choice, offered) = tools.choose(None).unwrap();
        let names: Vec<_> = offered.iter().map(|tool| tool["function"]["name"].as_str().unwrap()).collect();
        assert_eq!(names, ["exec_command", "agents__spawn", "patch", "local_shell"]);
        assert_eq!(choice, ToolChoice::Auto);
        assert_eq!(offered[2]["function"]["parameters"]["properties"]["input"]["pattern"], "^(?:a|b)$");
    }

    #[test]
    fn a_choice_names_a_tool_in_every_form_and_none_that_can_not_be_run() {
        let choose = |choice: Value| Toolbox::read(codex()).unwrap().choose(Some(&choice));
        let spawn = json!({"type": "function", "namespace": "agents", "name": "spawn"});
        assert_eq!(choose(spawn.clone()).unwrap().0, ToolChoice::Named("agents__spawn".into()));
        let shell = json!({"type": "local_shell"});
        assert_eq!(choose(shell.clone()).unwrap().0, ToolChoice::Named("local_shell".into()));
        for forced in [
            json!({"type": "web_search"}),
            json!({"type": "mcp", "server_label": "x"}),
            json!({"type": "allowed_tools", "mode": "required", "tools": [{"type": "web_search"}]}),
        ] {
            let error = choose(forced).unwrap_err();
            assert_eq!(error.field.as_deref(), Some("tool_choice"));
            assert!(error.message.contains("web_search") || error.message.contains("mcp"), "{error}");
        }
        let allowed =
            |mode: &str, tools: Value| json!({"type": "allowed_tools", "mode": mode, "tools": tools});
        let (choice, offered) = choose(allowed("required", json!([spawn, shell]))).unwrap();
        assert_eq!((choice, offered.len()), (ToolChoice::Required, 2));
        let (choice, offered) = choose(allowed("auto", json!([{"type": "web_search"}]))).unwrap();
        assert_eq!((choice, offered.len()), (ToolChoice::None, 0));
    }

    #[test]
    fn tools_that_can_not_be_told_apart_or_named_are_refused() {
        let twice = json!({"type": "function", "name": "a__b"});
        let inside = json!({"type": "namespace", "name": "a", "tools": [{"type": "function", "name": "b"}]});
        for wrong in [vec![twice, inside], vec![json!({"name": "f"})], vec![json!({"type": "function"})]] {
            assert!(Toolbox::read(wrong).unwrap_err().field.unwrap().starts_with("tools."));
        }
    }
}
