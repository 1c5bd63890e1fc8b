//! One choice in the making: tokens to text, up to a stop string, taken apart into reasoning, tool calls and the rest.

use ropeway_executor::Sampled;
use ropeway_text::{Delta, Detokenizer, OutputParser, StopMatcher, Stopping};

/// A choice's way from tokens to text.
pub(crate) struct ChoiceText {
    detokenizer: Detokenizer,
    stop: StopMatcher,
    /// `None` if everything is text.
    parser: Option<OutputParser>,
    /// Tokens whose text is not handed out yet.
    held: Vec<Sampled>,
    /// Tokens that were handed out before their text; `None` if they wait for it.
    pub(crate) early: Option<usize>,
    /// Tokens so far.
    pub(crate) generated: usize,
    /// Tokens of reasoning so far.
    pub(crate) reasoning_tokens: usize,
    /// Whether a tool call began.
    pub(crate) called_tools: bool,
    /// Calls of tools that it may have; it ends before another one.
    pub(crate) most_calls: usize,
    /// Whether it ended before a call that is too many.
    is_full: bool,
    /// Whether more may come.
    pub(crate) is_open: bool,
}

/// What ends a choice before the model does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum EarlyEnd {
    /// A stop string is complete.
    StopString(String),
    /// It has as many calls of tools as it may have.
    CallsFull,
}

/// Text that can be handed out, and the tokens since the last one.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Output {
    pub(crate) deltas: Vec<Delta>,
    pub(crate) tokens: Vec<Sampled>,
}

impl Output {
    /// Whether there is nothing to hand out.
    pub(crate) fn is_empty(&self) -> bool {
        self.deltas.is_empty() && self.tokens.is_empty()
    }
}

impl ChoiceText {
    pub(crate) fn new(detokenizer: Detokenizer, stop: &[String], parser: Option<OutputParser>) -> Self {
        Self {
            detokenizer,
            stop: StopMatcher::new(stop.to_vec()),
            parser,
            held: Vec::new(),
            early: None,
            generated: 0,
            reasoning_tokens: 0,
            called_tools: false,
            most_calls: usize::MAX,
            is_full: false,
            is_open: true,
        }
    }

    /// Takes the next token; what ends the choice with it, if anything does.
    pub(crate) fn push(&mut self, sampled: Sampled) -> (Output, Option<EarlyEnd>) {
        self.generated += 1;
        let stopping = self.stop.push(self.detokenizer.push(sampled.token));
        self.held.push(sampled);
        match stopping {
            Stopping::Text(text) if text.is_empty() => (self.hold_back(), None),
            Stopping::Text(text) => {
                let output = self.hand_out(text);
                (output, self.is_full.then_some(EarlyEnd::CallsFull))
            }
            Stopping::Stopped { text, stop } => (self.hand_out(text), Some(EarlyEnd::StopString(stop))),
        }
    }

    /// There are no more tokens: what was held back, and the stop string in it, if there is one.
    pub(crate) fn finish(&mut self) -> (Output, Option<String>) {
        let rest = self.detokenizer.finish();
        let (text, stop) = match self.stop.push(&rest) {
            Stopping::Text(text) => (text + &self.stop.finish(), None),
            Stopping::Stopped { text, stop } => (text, Some(stop)),
        };
        (self.hand_out(text), stop)
    }

    /// What the parser held back; the last output of a choice.
    pub(crate) fn close(&mut self) -> Output {
        self.is_open = false;
        let mut deltas = self.parser.as_mut().map(OutputParser::finish).unwrap_or_default();
        self.count_calls(&mut deltas);
        Output { deltas, tokens: Vec::new() }
    }

    /// There is no text yet; tokens are kept for it, unless they are wanted at once.
    fn hold_back(&mut self) -> Output {
        let Some(early) = &mut self.early else { return Output::default() };
        *early += self.held.len();
        Output { deltas: Vec::new(), tokens: std::mem::take(&mut self.held) }
    }

    fn hand_out(&mut self, text: String) -> Output {
        let tokens = std::mem::take(&mut self.held);
        let count = tokens.len() + self.early.as_mut().map_or(0, std::mem::take);
        let mut deltas = match &mut self.parser {
            None if text.is_empty() => Vec::new(),
            None => vec![Delta::Text(text)],
            Some(parser) => {
                // The tags count as reasoning, as hosted models bill them.
                let was_reasoning = parser.is_reasoning();
                let deltas = parser.push(&text);
                if was_reasoning || parser.is_reasoning() {
                    self.reasoning_tokens += count;
                }
                deltas
            }
        };
        self.count_calls(&mut deltas);
        Output { deltas, tokens }
    }

    /// Notes calls, and drops everything from the first one that is too many.
    fn count_calls(&mut self, deltas: &mut Vec<Delta>) {
        let is_extra =
            |delta: &Delta| matches!(delta, Delta::ToolCall { index, .. } if *index >= self.most_calls);
        let end = if self.is_full { Some(0) } else { deltas.iter().position(is_extra) };
        if let Some(end) = end {
            deltas.truncate(end);
            self.is_full = true;
        }
        self.called_tools |= deltas.iter().any(|delta| matches!(delta, Delta::ToolCall { .. }));
    }
}
