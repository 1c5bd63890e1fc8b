//! Conversations at servers that keep their tokens to themselves: a job as the body of an OpenAI chat completion, and the
//! answer's chunks as events.
//!
//! ```text
//! Job ─ body ─> POST /v1/chat/completions, or /v1/completions for a text ─> chunks ─ AnswerReader ─> GenerationEvent
//!       messages, dialect                                                            choice, calls
//! ```
//! It relies on the shapes that vLLM, `SGLang`, llama.cpp's server and Ollama send and take. It must never do I/O, and never leave out
//! in silence what a caller asked for: what a kind of server has no word for is an error with its field.

mod body;
mod calls;
mod choice;
mod dialect;
mod messages;
mod reader;

pub use body::{body, path, salt};
pub use reader::AnswerReader;
