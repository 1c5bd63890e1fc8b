//! Where the hub keeps things and whom it asks, resolved from the environment once.

use std::env;
use std::ffi::OsString;
use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use crate::error::HubError;

/// How long a source may send nothing unless `ROPEWAY_PULL_TIMEOUT` says otherwise: longer than the pauses of busy servers and
/// than pip's own time limit of 15 seconds, after which it tries again by itself.
const SILENCE: Duration = Duration::from_secs(30);

/// How long a connection may take at most: no network is slower.
const CONNECT: Duration = Duration::from_secs(10);

/// A day; whoever wants more wants no limit, which there is not.
const LONGEST_SILENCE: u64 = 86_400;

/// Enough to fill a line that one connection does not, and no more than browsers open.
const CONNECTIONS: usize = 8;

/// More would be an attack.
const MOST_CONNECTIONS: usize = 32;

/// Large enough that asking costs nothing beside it, small enough that the connections end together.
const PIECE: u64 = 32 << 20;

const DEFAULT_REGISTRY: &str = "https://registry.ollama.ai";

const DEFAULT_ENDPOINT: &str = "https://huggingface.co";

/// The hub's surroundings.
#[derive(Debug, Clone)]
pub struct Config {
    /// The store's root: `ROPEWAY_HOME`, else `~/.cache/ropeway`.
    pub home: PathBuf,
    /// Python interpreters to look for pip in, in order: `ROPEWAY_PYTHON`, else `python3` and `python`.
    pub pythons: Vec<PathBuf>,
    /// How to reach the Hugging Face hub.
    pub hugging_face: HuggingFaceConfig,
    /// Where Ollama keeps models, and its registry.
    pub ollama: OllamaConfig,
    /// How long a source is waited for.
    pub patience: Patience,
    /// How large files are fetched.
    pub transfers: Transfers,
    /// Whether nothing may be fetched at all: `HF_HUB_OFFLINE`.
    pub offline: bool,
}

/// How large files are fetched.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Transfers {
    /// Connections at once: `ROPEWAY_PULL_CONNECTIONS`, else 8.
    pub connections: usize,
    /// Bytes that a connection asks for at once.
    pub piece: u64,
}

impl Default for Transfers {
    fn default() -> Transfers {
        Transfers { connections: CONNECTIONS, piece: PIECE }
    }
}

impl Transfers {
    fn parse(text: Option<&str>) -> Result<Transfers, HubError> {
        let Some(text) = text else { return Ok(Transfers::default()) };
        let number = text.trim().parse().ok().filter(|number| (1..=MOST_CONNECTIONS).contains(number));
        number.map(|connections| Transfers { connections, piece: PIECE }).ok_or_else(|| {
            HubError::BadVariable {
                variable: "ROPEWAY_PULL_CONNECTIONS",
                value: text.into(),
                expected: "a number of connections from 1 to 32",
            }
        })
    }
}

/// How long a source is waited for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Patience {
    /// Until it can be spoken to.
    pub connect: Duration,
    /// While it says nothing: `ROPEWAY_PULL_TIMEOUT`, else 30 seconds.
    pub silence: Duration,
}

impl Patience {
    /// Waits for so long while nothing comes.
    pub fn of(silence: Duration) -> Patience {
        Patience { connect: silence.min(CONNECT), silence }
    }

    fn parse(text: Option<&str>) -> Result<Patience, HubError> {
        let Some(text) = text else { return Ok(Patience::of(SILENCE)) };
        let seconds = text.trim().parse().ok().filter(|seconds| (1..=LONGEST_SILENCE).contains(seconds));
        seconds.map(|seconds| Patience::of(Duration::from_secs(seconds))).ok_or_else(|| {
            HubError::BadVariable {
                variable: "ROPEWAY_PULL_TIMEOUT",
                value: text.into(),
                expected: "a number of seconds from 1 to 86400",
            }
        })
    }
}

/// How to reach the Hugging Face hub, with the variables its own tools use.
#[derive(Debug, Clone)]
pub struct HuggingFaceConfig {
    /// The shared download cache: `HF_HUB_CACHE`, else `$HF_HOME/hub`, else `~/.cache/huggingface/hub`.
    pub cache: PathBuf,
    /// The server: `HF_ENDPOINT`, else the public hub.
    pub endpoint: String,
    /// The access token: `HF_TOKEN`, else the one saved by the hub's login command.
    pub token: Option<Token>,
}

/// Where Ollama keeps models, and its registry.
#[derive(Debug, Clone)]
pub struct OllamaConfig {
    /// Its store: `OLLAMA_MODELS`, else `~/.ollama/models`. It is read, never written.
    pub models: PathBuf,
    /// Its registry: `ROPEWAY_OLLAMA_REGISTRY`, else the public one.
    pub registry: String,
}

/// An access token; never printed.
#[derive(Clone)]
pub struct Token(String);

