//! What the parsers write to: the deltas of the current push, neighbours of a kind joined.

use super::Delta;

/// The deltas that no one has taken yet.
#[derive(Debug, Default)]
pub(super) struct Sink {
    deltas: Vec<Delta>,
    /// Calls opened so far.
    calls: usize,
}

impl Sink {
    pub(super) fn take(&mut self) -> Vec<Delta> {
        std::mem::take(&mut self.deltas)
    }

    pub(super) fn calls(&self) -> usize {
        self.calls
    }

    pub(super) fn text(&mut self, more: &str) {
        match self.deltas.last_mut() {
            _ if more.is_empty() => {}
            Some(Delta::Text(text)) => text.push_str(more),
            _ => self.deltas.push(Delta::Text(more.to_owned())),
        }
    }

    pub(super) fn reasoning(&mut self, more: &str) {
        match self.deltas.last_mut() {
            _ if more.is_empty() => {}
            Some(Delta::Reasoning(text)) => text.push_str(more),
            _ => self.deltas.push(Delta::Reasoning(more.to_owned())),
        }
    }

    /// Opens the next call.
    pub(super) fn call(&mut self, name: &str) {
        self.deltas.push(Delta::ToolCall { index: self.calls, name: name.to_owned() });
        self.calls += 1;
    }

    /// Adds to the arguments of the last call.
    pub(super) fn arguments(&mut self, more: &str) {
        match self.deltas.last_mut() {
            _ if more.is_empty() => {}
            Some(Delta::Arguments { json, .. }) => json.push_str(more),
            _ => {
                let index = self.calls.saturating_sub(1);
                self.deltas.push(Delta::Arguments { index, json: more.to_owned() });
            }
        }
    }
}
