//! What an operator says about an upstream: a URL on the command line, or a table in `ropeway.toml`.
//!
//! ```text
//! --upstream http://gpu1:8000          --upstream big=https://gpu2:8000/v1
//! [[upstream]]                         the same flag with this table as JSON, so that there is one way in
//! url = "https://gpu2:8000"
//! key-file = "gpu2.key"
//! ```
//! A key is read when it is needed and shown to nobody: [`Secret`] prints nothing of it.

mod arg;
mod url;

use std::fmt;
use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::time::Duration;

use serde::Deserialize;

pub use arg::{UpstreamArg, resolve_all};
pub use url::Url;

/// What kind of server an upstream is: which words it understands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// vLLM.
    Vllm,
    /// `SGLang`.
    Sglang,
    /// llama.cpp's server.
    LlamaServer,
    /// Ollama.
    Ollama,
    /// Another Ropeway.
    Ropeway,
    /// Anything with OpenAI's chat completions.
    Openai,
}

impl Kind {
    /// All kinds, in the order in which a server is tried for them.
    pub const ALL: [Kind; 6] =
        [Kind::Ropeway, Kind::Vllm, Kind::Sglang, Kind::LlamaServer, Kind::Ollama, Kind::Openai];

    /// Its name in settings, metrics and logs.
    pub fn name(self) -> &'static str {
        match self {
            Kind::Vllm => "vllm",
            Kind::Sglang => "sglang",
            Kind::LlamaServer => "llama-server",
            Kind::Ollama => "ollama",
            Kind::Ropeway => "ropeway",
            Kind::Openai => "openai",
        }
    }

    /// Whether it takes prompts as token ids and gives token ids back.
    pub fn speaks_tokens(self) -> bool {
        matches!(self, Kind::Vllm | Kind::Sglang | Kind::LlamaServer | Kind::Ropeway)
    }
}

/// A key that is printed nowhere.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(String);

impl Secret {
    /// Keeps a key.
    pub fn new(key: impl Into<String>) -> Self {
        Self(key.into())
    }

    /// The key, for the header that carries it.
    pub fn reveal(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(..)")
    }
}

/// How long an upstream may keep silent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timeouts {
    /// Until there is a connection, TLS included.
    pub connect: Duration,
    /// From sending a request to its first token.
    pub first_token: Duration,
    /// Between two tokens.
    pub between_tokens: Duration,
}

impl Default for Timeouts {
    /// A prompt of a hundred thousand tokens takes minutes on some machines; a stream that stands still for half a minute will
    /// not go on.
    fn default() -> Self {
        Self {
            connect: Duration::from_secs(2),
            first_token: Duration::from_secs(300),
            between_tokens: Duration::from_secs(30),
        }
    }
}

/// One upstream as the operator described it, with nothing left to be read from elsewhere.
#[derive(Clone, Debug)]
pub struct UpstreamSettings {
    /// What it is called in logs and metrics; unique.
    pub name: String,
    /// Its address without a path, such as `http://gpu1:8000`.
    pub url: Url,
    /// What it is; found out if `None`.
    pub kind: Option<Kind>,
    /// Models that are used of it; all if empty.
    pub models: Vec<String>,
    /// What it asks for.
    pub key: Option<Secret>,
    /// Its share of the work compared with others of the same model.
    pub weight: f64,
    /// Most requests at a time; adapts if `None`.
    pub concurrency: Option<NonZeroUsize>,
    /// How long it may keep silent.
    pub timeouts: Timeouts,
    /// Certificate authorities to trust besides the usual ones, in PEM form.
    pub tls_roots: Option<PathBuf>,
    /// The tokenizer of its models: a folder, a file or a name of the hub; found by the model's own name if `None`.
    pub tokenizer: Option<String>,
}