impl Config {
    /// Reads the environment.
    pub fn from_env() -> Result<Config, HubError> {
        Ok(Config {
            home: folder("ROPEWAY_HOME", ".cache/ropeway")?,
            pythons: pythons(set("ROPEWAY_PYTHON")),
            hugging_face: HuggingFaceConfig::from_env()?,
            ollama: OllamaConfig {
                models: folder("OLLAMA_MODELS", ".ollama/models")?,
                registry: address("ROPEWAY_OLLAMA_REGISTRY", DEFAULT_REGISTRY),
            },
            patience: Patience::parse(text("ROPEWAY_PULL_TIMEOUT").as_deref())?,
            transfers: Transfers::parse(text("ROPEWAY_PULL_CONNECTIONS").as_deref())?,
            offline: text("HF_HUB_OFFLINE").is_some_and(|text| is_yes(&text)),
        })
    }
}

impl HuggingFaceConfig {
    fn from_env() -> Result<HuggingFaceConfig, HubError> {
        let home = folder("HF_HOME", ".cache/huggingface")?;
        let token = set("HF_TOKEN").and_then(|token| token.into_string().ok());
        let saved = || std::fs::read_to_string(home.join("token")).ok();
        Ok(HuggingFaceConfig {
            endpoint: address("HF_ENDPOINT", DEFAULT_ENDPOINT),
            token: token.or_else(saved).map(Token::new).filter(|token| !token.secret().is_empty()),
            cache: match set("HF_HUB_CACHE") {
                Some(_) => folder("HF_HUB_CACHE", "")?,
                None => home.join("hub"),
            },
        })
    }
}

impl Token {
    /// Wraps a token, without the white space around it.
    pub fn new(text: impl AsRef<str>) -> Token {
        Token(text.as_ref().trim().to_owned())
    }

    pub(crate) fn secret(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token(…)")
    }
}

/// A variable that is set and not empty.
fn set(variable: &str) -> Option<OsString> {
    env::var_os(variable).filter(|value| !value.is_empty())
}

fn text(variable: &str) -> Option<String> {
    set(variable).map(|text| text.to_string_lossy().into_owned())
}

/// What the Hugging Face tools take for yes.
fn is_yes(text: &str) -> bool {
    ["1", "on", "yes", "true"].iter().any(|yes| text.trim().eq_ignore_ascii_case(yes))
}

/// A server's address, without a final slash.
fn address(variable: &str, usual: &str) -> String {
    text(variable).unwrap_or_else(|| usual.into()).trim_end_matches('/').to_owned()
}

/// The folder a variable names, else one below the user's home; absolute, so that a later change of the working
/// directory does not move it.
fn folder(variable: &'static str, below_home: &str) -> Result<PathBuf, HubError> {
    let path = match set(variable) {
        Some(path) => PathBuf::from(path),
        None => env::home_dir().ok_or(HubError::NoHome { variable })?.join(below_home),
    };
    std::path::absolute(&path).map_err(HubError::io("use the folder", &path))
}

fn pythons(chosen: Option<OsString>) -> Vec<PathBuf> {
    match chosen {
        Some(python) => vec![python.into()],
        None => vec!["python3".into(), "python".into()],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_not_printed() {
        assert!(!format!("{:?}", Token::new("hf_secret")).contains("secret"));
    }

    #[test]
    fn patience_is_a_number_of_seconds() {
        let silence = |text| Patience::parse(text).map(|patience| patience.silence);
        assert_eq!(silence(None).unwrap(), SILENCE);
        assert_eq!(silence(Some(" 5 ")).unwrap(), Duration::from_secs(5));
        for bad in ["", "0", "-1", "5s", "1e9", "99999999"] {
            assert!(matches!(silence(Some(bad)), Err(HubError::BadVariable { .. })), "{bad}");
        }
        assert_eq!(Patience::of(Duration::from_secs(60)).connect, CONNECT);
    }

    #[test]
    fn connections_are_a_number_and_yes_is_what_the_hub_s_own_tools_take_for_it() {
        let connections = |text| Transfers::parse(text).map(|transfers| transfers.connections);
        assert_eq!((connections(None).unwrap(), connections(Some("3")).unwrap()), (CONNECTIONS, 3));
        for bad in ["0", "33", "many", ""] {
            assert!(matches!(connections(Some(bad)), Err(HubError::BadVariable { .. })), "{bad}");
        }
        assert!(["1", "ON", "yes", "True"].into_iter().all(is_yes));
        assert!(!["0", "off", "", "no"].into_iter().any(is_yes));
    }

    #[test]
    fn a_chosen_python_is_the_only_one_tried() {
        assert_eq!(pythons(Some("/opt/py".into())), [PathBuf::from("/opt/py")]);
        assert_eq!(pythons(None).len(), 2);
    }
}
