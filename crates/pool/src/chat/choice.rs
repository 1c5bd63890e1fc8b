//! One choice as another server writes it: told apart into text, thoughts and calls, and ended at stop strings.

use ropeway_generation::{Conversation, ErrorKind, Job, Prompt, RequestError, StopReason};
use ropeway_text::{Delta, OutputOptions, OutputParser, OutputStyle, StopMatcher, Stopping};
use serde_json::Value;

use super::calls::Calls;

/// A choice in the making.
pub(super) struct ChoiceReader {
    /// Finds thoughts that the server left in the text, if anybody wants them told apart.
    thoughts: Option<OutputParser>,
    stops: Vec<String>,
    stop: StopMatcher,
    calls: Calls,
    most_calls: usize,
    /// Why it ended, once it has.
    pub(super) ended: Option<StopReason>,
    /// Whether it was ended here, while the server may still be writing.
    pub(super) is_cut: bool,
    /// Pieces of it so far, of about a token each.
    pub(super) pieces: usize,
    /// Of these, thoughts.
    pub(super) thought_pieces: usize,
}

impl ChoiceReader {
    pub(super) fn new(job: &Job) -> Self {
        let conversation = match &job.prompt {
            Prompt::Conversation(conversation) => Some(conversation),
            _ => None,
        };
        let is_single = conversation.is_some_and(|conversation| conversation.single_call);
        Self {
            thoughts: conversation.and_then(thought_parser),
            stops: job.stop.clone(),
            stop: StopMatcher::new(job.stop.clone()),
            calls: Calls::default(),
            most_calls: if is_single { 1 } else { usize::MAX },
            ended: None,
            is_cut: false,
            pieces: 0,
            thought_pieces: 0,
        }
    }

    /// Whether it calls tools.
    pub(super) fn called_tools(&self) -> bool {
        self.calls.len() > 0
    }

    /// What one of a chunk's choices adds. Nothing is read of a choice that is over.
    pub(super) fn read(&mut self, given: &Value) -> Vec<Delta> {
        if self.ended.is_some() {
            return Vec::new();
        }
        let mut deltas = self.delta(given);
        if self.ended.is_none()
            && let Some(reason) = given["finish_reason"].as_str()
        {
            deltas.extend(self.finish());
            let stop = self.stop_string(given);
            self.ended.get_or_insert_with(|| stop.unwrap_or_else(|| stop_reason(reason)));
        }
        deltas
    }

    fn delta(&mut self, given: &Value) -> Vec<Delta> {
        let delta = &given["delta"];
        let mut deltas = Vec::new();
        let thought = ["reasoning_content", "reasoning"].iter().find_map(|name| delta[*name].as_str());
        if let Some(thought) = thought.filter(|thought| !thought.is_empty()) {
            (self.pieces, self.thought_pieces) = (self.pieces + 1, self.thought_pieces + 1);
            deltas.push(Delta::Reasoning(thought.into()));
        }
        let text = text(&delta["content"]) + &text(&delta["refusal"]) + &text(&given["text"]);
        if !text.is_empty() {
            self.pieces += 1;
            deltas.extend(self.text(&text));
        }
        if self.ended.is_none() {
            deltas.extend(self.tool_calls(&delta["tool_calls"]));
        }
        deltas
    }

    fn text(&mut self, text: &str) -> Vec<Delta> {
        let told_apart = match &mut self.thoughts {
            Some(parser) => parser.push(text),
            None => vec![Delta::Text(text.into())],
        };
        self.up_to_stop(told_apart)
    }

    /// The deltas up to a stop string, which ends the choice.
    fn up_to_stop(&mut self, deltas: Vec<Delta>) -> Vec<Delta> {
        let mut kept = Vec::new();
        for delta in deltas {
            let Delta::Text(text) = delta else {
                kept.push(delta);
                continue;
            };
            match self.stop.push(&text) {
                Stopping::Text(text) => kept.extend(spoken(text)),
                Stopping::Stopped { text, stop } => {
                    kept.extend(spoken(text));
                    self.cut(StopReason::StopString(stop));
                    break;
                }
            }
        }
        kept
    }

    fn tool_calls(&mut self, pieces: &Value) -> Vec<Delta> {
        let mut deltas = self.calls.read(pieces);
        self.pieces += usize::from(!deltas.is_empty());
        let is_extra =
            |delta: &Delta| matches!(delta, Delta::ToolCall { index, .. } if *index >= self.most_calls);
        if let Some(end) = deltas.iter().position(is_extra) {
            deltas.truncate(end);
            let is_kept =
                |delta: &Delta| matches!(delta, Delta::Arguments { index, .. } if *index < self.most_calls);
            deltas.extend(self.calls.finish().into_iter().filter(is_kept));
            self.cut(StopReason::EndOfText);
        }
        deltas
    }

    /// What was held back.
    fn finish(&mut self) -> Vec<Delta> {
        let rest = self.thoughts.as_mut().map(OutputParser::finish).unwrap_or_default();
        let mut deltas = self.up_to_stop(rest);
        if self.ended.is_none() {
            deltas.extend(spoken(self.stop.finish()));
        }
        deltas.extend(self.calls.finish());
        deltas
    }

    fn cut(&mut self, reason: StopReason) {
        self.ended = Some(reason);
        self.is_cut = true;
    }

    /// The stop string that vLLM (`stop_reason`) or `SGLang` (`matched_stop`) says it came to.
    fn stop_string(&self, given: &Value) -> Option<StopReason> {
        let named = ["stop_reason", "matched_stop"].iter().find_map(|name| given[*name].as_str())?;
        let is_ours = given["finish_reason"] == "stop" && self.stops.iter().any(|stop| stop == named);
        is_ours.then(|| StopReason::StopString(named.into()))
    }
}

/// Looks for thoughts in the text of a server that did not tell them apart.
fn thought_parser(conversation: &Conversation) -> Option<OutputParser> {
    // Any model may write these tags; others are only known from a template.
    let style = OutputStyle::detect(Some("<think>"), |_| false);
    let options = OutputOptions { reasoning: true, ..OutputOptions::default() };
    conversation.reasoning.then(|| OutputParser::new(&style, options))
}

/// A text, or the texts of its parts.
fn text(content: &Value) -> String {
    match content {
        Value::String(text) => text.clone(),
        Value::Array(parts) => parts.iter().filter_map(|part| part["text"].as_str()).collect(),
        _ => String::new(),
    }
}

fn spoken(text: String) -> Option<Delta> {
    (!text.is_empty()).then_some(Delta::Text(text))
}

/// Why a choice ended, from OpenAI's words and those that others added.
fn stop_reason(reason: &str) -> StopReason {
    let failed = |kind, message: String| StopReason::Failed(RequestError::new(kind, message));
    match reason {
        "length" => StopReason::Length,
        "content_filter" => failed(
            ErrorKind::InvalidRequest,
            "the server that computes this model withheld the rest of the answer (content_filter); ask in other words".into(),
        ),
        "abort" | "error" => failed(
            ErrorKind::Internal,
            format!("the server that computes this model gave up ({reason}); send the request again"),
        ),
        _ => StopReason::EndOfText,
    }
}
