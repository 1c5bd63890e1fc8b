//! Calls as JSON: an object with a name and arguments, or a list of such objects.
//!
//! The call is opened as soon as its name is known and its arguments begin; from then on the arguments stream. Where the
//! arguments come first, or are JSON inside a string, they are kept until they are complete.

use super::body::{Names, Step, stream};
use super::json::{Grown, Json};
use super::sink::Sink;
use serde_json::{Map, Value};

/// A call object, or a list of them.
#[derive(Debug)]
pub(super) struct Calls {
    is_list: bool,
    at: At,
}

#[derive(Debug)]
enum At {
    Start,
    /// An object of the list, or the end of the list after a comma too many.
    Item,
    Call(Box<Call>),
    /// A comma or the end of the list.
    Comma,
}

impl Calls {
    /// Before its first character.
    pub(super) fn new() -> Self {
        Self { is_list: false, at: At::Start }
    }

    /// After the opening bracket of a list.
    pub(super) fn list() -> Self {
        Self { is_list: true, at: At::Item }
    }

    pub(super) fn push(&mut self, character: char, names: Names<'_>, sink: &mut Sink) -> Step {
        match (&mut self.at, character) {
            (At::Call(call), _) => {
                let step = call.push(character, names, sink);
                if step != Step::Done || !self.is_list {
                    return step;
                }
                self.at = At::Comma;
                Step::Taken
            }
            (_, ' ' | '\t' | '\r' | '\n') => Step::Hold,
            (At::Start, '[') => {
                *self = Self::list();
                Step::Hold
            }
            (At::Start | At::Item, '{') => {
                self.at = At::Call(Box::default());
                Step::Hold
            }
            (At::Comma, ',') => {
                self.at = At::Item;
                Step::Hold
            }
            (At::Comma, ']') => Step::Done,
            _ => Step::Bad,
        }
    }

    pub(super) fn close(&mut self, sink: &mut Sink) -> bool {
        match &mut self.at {
            At::Call(call) => call.close(sink),
            _ => false,
        }
    }
}

/// One call object, after its opening brace.
#[derive(Debug, Default)]
struct Call {
    name: Option<String>,
    /// Arguments that came before the name.
    arguments: Option<String>,
    /// Whether the call was handed out.
    opened: bool,
    at: Member,
}

/// Which part of a member the next character belongs to.
#[derive(Debug, Default)]
enum Member {
    /// The first key, or the end.
    #[default]
    First,
    Next,
    Key(Json),
    Colon(Role),
    Value(Role, Json),
    /// Arguments that are handed out as they come.
    Streaming(Json),
    /// A comma or the end.
    Comma,
}

/// What a member means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Role {
    Name,
    Arguments,
    Other,
}

impl Call {
    fn push(&mut self, character: char, names: Names<'_>, sink: &mut Sink) -> Step {
        match std::mem::take(&mut self.at) {
            Member::Key(key) => self.key(key, character, names),
            Member::Value(role, value) => self.value((role, value), character, names, sink),
            Member::Streaming(arguments) => self.stream(arguments, character, sink),
            at => self.between(at, character, names, sink),
        }
    }

    /// Characters outside of keys and values.
    fn between(&mut self, at: Member, character: char, names: Names<'_>, sink: &mut Sink) -> Step {
        self.at = match (at, character) {
            (at, ' ' | '\t' | '\r' | '\n') => at,
            (Member::First | Member::Next, '"') => {
                let mut key = Json::new();
                key.push(character);
                Member::Key(key)
            }
            (Member::Colon(role), ':') => Member::Value(role, Json::new()),
            (Member::Comma, ',') => Member::Next,
            (Member::First | Member::Comma, '}') => return self.end(names, sink),
            _ => return Step::Bad,
        };
        Step::Hold
    }

    fn key(&mut self, mut key: Json, character: char, names: Names<'_>) -> Step {
        self.at = match key.push(character) {
            Grown::More => Member::Key(key),
            Grown::Complete => match self.role(&key.into_text(), names) {
                Some(role) => Member::Colon(role),
                None => return Step::Bad,
            },
            Grown::CompleteBefore | Grown::Bad => return Step::Bad,
        };
        Step::Hold
    }

