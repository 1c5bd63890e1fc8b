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
    /// Tokens so far.
    pub(crate) generated: usize,
    /// Tokens of reasoning so far.
    pub(crate) reasoning_tokens: usize,
    /// Whether a tool call began.
    pub(crate) called_tools: bool,
    /// Whether more may come.
    pub(crate) is_open: bool,
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
            generated: 0,
            reasoning_tokens: 0,
            called_tools: false,
            is_open: true,
        }
    }

    /// Takes the next token; the stop string that is complete by it, if one is.
    pub(crate) fn push(&mut self, sampled: Sampled) -> (Output, Option<String>) {
        self.generated += 1;
        let stopping = self.stop.push(self.detokenizer.push(sampled.token));
        self.held.push(sampled);
        match stopping {
            Stopping::Text(text) if text.is_empty() => (Output::default(), None),
            Stopping::Text(text) => (self.hand_out(text), None),
            Stopping::Stopped { text, stop } => (self.hand_out(text), Some(stop)),
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
        let deltas = self.parser.as_mut().map(OutputParser::finish).unwrap_or_default();
        self.note_calls(&deltas);
        Output { deltas, tokens: Vec::new() }
    }

    fn hand_out(&mut self, text: String) -> Output {
        let tokens = std::mem::take(&mut self.held);
        let deltas = match &mut self.parser {
            None if text.is_empty() => Vec::new(),
            None => vec![Delta::Text(text)],
            Some(parser) => {
                // The tags count as reasoning, as hosted models bill them.
                let was_reasoning = parser.is_reasoning();
                let deltas = parser.push(&text);
                if was_reasoning || parser.is_reasoning() {
                    self.reasoning_tokens += tokens.len();
                }
                deltas
            }
        };
        self.note_calls(&deltas);
        Output { deltas, tokens }
    }

    fn note_calls(&mut self, deltas: &[Delta]) {
        self.called_tools |= deltas.iter().any(|delta| matches!(delta, Delta::ToolCall { .. }));
    }
}
