//! Which markup a model writes: the formats, their tags, and how to tell from a template and a vocabulary.
//!
//! | format | a call |
//! |---|---|
//! | Hermes, Qwen | `<tool_call>{"name": "f", "arguments": {..}}</tool_call>` |
//! | Llama 3.x | `<\|python_tag\|>{"name": "f", "parameters": {..}}`, `<function=f>{..}</function>`, or without tags |
//! | Llama 4, and 3.2 if asked | `[f(a=1), g()]`, possibly after `<\|python_start\|>` |
//! | LFM2 | `<\|tool_call_start\|>[f(a=1)]<\|tool_call_end\|>` |
//! | Mistral | `[TOOL_CALLS][{"name": "f", "arguments": {..}}]`, `[TOOL_CALLS]f[ARGS]{..}` |
//! | `DeepSeek` | `<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>f`, a fenced block of JSON, or JSON at once |
//! | Kimi | `<\|tool_calls_section_begin\|><\|tool_call_begin\|>functions.f:0<\|tool_call_argument_begin\|>{..}` |
//! | Command | `<\|START_ACTION\|>[{"tool_name": "f", "parameters": {..}}]<\|END_ACTION\|>` |
//! | any | `{"name": "f", "arguments": {..}}` or a list of these, at the start of an answer |
//!
//! A new format is a row of [`FORMATS`]. No tag may be the beginning of another, or hold its own first character again:
//! the parser tells tags apart without looking back.

use super::body::Opening;
use super::headed;

/// The markup that a model's answers may hold.
#[derive(Clone, Debug, Default)]
pub struct OutputStyle {
    pub(super) formats: Vec<&'static Format>,
    pub(super) reasoning: Vec<Reasoning>,
    /// Whether calls may stand at the start of an answer without tags.
    pub(super) untagged: Untagged,
}

/// Which calls without tags are looked for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Untagged {
    #[default]
    None,
    Json,
    JsonAndPython,
}

/// One way to write calls with tags.
#[derive(Debug)]
pub(super) struct Format {
    /// Found in the templates or vocabularies of models that write it; empty if any model may.
    marks: &'static [&'static str],
    /// Tags before a call, and what follows them.
    pub(super) opens: &'static [(&'static str, Opening)],
    /// Tags after a call, which mean nothing more.
    pub(super) closes: &'static [&'static str],
    /// Tags inside a call.
    inner: &'static [&'static str],
}

/// The tags around a model's thoughts.
#[derive(Clone, Copy, Debug)]
pub(super) struct Reasoning {
    pub(super) open: &'static str,
    pub(super) close: &'static str,
}

static FORMATS: &[Format] = &[
    Format { marks: &[], opens: &[("<tool_call>", Opening::Json)], closes: &["</tool_call>"], inner: &[] },
    Format {
        marks: &["<|python_tag|>"],
        opens: &[("<|python_tag|>", Opening::Json)],
        closes: &[],
        inner: &[],
    },
    Format {
        marks: &["<|python_tag|>", "<function="],
        opens: &[("<function=", Opening::Headed(headed::function_tag))],
        closes: &["</function>"],
        inner: &[],
    },
    Format {
        marks: &["<|python_start|>"],
        opens: &[("<|python_start|>", Opening::Pythonic)],
        closes: &["<|python_end|>"],
        inner: &[],
    },
    Format {
        marks: &["<|tool_call_start|>"],
        opens: &[("<|tool_call_start|>", Opening::Pythonic)],
        closes: &["<|tool_call_end|>"],
        inner: &[],
    },
    Format {
        marks: &["[TOOL_CALLS]"],
        opens: &[("[TOOL_CALLS]", Opening::JsonOrHeaded(headed::mistral))],
        closes: &[],
        inner: &["[ARGS]", "[CALL_ID]"],
    },
    Format {
        marks: &["<｜tool▁calls▁begin｜>"],
        opens: &[
            ("<｜tool▁calls▁begin｜>", Opening::Headed(headed::deepseek)),
            ("<｜tool▁call▁begin｜>", Opening::Headed(headed::deepseek)),
        ],
        closes: &["```", "<｜tool▁call▁end｜>", "<｜tool▁calls▁end｜>"],
        inner: &["<｜tool▁sep｜>"],
    },
    Format {
        marks: &["<|tool_calls_section_begin|>"],
        opens: &[
            ("<|tool_calls_section_begin|>", Opening::Headed(headed::kimi)),
            ("<|tool_call_begin|>", Opening::Headed(headed::kimi)),
        ],
        closes: &["<|tool_call_end|>", "<|tool_calls_section_end|>"],
        inner: &["<|tool_call_argument_begin|>"],
    },
    Format {
        marks: &["<|START_ACTION|>"],
        opens: &[("<|START_ACTION|>", Opening::Json)],
        closes: &["<|END_ACTION|>"],
        inner: &[],
    },
];