    /// What a key means; `None` if no call without a tag has it there.
    fn role(&self, key: &str, names: Names<'_>) -> Option<Role> {
        let untagged = names.are_all_there_is();
        match key.trim_matches('"') {
            _ if self.opened => Some(Role::Other),
            "name" | "function" | "tool_name" if self.name.is_none() => Some(Role::Name),
            "arguments" | "parameters" if self.name.is_some() || !untagged => Some(Role::Arguments),
            "type" | "id" | "tool_call_id" => Some(Role::Other),
            _ => (!untagged).then_some(Role::Other),
        }
    }

    fn value(
        &mut self,
        (role, mut value): (Role, Json),
        character: char,
        names: Names<'_>,
        sink: &mut Sink,
    ) -> Step {
        if let (Role::Arguments, '{', true, Some(name)) = (role, character, value.is_unstarted(), &self.name)
        {
            sink.call(name);
            self.opened = true;
            return self.stream(Json::new(), character, sink);
        }
        match value.push(character) {
            Grown::More => {
                self.at = Member::Value(role, value);
                Step::Hold
            }
            Grown::Complete => self.end_value(role, &value.into_text(), names, sink),
            Grown::CompleteBefore => match self.end_value(role, &value.into_text(), names, sink) {
                Step::Bad => Step::Bad,
                _ => self.push(character, names, sink),
            },
            Grown::Bad => Step::Bad,
        }
    }

    fn stream(&mut self, mut arguments: Json, character: char, sink: &mut Sink) -> Step {
        let step = stream(&mut arguments, character, sink);
        if step == Step::Done {
            self.at = Member::Comma;
            return Step::Taken;
        }
        self.at = Member::Streaming(arguments);
        step
    }

    fn end_value(&mut self, role: Role, text: &str, names: Names<'_>, sink: &mut Sink) -> Step {
        self.at = Member::Comma;
        match role {
            Role::Other => Step::Hold,
            Role::Name => match serde_json::from_str::<String>(text) {
                Ok(name) if !name.is_empty() && names.allow(&name) => {
                    self.name = Some(name);
                    Step::Hold
                }
                _ => Step::Bad,
            },
            Role::Arguments => match arguments_object(text) {
                None => Step::Bad,
                Some(arguments) if self.name.is_some() => self.hand_out(&arguments, sink),
                Some(arguments) => {
                    self.arguments = Some(arguments);
                    Step::Hold
                }
            },
        }
    }

    fn end(&mut self, names: Names<'_>, sink: &mut Sink) -> Step {
        if self.opened {
            return Step::Done;
        }
        let arguments = self.arguments.take();
        if self.name.is_none() || (arguments.is_none() && names.are_all_there_is()) {
            return Step::Bad;
        }
        self.hand_out(&arguments.unwrap_or_else(|| "{}".to_owned()), sink);
        Step::Done
    }

    /// Hands out a call whose arguments are complete.
    fn hand_out(&mut self, arguments: &str, sink: &mut Sink) -> Step {
        sink.call(self.name.as_deref().unwrap_or_default());
        sink.arguments(arguments);
        self.opened = true;
        Step::Taken
    }

    fn close(&mut self, sink: &mut Sink) -> bool {
        let Member::Streaming(arguments) = &mut self.at else { return false };
        let closing = arguments.close();
        sink.arguments(&closing);
        !closing.is_empty()
    }
}

/// Complete arguments as a JSON object: as they are, out of a string, or empty for `null`.
fn arguments_object(text: &str) -> Option<String> {
    match serde_json::from_str(text).ok()? {
        Value::Object(_) => Some(text.trim().to_owned()),
        Value::Null => Some("{}".to_owned()),
        Value::String(inner) if inner.trim().is_empty() => Some("{}".to_owned()),
        Value::String(inner) => {
            serde_json::from_str::<Map<String, Value>>(&inner).ok().map(|_| inner.trim().to_owned())
        }
        _ => None,
    }
}
