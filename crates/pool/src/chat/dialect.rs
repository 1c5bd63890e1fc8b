//! What each kind of server calls a parameter, and which it has no word for.
//!
//! | ours | vLLM | `SGLang` | llama-server | Ropeway | Ollama, OpenAI |
//! |---|---|---|---|---|---|
//! | `top_k`, `min_p`, `ignore_eos` | same | same | same | same | - |
//! | `repetition_penalty` | same | same | `repeat_penalty` | same | - |
//! | `typical_p` | - | - | same | same | - |
//! | `repeat_last_n` | - | - | same | - | - |
//! | `min_tokens` | same | same | - | same | - |
//! | `n` | same | same | same | same | OpenAI only |
//! | `chat_template_kwargs` | same | same | same | same | - |
//! | `continue_final_message` | same | same | same | same | Ollama goes on by itself |
//! | `add_generation_prompt` | same | - | same | same | - |
//!
//! What OpenAI's API has (`temperature`, `top_p`, `seed`, penalties, `max_tokens`, `stop`, `tools`, `response_format`) is sent to all.

use ropeway_generation::RequestError;

use crate::settings::Kind;

/// What a kind of server calls one of our parameters; `None` if it has no word for it.
pub(super) fn word(kind: Kind, ours: &'static str) -> Option<&'static str> {
    let has = match ours {
        "n" | "parallel_tool_calls" => kind != Kind::Ollama,
        "typical_p" => matches!(kind, Kind::LlamaServer | Kind::Ropeway),
        "repeat_last_n" => kind == Kind::LlamaServer,
        "min_tokens" => matches!(kind, Kind::Vllm | Kind::Sglang | Kind::Ropeway),
        "add_generation_prompt" => matches!(kind, Kind::Vllm | Kind::LlamaServer | Kind::Ropeway),
        "prediction" => matches!(kind, Kind::Openai | Kind::Ropeway),
        _ => kind.speaks_tokens(),
    };
    match (kind, ours) {
        (Kind::LlamaServer, "repetition_penalty") => Some("repeat_penalty"),
        _ => has.then_some(ours),
    }
}

/// Whether a server says which stop string ended an answer. Where it does not, answers are ended here.
pub(super) fn names_stop_strings(kind: Kind) -> bool {
    matches!(kind, Kind::Vllm | Kind::Sglang)
}

/// The largest seed that a server takes.
pub(super) fn largest_seed(kind: Kind) -> u64 {
    match kind {
        Kind::LlamaServer | Kind::Ollama => i32::MAX as u64,
        Kind::Vllm | Kind::Sglang | Kind::Ropeway | Kind::Openai => i64::MAX as u64,
    }
}

/// The error for a field that a kind of server has no word for.
pub(super) fn unsupported(kind: Kind, field: impl Into<String>) -> RequestError {
    let field = field.into();
    let message = format!(
        "{field} can't be passed on: the server that computes this model ({}) has no word for it; leave it out",
        kind.name()
    );
    RequestError::invalid(message).at(field)
}
