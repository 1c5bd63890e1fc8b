//! Calls of tools as they come in pieces: numbered from 0 here, whatever numbers the server gives them.
//!
//! ```text
//! {index: 0, id: "a", function: {name: "f", arguments: ""}}   begins a call
//! {index: 0, function: {arguments: "{\"x"}}                   goes on with it
//! {index: 0, id: "b", function: {name: "g", ...}}             another call, also where a server numbers all of them 0
//! ```

use ropeway_text::Delta;
use serde_json::Value;

/// A choice's calls so far.
#[derive(Debug, Default)]
pub(super) struct Calls {
    begun: Vec<Call>,
}

#[derive(Debug)]
struct Call {
    /// Its number at the server, if that gave one.
    number: Option<u64>,
    id: Option<String>,
    /// Whether it has arguments.
    has_arguments: bool,
}

impl Calls {
    /// How many began.
    pub(super) fn len(&self) -> usize {
        self.begun.len()
    }

    /// What a list of pieces adds.
    pub(super) fn read(&mut self, pieces: &Value) -> Vec<Delta> {
        pieces.as_array().into_iter().flatten().flat_map(|piece| self.piece(piece)).collect()
    }

    fn piece(&mut self, piece: &Value) -> Vec<Delta> {
        let number = piece["index"].as_u64();
        let id = piece["id"].as_str().filter(|id| !id.is_empty());
        let name = piece["function"]["name"].as_str().filter(|name| !name.is_empty());
        let mut deltas = Vec::new();
        let known = self.known(number, id, name.is_some());
        let index = match (known, name) {
            (Some(index), _) => index,
            (None, Some(name)) => {
                let index = self.begun.len();
                self.begun.push(Call { number, id: id.map(Into::into), has_arguments: false });
                deltas.push(Delta::ToolCall { index, name: name.into() });
                index
            }
            // A piece of a call that never began.
            (None, None) => return deltas,
        };
        let json = arguments(&piece["function"]["arguments"]);
        if !json.is_empty() {
            self.begun[index].has_arguments = true;
            deltas.push(Delta::Arguments { index, json });
        }
        deltas
    }

    /// The call that a piece goes on with. One with a name and another id, or with a name and no number, begins a new call.
    fn known(&self, number: Option<u64>, id: Option<&str>, is_named: bool) -> Option<usize> {
        let index = match number {
            Some(_) => self.begun.iter().rposition(|call| call.number == number)?,
            None => self.begun.len().checked_sub(1)?,
        };
        let call = &self.begun[index];
        let is_another = is_named && (number.is_none() || (id.is_some() && id != call.id.as_deref()));
        (!is_another).then_some(index)
    }

    /// The answer is over: arguments are an object, also where none came.
    pub(super) fn finish(&mut self) -> Vec<Delta> {
        let empty = self.begun.iter_mut().enumerate().filter_map(|(index, call)| {
            let had_arguments = std::mem::replace(&mut call.has_arguments, true);
            (!had_arguments).then(|| Delta::Arguments { index, json: "{}".into() })
        });
        empty.collect()
    }
}

/// Some servers send the object itself.
fn arguments(value: &Value) -> String {
    match value {
        Value::Null => String::new(),
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn begins(index: usize, name: &str) -> Delta {
        Delta::ToolCall { index, name: name.into() }
    }

    fn more(index: usize, json: &str) -> Delta {
        Delta::Arguments { index, json: json.into() }
    }

    #[test]
    fn pieces_of_a_call_are_put_together_by_its_number() {
        let mut calls = Calls::default();
        let first =
            json!([{"index": 0, "id": "a", "type": "function", "function": {"name": "f", "arguments": ""}}]);
        assert_eq!(calls.read(&first), [begins(0, "f")]);
        assert_eq!(
            calls.read(&json!([{"index": 0, "function": {"arguments": "{\"x\""}}])),
            [more(0, "{\"x\"")]
        );
        let second = json!([{"index": 1, "id": "b", "function": {"name": "g"}},
                            {"index": 0, "function": {"arguments": ": 1}"}}]);
        assert_eq!(calls.read(&second), [begins(1, "g"), more(0, ": 1}")]);
        assert_eq!(calls.finish(), [more(1, "{}")]);
        assert_eq!(calls.finish(), []);
    }

    #[test]
    fn calls_that_all_have_the_same_number_or_none_are_told_apart() {
        for number in [json!(0), json!(null)] {
            let mut calls = Calls::default();
            let one = |id: &str, name: &str| json!([{"index": number, "id": id, "function": {"name": name, "arguments": {}}}]);
            assert_eq!(calls.read(&one("a", "f")), [begins(0, "f"), more(0, "{}")]);
            assert_eq!(calls.read(&one("b", "f")), [begins(1, "f"), more(1, "{}")]);
        }
    }

    #[test]
    fn a_name_that_is_repeated_begins_no_call() {
        let mut calls = Calls::default();
        let piece =
            |text: &str| json!([{"index": 0, "id": "a", "function": {"name": "f", "arguments": text}}]);
        assert_eq!(calls.read(&piece("{")), [begins(0, "f"), more(0, "{")]);
        assert_eq!(calls.read(&piece("}")), [more(0, "}")]);
        assert_eq!(calls.read(&json!([{"index": 7, "function": {"arguments": "?"}}, 5, null])), []);
    }
}
