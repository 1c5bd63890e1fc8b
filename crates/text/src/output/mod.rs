//! A model's answer taken apart as it comes: text, reasoning, and calls of tools.
//!
//! ```text
//! pieces of text ─ OutputParser::push ─> Text("It is "), Reasoning(..), ToolCall { 0, "weather" }, Arguments { 0, "{\"ci" } ..
//! ```
//!
//! | module | what it is |
//! |---|---|
//! | `style` | the formats and how to tell which of them a model writes |
//! | `parser` | finds tags and hands what follows them to a body |
//! | `body` | a run of calls; `call` (JSON), `headed` (name, then JSON), `pythonic` with `python` (literals) |
//! | `json` | a JSON value that can be handed out while it grows |
//! | `sink` | the deltas |
//!
//! What holds:
//! - The parser works character by character and keeps what it needs, so the deltas, put together, do not depend on how the
//!   text was cut. Nothing handed out is ever taken back.
//! - Arguments are a JSON object when all is over. Where an answer ends or goes wrong inside of them, they are completed by
//!   closing what is open ([`OutputParser::unfinished_call`] tells), and what did not get into them comes back as text.
//! - What looked like a call and is none comes back as text, as it was written.
//! - Text waits only while it may be an opening tag. Reasoning is looked for where an answer, or a new part of it after
//!   reasoning or a call, begins; so are calls without tags. White space next to reasoning and between calls is dropped.
//! - Time is linear, memory bounded; no text makes it fail.
//!
//! The crates `tool-parser` and `reasoning-parser` (1.10) were looked at first. They do not fit: the former is async over
//! tokio, brings 170 crates (a Python parser and an `OpenAI` protocol among them), and parses its whole buffer again with
//! every piece; the latter brings tokio to look for one pair of tags, and calls and reasoning have to be told apart in one
//! pass.

mod body;
mod call;
mod headed;
mod json;
mod parser;
mod python;
mod pythonic;
mod sink;
mod style;

pub use parser::{OutputOptions, OutputParser};
pub use style::OutputStyle;

/// A piece of an answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Delta {
    /// Text for the reader.
    Text(String),
    /// The model's thoughts.
    Reasoning(String),
    /// A call begins; calls are numbered from 0.
    ToolCall {
        /// Which call.
        index: usize,
        /// The function's name.
        name: String,
    },
    /// More of a call's arguments. All of them together are a JSON object.
    Arguments {
        /// Which call.
        index: usize,
        /// The next part of the JSON text.
        json: String,
    },
}