static REASONING: &[Reasoning] = &[
    Reasoning { open: "<think>", close: "</think>" },
    Reasoning { open: "[THINK]", close: "[/THINK]" },
    Reasoning { open: "<|START_THINKING|>", close: "<|END_THINKING|>" },
];

/// What tells models that write calls as Python without tags: Llama's tokens, and the words of their prompts.
const PYTHONIC_MARKS: &[&str] = &["<|python_tag|>", "<|python_start|>", "func_name1("];

impl OutputStyle {
    /// Which markup a model writes, from its chat template and its vocabulary. Hermes' tags and plain JSON are understood
    /// from every model: they are what a model without a format of its own is asked for.
    pub fn detect(template: Option<&str>, knows_token: impl Fn(&str) -> bool) -> Self {
        let shows =
            |mark: &&str| template.is_some_and(|template| template.contains(*mark)) || knows_token(mark);
        let speaks = |format: &&Format| format.marks.is_empty() || format.marks.iter().any(&shows);
        let thinks = |tags: &&Reasoning| shows(&tags.open) || shows(&tags.close);
        let python = PYTHONIC_MARKS.iter().any(&shows);
        Self {
            formats: FORMATS.iter().filter(speaks).collect(),
            reasoning: REASONING.iter().filter(thinks).copied().collect(),
            untagged: if python { Untagged::JsonAndPython } else { Untagged::Json },
        }
    }

    /// No markup: everything is text.
    pub fn plain() -> Self {
        Self::default()
    }

    /// Whether the model may think before it answers.
    pub fn has_reasoning(&self) -> bool {
        !self.reasoning.is_empty()
    }

    /// Whether a rendered prompt ends inside the model's thoughts, as that of models that always think does.
    pub fn is_reasoning_open(&self, prompt: &str) -> bool {
        self.open_reasoning(prompt).is_some()
    }

    /// The tag that closes the thoughts inside which a rendered prompt ends.
    pub fn open_reasoning(&self, prompt: &str) -> Option<&'static str> {
        let end = prompt.trim_end();
        self.reasoning.iter().find(|tags| end.ends_with(tags.open)).map(|tags| tags.close)
    }

    /// The texts that have to reach the parser. Where a vocabulary has one as a control token, the detokenizer must be told
    /// to write it ([`Detokenizer::showing`](crate::Detokenizer::showing)).
    pub fn markup(&self) -> impl Iterator<Item = &'static str> {
        let of_format = |format: &&'static Format| {
            let opens = format.opens.iter().map(|open| open.0);
            opens.chain(format.closes.iter().copied()).chain(format.inner.iter().copied())
        };
        let calls = self.formats.iter().flat_map(of_format);
        calls.chain(self.reasoning.iter().flat_map(|tags| [tags.open, tags.close]))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn everything() -> OutputStyle {
        OutputStyle::detect(None, |_| true)
    }

    #[test]
    fn tags_can_be_told_apart_without_looking_back() {
        let tags: Vec<&str> = everything().markup().collect();
        for tag in &tags {
            let mut rest = tag.chars();
            let first = rest.next().unwrap();
            assert!(*tag == "```" || !rest.any(|c| c == first), "{tag}");
            for other in &tags {
                assert!(tag == other || !other.starts_with(tag), "{tag} begins {other}");
            }
        }
    }

    #[test]
    fn a_model_speaks_the_formats_that_its_template_or_vocabulary_shows() {
        let opens = |style: &OutputStyle| -> Vec<&str> {
            style.formats.iter().flat_map(|format| format.opens).map(|open| open.0).collect()
        };
        assert_eq!(opens(&OutputStyle::detect(None, |_| false)), ["<tool_call>"]);
        let mistral = OutputStyle::detect(None, |token| token == "[TOOL_CALLS]");
        assert_eq!(opens(&mistral), ["<tool_call>", "[TOOL_CALLS]"]);
        let qwen = OutputStyle::detect(Some("{{ '<think>' }}"), |_| false);
        assert!(qwen.has_reasoning() && qwen.untagged == Untagged::Json);
        assert!(!OutputStyle::plain().has_reasoning());
    }

    #[test]
    fn a_prompt_that_ends_with_the_opening_tag_starts_in_reasoning() {
        assert!(everything().is_reasoning_open("<|im_start|>assistant\n<think>\n"));
        assert!(!everything().is_reasoning_open("<think>\n\n</think>\n\n"));
        assert!(!OutputStyle::plain().is_reasoning_open("<think>"));
    }
}
